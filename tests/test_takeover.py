"""SUSPEND, and a new process that takes over from a running one (-R)."""

import os
import shutil
import signal
import socket
import struct
import subprocess
import threading

import pytest

from harness import machine, wire
from harness.howdah import console_rows
from harness.wire import bind, describe, execute, parse, query, sync

pytestmark = [pytest.mark.timeout(120),
              pytest.mark.not_listening("who listens is disconnected with 57P01 at -R")]


def admin(howdah):
    """A console that stays open: nobody else gets in while accepting is suspended."""
    return howdah.connect(user="admin", database="pgbouncer", password="secret")


def state(console):
    """SHOW STATE as a dictionary."""
    return {row["key"]: row["value"] for row in console_rows(console, "SHOW STATE")}


def refusal(console, command):
    """The text of the error that a console command gets."""
    with pytest.raises(wire.Refused) as refused:
        console_rows(console, command)
    return refused.value.text


# SUSPEND ----------------------------------------------------------------------------------------

@pytest.mark.parametrize("workers", [1, 2])
def test_suspend_and_resume(make_howdah, workers):
    """While it holds, nobody is read from; RESUME has everything go on as if nothing was."""
    howdah = make_howdah(workers=workers)
    with admin(howdah) as console, howdah.connect() as idle, howdah.connect() as busy:
        busy.rows("begin")
        assert state(console)["active"] == "yes"
        console_rows(console, "SUSPEND")
        seen = state(console)
        assert (seen["active"], seen["paused"], seen["suspended"]) == ("no", "no", "yes")
        assert all(row["paused"] == "0" for row in console_rows(console, "SHOW DATABASES"))
        idle.send(query("select 'one'"))
        busy.send(query("select 'two'"))
        assert idle.quiet() and busy.quiet()
        for command in ("SUSPEND", "PAUSE", "PAUSE postgres"):
            assert refusal(console, command) == "already suspended/paused"
        console_rows(console, "RESUME")
        assert idle.read_until()[1].row() == [b"one"]
        assert busy.read_until()[1].row() == [b"two"]
        busy.rows("commit")
        assert state(console)["suspended"] == "no"
        assert refusal(console, "RESUME") == "pooler is not paused/suspended"
        console_rows(console, "PAUSE postgres")
        assert refusal(console, "SUSPEND") == "cannot suspend with paused databases"


def test_suspend_ends_with_its_console(make_howdah):
    """The administrator who gave SUSPEND leaves: RESUME follows by itself."""
    howdah = make_howdah(workers=2)
    with howdah.connect() as client:
        with admin(howdah) as console:
            console_rows(console, "SUSPEND")
            client.send(query("select 'later'"))
            assert client.quiet()
        assert client.read_until()[1].row() == [b"later"]


def test_who_does_not_read_is_dropped_by_suspend(make_howdah):
    """A client that leaves its answer unread keeps SUSPEND from being done: suspend_timeout."""
    howdah = make_howdah(suspend_timeout=1)
    with admin(howdah) as console, howdah.raw(receive_buffer=4096) as client:
        client.login()
        client.send(query("select repeat('x', 1000000) from generate_series(1, 100)"))
        client.read_bytes(1000)
        console_rows(console, "SUSPEND")
        howdah.wait_for_log("closing because: suspend_timeout")
        console_rows(console, "RESUME")


def test_show_fds(make_howdah):
    """PgBouncer's columns, for administrators."""
    howdah = make_howdah()
    with admin(howdah) as console, howdah.connect() as client:
        client.rows("set datestyle to 'German'")
        rows = console_rows(console, "SHOW FDS")
        assert list(rows[0]) == [
            "fd", "task", "user", "database", "addr", "port", "cancel", "link", "client_encoding",
            "std_strings", "datestyle", "timezone", "password", "scram_client_key",
            "scram_server_key"]
        assert {row["task"] for row in rows} == {"client", "server"}
        assert next(r["datestyle"] for r in rows if r["task"] == "client") == "German, DMY"


# Takeover ---------------------------------------------------------------------------------------

def begin_takeover(howdah, **changes):
    """Starts a successor; gives the process that is taken over from."""
    return howdah.begin_takeover(**changes)


def take_over(howdah, **changes):
    """A successor takes over, and the old process ends."""
    howdah.take_over(**changes)


