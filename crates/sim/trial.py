"""Mistakes on trial: a copy of the sources with mutations in it, built, played and tested apart
from the checkout."""
import json
import os
import shutil
import signal
import subprocess
import sys
from concurrent import futures
from pathlib import Path

import weave

ROOT = Path(__file__).resolve().parents[2]
COPY = ROOT / "target/mutants"
ORIGINAL = ROOT / "target/mutants-original"
# Seeds are played in pieces of so many. One that takes a processor for longer than the limit (ten
# times what it takes without a mistake, at least) has noticed a mistake that never comes to rest.
PIECE = 100
LIMIT_SECONDS = 90
# The same for all tests of one kind.
TESTS_LIMIT_SECONDS = 600
# So many seeds must pass in a woven build when none of its mutations is played.
SOUND = 200
# What a test says of the shape of sources, which weaving changes, it says of no mistake.
OF_SHAPE = {"house"}
NOT_BUILT = "NOT BUILT"


def keep_original():
    """The sources as they are now: all mutations are of these, whatever is edited meanwhile."""
    shutil.rmtree(ORIGINAL, ignore_errors=True)
    ORIGINAL.mkdir(parents=True)
    for name in ("Cargo.toml", "Cargo.lock"):
        shutil.copy(ROOT / name, ORIGINAL / name)
    for name in ("crates", "docs"):
        shutil.copytree(ROOT / name, ORIGINAL / name)


def original(path):
    return (ORIGINAL / path).read_text()


def put(files):
    """Makes the copy the original sources with these files, {path: text}, instead of its own."""
    for path in (COPY / "crates").rglob("*"):
        name = str(path.relative_to(COPY))
        if path.is_file() and name not in files and not (ORIGINAL / name).exists():
            path.unlink()
    for path in ORIGINAL.rglob("*"):
        name = str(path.relative_to(ORIGINAL))
        if path.is_file() and name not in files:
            write(COPY / name, path.read_bytes())
    for name, text in files.items():
        write(COPY / name, text.encode())


def write(path, data):
    """Only what differs: a newer time would have it built anew."""
    if not path.exists() or path.read_bytes() != data:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)


def cargo(*words):
    """What cargo tells of a build: the errors of the compiler, and the programs of tests."""
    command = ["cargo", *words, "--locked", "--message-format=json"]
    environment = {**os.environ, "CARGO_TARGET_DIR": str(COPY / "target")}
    ran = subprocess.run(
        command, cwd=COPY, env=environment, capture_output=True, text=True, check=False
    )
    said = [json.loads(line) for line in ran.stdout.splitlines() if line.startswith("{")]
    messages = [one["message"] for one in said if one["reason"] == "compiler-message"]
    errors = [message for message in messages if message["level"] == "error"]
    if ran.returncode and not errors:
        sys.exit(f"cargo has not built it:\n{ran.stderr}")
    return errors, [one for one in said if one["reason"] == "compiler-artifact"]


def build():
    """The errors, if it is not built."""
    return cargo("build", "-p", "howdah-sim")[0]


def build_tests():
    """The programs of the tests of the decisions and of the connection layer, and the folder that
    each is run in."""
    artifacts = []
    for words in (["-p", "howdah-pooler"], ["-p", "howdah-daemon", "--lib"]):
        errors, built = cargo("test", "--no-run", *words)
        if errors:
            sys.exit("the tests are not built:\n" + "".join(error["rendered"] for error in errors))
        artifacts += built
    return [
        (artifact["executable"], Path(artifact["manifest_path"]).parent)
        for artifact in artifacts
        if artifact["executable"] and artifact["target"]["name"] not in OF_SHAPE
    ]


def run(command, mutation, seconds, folder=COPY):
    """Runs a program with this mutation, for at most so many seconds of a processor."""
    limited = ["sh", "-c", f'ulimit -t {seconds}; exec "$@"', "sh", *command]
    environment = {**os.environ, "HOWDAH_MUTANT": str(mutation)}
    return subprocess.run(
        limited, cwd=folder, env=environment, capture_output=True, text=True, errors="replace",
        check=False,
    )


