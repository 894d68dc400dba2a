"""Failovers of PostgreSQL that are not plain: silence, two primaries, hosts that do not belong."""

import contextlib
import signal
import struct
import threading

import pytest

from harness import machine, postgres as pg, wire
from harness.load import Load
from harness.scripted import ScriptedServer, answer, ready, welcome
from test_roles import where

pytestmark = [pytest.mark.timeout(120), pytest.mark.one_driver]

# The check's user must have TLS; others may.
RULES = ("hostnossl all checker 127.0.0.1/32 reject", "host all locked 127.0.0.1/32 scram-sha-256",
         "host all all 127.0.0.1/32 trust", "host replication all 127.0.0.1/32 trust")


class Family:
    """A primary and two standbys of it, in whatever roles tests have left them."""

    def __init__(self, programs, scratch, certificate):
        first = pg.Postgres(programs, scratch, "family0", wal_log_hints="on", full_page_writes="on",
                            wal_keep_size="256MB")
        first.use_tls(certificate, hba=RULES)
        first.sql("""
            create role checker login; grant pg_monitor to checker;
            create role locked login password 'secret';
            create role looked_up login password 'secret';
            create role looker login superuser;
            create table written (id int);
            grant all on written to public;
        """)
        self.hosts = [first]
        self.hosts += [pg.Standby(first, scratch, f"family{i}") for i in (1, 2)]
        self.primary = first

    @property
    def standbys(self):
        """Those that are not the primary."""
        return [host for host in self.hosts if host is not self.primary]

    def heal(self):
        """Makes the host on the highest timeline the primary, and the others its standbys."""
        for host in self.hosts:
            if not host.child:
                host.start()
        promoted = [host for host in self.hosts if not host.is_standby()]
        self.primary = max(promoted, key=timeline)
        for host in self.standbys:
            if not host.is_standby_of(self.primary):
                host.follow(self.primary)
        machine.wait_until(lambda: all(host.is_standby_of(self.primary) for host in self.standbys),
                           "standbys that stream")

    def stop(self):
        """Ends all of them."""
        for host in self.hosts:
            host.stop(signal.SIGQUIT)


@pytest.fixture(scope="module")
def whole_family(system_programs, scratch, authority):
    family = Family(system_programs, scratch, authority.issue())
    yield family
    family.stop()


@pytest.fixture
def family(whole_family):
    """A primary and two standbys that stream from it."""
    whole_family.heal()
    return whole_family


def timeline(host):
    """The timeline that a primary writes."""
    name = host.value("select pg_walfile_name(pg_current_wal_insert_lsn())")
    return int(name[:8], 16)


def entry(hosts, wish):
    """A database at these hosts, or at their copies."""
    ports = ",".join(str(host.port) for host in hosts)
    names = ",".join(["127.0.0.1"] * len(hosts))
    return f"host={names} port={ports} dbname=postgres target_session_attrs={wish}"


@pytest.fixture
def make(make_howdah, authority):
    """Starts a Howdah with databases `rw` and `ro` at these hosts, and waits for their roles."""
    def start(hosts, databases=None, **settings):
        settings = {"host_check_user": "checker", "host_check_timeout": "0.5",
                    "server_tls_sslmode": "verify-full",
                    "server_tls_ca_file": authority.certificate, **settings}
        databases = databases or {"rw": entry(hosts, "primary"), "ro": entry(hosts, "standby")}
        howdah = make_howdah(postgres=hosts[0], databases=databases, **settings)
        machine.wait_until(lambda: not any(row["why"] == "has not told its role yet"
                                           for row in howdah.console("SHOW HOSTS")), "roles")
        return howdah
    return start


def shown(howdah, host):
    """The row of SHOW HOSTS about a host."""
    return next(row for row in howdah.console("SHOW HOSTS") if int(row["port"]) == host.port)


def is_shown(howdah, host, role, state="up"):
    """Whether SHOW HOSTS says so."""
    row = shown(howdah, host)
    return (row["role"], row["state"]) == (role, state)


def wait_for(howdah, host, role, state="up"):
    """Waits until SHOW HOSTS says so."""
    machine.wait_until(lambda: is_shown(howdah, host, role, state), f"{host.port} to be {role}, {state}")


def name(host):
    """The host as the log and the console name it."""
    return f"127.0.0.1:{host.port}"


