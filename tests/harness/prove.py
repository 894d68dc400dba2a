"""The machines that look for mistakes: runs them, keeps what they said, and writes docs/proof.md.

A record is what a machine printed of its own, not what somebody made of it."""

import datetime
import json
import os
import re
import subprocess
import sys
from typing import Callable, NamedTuple

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
RECORDS = os.path.join(ROOT, "docs", "proof.json")
MUTATIONS = os.path.join(ROOT, "crates", "sim", "mutations", "noticed.json")
PAGE = os.path.join(ROOT, "docs", "proof.md")
BEGIN, END = "<!-- ./prove writes from here -->\n", "<!-- to here -->\n"


def last(pattern):
    """The last line that matches, as it is."""
    def read(output):
        lines = [line.strip() for line in output.splitlines() if re.search(pattern, line)]
        return lines[-1].strip("= ") if lines else ""
    return read


def counted(output):
    """Sums over the tables of the self-checking load."""
    row = re.compile(r"^\S+ +(\d+) +\d+ +(\d+) +(\d+) +(\d+)(?:  <--)?$", re.M)
    rows = [[int(value) for value in found] for found in row.findall(output)]
    operations, wrong, unexpected, hangs = map(sum, zip(*rows)) if rows else (0, 0, 0, 0)
    return f"{operations} operations: {wrong} wrong, {unexpected} unexpected, {hangs} hangs"


def noticed(output):
    """How many mutations were noticed, and by what."""
    row = re.compile(r"^(\S+) +(NOT NOTICED|\S+) +(\d*)\s*$", re.M)
    rows = [found for found in row.findall(output) if found[0] != "mutation"]
    tests = sum(by == "tests" for _, by, _ in rows)
    silent = [name for name, by, _ in rows if by == "NOT NOTICED"]
    # Those change nothing that anybody could see.
    missed = [name for name in silent if not name.startswith("equal-")]
    said = f"{len(rows)} mutations: seeds noticed {len(rows) - tests - len(silent)}, tests {tests}"
    return said + (f"; NOT NOTICED: {', '.join(missed)}" if missed else "")


def seen_of_mutations():
    """The row of the mutations, which are played in pieces: what mutants.py has kept of each."""
    with open(MUTATIONS) as file:
        record = json.load(file)
    by = [seen.get("checker") for seen in record.values()]
    seeds = sum(checker not in (None, "tests") for checker in by)
    equal = [name for name in record if name.startswith("equal-")]
    missed = sorted(name for name in record if "missed" in record[name] and name not in equal)
    commits = sorted({seen.get("missed_by", seen["commit"]) for seen in record.values()})
    there = len([name for name in os.listdir(os.path.dirname(MUTATIONS)) if name.endswith(".patch")])
    said = (f"{len(record)} of {there} mutations: seeds noticed {seeds}, tests {by.count('tests')}"
            + (f"; NOT NOTICED: {', '.join(missed)}" if missed else ""))
    return f"{', '.join(commits)}: `./sim mutants --resume`", said


def cells(output):
    """Cells of virtual cores, and the steps in load."""
    row = re.compile(r"^.{18} +\d+ +\d+ +\d+ +\d+ +(\d\.\d+) +(\d\.\d+) .*?( MISS)?$", re.M)
    rows = row.findall(output)
    steps = re.findall(r"^a step in load, .*: wide after (\d+) ms;.*?( MISS)?$", output, re.M)
    missed = sum(bool(found[-1]) for found in rows + steps)
    least = min((float(part) for part, _, _ in rows), default=0)
    of_fixed = min((float(part) for _, part, _ in rows), default=0)
    slowest = max((int(millis) for millis, _ in steps), default=0)
    return (f"{len(rows)} cells: at least {least:.2f} of the bound and {of_fixed:.2f} of a fixed "
            f"division; {len(steps)} steps in load: wide after {slowest} ms; {missed} missed")


