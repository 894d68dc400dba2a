#!/usr/bin/env python3
"""Does the simulation notice bugs? Puts each mutation of crates/sim/mutations into a copy of the
sources, plays seeds until one fails, and prints which checker noticed, and when.

    ./prove mutants                those that were not played with these sources yet
    ./prove mutants NAME...        those whose names contain one of these words
    ./prove mutants --runs 20000   so many seeds at most (10000)
    ./prove mutants --jobs N       so many mutations at once (as many as there are processors)
    ./prove mutants --resume       without those that were played with these sources already
    ./prove mutants --check        whether each still applies, and none is missed that was noticed
                                   before; nothing is built
    ./prove mutants --at-random N  N more, made by chance from the sources of the decisions: a line
                                   is left out or a condition turned round, by --seed (1)

One build holds all of them, woven into its functions (weave.py); HOWDAH_MUTANT says which one is
played. What can't be woven in is built and played alone at the end. So the table is in the order
in which they were noticed.

What no seed notices goes through the tests of the decisions: `tests` in the table is `cargo test`.
The exit code says how many were not noticed at all. A mutation named `equal-...` changes nothing
that anybody could see, and is expected not to be.

What was seen is kept in crates/sim/mutations/noticed.json: for each mutation who noticed it last,
in which run, and with the sources of which commit. So a whole run can be made in pieces. The last
line counts what is kept there.
"""
import argparse
import json
import os
import random
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path

import trial
import weave
from trial import NOT_BUILT, ORIGINAL, ROOT

MUTATIONS = ROOT / "crates/sim/mutations"
RECORD = MUTATIONS / "noticed.json"


def tell(name, outcome, what=""):
    checker, runs = outcome or ("NOT NOTICED", "")
    print(f"{name:<44} {checker:<12} {runs!s:>6}  {what}", flush=True)


def git(*words):
    ran = subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True, check=False)
    return ran.stdout.strip() if ran.returncode == 0 else None


def load_record():
    """What was seen of each mutation, by its name."""
    return json.loads(RECORD.read_text()) if RECORD.exists() else {}


def save_record(record):
    text = ",\n".join(f" {json.dumps(name)}: {json.dumps(record[name])}" for name in sorted(record))
    RECORD.write_text("{\n" + text + "\n}\n")


def is_equal(name):
    return name.startswith("equal-")


def note(record, name, outcome, limit, commit):
    """Keeps what came of a mutation of which at most `limit` seeds were played. What was noticed
    before stays known when it is missed, unless fewer seeds were played than it took then."""
    if outcome:
        checker, runs = outcome
        record[name] = {"checker": checker, "runs": str(runs), "commit": commit}
        return
    before = record.get(name, {})
    took = re.sub(r"\D", "", before.get("runs", "")) or "0"
    if "checker" not in before:
        record[name] = {"missed": limit, "commit": commit}
    elif int(took) <= limit:
        record[name] = {**before, "missed": limit, "missed_by": commit}


def complaints(record, names):
    """What is wrong with a record, a line each."""
    for name, seen in sorted(record.items()):
        if name not in names:
            yield f"LOST      {name}: noticed before, and there is no such mutation any more"
        elif is_equal(name) and "checker" in seen:
            yield f"NOTICED   {name}: {seen['checker']}, though it changes nothing"
        elif not is_equal(name) and "missed" in seen:
            before = f", which {seen['checker']} noticed before" if "checker" in seen else ""
            by = seen.get("missed_by", seen["commit"])
            yield f"MISSED    {name}{before}: {seen['missed']} seeds of {by}"


def figures(record):
    """How many mutations were noticed, and by what."""
    by = [seen.get("checker", "") for seen in record.values()]
    return {
        "mutations": len(by), "of": len(list(MUTATIONS.glob("*.patch"))),
        "seeds": sum(checker not in ("", "tests") for checker in by),
        "tests": by.count("tests"),
        "missed": sorted(name for name in record if "missed" in record[name] and not is_equal(name)),
        "commits": len({seen.get("missed_by", seen["commit"]) for seen in record.values()}),
    }


