#!/usr/bin/env python3
"""Does the simulation notice bugs? Applies each mutation of crates/sim/mutations to a copy of the
sources, builds it apart, plays seeds until one fails, and prints which checker noticed, and when.

    ./sim mutants                all of them
    ./sim mutants NAME...        those whose names contain one of these words
    ./sim mutants --runs 20000   so many seeds at most (10000)
    ./sim mutants --resume       without those that were played with these sources already
    ./sim mutants --check        whether each still applies, and none is missed that was noticed
                                 before; nothing is built
    ./sim mutants --import LOG --commit COMMIT
                                 keeps what a run of that commit printed
    ./sim mutants --at-random N  N more, made by chance from the sources of the decisions: a line
                                 is left out or a condition turned round, by --seed (1)

What no seed notices goes through the tests of the decisions: `tests` in the table is `cargo test`.
The exit code says how many were not noticed at all. A mutation named `equal-...` changes nothing
that anybody could see, and is expected not to be.

What was seen is kept in crates/sim/mutations/noticed.json: for each mutation who noticed it last,
in which run, and with the sources of which commit. So a whole run can be made in pieces.
"""
import argparse
import json
import os
import random
import re
import resource
import shutil
import signal
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
MUTATIONS = ROOT / "crates/sim/mutations"
RECORD = MUTATIONS / "noticed.json"
COPY = ROOT / "target/mutants"
ORIGINAL = ROOT / "target/mutants-original"
# Seeds are played in pieces of so many. One that takes a processor for longer than the limit (ten
# times what it takes without a mistake, at least) has noticed a mistake that never comes to rest.
PIECE = 500
LIMIT_SECONDS = 120


def keep_original():
    """The sources as they are now: all mutations are of these, whatever is edited meanwhile."""
    shutil.rmtree(ORIGINAL, ignore_errors=True)
    ORIGINAL.mkdir(parents=True)
    for name in ("Cargo.toml", "Cargo.lock"):
        shutil.copy(ROOT / name, ORIGINAL / name)
    for name in ("crates", "docs"):
        shutil.copytree(ROOT / name, ORIGINAL / name)


def fresh_copy():
    """The original sources, beside the build of the last mutation."""
    for path in (COPY / "crates").rglob("*"):
        if path.is_file() and not (ORIGINAL / path.relative_to(COPY)).exists():
            path.unlink()
    for path in ORIGINAL.rglob("*"):
        if path.is_file():
            copy(path, COPY / path.relative_to(ORIGINAL))


def copy(source, target):
    """Only what differs: a newer time would have it built anew."""
    data = source.read_bytes()
    if not target.exists() or target.read_bytes() != data:
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(data)


def build():
    command = ["cargo", "build", "--quiet", "--locked", "-p", "howdah-sim"]
    return subprocess.run(
        command, cwd=COPY, env=environment(), capture_output=True, text=True, check=False
    )


def environment():
    return {**os.environ, "CARGO_TARGET_DIR": str(COPY / "target")}


def limit_processor():
    resource.setrlimit(resource.RLIMIT_CPU, (LIMIT_SECONDS, LIMIT_SECONDS + 1))


def play(runs):
    """The checker that noticed and after how many runs, or None."""
    binary = COPY / "target/debug/howdah-sim"
    for first in range(1, runs + 1, PIECE):
        piece = min(PIECE, runs + 1 - first)
        command = [binary, "--seed", str(first), "--runs", str(piece), "--json", "--brief"]
        ran = subprocess.run(
            command, capture_output=True, text=True, check=False, preexec_fn=limit_processor
        )
        lines = [line for line in ran.stdout.splitlines() if line.startswith("{")]
        if not lines:
            how = "time" if ran.returncode in (-signal.SIGXCPU, -signal.SIGKILL) else "crash"
            return how, f"<{first + piece}"
        result = json.loads(lines[-1])
        if result["failures"]:
            return result["failures"][0]["checker"], first - 1 + result["runs"]
    return None