class Load:
    """Clients that never pause and never see an error, each on a thread of its own."""

    def __init__(self, howdah, kinds):
        self.stop = threading.Event()
        self.problems = []
        self.counts = [0] * len(kinds)
        self.threads = [threading.Thread(target=self._run, args=(howdah, kind, number))
                        for number, kind in enumerate(kinds)]

    def __enter__(self):
        for thread in self.threads:
            thread.start()
        return self

    def __exit__(self, *_):
        self.stop.set()
        for thread in self.threads:
            thread.join()

    def _run(self, howdah, kind, number):
        try:
            with howdah.connect(application_name=f"load {number}") as client:
                step = kind(client, number)
                while not self.stop.is_set():
                    step(self.counts[number])
                    self.counts[number] += 1
        except Exception as problem:  # noqa: BLE001: whatever it is, the test must hear of it
            self.problems.append(f"{kind.__name__} {number}: {problem!r}")

    def wait_for_more(self):
        """Waits until every client has got something done from now on."""
        before = list(self.counts)
        machine.wait_until(
            lambda: self.problems or all(now > old + 3 for old, now in zip(before, self.counts)),
            f"all clients to get on: {before}, {self.counts}, {self.problems}", 30)
        assert not self.problems, self.problems


def simple(client, number):
    """Simple queries; the server shows whose parameters it has."""
    def step(turn):
        sql = f"select {turn}, current_setting('application_name')"
        assert client.rows(sql) == [[str(turn), f"load {number}"]]
    return step


def prepared(client, number):
    """A statement that is prepared once, before anything else happens."""
    client.ask(parse(f"select $1::text || ' of {number}'", "mine"), sync())

    def step(turn):
        got = client.ask(bind("mine", [str(turn).encode()]), execute(), sync())
        assert [m.row() for m in got if m.tag == "D"] == [[f"{turn} of {number}".encode()]]
    return step


def described(client, number):
    """A new statement each time, described in a round of its own."""
    def step(turn):
        name = f"s{turn}"
        client.ask(parse(f"select {turn} + $1::int", name), describe(name), sync())
        got = client.ask(bind(name, [str(number).encode()]), execute(), sync())
        assert [m.row() for m in got if m.tag == "D"] == [[str(turn + number).encode()]]
    return step


def transactional(client, number):
    """Transactions of several rounds: all on one server."""
    def step(turn):
        client.rows("begin")
        pid = client.value("select pg_backend_pid()")
        client.rows(f"set local search_path to 'number_{number}'")
        assert client.value("show search_path") == f"number_{number}"
        assert client.value("select pg_backend_pid()") == pid
        client.rows("commit")
    return step


KINDS = [simple, prepared, described, transactional] * 3


@pytest.mark.parametrize("pool_mode", ["transaction", "session"])
@pytest.mark.parametrize("changing", [False, True], ids=["same driver", "changing drivers"])
def test_five_takeovers_under_load(make_howdah, driver, changing, pool_mode):
    """Five successors in a row, and not one client sees an error."""
    howdah = make_howdah(workers=2, pool_mode=pool_mode, default_pool_size=20,
                         pidfile=None)
    howdah.stop()
    howdah.write(pidfile=os.path.join(howdah.folder, "pid"))
    howdah.start()
    other = {"epoll": "io_uring", "io_uring": "epoll"}
    if changing and not machine.io_uring_works():
        pytest.skip("this machine has one driver only")
    with howdah.connect(datestyle="German") as idle, Load(howdah, KINDS) as load:
        idle.ask(parse("select current_setting('datestyle'), $1::int", "kept"), sync())
        idle.rows("set timezone to 'Asia/Tokyo'")
        for turn in range(5):
            load.wait_for_more()
            changes = {"io_driver": other[driver] if turn % 2 == 0 else driver} if changing else {}
            take_over(howdah, **changes)
            with open(os.path.join(howdah.folder, "pid")) as file:
                assert int(file.read()) == howdah.child.pid
        load.wait_for_more()
        got = idle.ask(bind("kept", [b"7"]), execute(), sync())
        assert [m.row() for m in got if m.tag == "D"] == [[b"German, DMY", b"7"]]
        assert idle.value("show timezone") == "Asia/Tokyo"
        idle.rows("reset datestyle")
        assert idle.value("show datestyle") == "German, DMY"
    assert not load.problems, load.problems
    howdah.stop(signal.SIGINT)
    assert not os.path.exists(howdah.socket_path)


def test_what_clients_have_travels(make_howdah, postgres):
    """Cancel keys, half a message, waiting clients, consoles, clients of both protocols."""
    howdah = make_howdah(workers=2, default_pool_size=1)
    with howdah.connect() as one, howdah.connect() as two, howdah.raw() as new, \
            howdah.raw() as between, howdah.connect() as half, admin(howdah) as console, \
            postgres.connect() as holder:
        whole = wire.startup("postgres", "postgres")
        new.send(whole[:7])
        between.send(whole[:7])
        half.send(query("select 'whole'")[:9])
        holder.value("select pg_advisory_lock(77)")
        one.send(query("select pg_advisory_xact_lock(77)"))
        howdah.wait_for_pool(cl_active=3, sv_active=1)
        two.send(query("select 'waited'"))
        howdah.wait_for_pool(cl_waiting=1)
        mark = howdah.log_mark()
        old = begin_takeover(howdah)
        between.send(whole[7:], query("select 'between'"))
        howdah.wait_for_log("took over ", since=mark)
        holder.value("select pg_advisory_unlock(77)")
        assert old.wait(30) == 0
        one.read_until()
        assert two.read_until()[1].row() == [b"waited"]
        half.send(query("select 'whole'")[9:])
        assert half.read_until()[1].row() == [b"whole"]
        new.send(whole[7:])
        assert [m.tag for m in new.read_until()][0] == "R"
        between.read_until()
        assert between.read_until()[1].row() == [b"between"]
        assert console_rows(console, "SHOW SERVERS")
        one.send(query("select pg_sleep(60)"))
        machine.wait_until(lambda: postgres.value(
            "select count(*) from pg_stat_activity where query = 'select pg_sleep(60)'") == "1",
            "it to run")
        one.cancel()
        assert [m.fields()["C"] for m in one.read_until() if m.tag == "E"] == ["57014"]