def play(first, last, mutation=0):
    """The checker that noticed in one of these runs and which it was, or None."""
    for begin in range(first, last + 1, PIECE):
        piece = min(PIECE, last + 1 - begin)
        command = [COPY / "target/debug/howdah-sim", "--seed", str(begin), "--runs", str(piece)]
        ran = run([*command, "--brief"], mutation, LIMIT_SECONDS)
        if ran.returncode not in (0, 1):
            how = "time" if ran.returncode in (-signal.SIGXCPU, -signal.SIGKILL) else "crash"
            return how, f"<{begin + piece}"
        result = json.loads(ran.stdout.splitlines()[-1])
        if result["failures"]:
            return result["failures"][0]["checker"], begin - 1 + result["runs"]
    return None


def test(programs, mutation=0):
    """Whether the tests of the decisions notice what no seed has."""
    def fails(program, folder):
        return run([program, "--quiet"], mutation, TESTS_LIMIT_SECONDS, folder).returncode != 0
    return ("tests", "") if any(fails(*program) for program in programs) else None


def weave_in(mutations):
    """Builds those of the mutations, {name: {path: text}}, that one build can hold. Returns their
    numbers in it, by name."""
    numbers, changes = {}, {}
    for number, (name, files) in enumerate(mutations.items(), 1):
        bodies = {
            path: weave.changed_bodies(original(path), text) for path, text in files.items()
        }
        if None not in bodies.values():
            numbers[name], changes[number] = number, bodies
    while changes:
        files, owners = weave.weave_files(original, changes)
        put(files)
        errors = build()
        if not errors:
            return {name: number for name, number in numbers.items() if number in changes}
        refused = weave.blamed(errors, owners) & changes.keys()
        if not refused:
            sys.exit("the sources are not built:\n" + "".join(error["rendered"] for error in errors))
        changes = {number: made for number, made in changes.items() if number not in refused}
    return {}


def assert_sound(outcome, what):
    """A woven build in which no mutation is played behaves as the original does."""
    if outcome:
        sys.exit(f"{what} fail without any mutation: {outcome[0]} {outcome[1]}")


def outcomes(mutations, names, runs, jobs):
    """Weaves mutations into one build, plays those of these names, and tests those that no seed
    notices. Yields names and who noticed, as they end. Those that the build does not hold are
    passed over."""
    if not names:
        return
    numbers = weave_in(mutations)
    print(f"{len(numbers)} of {len(mutations)} mutations are in one build", file=sys.stderr)
    numbers = {name: number for name, number in numbers.items() if name in names}
    if not numbers:
        return
    assert_sound(play(1, min(SOUND, runs)), "seeds")
    # Most are noticed soon. So the first seeds are played of all before more are of any.
    early = min(PIECE, runs)
    for first, last in ((1, early), (early + 1, runs)):
        missed = {}
        for name, outcome in at_once(jobs, numbers, lambda number: play(first, last, number)):
            if outcome:
                yield name, outcome
            else:
                missed[name] = numbers[name]
        numbers = missed
    if numbers:
        programs = build_tests()
        assert_sound(test(programs), "tests")
        yield from at_once(jobs, numbers, lambda number: test(programs, number))


def at_once(jobs, numbers, trial):
    """Names and outcomes of trials, so many at once, as they end."""
    with futures.ThreadPoolExecutor(jobs) as pool:
        waiting = {pool.submit(trial, number): name for name, number in numbers.items()}
        try:
            for ended in futures.as_completed(waiting):
                yield waiting[ended], ended.result()
        finally:
            pool.shutdown(cancel_futures=True)


def alone(files, runs):
    """The outcome of a mutation that has a build of its own."""
    put(files)
    errors = build()
    if errors:
        return NOT_BUILT, errors[0]["message"]
    return play(1, runs) or test(build_tests())