def test():
    """Whether the tests of the decisions notice what no seed has."""
    def cargo(*words):
        command = ["cargo", "test", "--quiet", "--locked", "-p", "howdah-pooler", *words]
        return subprocess.run(
            command, cwd=COPY, env=environment(), capture_output=True, text=True, check=False
        )
    built = cargo("--no-run")
    if built.returncode:
        sys.exit(f"the tests are not built:\n{built.stderr}")
    return ("tests", "") if cargo().returncode else None


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


def write_page():
    """docs/proof.md shows what the record says."""
    subprocess.run([ROOT / "prove", "--page"], cwd=ROOT, check=False)


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


def read_log(text, names):
    """The mutations and outcomes that a run printed; others than of these names are passed over."""
    row = re.compile(r"^(\S+) +(NOT NOTICED|NOT BUILT|OUTDATED|\S+)(?: +(<?\d+))?(?: |$)", re.M)
    for name, checker, runs in row.findall(text):
        if name in names and checker not in ("NOT BUILT", "OUTDATED"):
            yield name, None if checker == "NOT NOTICED" else (checker, runs)


def import_log(options):
    """Fills the record from what a run printed."""
    commit = options.commit and git("rev-parse", "--short", options.commit)
    if not commit:
        sys.exit("--import needs --commit COMMIT: that of the sources that were played")
    record, names, many = load_record(), {patch.stem for patch in patches([])}, 0
    for name, outcome in read_log(Path(options.imported).read_text(), names):
        note(record, name, outcome, options.runs, commit)
        many += 1
    save_record(record)
    write_page()
    print(f"{many} mutations of {commit}")


def played(record):
    """Names of the mutations that the record has of these very sources."""
    changed = {}
    for name, seen in record.items():
        commit = seen.get("missed_by", seen["commit"])
        if commit not in changed:
            paths = git("diff", "--name-only", commit, "--", "crates", "Cargo.lock", "Cargo.toml")
            changed[commit] = None if paths is None else set(paths.split("\n")) - {""}
        paths = changed[commit]
        if paths is None:
            continue
        own = str((MUTATIONS / f"{name}.patch").relative_to(ROOT))
        here = str(MUTATIONS.relative_to(ROOT))
        others = {path for path in paths if not path.startswith(here)}
        if own not in paths and not others - {"crates/sim/mutants.py"}:
            yield name


def patches(words):
    for patch in sorted(MUTATIONS.glob("*.patch")):
        if not words or any(word in patch.stem for word in words):
            yield patch


def apply(patch):
    """Applies a patch where it says, or else where what it changes has moved to. Returns the files
    that it changes."""
    if apply_here(patch):
        return [COPY / path for path in re.findall(r"^\+\+\+ b/(\S+)$", patch, re.M)]
    named = re.search(r"^\+\+\+ b/(\S+)$", patch, re.M)[1]
    crate = "/".join(named.split("/")[:3])
    for path in sorted((COPY / crate).rglob("*.rs")):
        elsewhere = patch.replace(named, str(path.relative_to(COPY)))
        # A patch that only adds fits in anywhere that looks alike.
        if re.search(r"^-(?!--)", patch, re.M) and apply_here(elsewhere):
            return [path]
    return []


def apply_here(patch):
    command = ["git", "apply", "-C1", "--unsafe-paths", f"--directory={COPY}", "-"]
    ran = subprocess.run(
        command, cwd="/", input=patch, capture_output=True, text=True, check=False
    )
    return ran.returncode == 0


def check_patches(options):
    """Whether each fits the sources: one that does not says nothing of the simulation. And whether
    all that was noticed once still is, by the record."""
    fresh_copy()
    missed, names = 0, set()
    for patch in patches(options.words):
        names.add(patch.stem)
        changed = apply(patch.read_text())
        for path in changed:
            copy(ORIGINAL / path.relative_to(COPY), path)
        if not changed:
            print(f"OUTDATED  {patch.stem}", flush=True)
            missed += 1
    record = load_record()
    if options.words:
        record = {name: record[name] for name in names & set(record)}
    for line in complaints(record, names):
        print(line, flush=True)
        missed += 1
    unplayed = sorted(names - set(record))
    print(f"{len(names)} mutations, {len(unplayed)} of them never played"
          + (f": {', '.join(unplayed)}" if 0 < len(unplayed) < 9 else ""))
    return missed