@pytest.mark.parametrize("pool_mode", ["transaction", "session"])
def test_takeover_with_open_transactions(make_howdah, pool_mode):
    """Who is in a transaction keeps nobody waiting: it stays where it is, and follows once it is
    between two transactions, with all it has. The old process ends when the last has followed."""
    howdah = make_howdah(workers=2, pool_mode=pool_mode, suspend_timeout=60)
    with howdah.connect() as inside, howdah.connect() as longer, howdah.connect() as other:
        inside.ask(parse("select $1::int + 1", "kept"), sync())
        inside.rows("set timezone to 'Asia/Tokyo'")
        for client in (inside, longer):
            client.rows("begin")
        mark = howdah.log_mark()
        old = begin_takeover(howdah)
        try:
            howdah.wait_for_log("took over 1 clients", since=mark)
            assert other.value("select 'served'") == "served"
            # The first signal that the old process gets; it is ending already.
            old.send_signal(signal.SIGTERM)
            howdah.wait_for_log("got SIGTERM, shutting down", since=mark)
            with howdah.connect() as newcomer:
                assert newcomer.value("select 'in'") == "in"
            assert inside.value("select 'still'") == "still"
            inside.rows("commit")
            howdah.wait_for_log("LOG 1 clients and \\d servers followed", since=mark)
            got = inside.ask(bind("kept", [b"7"]), execute(), sync())
            assert [m.row() for m in got if m.tag == "D"] == [[b"8"]]
            assert inside.value("show timezone") == "Asia/Tokyo"
            assert old.poll() is None
            assert longer.value("select 'longer'") == "longer"
            longer.rows("rollback")
            assert old.wait(30) == 0
            for client in (inside, longer, other):
                assert client.value("select 'served'") == "served"
        finally:
            machine.end(old)


def test_takeover_while_the_next_one_dies(make_howdah):
    """Who was left behind stays where it is if the process that it would follow to is gone."""
    howdah = make_howdah(workers=2)
    with howdah.connect() as inside:
        inside.rows("begin")
        mark = howdah.log_mark()
        old = begin_takeover(howdah)
        try:
            howdah.wait_for_log("process up", since=mark)
            howdah.stop(signal.SIGKILL)
            inside.rows("commit")
            howdah.wait_for_log("a new process did not take over: .*going on", since=mark)
            assert inside.value("select 'as before'") == "as before"
            inside.send(wire.terminate())
            assert old.wait(30) == 0
        finally:
            machine.end(old)


def test_takeover_of_kept_servers(make_howdah):
    """Who keeps a server stays behind until that is free; who waits for leave to keep one does not."""
    howdah = make_howdah(default_pool_size=2)
    with howdah.connect() as keeps, howdah.connect() as waits, howdah.connect() as other:
        keeps.rows("set work_mem = '7MB'; create temp table t (a int)")
        waits.send(wire.query("create temp table t as select 5 as a"))
        howdah.wait_for_pool(cl_waiting=1)
        mark = howdah.log_mark()
        old = begin_takeover(howdah)
        try:
            howdah.wait_for_log("process up", since=mark)
            assert waits.read_until("Z")[-1].tag == "Z"
            assert waits.value("select a from t") == "5"
            assert other.value("select 'served'") == "served"
            keeps.rows("insert into t values (1)")
            assert keeps.value("select count(*) from t") == "1"
            keeps.rows("drop table t")
            assert old.wait(30) == 0
            assert keeps.value("show work_mem") == "7MB"
        finally:
            machine.end(old)


def test_takeover_timeout(make_howdah):
    """Who has not followed in time is told, and the old process ends."""
    howdah = make_howdah(workers=2, takeover_timeout=1)
    with howdah.connect() as inside:
        inside.rows("begin")
        old = begin_takeover(howdah)
        try:
            told = inside.read()
            assert (told.fields()["S"], told.fields()["C"]) == ("FATAL", "57P01")
            assert old.wait(30) == 0
        finally:
            machine.end(old)