def instructions(output):
    """Of each row of the decisions."""
    rows = re.findall(r"^([a-z0-9-]+) +(\d+) +\d+ +\d+ +\d+$", output, re.M)
    return ", ".join(f"{row} {count}" for row, count in rows)


def grown(output):
    """Inputs, and the one that grows fastest."""
    rows = re.findall(r"^([a-z0-9-]+) +\d+ +\d+ +(\d+\.\d+)$", output, re.M)
    most = max((float(times), name) for name, times in rows)
    return f"{len(rows)} inputs, at most {most[0]:.2f} times ({most[1]})"


def fuzzed(output):
    """Runs of each target."""
    pairs = re.findall(r"^== (\w+)\n(?:.*\n)*?.*number_of_executed_units: (\d+)", output, re.M)
    return ", ".join(f"{name} {runs}" for name, runs in pairs)


class Machine(NamedTuple):
    """One of them."""
    name: str
    what: str
    command: list
    options: list
    read: Callable


MACHINES = [
    Machine("simulation", "the production code from the driver up, under delays, cuts, restarts, "
            "cancels, moves and orders: replies against a reference, limits, order, what is left",
            ["./sim"], ["--runs", "3000"], last(r"^\d+ runs, \d+ statements")),
    Machine("cores", "do the rules use all of 1 to 16 virtual cores, which take time for their work, "
            "and follow a step in load? (docs/workers.md has more cells)", ["./sim", "cores"],
            ["--layout", "0,1,2,3", "--cores", "1,2,4,8,16", "--seconds", "14"], cells),
    Machine("mutants", "would the simulation notice? mistakes put into the sources one at a time",
            ["./sim", "mutants"], [], noticed),
    Machine("transparent", "a client can't tell Howdah from PostgreSQL: scripts, in transaction and "
            "session mode, 1 and 3 workers, both drivers, whole, byte by byte and cut at random; and "
            "with servers in turn and disturbers between",
            ["target/python/bin/pytest", "-q", "tests/test_transparent.py",
             "tests/test_in_turn.py"], ["--long"],
            last(r"\d+ (passed|failed)")),
    Machine("generated", "the same for messages nobody thought of: generated scripts, cut at random",
            ["target/python/bin/pytest", "-q", "tests/test_generated.py"], ["--seeds", "2000"],
            last(r"\d+ (passed|failed)")),
    Machine("hidden", "nothing that a text hides is left for the next client: generated disguises, "
            "with PostgreSQL as the judge",
            ["target/python/bin/pytest", "-q", "tests/test_hidden.py"],
            ["--texts", "20000", "--driver", "epoll"], last(r"\d+ (passed|failed)")),
    Machine("load", "wrong, late or lost answers: every reply of hundreds of clients is checked, "
            "with one, two and four workers, on both drivers, and with clients that move",
            ["./load", "all"], ["--minutes", "2", "--clients", "100"], counted),
    Machine("regress", "PostgreSQL's own regression suite through a transaction pool, with servers "
            "in turn and a disturber between", ["./regress"], [], last(r"tests? ends? differently")),
    Machine("faults", "what surrounds it fails: PostgreSQL killed, stopped, full; the network slow, "
            "cut; descriptors, memory and disk at their end",
            ["target/python/bin/pytest", "-q", "tests/test_faults.py"], ["--long"],
            last(r"\d+ (passed|failed)")),
    Machine("soak", "the same for long, with a fault every three seconds; memory and descriptors "
            "stay flat", ["./soak"], ["--minutes", "20"], last(r"^(No fault|Howdah failed|PROBLEM)")),
    Machine("decisions", "no row of `./bench decisions` needs over 1 % more instructions than "
            "`crates/bench/decisions.json` says (needs valgrind)", ["./bench", "decisions"],
            ["--bounds"], instructions),
    Machine("growth", "twice the input takes at most 2.5 times the instructions, of every reader and "
            "of many kinds of messages (needs valgrind)", ["./bench", "growth"], [], grown),
    Machine("fuzz", "any bytes, settings, logins, SQL: with coverage and AddressSanitizer",
            ["fuzz/run", "all"], ["60"], fuzzed),
]