@contextlib.contextmanager
def writing(howdah, *clients):
    """Each client, or else a newcomer to the database `rw`, writes a row meanwhile. Gives the list of the ports
    where they did; behind this, all have."""
    told = []

    def write(client):
        with client or howdah.connect(database="rw", seconds=40) as writer:
            writer.rows("insert into written values (1)")
            told.append(where(writer))
    threads = [threading.Thread(target=write, args=(client,), daemon=True) for client in clients or [None]]
    for thread in threads:
        thread.start()
    yield told
    for thread in threads:
        thread.join(40)
    assert len(told) == len(threads)


def test_a_silent_primary_is_left_and_comes_back_as_a_standby(make, family):
    """It has all servers that max_db_connections permits. Clients between two transactions go on at the next
    primary. Once it speaks again it is fenced, until pg_rewind has made a standby of it."""
    old, new = family.primary, family.standbys[0]
    howdah = make(family.hosts, max_db_connections=3, workers=2, pool_spread="always", databases={
        "rw": entry(family.hosts, "primary") + " pool_size=3", "ro": entry(family.hosts, "standby")})
    clients = [howdah.connect(database="rw", seconds=40) for _ in range(3)]
    for client in clients:
        client.rows("begin; insert into written values (0)")
    for client in clients[1:]:
        client.rows("commit")
    assert shown(howdah, old)["servers"] == "3"
    with old.frozen():
        howdah.wait_for_log(f"host {name(old)} is silent")
        with writing(howdah, *clients[1:]) as told:
            howdah.wait_for_pool("rw", cl_waiting=2)
            new.promote()
        assert told == [new.port] * 2
        assert clients[0].read_to_end()[-1].fields()["M"] == "server conn crashed?"
    wait_for(howdah, old, "unknown", "fenced")
    machine.wait_until(lambda: old.sessions("postgres", "postgres") == 0, "PostgreSQL to notice")
    assert shown(howdah, old)["servers"] == "0"
    old.rewind(new)
    wait_for(howdah, old, "standby")
    howdah.wait_for_log(f"host {name(old)} is no longer fenced")
    with howdah.connect(database="ro") as reader:
        machine.wait_until(lambda: where(reader) == old.port, "work for the host that is back")


def test_a_silence_that_ends(make, family):
    """A silent standby's clients go to the other one. No other host can do the primary's work: its servers stay,
    and transactions go on where they were."""
    primary, (silent, other) = family.primary, family.standbys
    howdah = make(family.hosts, workers=2)
    with howdah.connect(database="rw", seconds=40) as writer, howdah.connect(database="ro", seconds=40) as reader:
        machine.wait_until(lambda: where(reader) == silent.port, "work for each standby")
        with silent.frozen():
            wait_for(howdah, silent, "standby", "silent")
            assert {where(reader) for _ in range(10)} == {other.port}
        machine.wait_until(lambda: where(reader) == silent.port, "work for the standby that speaks again")
        writer.rows("begin; insert into written values (1)")
        with writing(howdah) as told:
            with primary.frozen():
                wait_for(howdah, primary, "primary", "silent")
                howdah.wait_for_pool("rw", cl_waiting=1)
        assert told == [primary.port]
        writer.rows("commit")
        assert where(writer) == primary.port


def test_planned_switchovers_under_load(make, family):
    """The primary ends in order, its standby takes over, and then the other way round: no wrong answer, nothing
    that was confirmed is lost."""
    old, new = family.primary, family.standbys[0]
    howdah = make([old, new])
    load = Load(howdah.address, howdah.address, database="rw", seconds=4, faults=True)
    for _ in range(2):
        machine.wait_until(lambda: new.is_standby_of(old), "a standby that follows")
        old.stop()
        new.promote()
        machine.wait_until(lambda: not new.is_standby(), "a promotion")
        old.stand_by_for(new)
        old, new = new, old
    assert load.result()["unexpected"] > 0