@pytest.mark.parametrize("mode", ["transaction", "session"])
def test_takeover_waits_for_nobody_who_does_not_read(make_howdah, postgres, mode):
    """Though all of an answer was relayed, and little of it is left. Who has read follows."""
    howdah = make_howdah(pool_mode=mode, suspend_timeout="600")
    with wire.Wire(howdah.socket_path) as slow, howdah.connect() as other:
        slow.login()
        # More than the kernel takes in, and less than what we call too much.
        size = 320_000
        slow.send(query(f"select repeat('s', {size}) /* much */"))
        machine.wait_until(lambda: postgres.value(
            "select count(*) from pg_stat_activity where query like '%/* much */' "
            "and pid <> pg_backend_pid() and state = 'idle'") == "1", "the answer")
        machine.wait_until(slow.waiting, "some of it")
        assert slow.waiting() < size
        old = begin_takeover(howdah)
        try:
            howdah.wait_for_log("took over 1 clients")
            assert other.value("select 'served'") == "served"
            assert old.poll() is None and slow.waiting() < size
            row = next(got.row() for got in slow.read_until() if got.tag == "D")
            assert len(row[0]) == size
            assert old.wait(30) == 0
            assert slow.value("select 'follows'") == "follows"
        finally:
            machine.end(old)


def test_takeover_in_the_middle_of_a_login(make_howdah):
    """Who takes long to prove who it is stays where it is, as who is in a transaction does."""
    howdah = make_howdah(auth_type="plain", workers=2)
    with howdah.raw() as slow, howdah.connect(user="admin", password="secret",
                                              database="postgres") as other:
        slow.send(wire.startup("admin", "postgres"))
        assert slow.read().body == struct.pack("!i", 3)
        old = begin_takeover(howdah)
        try:
            howdah.wait_for_log("took over 1 clients")
            slow.send(wire.password_message("secret"))
            slow.read_until()
            assert slow.value("select 'in'") == "in"
            slow.send(wire.terminate())
            assert old.wait(30) == 0
            assert other.value("select 'served'") == "served"
        finally:
            machine.end(old)


def still_serves(howdah, old, client):
    """A takeover came to nothing: the old process goes on, with clients old and new."""
    assert howdah.child.wait(30) == 1
    howdah.child = old
    assert howdah.running()
    assert client.value("select 'still'") == "still"
    with howdah.connect() as newcomer:
        assert newcomer.value("select 'new'") == "new"


def test_takeover_of_a_paused_process_is_refused(make_howdah):
    """As SUSPEND would be."""
    howdah = make_howdah()
    with howdah.connect() as client:
        client.value("select 1")
        howdah.console("PAUSE")
        old = begin_takeover(howdah)
        howdah.wait_for_log("cannot take over the old process: already suspended/paused")
        howdah.console("RESUME")
        still_serves(howdah, old, client)


def test_takeover_that_fails_late_is_taken_back(make_howdah):
    """The successor cannot listen where it should: everything goes back to the old process."""
    howdah = make_howdah(workers=2)
    with howdah.connect() as client:
        client.ask(parse("select 'kept'", "mine"), sync())
        config = os.path.join(howdah.folder, "other.ini")
        text = open(howdah.ini_path).read()
        text = text.replace("listen_addr = 127.0.0.1", f"listen_addr = 127.0.0.3, {machine.NO_HOST}")
        howdah._write_file(config, text)
        code, said = howdah.run_to_end("-R", config)
        assert code == 1 and machine.NO_HOST in said + howdah.log()
        howdah.wait_for_log("a new process did not take over")
        got = client.ask(bind("mine"), execute(), sync())
        assert [m.row() for m in got if m.tag == "D"] == [[b"kept"]]
        with howdah.connect() as newcomer:
            assert newcomer.value("select 'new'") == "new"
        take_over(howdah)
        got = client.ask(bind("mine"), execute(), sync())
        assert [m.row() for m in got if m.tag == "D"] == [[b"kept"]]


def test_takeover_with_unusable_certificates(make_howdah):
    """The successor finds out before it asks for anything: nobody loses a connection."""
    howdah = make_howdah()
    with howdah.connect() as client:
        config = os.path.join(howdah.folder, "other.ini")
        text = open(howdah.ini_path).read()
        howdah._write_file(config, text + "\nclient_tls_sslmode = require\n"
                           "client_tls_key_file = /no/such/key\n"
                           "client_tls_cert_file = /no/such/certificate\n")
        code, said = howdah.run_to_end("-R", config)
        assert code == 1 and "TLS setup failed" in said + howdah.log()
        assert "did not take over" not in howdah.log()
        assert client.value("select 1") == "1"


def test_takeover_without_anybody_there(make_howdah):
    """As PgBouncer: it starts as if -R had not been said."""
    howdah = make_howdah()
    howdah.stop()
    begin_takeover(howdah)
    machine.wait_until(howdah._listens, "it to listen")
    with howdah.connect() as client:
        assert client.value("select 1") == "1"


