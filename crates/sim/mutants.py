#!/usr/bin/env python3
"""Does the simulation notice bugs? Applies each mutation of crates/sim/mutations to a copy of the
sources, builds it apart, plays seeds until one fails, and prints which checker noticed, and when.

    ./sim mutants                all of them
    ./sim mutants NAME...        those whose names contain one of these words
    ./sim mutants --runs 20000   so many seeds at most (10000)
    ./sim mutants --check        only whether each still applies; nothing is built
    ./sim mutants --at-random N  N more, made by chance from the sources of the decisions: a line
                                 is left out or a condition turned round, by --seed (1)

What no seed notices goes through the tests of the decisions: `tests` in the table is `cargo test`.
The exit code says how many were not noticed at all. A mutation named `equal-...` changes nothing
that anybody could see, and is expected not to be.
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


def patches(words):
    for patch in sorted(MUTATIONS.glob("*.patch")):
        if not words or any(word in patch.stem for word in words):
            yield patch


def apply(patch):
    """Applies a patch where it says, or else where what it changes has moved to."""
    if apply_here(patch):
        return True
    named = re.search(r"^\+\+\+ b/(\S+)$", patch, re.M)[1]
    crate = "/".join(named.split("/")[:3])
    for path in sorted((COPY / crate).rglob("*.rs")):
        elsewhere = patch.replace(named, str(path.relative_to(COPY)))
        # A patch that only adds fits in anywhere that looks alike.
        if re.search(r"^-(?!--)", patch, re.M) and apply_here(elsewhere):
            return True
    return False


def apply_here(patch):
    command = ["git", "apply", "-C1", "--unsafe-paths", f"--directory={COPY}", "-"]
    ran = subprocess.run(
        command, cwd="/", input=patch, capture_output=True, text=True, check=False
    )
    return ran.returncode == 0


def check_patches(options):
    """Whether each fits the sources: one that does not says nothing of the simulation."""
    fresh_copy()
    missed = 0
    for patch in patches(options.words):
        text = patch.read_text()
        if apply(text):
            fresh_copy()
        else:
            print(f"OUTDATED  {patch.stem}", flush=True)
            missed += 1
    return missed


def run_patches(options):
    missed = 0
    for patch in patches(options.words):
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
        missed += (outcome is None) != patch.stem.startswith("equal-")
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
    options = parser.parse_args()
    if shutil.which("cargo") is None:
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