def run_patches(options):
    missed, record, commit = 0, load_record(), git("rev-parse", "--short", "HEAD")
    changed = git("diff", "--name-only", "HEAD", "--", "crates", ":!crates/sim/mutations")
    if changed != "":
        commit = None  # What these sources are, no record could say.
    done = set(played(record)) if options.resume and commit else set()
    for patch in patches(options.words):
        if patch.stem in done:
            continue
        fresh_copy()
        if not apply(patch.read_text()):
            tell(patch.stem, ("OUTDATED", ""))
            missed += 1
            continue
        built = build()
        if built.returncode:
            errors = [line for line in built.stderr.splitlines() if line.startswith("error")]
            tell(patch.stem, ("NOT BUILT", ""), errors[0] if errors else "")
            missed += 1
            continue
        outcome = play(options.runs) or test()
        tell(patch.stem, outcome)
        if commit:
            note(record, patch.stem, outcome, options.runs, commit)
            save_record(record)
        missed += (outcome is None) != is_equal(patch.stem)
    if commit:
        write_page()
    return missed


# What the console shows, and what reads files, is not what the simulation is about.
CHANCE = [
    "pool/mod.rs", "pool/checkout.rs", "pool/waiting.rs", "pool/growth.rs", "pool/lending.rs",
    "pool/failure.rs", "pool/eviction.rs", "broker.rs", "janitor.rs", "deadlines.rs", "reload.rs",
    "orders.rs", "cancel/mod.rs", "cancel/carrier.rs", "next.rs", "ledger/mod.rs",
    "statement/interner.rs", "statement/set.rs", "params.rs", "client/close.rs", "link/traffic.rs", "link/pressure.rs",
    "link/assign.rs", "link/release.rs", "link/upstream.rs", "link/downstream.rs",
    "link/prepare.rs", "server/connect.rs", "server/task.rs", "server/parcel.rs",
]
STATEMENT = re.compile(r"^\s+(self\.|server\.|client\.|pool\.|out\.|inbox\.|\*?\w+ [-+|]?= ).*;$")
CONDITION = re.compile(r"^(\s+)if (?!let|.*\blet\b)(.+) \{$")


def by_chance(chance):
    """A mutation of one line: the file, the line, and what becomes of it."""
    while True:
        path = COPY / "crates/pooler/src" / chance.choice(CHANCE)
        lines = path.read_text().split("\n")
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
        path.write_text("\n".join(lines))
        return f"{path.relative_to(COPY / 'crates/pooler/src')}:{at + 1} {line.strip()}"


def run_at_random(options):
    chance, done, missed = random.Random(options.seed), 0, 0
    while done < options.at_random:
        fresh_copy()
        what = by_chance(chance)
        if build().returncode:
            continue
        done += 1
        outcome = play(options.runs) or test()
        tell(f"by chance {done}", outcome, what)
        missed += outcome is None
    return missed


def main():
    parser = argparse.ArgumentParser(prog="./sim mutants", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("words", nargs="*", metavar="NAME")
    parser.add_argument("--runs", type=int, default=10000)
    parser.add_argument("--at-random", type=int, default=0, metavar="N")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--resume", action="store_true")
    parser.add_argument("--import", dest="imported", metavar="LOG")
    parser.add_argument("--commit")
    options = parser.parse_args()
    if options.imported:
        return import_log(options)
    if not options.check and shutil.which("cargo") is None:
        sys.exit("cargo is needed")
    keep_original()
    if options.check:
        sys.exit(min(check_patches(options), 100))
    print(f"{'mutation':<44} {'noticed by':<12} {'runs':>6}")
    if options.at_random:
        sys.exit(min(run_at_random(options), 100))
    sys.exit(min(run_patches(options), 100))


if __name__ == "__main__":
    main()