@pytest.mark.skipif(os.geteuid() != 0, reason="needs two users")
def test_somebody_else_behind_the_socket(make_howdah):
    """Who binds our socket in a folder that all may write to is another user: it hears no word."""
    howdah = make_howdah(start=False)
    with socket.socket(socket.AF_UNIX) as squatter:
        squatter.bind(howdah.socket_path)
        os.chmod(howdah.socket_path, 0o777)
        squatter.listen()
        squatter.settimeout(20)
        child = howdah.spawn("-R", howdah.ini_path, stdout=subprocess.PIPE,
                             stderr=subprocess.STDOUT, text=True)
        victim, _ = squatter.accept()
        victim.settimeout(20)
        assert victim.recv(100) == b""
        output, _ = child.communicate(timeout=20)
    assert child.returncode == 1
    assert "who listens on the unix socket has user id 0, not" in output, output


def test_other_versions_are_refused(make_howdah, system_programs):
    """A successor that speaks another version is told so, and nothing has changed."""
    howdah = make_howdah()
    with howdah.connect() as client:
        for command, said in [
            ("TAKEOVER 99", "takeover version 99 is not known, this process has 15"),
            ("TAKEOVER", "takeover version (none) is not known, this process has 15"),
        ]:
            child = machine.spawn(
                [system_programs.path("psql"), "-h", howdah.folder, "-p", str(howdah.port),
                 "-U", "pgbouncer", "-d", "pgbouncer", "-c", command],
                stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
            output, _ = child.communicate()
            assert said in output
        with admin(howdah) as console:
            assert "may take over" in refusal(console, "TAKEOVER 2")
        assert client.value("select 1") == "1"


def replace(howdah, **changes):
    """Writes the settings so that nobody reads half of them."""
    path = howdah.ini_path
    howdah.ini_path = path + ".new"
    howdah.write(**changes)
    os.replace(howdah.ini_path, path)
    howdah.ini_path = path


@pytest.mark.parametrize("by_signal", [False, True], ids=["console", "signal"])
def test_reload_while_a_successor_waits(make_howdah, by_signal):
    """The successor has read its settings, and waits; then they are changed, and the old process
    is told so: the successor has the new ones."""
    howdah = make_howdah(workers=2, suspend_timeout=60, default_pool_size=5)
    with admin(howdah) as console, howdah.connect() as inside:
        inside.rows("begin")
        old = begin_takeover(howdah)
        machine.wait_until(lambda: state(console)["suspended"] == "yes", "the successor to ask")
        replace(howdah, default_pool_size=6)
        mark = howdah.log_mark()
        if by_signal:
            old.send_signal(signal.SIGHUP)
            howdah.wait_for_log("got SIGHUP, re-reading config", since=mark)
        else:
            console_rows(console, "RELOAD")
        assert old.poll() is None
        inside.rows("commit")
        assert old.wait(30) == 0, howdah.said()
        rows = console_rows(console, "SHOW CONFIG")
        assert [row["value"] for row in rows if row["key"] == "default_pool_size"] == ["6"]
        assert inside.value("select 1") == "1"


def test_reloads_all_through_a_takeover(make_howdah):
    """Every RELOAD is answered, by one process or the other, and what it has read holds."""
    howdah = make_howdah(workers=2, default_pool_size=5)
    with admin(howdah) as console:
        for turn in range(3):
            old = begin_takeover(howdah)
            size = 10 + 100 * turn
            while old.poll() is None:
                size += 1
                replace(howdah, default_pool_size=size)
                # One at once: the process may change between them.
                console.send(query("RELOAD"), query("SHOW CONFIG"))
                tags = [got.tag for got in console.read_until()]
                assert tags == ["C", "Z"], tags
                got = console.read_until()
                rows = [m.row() for m in got if m.tag == "D"]
                assert [r[1] for r in rows if r[0] == b"default_pool_size"] == [b"%d" % size]
            assert old.wait() == 0, howdah.said()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can be several users")
def test_other_users_are_refused(make_howdah):
    """A process of another user gets nothing."""
    howdah = make_howdah()
    program = machine.readable_copy(howdah.program, os.path.dirname(howdah.folder))
    text = open(howdah.ini_path).read().replace("logfile", ";logfile")
    theirs = os.path.join(howdah.folder, "theirs.ini")
    howdah._write_file(theirs, text)
    for path, mode in [(os.path.dirname(howdah.folder), 0o711), (howdah.folder, 0o755), (theirs, 0o644), (howdah.users_path, 0o644)]:
        os.chmod(path, mode)
    with howdah.connect() as client:
        done = subprocess.run(
            ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", "--", program, "-R",
             theirs],
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=30)
        assert done.returncode == 1 and "cannot take over the old process" in done.stdout
        assert client.value("select 1") == "1"


# The service manager ----------------------------------------------------------------------------