def test_of_two_primaries_the_operator_chooses(make, family):
    """Both were promoted before Howdah came, so it can't know which one is right."""
    old, (first, second) = family.primary, family.standbys
    for host in (first, second):
        host.promote()
        machine.wait_until(lambda: not host.is_standby(), "a promotion")
    howdah = make(family.hosts)
    both = [name(host) for host in family.hosts if host is not old]
    howdah.wait_for_log(f"ERROR two primaries: {both[0]} and {both[1]} take writes: writers wait")
    howdah.wait_for_log(f"ERROR host {name(old)} is fenced: takes writes on timeline")
    with writing(howdah) as told:
        reason = machine.wait_until(lambda: next(
            (row["verdict"] for row in howdah.console("SHOW VERDICT") if row["database"] == "rw"), None),
            "a writer that waits")
        assert reason.startswith("1 client waits: no primary: ")
        for host in both:
            assert f"{host} takes writes, and other hosts do or may do so, too" in reason
        assert [host.sessions(user="postgres") for host in (first, second)] == [0, 0]
        howdah.console(f"DRAIN_HOST {both[0]}")
    assert told == [second.port]
    howdah.console(f"RESUME_HOST {both[0]}")
    wait_for(howdah, first, "unknown", "fenced")
    assert is_shown(howdah, second, "primary")


def test_a_wrong_promotion_is_undone(make, family):
    """A drained standby can be promoted for a trial. One that is not drained is the primary from then on, and
    the old primary comes back only by two orders."""
    old, wrong = family.primary, family.standbys[0]
    howdah = make(family.hosts)
    howdah.console(f"DRAIN_HOST {name(wrong)}")
    wait_for(howdah, wrong, "standby", "drained")
    wrong.promote()
    wait_for(howdah, wrong, "unknown", "drained")
    with howdah.connect(database="rw", seconds=40) as client:
        assert where(client) == old.port
        howdah.console(f"RESUME_HOST {name(wrong)}")
        wait_for(howdah, wrong, "primary")
        wait_for(howdah, old, "unknown", "fenced")
    with howdah.connect(database="rw", seconds=40) as client:
        assert where(client) == wrong.port
        mark = howdah.log_mark()
        howdah.console(f"RESUME_HOST {name(old)}")
        howdah.wait_for_log(f"host {name(old)} is fenced", since=mark)
        assert where(client) == wrong.port
        howdah.console(f"DRAIN_HOST {name(wrong)}")
        wait_for(howdah, wrong, "unknown", "drained")
        howdah.console(f"RESUME_HOST {name(old)}")
        assert where(client) == old.port
    wrong.follow(old)
    howdah.console(f"RESUME_HOST {name(wrong)}")
    wait_for(howdah, wrong, "standby")
    assert is_shown(howdah, old, "primary")


def test_another_postgresql_is_fenced(make, family, scratch):
    """Nobody is sent to a PostgreSQL with other data, even if it takes writes."""
    programs = pg.Programs(family.primary.version, family.primary.programs.bin, machine.folder(scratch, "foreign"))
    foreign = pg.Postgres(programs, scratch, "foreigner")
    try:
        foreign.sql("create role checker login; grant pg_monitor to checker")
        hosts = [foreign, family.primary]
        howdah = make([family.primary], server_tls_sslmode="prefer", server_tls_ca_file=None)
        howdah.sections["databases"] = {"rw": entry(hosts, "primary"), "any_ro": entry(hosts, "prefer-standby")}
        howdah.write()
        howdah.reload()
        wait_for(howdah, foreign, "unknown", "fenced")
        howdah.wait_for_log(f"ERROR host {name(foreign)} is fenced: has another system identifier than "
                            f"{name(family.primary)}")
        for database in ("rw", "any_ro"):
            with howdah.connect(database=database) as client:
                assert {where(client) for _ in range(6)} == {family.primary.port}
        howdah.console(f"RESUME_HOST {name(foreign)}")
        wait_for(howdah, foreign, "unknown", "fenced")
    finally:
        foreign.stop(signal.SIGQUIT)


def test_a_failover_during_pause(make, family):
    """Hosts are checked meanwhile. The new primary's timeline is known before its first checkpoint, of which
    pg_control would tell it. All connections are in TLS, with checked certificates."""
    old, new = family.primary, family.standbys[0]
    howdah = make(family.hosts)
    before = timeline(old)
    with howdah.connect(database="rw", seconds=40) as client:
        # Pages for the checkpoint after the promotion, which takes its time for each of them.
        client.rows("insert into written select generate_series(1, 100000)")
        howdah.console("PAUSE")
        old.stop()
        new.promote()
        wait_for(howdah, new, "primary")
        machine.wait_until(lambda: shown(howdah, new)["timeline"] == str(before + 1), "the new timeline")
        assert new.value("select timeline_id from pg_control_checkpoint()") == str(before)
        with writing(howdah, client) as told:
            howdah.wait_for_pool("rw", cl_waiting=1)
            assert new.sessions(user="postgres") == 0
            howdah.console("RESUME")
        assert told == [new.port]
    plain = "select count(*) from pg_stat_ssl join pg_stat_activity using (pid) where not ssl and client_port > 0"
    assert new.value(plain + " and pid <> pg_backend_pid()") == "0"


