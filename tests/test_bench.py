"""`./bench` and bad input: flags, missing programs, and poolers that don't do what they should."""

import json
import os
import select
import signal
import subprocess
import tempfile

import pytest

from conftest import DEFAULT_PROGRAM, HERE
from harness import machine

BENCH = os.path.join(os.path.dirname(DEFAULT_PROGRAM), "howdah-bench")
FAKE = os.path.join(HERE, "harness", "fake_pooler.py")

pytestmark = [pytest.mark.own]


def bench(*arguments):
    """Lets it run to its end; gives exit code, output and errors."""
    done = subprocess.run([BENCH, *arguments], stdin=subprocess.DEVNULL, capture_output=True,
                          text=True, timeout=300)
    return done.returncode, done.stdout, done.stderr


@pytest.mark.parametrize("arguments, told", [
    (["matrix", "--rounds", "0"], "begin at 1"),
    (["matrix", "--secs", "soon"], "invalid value 'soon'"),
    (["matrix", "--workers"], "a value is required"),
    (["mattrix"], "unrecognized subcommand"),
    (["matrix", "--pooler", "pgbouncer"], "NAME=BINARY"),
    (["matrix", "--pooler", "pgpool=/bin/true"], "is none of howdah, pgbouncer"),
    (["matrix", "--pooler", "odyssey=/no/such/odyssey"], "there is no program /no/such/odyssey"),
    (["matrix", "--pooler", "odyssey=/bin/true:/no/config"], "there is no config /no/config"),
    (["matrix", "--only", "pgdog"], "say --pooler pgdog=BINARY"),
    (["matrix", "--pg-bin", "/no/such/folder"], "there is no /no/such/folder/initdb"),
    (["matrix", "--workers", "0"], "--workers begins at 1"),
    (["matrix", "--pooler", "odyssey=/bin/true", "--pooler", "odyssey=/bin/false"], "said twice"),
    (["matrix", "--against", "/no/record.json"], "/no/record.json"),
    (["latency", "--most-clients", "10"], "no cell of latency has 1 to 10 clients"),
    (["answers", "--workers", "0"], "--workers begins at 1"),
    (["against", "/no/record.json", "/no/record.json"], "/no/record.json"),
])
def test_flags(arguments, told, tmp_path):
    """Each mistake is told by its name, and nothing runs."""
    out = ["--out", str(tmp_path)] if arguments[0] in ("matrix", "latency") else []
    code, _, said = bench(*arguments, *out)
    assert code != 0 and told in said, said
    assert "panicked" not in said
    assert not os.listdir(tmp_path)


def test_a_folder_that_is_none(tmp_path):
    """So is a file where the folder for the report should be, and a record that is none."""
    (tmp_path / "file").write_text("")
    code, _, said = bench("matrix", "--out", str(tmp_path / "file"))
    assert code != 0 and "/file: " in said, said
    (tmp_path / "record.json").write_text("{")
    code, _, said = bench("matrix", "--out", str(tmp_path))
    assert code != 0 and "no record of a run" in said and "--fresh" in said, said


MODES = {"howdah": "fine", "pgbouncer": "hang", "odyssey": "die", "pg_doorman": "wrong",
         "pgcat": "deaf", "pgdog": "fine"}


@pytest.mark.slow
@pytest.mark.timeout(240)
def test_poolers_that_fail(tmp_path):
    """One that hangs, dies, answers wrongly or can't listen is a failed cell with its reason, and
    the run goes on. A second run does the failed ones again, and only those; it refuses others."""
    config = tmp_path / "config"
    config.write_text("{port} {server_port}\n")
    modes = machine.scratch("howdah-bench-modes-")
    flags = ["scaling", "--quick", "--secs", "1", "--rounds", "1", "--most-clients", "16",
             "--patience", "4", "--out", str(tmp_path)]
    for name, mode in MODES.items():
        program = os.path.join(modes, name)
        with open(FAKE, encoding="utf-8") as source, open(program, "w", encoding="utf-8") as copy:
            copy.write(source.read().replace("MODE_FILE", os.path.join(modes, name + ".mode")))
        os.chmod(program, 0o755)
        with open(os.path.join(modes, name + ".mode"), "w", encoding="utf-8") as file:
            file.write(mode)
        flags += ["--pooler", f"{name}={program}:{config}"]

    def runs():
        with open(tmp_path / "record.json", encoding="utf-8") as file:
            cells = json.load(file)["cells"]
        assert len(cells) == 1
        return {run["contender"]: run["outcome"] for run in cells[0]["runs"]}

    code, report, said = bench(*flags)
    assert code == 0, said
    first = runs()
    for name in ("postgresql", "howdah", "pgdog"):
        assert first[name]["Ok"]["tps"] > 0, first
    assert "it hangs" in first["pgbouncer"]["Err"], first
    assert "the pooler ended" in first["odyssey"]["Err"], first
    assert "no more memory" in first["odyssey"]["Err"], first
    assert "answers are not right" in first["pg_doorman"]["Err"], first
    assert "port is in use" in first["pgcat"]["Err"], first
    for reason in ("it hangs", "no more memory", "answers are not right", "port is in use"):
        assert reason in report, report

    for name in MODES:
        with open(os.path.join(modes, name + ".mode"), "w", encoding="utf-8") as file:
            file.write("fine")
    code, report, said = bench(*flags)
    assert code == 0, said
    second = runs()
    assert all("Ok" in outcome for outcome in second.values()), second
    assert second["howdah"] == first["howdah"] and second["postgresql"] == first["postgresql"]

    with open(os.path.join(modes, "howdah"), "a", encoding="utf-8") as program:
        program.write("# Another build.\n")
    code, _, said = bench(*flags)
    assert code != 0 and "howdah was program" in said and "--fresh" in said, said
    code, _, said = bench(*[word if word != "1" else "2" for word in flags])
    assert code != 0 and "seconds of a run was 1, and is 2" in said, said
    assert runs() == second