class Notify:
    """The socket that systemd listens on for news."""

    def __init__(self, folder):
        self.path = os.path.join(folder, "notify")
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.socket.bind(self.path)
        os.chmod(self.path, 0o777)
        self.socket.settimeout(15)

    def next(self):
        """The next message, as a dictionary."""
        message = self.socket.recv(4096).decode()
        return dict(line.split("=", 1) for line in message.splitlines())


def spawn_activated(howdah, listeners, **environment):
    """Starts the process with listening sockets that are open already."""
    program = machine.readable_copy(howdah.program, os.path.dirname(howdah.folder))
    redirect = " ".join(f"{3 + n}<&{s.fileno()}" for n, s in enumerate(listeners))
    script = f'LISTEN_PID=$$ LISTEN_FDS={len(listeners)} exec "$0" --quiet "$1" {redirect}'
    howdah.child = machine.spawn(
        ["bash", "-c", script, program, howdah.ini_path], stdin=subprocess.DEVNULL,
        pass_fds=[s.fileno() for s in listeners], env={**os.environ, **environment})


def test_sockets_from_the_service_manager(make_howdah):
    """They are used instead of the addresses in the settings, and outlive the process."""
    howdah = make_howdah(start=False, workers=2)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        howdah.write(listen_port=howdah.port)
        address = listener.getsockname()
        for _ in range(2):
            mark = howdah.log_mark()
            spawn_activated(howdah, [listener])
            with wire.connect(address) as client:
                assert client.value("select 'activated'") == "activated"
                said = "ignoring listen_addr and unix_socket_dir"
                howdah.wait_for_log(said, since=mark)
                with pytest.raises(ConnectionRefusedError):
                    howdah.raw()
                client.send(wire.terminate())
            howdah.signal(signal.SIGTERM)
            assert howdah.wait() == 0
        # Nobody serves it now, but it was not shut down: who connects is queued for the next.
        with socket.create_connection(address) as queued:
            spawn_activated(howdah, [listener])
            queued.sendall(wire.startup("postgres", "postgres"))
            assert queued.recv(1) == b"R"


def test_what_the_service_manager_is_told(make_howdah):
    """READY, then RELOADING with the time and READY again, at last STOPPING."""
    howdah = make_howdah(start=False)
    notify = Notify(howdah.folder)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        spawn_activated(howdah, [listener], NOTIFY_SOCKET=notify.path)
        assert notify.next() == {"READY": "1"}
        howdah.signal(signal.SIGHUP)
        reloading = notify.next()
        assert reloading["RELOADING"] == "1" and int(reloading["MONOTONIC_USEC"]) > 0
        assert notify.next() == {"READY": "1"}
        howdah.signal(signal.SIGTERM)
        assert notify.next() == {"STOPPING": "1"}
        assert howdah.wait() == 0



def test_whom_the_service_manager_is_told_to_be_the_main_process(make_howdah):
    """The old process names its successor before it ends, and its own end is not the service's."""
    howdah = make_howdah(start=False)
    notify = Notify(howdah.folder)
    environment = {**os.environ, "NOTIFY_SOCKET": notify.path}
    howdah.child = howdah.spawn("--quiet", howdah.ini_path, env=environment)
    assert notify.next() == {"READY": "1"}
    with howdah.connect() as client:
        client.rows("begin")
        old, howdah.child = howdah.child, howdah.spawn("-R", "--quiet", howdah.ini_path,
                                                       env=environment)
        told = [notify.next(), notify.next()]
        main = {"MAINPID": str(howdah.child.pid)}
        assert main in told and {"READY": "1", **main} in told, told
        # One who was left behind: it is told to end, and the service is not.
        old.send_signal(signal.SIGHUP)
        old.send_signal(signal.SIGTERM)
    assert old.wait(30) == 0
    notify.socket.settimeout(0.5)
    with pytest.raises(TimeoutError):
        notify.next()
    howdah.signal(signal.SIGTERM)
    notify.socket.settimeout(15)
    assert notify.next() == {"STOPPING": "1"}


# A console that answers as PgBouncer's: AuthenticationOk, ReadyForQuery, one row, ReadyForQuery.
LIKE_PGBOUNCER = r"""
import socket, sys
listener = socket.socket(socket.AF_UNIX)
listener.bind(sys.argv[1])
listener.listen()
print("listens", flush=True)
client, _ = listener.accept()
client.recv(4096)
client.sendall(b"R\0\0\0\x08\0\0\0\0Z\0\0\0\5I")
client.recv(4096)
client.sendall(b"D\0\0\0\x1a\0\1\0\0\0\x10PgBouncer 1.25.2Z\0\0\0\5I")
client.recv(4096)
"""