def test_users_are_looked_up_while_there_is_no_primary(make, family):
    """A standby knows them, too."""
    old, new = family.primary, family.standbys[0]
    howdah = make(family.hosts, auth_type="scram-sha-256", auth_user="looker", workers=2)

    def log_in(database):
        return howdah.connect(database=database, user="looked_up", password="secret", seconds=40)
    with log_in("rw") as client:
        assert where(client) == old.port
    old.stop(signal.SIGQUIT)
    howdah.wait_for_log(f"host {name(old)} is down")
    with log_in("ro") as reader:
        assert where(reader) in {host.port for host in family.standbys}
    with log_in("rw") as client, writing(howdah, client) as told:
        howdah.wait_for_pool("rw", "looked_up", cl_waiting=1)
        new.promote()
    assert told == [new.port]
    with pytest.raises(wire.Refused, match="password authentication failed"):
        howdah.connect(database="rw", user="looked_up", password="wrong")


def test_a_check_that_can_not_log_in(make, family):
    """Roles come from logins then. SHOW HOSTS says what is missing, the log says so once a minute."""
    howdah = make(family.hosts, host_check_user="locked", secrets={"locked": "wrong"})
    with howdah.connect(database="rw", seconds=40) as client:
        assert where(client) == family.primary.port
    with howdah.connect(database="ro", seconds=40) as reader:
        assert where(reader) in {host.port for host in family.standbys}
    for host in family.hosts:
        refused = 'password authentication failed for user "locked"'
        machine.wait_until(lambda: host.log().count(f"FATAL:  {refused}") >= 3, "three checks")
        assert shown(howdah, host)["why"] == f"its check fails: {refused}"
        assert howdah.log().count(f"host {name(host)}: its check can't find everything") == 1


class Liar(ScriptedServer):
    """Lets everybody in, and answers all queries alike."""

    def __init__(self, reply):
        super().__init__(self.lie)
        self.reply = reply

    def lie(self, peer):
        """Serves a connection until the other side closes it."""
        peer.startup()
        peer.send(welcome())
        while peer.read().tag == "Q":
            peer.send(self.reply)


def test_checks_answered_with_garbage(make, family):
    """The role of such a host is unknown, and the others are used."""
    nulls = wire.message("D", struct.pack("!h", 7) + b"\xff\xff\xff\xff" * 7)
    rows = answer("t", "1", "2", "3", "4", "4", "off").removesuffix(ready())
    long = answer("t", "1", "2", "3", "x" * (1 << 20), "4", "off")
    liars = [(Liar(nulls + ready()), "its answer is no row of a check"),
             (Liar(answer("t", "f", "t")), "its answer is no row of a check"),
             (Liar(ready()), "it gives no row"),
             (Liar(rows * 2 + ready()), "its answer has several rows"),
             (Liar(long), "its answer is too long, or is not PostgreSQL's")]
    with contextlib.ExitStack() as stack:
        for liar, _ in liars:
            stack.enter_context(liar)
        howdah = make([*[liar for liar, _ in liars], family.primary], server_tls_sslmode="prefer",
                      server_tls_ca_file=None)
        for liar, why in liars:
            machine.wait_until(lambda: shown(howdah, liar)["why"] == f"its check fails: {why}", why)
            assert is_shown(howdah, liar, "unknown")
        # What follows such a row can't be read: the check connects anew.
        machine.wait_until(lambda: liars[-1][0].connections > 3, "further connections")
        with howdah.connect(database="rw") as client:
            assert where(client) == family.primary.port


def test_a_thousand_databases_have_one_check_of_each_host(make, family):
    """However many workers there are."""
    databases = {f"d{i}": entry(family.hosts, ["primary", "standby"][i % 2]) for i in range(1000)}
    howdah = make(family.hosts, databases=databases, workers=3)
    with howdah.connect(database="d998") as writer, howdah.connect(database="d999") as reader:
        assert where(writer) == family.primary.port
        assert where(reader) != family.primary.port
    assert [host.sessions(user="checker") for host in family.hosts] == [1, 1, 1]
