"""The machines that look for mistakes: runs them, keeps their figures, and writes docs/proof.md.

    ./prove                         the machines, and their last runs on record
    ./prove MACHINE                 runs one in its long form, and puts its figures on record
    ./prove MACHINE OPTION...       runs one with other options; nothing is put on record
    ./prove --record MACHINE OPTION...
                                    the same, on record
    ./prove MACHINE --help          its options
    ./prove --page                  writes docs/proof.md anew

Whatever a machine prints for people, its last line is JSON: its name, whether it is `ok`, and its
figures. That line alone is read. docs/proof.json is the record.
"""

import datetime
import json
import os
import subprocess
import sys
from typing import NamedTuple

from . import ROOT

RECORDS = os.path.join(ROOT, "docs", "proof.json")
PAGE = os.path.join(ROOT, "docs", "proof.md")
BEGIN, END = "<!-- ./prove writes from here -->\n", "<!-- to here -->\n"
PYTHON = "target/python/bin/python"
PROCESSES = ("need_postgres", "need_python")
SIMULATION = os.path.join(os.environ.get("CARGO_TARGET_DIR", "target"), "debug", "howdah-sim")


class Machine(NamedTuple):
    """One of them. options: of its long form. needs: functions of tests/setup.sh. debug: needs
    the debug build, as `./test` does; the others build what they run."""
    name: str
    what: str
    command: list
    options: tuple = ()
    needs: tuple = ()
    debug: bool = False


def of_python(name, what, *options):
    """A program of this folder."""
    return Machine(name, what, [PYTHON, "-m", f"machines.{name}"], options, PROCESSES)


def of_tests(name, what, files, *options):
    """Process tests in their long form."""
    return Machine(name, what, [PYTHON, "-m", "pytest", "-q", "--machine", name, *files], options,
                   PROCESSES, True)


MACHINES = [
    Machine("sim", "the production code from the driver up, under delays, cuts, restarts, cancels, "
            "moves and orders: replies against a reference, limits, order, what is left",
            [SIMULATION], ("--runs", "3000"), debug=True),
    Machine("cores", "do the rules use all of 1 to 16 virtual cores, which take time for their work, "
            "and follow a step in load? (docs/workers.md has more cells)", [SIMULATION, "cores"],
            ("--layout", "0,1,2,3", "--cores", "1,2,4,8,16", "--seconds", "14"), debug=True),
    Machine("mutants", "would the simulation notice? mistakes put into the sources one at a time",
            ["python3", "crates/sim/mutants.py"], ("--resume",)),
    of_tests("transparent", "a client can't tell Howdah from PostgreSQL: scripts, in transaction and "
             "session mode, 1 and 3 workers, both drivers, whole, byte by byte and cut at random; and "
             "with servers in turn and disturbers between",
             ["tests/test_transparent.py", "tests/test_in_turn.py"], "--long", "--driver", "both"),
    of_tests("generated", "the same for messages nobody thought of: generated scripts, cut at random",
             ["tests/test_generated.py"], "--seeds", "2000"),
    of_tests("shards", "generated statements and transactions on two, three and five shards: PostgreSQL's "
             "answer for all rows in one database, or a refusal",
             ["tests/test_shard_oracle.py"], "--seeds", "500"),
    of_tests("hidden", "nothing that a text hides is left for the next client: generated disguises, "
             "with PostgreSQL as the judge",
             ["tests/test_hidden.py"], "--texts", "20000", "--driver", "epoll"),
    of_python("load", "wrong, late or lost answers: every reply of hundreds of clients is checked, "
              "with one, two and four workers, on both drivers, and with clients that move",
              "all", "--minutes", "2", "--clients", "100"),
    of_python("regress", "PostgreSQL's own regression suite through a transaction pool, with servers "
              "in turn and a disturber between"),
    of_tests("faults", "what surrounds it fails: PostgreSQL killed, stopped, full; the network slow, "
             "cut; descriptors, memory and disk at their end", ["tests/test_faults.py"], "--long"),
    of_python("soak", "the same for long, with a fault every three seconds; memory and descriptors "
              "stay flat", "--minutes", "20"),
    Machine("decisions", "no row of `./bench decisions` needs over 1 % more instructions than "
            "`crates/bench/decisions.json` says (needs valgrind)", ["./bench", "decisions"],
            ("--bounds",)),
    Machine("growth", "twice the input takes at most 2.5 times the instructions, of every reader and "
            "of many kinds of messages (needs valgrind)", ["./bench", "growth"]),
    of_python("chart", "Kubernetes takes the manifests of the Helm chart, and Howdah the configuration in them"),
    Machine("fuzz", "any bytes, settings, logins, SQL: with coverage and AddressSanitizer",
            ["python3", "-m", "machines.fuzz"]),
]