def records():
    """All that is kept: the last run of each machine, by its name."""
    try:
        with open(RECORDS) as file:
            return json.load(file)
    except FileNotFoundError:
        return {}


def run(machine, options):
    """Runs a machine; its exit code."""
    words = machine.command + (options or machine.options)
    # The other machines build what they run.
    if words[0].endswith("/pytest"):
        subprocess.run(["cargo", "build", "--quiet", "--workspace", "--locked"], cwd=ROOT, check=True)
    began = datetime.datetime.now(datetime.timezone.utc)
    child = subprocess.Popen(words, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                             text=True, errors="replace")
    output = []
    for line in child.stdout:
        sys.stdout.write(line)
        output.append(line)
    code = child.wait()
    took = datetime.datetime.now(datetime.timezone.utc) - began
    all_records = records()
    all_records[machine.name] = {
        "date": began.strftime("%Y-%m-%d"),
        "commit": git("rev-parse", "--short", "HEAD"),
        "changed": bool(git("status", "--porcelain", "--untracked-files=no", "--", "crates",
                            "tests")),
        "command": shown(words),
        "seconds": round(took.total_seconds()),
        "passed": code == 0,
        "said": machine.read("".join(output)) or "nothing that could be read",
    }
    with open(RECORDS, "w") as file:
        json.dump(all_records, file, indent=1, sort_keys=True)
        file.write("\n")
    write_page()
    return code


def git(*words):
    """What git says."""
    result = subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True, check=False)
    return result.stdout.strip()


def shown(words):
    """A command as a reader would type it: folders of this machine are left out."""
    words = [os.path.basename(word) if word.startswith(("/", "target/")) else word
             for word in words]
    return " ".join(words)


def duration(seconds):
    """For people."""
    return f"{seconds} s" if seconds < 120 else f"{round(seconds / 60)} min"


def table():
    """The machines and their last runs, in Markdown."""
    lines = ["| machine | what it looks at | last run | what it said |", "|---|---|---|---|"]
    all_records, never = records(), []
    for machine in MACHINES:
        record = all_records.get(machine.name)
        if machine.name == "mutants" and os.path.exists(MUTATIONS):
            ran, said = seen_of_mutations()
        elif record:
            state = record["commit"] + (" and changes" if record["changed"] else "")
            ran = (f"{record['date']}, {state}: `{record['command']}`, "
                   f"{duration(record['seconds'])}")
            said = ("" if record["passed"] else "**FAILED** ") + record["said"]
        else:
            never.append(f"`{machine.name}`")
            continue
        lines.append(f"| `{machine.name}` | {machine.what} | {ran} | {said} |")
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


def tell():
    """The machines, for a terminal."""
    all_records = records()
    for machine in MACHINES:
        record = all_records.get(machine.name)
        if record:
            print(f"{machine.name:12} {'passed' if record['passed'] else 'FAILED'}  {record['date']} "
                  f"{record['commit']:8} {duration(record['seconds']):>7}  {record['said']}")
        else:
            print(f"{machine.name:12} never   {shown(machine.command + machine.options)}")


def main():
    arguments = sys.argv[1:]
    if not arguments:
        return tell()
    if arguments == ["--page"]:
        return write_page()
    if arguments == ["--json"]:
        return print(json.dumps(records(), indent=1, sort_keys=True))
    for machine in MACHINES:
        if machine.name == arguments[0]:
            return sys.exit(run(machine, arguments[1:]))
    names = ", ".join(machine.name for machine in MACHINES)
    return sys.exit(f"prove: there is no machine {arguments[0]!r}; there are {names}")


if __name__ == "__main__":
    main()
