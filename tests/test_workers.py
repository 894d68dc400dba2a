"""Clients on several workers: where they are placed, how they move, and what holds across moves."""

import contextlib
import os
import random
import re
import subprocess
import threading
from pathlib import Path

import pytest

from harness import machine, wire
from harness.wire import query, sync

pytestmark = pytest.mark.timeout(90)


def workers(howdah):
    """Rows of SHOW WORKERS."""
    return howdah.console("SHOW WORKERS")


def moved(howdah):
    """How many clients have gone from one worker to another so far."""
    return sum(int(row["moves_in"]) for row in workers(howdah))


def let_move(howdah, times=20):
    """Waits until clients have moved so many times more."""
    before = moved(howdah)
    machine.wait_until(lambda: moved(howdah) >= before + times, "clients that move")


def take_over(howdah):
    """A successor takes over, and the old process ends."""
    mark, old = howdah.log_mark(), howdah.child
    howdah.child = howdah.spawn("-R", "--quiet", howdah.ini_path, stdin=subprocess.DEVNULL,
                                stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    assert old.wait(30) == 0, howdah.said()
    howdah.wait_for_log("process up", since=mark, seconds=30)


@pytest.fixture
def restless(request, make_howdah):
    """Four workers whose clients move at random all the time."""
    if request.config.getoption("--listening"):
        pytest.skip("who listens stays on its worker")
    with contextlib.ExitStack() as shuffling:
        def make(**settings):
            howdah = make_howdah(workers=4, pool_mode="transaction", pool_spread="always",
                                 default_pool_size=8, **settings)
            shuffling.enter_context(howdah.shuffled())
            return howdah
        yield make


def test_newcomers_are_spread(make_howdah):
    """With `always`, a pool is on a worker for every four of its servers, and on no more workers
    than there are cores."""
    howdah = make_howdah(workers=4, pool_spread="always", default_pool_size=8)
    clients = [howdah.connect() for _ in range(8)]
    assert all(client.value("select 1") == "1" for client in clients)
    used = [row for row in workers(howdah) if int(row["pools"]) > 0]
    assert len(used) == min(2, len(os.sched_getaffinity(0)))
    for client in clients:
        client.close()


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="there is one core")
def test_a_pool_with_little_to_do_is_drawn_together(make_howdah):
    """The control thread hears the workers, decides, and clients and newcomers go where it says."""
    howdah = make_howdah(workers=2, pool_spread="always", default_pool_size=8)
    clients = [howdah.connect() for _ in range(8)]
    assert all(int(row["pools"]) for row in workers(howdah))
    howdah.console("SET pool_spread = 'load'")

    def together():
        placed = sorted(int(row["pools"]) for row in workers(howdah))
        return placed == [0, 1]
    machine.wait_until(together, "clients on one worker")
    assert moved(howdah) > 0
    for number, client in enumerate(clients):
        assert client.value(f"select {number}") == str(number)
    clients += [howdah.connect() for _ in range(3)]
    assert together()
    for client in clients:
        client.close()


@pytest.mark.parametrize("count", [1, 2])
def test_signals_are_told(make_howdah, count):
    """SHOW WORKERS says how busy a worker is, also if there is only one."""
    howdah = make_howdah(workers=count)
    with howdah.connect() as client:
        def busy():
            client.value("select count(*) from generate_series(1, 100)")
            return [row for row in workers(howdah)
                    if int(row["busy_percent"]) > 0 and int(row["cpu_percent"]) > 0]
        machine.wait_until(busy, "a worker that is busy")


def wake_ups(howdah):
    """How often each worker's thread went to sleep of its own accord, by its name."""
    found = {}
    for task in Path(f"/proc/{howdah.child.pid}/task").iterdir():
        name = (task / "comm").read_text().strip()
        if name.startswith("worker"):
            status = (task / "status").read_text()
            found[name] = int(re.search(r"^voluntary_ctxt_switches:\s+(\d+)", status, re.M)[1])
    return found


def test_a_worker_without_connections_sleeps(make_howdah):
    """It wakes once for each line of statistics, not with each look of the janitor's."""
    howdah = make_howdah(workers=6, stats_period=2)
    mark = howdah.log_mark()
    howdah.wait_for_log("stats: ", since=mark)
    before, mark = wake_ups(howdah), howdah.log_mark()
    for _ in range(2):
        found = howdah.wait_for_log("stats: ", since=mark)
        mark += found.end()
    after = wake_ups(howdah)
    assert len(before) == 6
    # Four seconds, and twelve looks of a janitor that is awake.
    assert max(after[name] - before[name] for name in before) <= 6, (before, after)


def test_a_worker_that_has_never_had_a_connection_holds_no_memory(make_howdah, driver):
    """Of each worker more there is a stack, a mailbox, and with io_uring the ring with its 128
    buffers of 8 kB, which the kernel keeps."""
    def resident(count):
        howdah = make_howdah(workers=count)
        howdah.console("SHOW VERSION")
        status = Path(f"/proc/{howdah.child.pid}/status").read_text()
        return int(re.search(r"^VmRSS:\s+(\d+) kB", status, re.M)[1])
    each = (resident(34) - resident(2)) / 32
    assert each < (1400 if driver == "io_uring" else 200), f"{each} kB"