def changed_sources(commit):
    """The files that are not as in a commit and could change an outcome; None if it is unknown."""
    paths = git("diff", "--name-only", commit, "--", "crates", "Cargo.lock", "Cargo.toml")
    if paths is None:
        return None
    of_tools = re.compile(r"crates/sim/(\w+\.py|mutations/noticed\.json)")
    return {path for path in paths.split() if not of_tools.fullmatch(path)}


def played(record):
    """Names of the mutations that the record has of these very sources."""
    changed = {}
    here = str(MUTATIONS.relative_to(ROOT))
    for name, seen in record.items():
        commit = seen.get("missed_by", seen["commit"])
        if commit not in changed:
            changed[commit] = changed_sources(commit)
        paths = changed[commit]
        if paths is None or f"{here}/{name}.patch" in paths:
            continue
        if all(path.startswith(f"{here}/") for path in paths):
            yield name


def mutated(patch):
    """The files that a patch changes as it makes them, {path: text}: none if it fits neither where
    it says nor where what it changes has moved to."""
    for moved in places(patch):
        paths = [ORIGINAL / path for path in re.findall(r"^\+\+\+ b/(\S+)$", moved, re.M)]
        before = {path: path.read_bytes() for path in paths if path.exists()}
        if apply(moved):
            files = {str(path.relative_to(ORIGINAL)): path.read_text() for path in paths}
            for path, data in before.items():
                path.write_bytes(data)
            return files
    return {}


def places(patch):
    """The patch as it is, and for every other file of the crate."""
    yield patch
    # One that only adds fits in anywhere that looks alike.
    if re.search(r"^-(?!--)", patch, re.M):
        named = re.search(r"^\+\+\+ b/(\S+)$", patch, re.M)[1]
        for path in sorted((ORIGINAL / weave.crate_of(named)).rglob("*.rs")):
            yield patch.replace(named, str(path.relative_to(ORIGINAL)))


def apply(patch):
    command = ["git", "apply", "-C1", "--unsafe-paths", f"--directory={ORIGINAL}", "-"]
    ran = subprocess.run(
        command, cwd="/", input=patch, capture_output=True, text=True, check=False
    )
    return ran.returncode == 0


def mutations():
    """The files of each mutation that fits, and the names of those that don't."""
    files = {patch.stem: mutated(patch.read_text()) for patch in sorted(MUTATIONS.glob("*.patch"))}
    return ({name: of_one for name, of_one in files.items() if of_one},
            [name for name, of_one in files.items() if not of_one])


def chosen(names, words):
    return [name for name in names if not words or any(word in name for word in words)]


def check_patches(options):
    """Whether each fits the sources: one that does not says nothing of the simulation. And whether
    all that was noticed once still is, by the record."""
    fitting, outdated = (chosen(names, options.words) for names in mutations())
    names = {*fitting, *outdated}
    record = load_record()
    if options.words:
        record = {name: record[name] for name in names & set(record)}
    wrong = [f"OUTDATED  {name}" for name in outdated] + list(complaints(record, names))
    for line in wrong:
        print(line)
    unplayed = sorted(names - set(record))
    print(f"{len(names)} mutations, {len(unplayed)} of them never played"
          + (f": {', '.join(unplayed)}" if 0 < len(unplayed) < 9 else ""))
    return len(wrong)


def run_patches(options):
    record, commit = load_record(), git("rev-parse", "--short", "HEAD")
    changed = changed_sources("HEAD")
    if changed is None or not all(path.endswith(".patch") for path in changed):
        commit = None  # What these sources are, no record could say.
    done = set(played(record)) if options.resume and commit else set()
    fitting, outdated = mutations()
    for name in chosen(outdated, options.words):
        tell(name, ("OUTDATED", ""))
    missed = len(chosen(outdated, options.words))
    # Those that this run does not play count as they were.
    missed += sum("missed" in record[name] and not is_equal(name) for name in done & set(record))
    wanted = [name for name in chosen(fitting, options.words) if name not in done]
    for name, outcome in outcomes(fitting, wanted, options):
        if outcome and outcome[0] == NOT_BUILT:
            tell(name, (NOT_BUILT, ""), outcome[1])
            missed += 1
            continue
        tell(name, outcome)
        if commit:
            note(record, name, outcome, options.runs, commit)
            save_record(record)
        missed += (outcome is None) != is_equal(name)
    return missed