def test_takeover_of_pgbouncer(make_howdah):
    """The slip of those who move: they are told whom they met, and what to do. So is who says -d:
    it is found out before the process goes into the background."""
    howdah = make_howdah(start=False, pidfile="pid")
    for options in ["-R"], ["-d", "-R"]:
        other = machine.spawn(["/usr/bin/python3", "-c", LIKE_PGBOUNCER, howdah.socket_path],
                              stdout=subprocess.PIPE, text=True)
        assert other.stdout.readline() == "listens\n"
        code, said = howdah.run_to_end(*options, howdah.ini_path)
        assert code == 1 and ("cannot take over the old process: PgBouncer 1.25.2 does not hand over "
                              "to Howdah: stop it, then start without -R") in said, said
        assert other.wait(30) == 0
        os.unlink(howdah.socket_path)


@pytest.mark.own
def test_reload_by_the_unit(make_howdah):
    """ExecReload: the same program reads its configuration anew, another one takes over."""
    howdah = make_howdah()
    script = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "packaging",
                          "howdah-reload")
    program = os.readlink(f"/proc/{howdah.child.pid}/exe")
    newer = os.path.join(howdah.folder, "howdah")
    shutil.copy2(program, newer)
    os.chmod(newer, 0o755)
    machine.hand_over(script_copy := shutil.copy2(script, howdah.folder))

    def reload(program, ini):
        child = machine.spawn(
            ["sh", script_copy, program, ini], stdin=subprocess.DEVNULL, text=True,
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, cwd=howdah.folder,
            env={**os.environ, "MAINPID": str(howdah.child.pid)})
        return child.wait(60)

    with howdah.connect() as client:
        mark = howdah.log_mark()
        assert reload(program, howdah.ini_path) == 0
        howdah.wait_for_log("got SIGHUP, re-reading config", since=mark)
        assert howdah.running()
        # A program that can't start leaves the running one alone.
        assert reload(newer, howdah.ini_path + ".missing") == 1
        assert howdah.running() and client.value("select 1") == "1"
        assert reload(newer, howdah.ini_path) == 0
        assert howdah.wait() == 0
        assert client.value("select 2") == "2"
    with pytest.raises(wire.Ended):
        howdah.console("SHUTDOWN")


# Two consoles that say TAKEOVER as nearly at once as can be, and then leave, whatever they hear.
TWO_AT_ONCE = r"""
import socket, struct, sys

def console():
    s = socket.socket(socket.AF_UNIX)
    s.settimeout(20)
    s.connect(sys.argv[1])
    body = struct.pack("!I", 196608) + b"user\0pgbouncer\0database\0pgbouncer\0\0"
    s.sendall(struct.pack("!I", len(body) + 4) + body)
    heard = b""
    while not heard.endswith(b"Z\0\0\0\5I"):
        heard += s.recv(4096)
    return s

for _ in range(20):
    both = [console(), console()]
    for one in both:
        one.sendall(b"Q\0\0\0\x0fTAKEOVER 2\0")
    for one in both:
        one.recv(1)
        one.close()
"""


def test_two_successors_at_once(make_howdah):
    """Of two processes that ask in the same moment one at most takes over; when both have gone
    away, everything goes on."""
    howdah = make_howdah(workers=2)
    with howdah.connect() as client:
        for turn in range(5):
            child = machine.spawn(["/usr/bin/python3", "-c", TWO_AT_ONCE, howdah.socket_path],
                                  stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
            output, _ = child.communicate(timeout=60)
            assert child.returncode == 0, output
            assert client.value(f"select {turn}") == str(turn)


# A successor that has received everything, and confirms only when it is told to.
SLOW_SUCCESSOR = r"""
import re, socket, struct, sys

s = socket.socket(socket.AF_UNIX)
s.settimeout(60)
s.connect(sys.argv[1])
body = struct.pack("!I", 196608) + b"user\0pgbouncer\0database\0pgbouncer\0\0"
s.sendall(struct.pack("!I", len(body) + 4) + body)

def say(command):
    body = command.encode() + b"\0"
    s.sendall(b"Q" + struct.pack("!I", len(body) + 4) + body)

def until_ready():
    heard = b""
    while not heard.endswith(b"Z\0\0\0\5I"):
        heard += s.recv(4096)
    return heard

until_ready()
say("TAKEOVER")
# The refusal names the version.
say('TAKEOVER "%d "' % int(re.search(rb"this process has (\d+)", until_ready())[1]))

def exactly(count):
    got = b""
    while len(got) < count:
        more = s.recv(count - len(got))
        assert more, got
        got += more
    return got

while True:
    tag, length = struct.unpack("!cI", exactly(5))
    exactly(length - 4)
    if tag == b"C":
        break
exactly(struct.unpack("!Q", exactly(8))[0])
socket.recv_fds(s, 1, 200)
s.sendall(b"\0")
print("received", flush=True)
sys.stdin.readline()
s.sendall(b"R")
print("heard", s.recv(1), flush=True)
"""


@pytest.mark.parametrize("drain", [False, True])
def test_a_stop_in_the_middle_of_a_takeover(make_howdah, drain):
    """The old process keeps everything and ends as it was told, for its listening sockets are shut
    down: the new process would have dead ones."""
    howdah = make_howdah(workers=2, **{"drain_delay": 2} if drain else {})
    with howdah.connect() as client:
        client.rows("set application_name to 'kept'")
        child = machine.spawn(["/usr/bin/python3", "-c", SLOW_SUCCESSOR, howdah.socket_path],
                              stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        assert child.stdout.readline() == "received\n"
        howdah.child.send_signal(signal.SIGINT if drain else signal.SIGTERM)
        howdah.wait_for_log("draining" if drain else "got SIGTERM, shutting down")
        output, _ = child.communicate("confirm\n", timeout=60)
        assert output == "heard b''\n"
        howdah.wait_for_log("did not take over: this process was told to end; going on")
        assert client.value("show application_name") == "kept"
    assert howdah.wait() == 0


def waiting(howdah):
    """Starts a successor that has read its settings, and waits for a password before it takes over.
    Gives the process, and the file that ends the wait."""
    program, end = (os.path.join(howdah.folder, name) for name in ("token", "end"))
    howdah._write_file(program, f"#!/bin/sh\nuntil [ -e {end} ]; do sleep 0.05; done; echo word\n")
    os.chmod(program, 0o755)
    config = os.path.join(howdah.folder, "other.ini")
    slow = f"[databases]\nslow = host=127.0.0.1 password_command={program}\n"
    text = open(howdah.ini_path).read().replace("[databases]\n", slow, 1)
    howdah._write_file(config, text)
    mark = howdah.log_mark()
    child = howdah.spawn("-R", "--quiet", config, stdin=subprocess.DEVNULL)
    howdah.wait_for_log("workers? on .* cores?", since=mark)
    return child, end


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGQUIT])
def test_a_waiting_successor_is_stopped(make_howdah, number):
    """The signal ends the process that got it, and the old one goes on."""
    howdah = make_howdah(workers=2)
    with howdah.connect() as client:
        assert client.value("select 1") == "1"
        mark = howdah.log_mark()
        child, _ = waiting(howdah)
        child.send_signal(number)
        assert child.wait(30) != 0
        assert "process up" not in howdah.log()[mark:]
        assert client.value("select 2") == "2"