def test_state_moves(restless, postgres):
    """Statements, parameters and half a message are the client's wherever it is."""
    howdah = restless()
    clients = [howdah.connect(application_name=f"app{index}") for index in range(6)]
    for index, client in enumerate(clients):
        client.send(wire.parse(f"select {index}, current_setting('application_name')", "s"), sync())
        client.read_until()
    for turn in range(20):
        let_move(howdah, 6)
        for index, client in enumerate(clients):
            client.send(wire.bind("s"), wire.execute(), sync())
            rows = [got.row() for got in client.read_until() if got.tag == "D"]
            assert rows == [[b"%d" % index, b"app%d" % index]], (turn, index)
    for client in clients:
        client.close()


def test_pipelined_bytes(restless):
    """Requests that are sent without waiting for answers, in pieces, are answered in order."""
    howdah = restless()
    stop, failures = threading.Event(), []

    def talk(number):
        chance, turn = random.Random(number), 0
        with howdah.connect() as client:
            while not stop.is_set():
                wanted = [f"{number}.{turn}.{index}" for index in range(5)]
                stream = b"".join(query(f"select '{text}'") for text in wanted)
                cut = chance.randrange(len(stream))
                client.send(stream[:cut])
                client.send(stream[cut:])
                got = []
                while len(got) < len(wanted):
                    got += [m.row()[0].decode() for m in client.read_until() if m.tag == "D"]
                assert got == wanted
                turn += 1

    def guarded(number):
        try:
            talk(number)
        except BaseException as why:  # told by the test's own thread
            failures.append(why)

    threads = [threading.Thread(target=guarded, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    try:
        let_move(howdah, 200)
    finally:
        stop.set()
        for thread in threads:
            thread.join()
    assert not failures, failures


def test_cancel_after_moves(restless, postgres):
    """A cancel key is valid on whatever worker its client is, and hits no other."""
    howdah = restless()
    clients = [howdah.connect() for _ in range(4)]
    for turn in range(5):
        let_move(howdah)
        for index, client in enumerate(clients):
            client.send(query(f"select 'moved{index}', pg_sleep(30)"))

        def running():
            return postgres.value("select count(*) from pg_stat_activity where state = 'active' "
                                  "and query like 'select ''moved%'")
        machine.wait_until(lambda: running() == "4", "the queries")
        for left, client in zip((3, 2, 1, 0), clients):
            client.cancel()
            errors = [m.fields()["C"] for m in client.read_until() if m.tag == "E"]
            assert errors == ["57014"]
            assert running() == str(left), turn
    for client in clients:
        client.close()


def test_orders_beside_moves(restless, postgres):
    """PAUSE, RECONNECT and RESUME are done on all workers while clients move."""
    howdah = restless()
    clients = [howdah.connect() for _ in range(6)]
    let_move(howdah)
    pids = {client.value("select pg_backend_pid()") for client in clients}
    howdah.console("RECONNECT")
    howdah.console("WAIT_CLOSE")
    later = {client.value("select pg_backend_pid()") for client in clients}
    assert not pids & later
    howdah.console("PAUSE")
    howdah.wait_for_pool(sv_active=0, sv_idle=0, sv_used=0)
    machine.wait_until(lambda: postgres.sessions(user="postgres") == 0, "no sessions")
    for index, client in enumerate(clients):
        client.send(query(f"select {index}"))
    howdah.wait_for_pool(cl_waiting=6)
    let_move(howdah)
    howdah.console("RESUME")
    for index, client in enumerate(clients):
        assert [m.row() for m in client.read_until() if m.tag == "D"] == [[b"%d" % index]]
        client.close()


def test_kill_beside_moves(restless):
    """KILL reaches every client of the database, those on their way included."""
    howdah = restless()
    for _ in range(5):
        clients = [howdah.connect() for _ in range(6)]
        let_move(howdah, 6)
        howdah.console("KILL postgres")
        for client in clients:
            client.read_to_end()
        howdah.console("RESUME postgres")


def test_kill_client_beside_moves(restless):
    """KILL_CLIENT finds a client wherever it is, or on its way."""
    howdah = restless()

    def listed():
        rows = howdah.console("SHOW CLIENTS")
        return [row["id"] for row in rows if row["database"] == "postgres"]

    for _ in range(10):
        with howdah.connect() as client:
            let_move(howdah, 3)
            # Who is on its way at this moment is on no worker's list.
            wanted = machine.wait_until(listed, "the client in a list")
            howdah.console(f"KILL_CLIENT {wanted[0]}")
            client.read_to_end()


def test_takeover_beside_moves(restless, postgres):
    """A process that takes over has every client, wherever it was, with a key that is valid."""
    howdah = restless()
    clients = [howdah.connect() for _ in range(8)]
    for turn in range(3):
        let_move(howdah)
        take_over(howdah)
        for index, client in enumerate(clients):
            assert client.value(f"select {index}") == str(index), turn
            client.send(query("select pg_sleep(30)"))
        postgres.wait_for_sleepers(8)
        for client in clients:
            client.cancel()
            assert [m.fields()["C"] for m in client.read_until() if m.tag == "E"] == ["57014"]
    for client in clients:
        client.close()


def test_shutdown_beside_moves(restless):
    """A process that waits for its last client ends when that leaves, and no sooner."""
    howdah = restless()
    clients = [howdah.connect() for _ in range(4)]
    let_move(howdah)
    howdah.console("SHUTDOWN WAIT_FOR_CLIENTS")
    for client in clients:
        assert client.value("select 1") == "1"
        client.close()
    howdah.wait()