def outcomes(fitting, wanted, options):
    """Names and outcomes: first of those that one build holds, then of those that need their own."""
    ended = set()
    # Whatever is wanted, the build holds all: so the next run has the same.
    for name, outcome in trial.outcomes(fitting, wanted, options.runs, options.jobs):
        ended.add(name)
        yield name, outcome
    for name in wanted:
        if name not in ended:
            yield name, trial.alone(fitting[name], options.runs)


# What the console shows, and what reads files, is not what the simulation is about.
CHANCE = [
    "pool/mod.rs", "pool/checkout.rs", "pool/waiting.rs", "pool/growth.rs", "pool/lending.rs",
    "pool/failure.rs", "pool/eviction.rs", "broker.rs", "janitor.rs", "deadlines.rs", "timeouts.rs",
    "reload.rs", "orders.rs", "cancel/mod.rs", "cancel/send.rs", "cancel/carrier.rs", "next.rs",
    "pool/fail.rs", "link/ends.rs", "ledger/mod.rs", "statement/interner.rs", "statement/set.rs", "params.rs", "client/close.rs",
    "link/traffic.rs", "link/resume.rs", "link/pause.rs", "link/pressure.rs", "link/ahead.rs",
    "link/assign.rs", "link/aligned.rs", "link/release.rs", "link/upstream.rs",
    "link/downstream.rs", "link/prepare.rs", "server/connect.rs", "server/close.rs",
    "server/lost.rs", "server/rest.rs", "server/task.rs", "server/travel.rs", "server/parcel.rs",
]
STATEMENT = re.compile(r"^\s+(self\.|server\.|client\.|pool\.|out\.|inbox\.|\*?\w+ [-+|]?= ).*;$")
CONDITION = re.compile(r"^(\s+)if (?!let|.*\blet\b)(.+) \{$")


def by_chance(chance):
    """A mutation of one line: which, with what stood there, and the file as it becomes."""
    while True:
        path = "crates/pooler/src/" + chance.choice(CHANCE)
        lines = trial.original(path).split("\n")
        end = next((n for n, line in enumerate(lines) if line.startswith("#[cfg(test)]")), len(lines))
        at = chance.randrange(end)
        line = lines[at]
        condition = CONDITION.match(line)
        if condition:
            lines[at] = f"{condition[1]}if !({condition[2]}) {{"
        elif STATEMENT.match(line) and "stats" not in line and "note" not in line:
            lines[at] = ""
        else:
            continue
        return f"{path}:{at + 1} {line.strip()}", {path: "\n".join(lines)}


def run_at_random(options):
    """Those that do not compile are none: others are made in their place."""
    chance, done, missed = random.Random(options.seed), 0, 0
    while done < options.at_random:
        made = dict(by_chance(chance) for _ in range(options.at_random - done))
        for what, outcome in trial.outcomes(made, made, options.runs, options.jobs):
            done += 1
            tell(f"by chance {done}", outcome, what)
            missed += outcome is None
    return missed


def main():
    parser = argparse.ArgumentParser(prog="./prove mutants", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("words", nargs="*", metavar="NAME")
    parser.add_argument("--runs", type=int, default=10000)
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    parser.add_argument("--at-random", type=int, default=0, metavar="N")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--resume", action="store_true")
    options = parser.parse_args()
    if not options.check and shutil.which("cargo") is None:
        sys.exit("cargo is needed")
    began = time.monotonic()
    trial.keep_original()
    if options.check:
        wrong = check_patches(options)
    else:
        print(f"{'mutation':<44} {'noticed by':<12} {'runs':>6}")
        wrong = (run_at_random if options.at_random else run_patches)(options)
    print(json.dumps({"machine": "mutants", "ok": not wrong, **figures(load_record()),
                      "seconds": round(time.monotonic() - began)}))
    sys.exit(min(wrong, 100))


if __name__ == "__main__":
    main()