def idle_loops():
    """The processes of the idle class that loop for `--awake`."""
    found = set()
    for process in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{process}/cmdline", encoding="utf-8") as file:
                words = file.read().split("\0")
            if any(word.endswith("while :; do :; done") for word in words) and (
                    os.sched_getscheduler(int(process)) == os.SCHED_IDLE):
                found.add(int(process))
        except OSError:
            pass  # It has ended meanwhile.
    return found


@pytest.mark.slow
def test_cores_are_kept_awake(tmp_path):
    """`--awake`: a loop of the idle class for each core while poolers are measured, and none
    behind it. The report tells, and a record without it is not gone on with."""
    before, flags = idle_loops(), ["scaling", "--quick", "--secs", "1", "--rounds", "1",
                                   "--most-clients", "16", "--only", "howdah", "--out", str(tmp_path)]
    with subprocess.Popen([BENCH, *flags, "--awake"], stdin=subprocess.DEVNULL,
                          stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as running:
        most = 0
        while running.poll() is None:
            most = max(most, len(idle_loops() - before))
            select.select([running.stdout], [], [], 0.05)
            if most == len(os.sched_getaffinity(0)):
                break
        report = running.communicate(timeout=120)[0]
    assert running.returncode == 0
    assert most == len(os.sched_getaffinity(0))
    assert not idle_loops() - before
    assert "- cores: kept awake; a thread is awake " in report, report
    code, _, said = bench(*flags)
    assert code != 0 and "--fresh" in said, said


@pytest.mark.long
def test_rates_stay_the_same(tmp_path):
    """A fixed rate is told in transactions per second, and is the same when a record is gone on
    with. Beside a storm there are its logins, and no CPU."""
    flags = ["latency", "--quick", "--secs", "3", "--only", "howdah", "--out", str(tmp_path)]
    for rounds in ("1", "2"):
        code, report, said = bench(*flags, "--rounds", rounds)
        assert code == 0, said
        record = json.loads((tmp_path / "record.json").read_text())
        if rounds == "1":
            capacity = record["capacity"]
    assert record["capacity"] == capacity > 0

    def done(cell, contenders=("postgresql", "howdah")):
        """What succeeded; on a busy machine a run may fail."""
        found = [run["outcome"]["Ok"] for run in cell["runs"]
                 if run["contender"] in contenders and "Ok" in run["outcome"]]
        assert found, cell["runs"]
        return found
    for cell, part in zip(record["cells"], (None, 0.5, 0.9, 0.5), strict=True):
        for figures in done(cell):
            assert figures["rate"] == (part and round(capacity * part)), cell
            assert figures["mean"] > 0
    for figures in done(record["cells"][3], ("howdah",)):
        assert figures["logins"] > 0
        assert figures["cpu"] is None and figures["account"] is None
    logins = report[report.index("## Logins per second of the storm"):]
    assert "**simple, 40 clients beside a storm" in logins and "**simple, 40 clients**" not in logins
    assert f"| 50 % of capacity: {round(capacity * 0.5)} TPS |" in report, report
    assert "- settings of PostgreSQL: " in report and "fsync=off" in report, report


@pytest.mark.slow
def test_postgresql_that_ends(tmp_path):
    """It ends the run with its reason, and is no failure of a pooler. The same command goes on."""
    flags = ["scaling", "--quick", "--secs", "2", "--rounds", "1", "--most-clients", "16",
             "--only", "howdah", "--out", str(tmp_path)]
    with subprocess.Popen([BENCH, *flags], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                          stderr=subprocess.PIPE, text=True) as running:
        while running.poll() is None and not (tmp_path / "record.json").exists():
            select.select([running.stdout], [], [], 0.05)
        pid = os.path.join(tempfile.gettempdir(), f"howdah-bench-{running.pid}", "data", "postmaster.pid")
        with open(pid, encoding="utf-8") as file:
            os.kill(int(file.readline()), signal.SIGQUIT)
        _, said = running.communicate(timeout=120)
    assert running.returncode != 0 and "PostgreSQL ended" in said, said

    def runs():
        record = json.loads((tmp_path / "record.json").read_text())
        return {run["contender"]: "Ok" in run["outcome"] for run in record["cells"][0]["runs"]}

    assert runs() == {"postgresql": True}
    code, _, said = bench(*flags)
    assert code == 0 and runs() == {"postgresql": True, "howdah": True}, said