def test_users_half_written_while_a_successor_waits(make_howdah):
    """The successor keeps the users that it has read before, as a reload would."""
    howdah = make_howdah(workers=2, auth_type="md5", secrets={"ann": "secret"})
    with howdah.connect(password=howdah.secrets["postgres"]) as client:
        old = howdah.child
        howdah.child, end = waiting(howdah)
        text = open(howdah.users_path).read()
        howdah._write_file(howdah.users_path, text[:text.index('"ann"') + 7])
        mark = howdah.log_mark()
        howdah._write_file(end, "")
        assert old.wait(30) == 0, howdah.said()
        howdah.wait_for_log("what was read before holds", since=mark)
        with pytest.raises(wire.Refused) as refused:
            howdah.connect(user="ann", password="wrong")
        assert refused.value.code == "28P01"
        assert client.value("select 1") == "1"
        assert "no such user: ann" not in howdah.log()[mark:]


def test_a_successor_that_gets_no_threads_or_descriptors(make_howdah):
    """The successor finds out before it asks for anything."""
    howdah = make_howdah()
    with howdah.connect() as client:
        config = os.path.join(howdah.folder, "other.ini")
        text = open(howdah.ini_path).read()
        howdah._write_file(config, text + "\nworkers = 200\n")
        howdah.files = 64
        code, said = howdah.run_to_end("-R", config)
        assert code == 1 and "cannot start worker" in said, said
        assert "a new process takes over" not in howdah.log()
        assert client.value("select 1") == "1"


def next_error(client):
    (error,) = [reply for reply in client.read_to_end() if reply.tag == "E"]
    return error.fields()["C"]


@pytest.mark.parametrize("workers", [1, 3])
def test_who_listens_is_told(make_howdah, workers):
    """A client that listens gets 57P01 between two transactions, whatever listen_lost says, and
    the old process ends."""
    howdah = make_howdah(default_pool_size=3, listen="share", listen_lost="notice", workers=workers)
    with howdah.connect() as idle, howdah.connect() as inside, howdah.connect() as quiet:
        idle.rows("listen c")
        inside.rows("listen c")
        inside.rows("begin")
        inside.rows("listen d")
        old = begin_takeover(howdah)
        try:
            assert next_error(idle) == "57P01"
            quiet.rows("notify c, 'x'")
            inside.send(query("notify c, 'own'"))
            inside.read_until("Z")
            assert old.poll() is None
            inside.send(query("commit"))
            assert inside.read_until("Z")[0].tag == "C"
            assert next_error(inside) == "57P01"
            assert old.wait(30) == 0, howdah.said()
        finally:
            machine.end(old)
        with howdah.connect() as again:
            again.rows("listen c")
            quiet.rows("notify c, 'y'")
            assert again.read().body.endswith(b"c\0y\0")
