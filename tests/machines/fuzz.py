"""Fuzzing with libFuzzer and AddressSanitizer, with the compiler that builds everything else.

What is found lies in fuzz/artifacts, what leads deep in fuzz/corpus. Options that are not listed
below go to libFuzzer. A C++ compiler is needed. (`./test` plays the same bodies over random input.)
"""

import argparse
import os
import subprocess
import sys
import time

from . import ROOT, tell

FUZZ = os.path.join(ROOT, "fuzz")
TARGETS = sorted(name.removesuffix(".rs") for name in os.listdir(os.path.join(FUZZ, "targets")))

# What libFuzzer needs to see: which edges are taken, and what is compared with what.
COVERAGE = ("-Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4 "
            "-Cllvm-args=-sanitizer-coverage-inline-8bit-counters "
            "-Cllvm-args=-sanitizer-coverage-pc-table "
            "-Cllvm-args=-sanitizer-coverage-trace-compares "
            "-Cllvm-args=-simplifycfg-branch-fold-threshold=0")
# Before the number of runs, in what libFuzzer says at its end.
RUNS = "stat::number_of_executed_units:"


def build():
    """Builds the targets; the folder of their programs."""
    said = subprocess.run(["rustc", "-vV"], capture_output=True, text=True, check=True).stdout
    host = next(line.split()[1] for line in said.splitlines() if line.startswith("host: "))
    # Sanitizers are options of the nightly compiler; this is the stable one.
    flags = f"{COVERAGE} -Zsanitizer=address --cfg fuzzing -Cdebug-assertions"
    subprocess.run(["cargo", "build", "--quiet", "--locked", "--release", "--target", host],
                   cwd=FUZZ, check=True,
                   env={**os.environ, "RUSTC_BOOTSTRAP": "1", "RUSTFLAGS": flags})
    return os.path.join(os.environ.get("CARGO_TARGET_DIR", "target"), host, "release")


def play(folder, target, words, played):
    """Plays a target: how many inputs it ran, and whether all passed."""
    for kept in ("corpus", "artifacts"):
        os.makedirs(os.path.join(FUZZ, kept, target), exist_ok=True)
    print(f"== {target}", flush=True)
    child = subprocess.Popen(
        [os.path.join(folder, target), f"-artifact_prefix=artifacts/{target}/", "-timeout=10",
         "-print_final_stats=1", "-len_control=0", "-verbosity=0", *words, played or f"corpus/{target}"],
        cwd=FUZZ, stderr=subprocess.PIPE, text=True, errors="replace")
    runs = 0
    for line in child.stderr:
        if line.startswith(RUNS):
            runs = int(line.removeprefix(RUNS))
        else:
            sys.stderr.write(line)
    return runs, child.wait() == 0


def main():
    parser = argparse.ArgumentParser(prog="./prove fuzz", description=__doc__, allow_abbrev=False,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("targets", nargs="*", metavar="TARGET", help=f"all, or of {', '.join(TARGETS)}")
    parser.add_argument("--seconds", type=int, default=60, help="of each target (60); 0: for ever")
    parser.add_argument("--input", metavar="FILE", help="plays this input alone")
    options, words = parser.parse_known_args()
    for target in options.targets:
        if target not in TARGETS:
            parser.error(f"there is no target {target!r}")
    began, folder = time.monotonic(), build()
    played = options.input and os.path.abspath(options.input)
    # In front: an option of libFuzzer's own counts more.
    words.insert(0, f"-max_total_time={options.seconds}")
    ended = {target: play(folder, target, words, played) for target in options.targets or TARGETS}
    failed = [target for target, (_, passed) in ended.items() if not passed]
    return tell("fuzz", not failed, runs={target: runs for target, (runs, _) in ended.items()},
                failed=failed, seconds=round(time.monotonic() - began))


if __name__ == "__main__":
    sys.exit(main())