def records():
    """All that is kept: the last run of each machine, by its name."""
    with open(RECORDS) as file:
        return json.load(file)


def run(machine, options, keeps):
    """Runs a machine; its exit code. A run that says nothing at its end is a failed one."""
    setup = ["root=$PWD; . tests/setup.sh; need_build_tools", *machine.needs]
    if machine.debug:
        setup.append("cargo build --quiet --locked --workspace")
    began = datetime.datetime.now(datetime.timezone.utc)
    child = subprocess.Popen(
        ["bash", "-ec", "; ".join([*setup, 'exec "$@"']), "prove", *machine.command, *options],
        cwd=ROOT, env={**os.environ, "PYTHONPATH": "tests", "PYTHONUNBUFFERED": "1"},
        stdout=subprocess.PIPE, text=True, errors="replace")
    last = ""
    for line in child.stdout:
        sys.stdout.write(line)
        sys.stdout.flush()
        last = line
    code = child.wait()
    if last.startswith("{"):
        figures = json.loads(last)
        code = code or not figures["ok"]
    else:
        # Whoever gives wrong options, or breaks it off, says nothing of the machine.
        keeps = keeps and code not in (2, -2, 130)
        figures = {"machine": machine.name, "ok": False, "ended_with": code}
        code = code or 1
    if keeps:
        keep(machine, options, began, figures)
    return code


def keep(machine, options, began, figures):
    """Puts a run on record."""
    kept = records()
    kept[machine.name] = {
        "date": began.strftime("%Y-%m-%d"),
        "commit": git("rev-parse", "--short", "HEAD"),
        "changed": bool(git("status", "--porcelain", "--untracked-files=no", "--", "crates",
                            "tests")),
        # Folders of this machine are left out.
        "options": [os.path.basename(word) if word.startswith("/") else word for word in options],
        **figures,
    }
    del kept[machine.name]["machine"]
    with open(RECORDS, "w") as file:
        json.dump(dict(sorted(kept.items())), file, indent=1)
        file.write("\n")
    write_page()


def git(*words):
    """What git says."""
    result = subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True, check=False)
    return result.stdout.strip()


def shown(value):
    """Figures for people."""
    if isinstance(value, dict):
        return ", ".join(f"{name.replace('_', ' ')} {shown(part)}" for name, part in value.items()
                         if part not in (None, [], {}))
    if isinstance(value, list):
        return " ".join(map(shown, value))
    if isinstance(value, str):
        # A cell of a table has one short line.
        return (value.splitlines() or [""])[0][:200].replace("|", "\\|")
    return f"{value:,}"


def told(record):
    """When and of what a run was, and its figures."""
    figures = {name: f"({shown(value)})" if isinstance(value, dict) else value
               for name, value in record.items()
               if name not in ("ok", "date", "commit", "changed", "options")}
    return (f"{record['date']}, {record['commit']}{' and changes' if record['changed'] else ''}",
            ("" if record["ok"] else "**FAILED**: ") + shown(figures))


def table():
    """The machines and their last runs, in Markdown."""
    lines = ["| machine | what it looks at | last run | figures |", "|---|---|---|---|"]
    kept, never = records(), []
    for machine in MACHINES:
        if machine.name in kept:
            when, figures = told(kept[machine.name])
            command = " ".join(["./prove", machine.name, *kept[machine.name]["options"]])
            lines.append(f"| `{machine.name}` | {machine.what} | {when}: `{command}` | {figures} |")
        else:
            never.append(f"`{machine.name}`")
    if never:
        lines += ["", f"Not in the table, because no long run is on record: {', '.join(never)}."]
    return "\n".join(lines) + "\n"


def page():
    """docs/proof.md as it should be."""
    with open(PAGE) as file:
        text = file.read()
    front, rest = text.split(BEGIN, 1)
    _, behind = rest.split(END, 1)
    return front + BEGIN + table() + END + behind


def write_page():
    """Writes docs/proof.md anew."""
    text = page()
    with open(PAGE, "w") as file:
        file.write(text)


def main():
    arguments = sys.argv[1:]
    if not arguments:
        kept = records()
        for machine in MACHINES:
            last = ": ".join(told(kept[machine.name])) if machine.name in kept else "no run on record"
            print(f"{machine.name:12} {last}")
        return 0
    if arguments == ["--page"]:
        return write_page()
    if arguments[0] in ("--help", "-h"):
        return print(__doc__)
    record = arguments[0] == "--record"
    name, *options = arguments[record:] or [""]
    for machine in MACHINES:
        if machine.name == name:
            return run(machine, options or machine.options, record or not options)
    names = ", ".join(machine.name for machine in MACHINES)
    return f"prove: there is no machine {name!r}; there are {names}"


if __name__ == "__main__":
    sys.exit(main())
