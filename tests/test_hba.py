"""auth_type = hba: rules by connection, database, user and address; ident maps; peer logins."""

import os
import pwd
import re
import signal
import struct

import pytest

from harness import logins, machine, wire
from harness.logins import nameless

pytestmark = [pytest.mark.timeout(60), pytest.mark.one_driver]

ME = pwd.getpwuid(os.geteuid()).pw_name
CONSOLE_RULE = "host pgbouncer admin 127.0.0.1/32 trust"
NO_RULE = "no pg_hba.conf entry"
REJECTED = "pg_hba.conf rejects connection"
NOT_A_PEER = "Peer authentication failed"
RELOAD_FAILED = "RELOAD failed, see logs for additional details"
LISTED = {"ann": "secret", "bob": "secret", "md5": wire.md5_secret("md5", "secret"),
          "scram": wire.scram_secret("secret")}


@pytest.fixture
def with_rules(make_howdah, postgres):
    """Starts a Howdah with these rules and ident maps; all its databases log in as postgres."""
    def make(*rules, maps=(), start=True, forced=True, **options):
        target = f"host={postgres.host} port={postgres.port}"
        databases = {"*": f"{target} dbname=postgres user=postgres"} if forced else {"*": target}
        howdah = make_howdah(start=False, databases=databases, secrets={**LISTED, ME: ""},
                             **options)
        write_rules(howdah, *rules, maps=maps)
        howdah.write(auth_type="hba", auth_hba_file=path(howdah, "hba.conf"),
                     auth_ident_file=path(howdah, "ident.conf"))
        return howdah.start() if start else howdah
    return make


def path(howdah, name):
    return os.path.join(howdah.folder, name)


def write_rules(howdah, *rules, maps=()):
    """Replaces the rules (behind one that lets us use the console) and the ident maps."""
    howdah._write_file(path(howdah, "hba.conf"), "\n".join([CONSOLE_RULE, *rules, ""]))
    howdah._write_file(path(howdah, "ident.conf"), "\n".join([*maps, ""]))


def over_unix(howdah, **options):
    """A client of the unix socket, logged in."""
    return wire.connect(howdah.socket_path, **{"database": "postgres", **options})


def refusal(connect, **options):
    """The text with which a login is refused, without the names in it."""
    with pytest.raises(wire.Refused) as refused:
        connect(**options)
    return nameless(refused.value.text)


def asked(howdah, user):
    """The code of the first authentication request to a user, over TCP."""
    with howdah.raw() as client:
        client.send(wire.startup(user, "postgres"))
        got = client.read()
        assert got.tag == "R", got
        return struct.unpack_from("!i", got.body)[0]


# Methods ----------------------------------------------------------------------------------------

@pytest.mark.parametrize("method, user, code", [
    ("trust", "ann", 0), ("password", "ann", 3), ("password", "scram", 3), ("md5", "ann", 5),
    ("md5", "md5", 5), ("md5", "scram", 10), ("scram-sha-256", "ann", 10),
    ("scram-sha-256", "scram", 10),
])
def test_method(with_rules, method, user, code):
    """What is asked for is what the rule says; the right password opens, a wrong one does not,
    and a user nobody knows is refused."""
    howdah = with_rules(f"host all all 127.0.0.1/32 {method}")
    assert asked(howdah, user) == code
    with howdah.connect(user=user, password="secret") as client:
        assert client.value("select 1") == "1"
    for name in ("nobody_at_all", *([] if method == "trust" else [user])):
        with pytest.raises(wire.Refused) as refused:
            howdah.connect(user=name, password="wrong")
        assert refused.value.code == ("28000" if method == "trust" else "28P01")


@pytest.mark.parametrize("rule, said", [
    ("host all all all reject", REJECTED),
    ("hostssl all all all trust", NO_RULE),
    ("host other all all trust", NO_RULE),
    ("host all bob all trust", NO_RULE),
    ("host all all 10.0.0.0/8 trust", NO_RULE),
    ("host all all ::/0 trust", NO_RULE),
    ("local all all trust", NO_RULE),
    ("", NO_RULE),
    ("host all all all peer", NOT_A_PEER),
    ("host all all all cert", "certificate authentication failed"),
])
def test_refused(with_rules, rule, said):
    """Who is refused before any password is told PostgreSQL's text; the log has PgBouncer's."""
    howdah = with_rules(rule)
    assert logins.refusal(howdah, user="ann", password="secret") == ("28000", said)
    logged = {NO_RULE: "no authentication method is found", REJECTED: "login rejected",
              NOT_A_PEER: "unix socket login rejected"}.get(said, said)
    howdah.wait_for_log(rf"postgres/ann@127.0.0.1:\d+ closing because: {logged} \(age")


def test_first_rule_that_fits(with_rules):
    """Order decides, by user, database, address and kind of connection."""
    howdah = with_rules(
        "host  sales,stock ann       127.0.0.1/32                 reject",
        "host  sameuser    all       127.9.9.9 255.0.0.0          trust",
        "host  \"all\"       bob       127.0.0.1/32                 reject",
        "local sales       all                                    reject",
        "local all         all                                    trust",
        "hostnossl all     ann,\"bob\" all                          trust")
    for database, user, over_tcp, local in [
        ("sales", "ann", REJECTED, REJECTED), ("stock", "ann", REJECTED, None),
        ("ann", "ann", None, None), ("bob", "bob", None, None), ("all", "bob", REJECTED, None),
        ("sales", "bob", None, REJECTED), ("other", "scram", NO_RULE, None),
    ]:
        for connect, said in ((howdah.connect, over_tcp),
                              (lambda **who: over_unix(howdah, **who), local)):
            if said:
                assert refusal(connect, user=user, database=database) == said
            else:
                with connect(user=user, database=database) as client:
                    assert client.value("select 1") == "1"


def test_file_of_names(with_rules):
    """@file stands for the names in it; its path starts where the rules are."""
    howdah = with_rules("host all @names all trust", start=False)
    howdah._write_file(path(howdah, "names"), "# who may\n\nann, \"md5\"\n")
    howdah.start()
    for user in ("ann", "md5"):
        howdah.connect(user=user).close()
    assert refusal(howdah.connect, user="bob") == NO_RULE


def test_replication(with_rules):
    """Physical replication needs the word `replication`; logical goes by the database."""
    howdah = with_rules("host replication ann all trust", "host postgres bob all trust",
                        "host all scram all trust")
    howdah.connect(user="ann", replication="true").close()
    howdah.connect(user="bob", replication="database").close()
    howdah.connect(user="bob").close()
    assert refusal(howdah.connect, user="ann") == NO_RULE
    assert refusal(howdah.connect, user="ann", replication="database") == NO_RULE
    assert refusal(howdah.connect, user="bob", replication="true") == NO_RULE
    assert refusal(howdah.connect, user="scram", replication="on") == NO_RULE


def test_console(with_rules):
    """Rules hold for the console, too."""
    howdah = with_rules("host pgbouncer ann all reject", "host all all all trust",
                        admin_users="admin,ann")
    assert refusal(howdah.connect, database="pgbouncer", user="ann") == REJECTED
    assert refusal(howdah.connect, database="pgbouncer") == 'permission denied for database "pgbouncer"'
    assert howdah.console("SHOW VERSION")


def test_console_with_a_wish_to_replicate(with_rules):
    """Rules for replication say nothing about the console, whatever its client asks for."""
    howdah = with_rules("host replication all all trust", "host pgbouncer ann all reject",
                        admin_users="admin,ann")
    for replication in ("true", "database"):
        assert refusal(howdah.connect, database="pgbouncer", user="ann",
                       replication=replication) == REJECTED


@pytest.mark.parametrize("name", ["pgbouncer", "howdah"])
def test_console_by_its_other_name(with_rules, name):
    """A rule for one of the console's names holds for both."""
    howdah = with_rules(f"host {name} ann all reject", "host all all all trust",
                        admin_users="admin,ann")
    for database in ("pgbouncer", "howdah"):
        assert refusal(howdah.connect, database=database, user="ann") == REJECTED


# auth_query -------------------------------------------------------------------------------------

def test_looked_up(with_rules):
    """Who does not stand in the user file is looked up, and then logs in as the rule says."""
    howdah = with_rules("host all scram_user all scram-sha-256", "host all md5_user all md5",
                        "host all plain_user all trust", "host all all all password",
                        auth_user="admin", forced=False)
    assert [asked(howdah, user) for user in ("scram_user", "md5_user", "plain_user", "limited")] \
        == [10, 5, 0, 3]
    for user in ("scram_user", "md5_user", "plain_user"):
        with howdah.connect(user=user, password="secret") as client:
            assert client.value("select current_user") == user
    assert refusal(howdah.connect, user="nobody_at_all") == "password authentication failed"


def test_refused_without_a_look(with_rules):
    """A rule that refuses costs PostgreSQL nothing."""
    howdah = with_rules("host all md5_user all reject", "host all ann all trust",
                        auth_user="admin", auth_query="broken")
    assert refusal(howdah.connect, user="md5_user") == REJECTED
    assert refusal(howdah.connect, user="scram_user") == NO_RULE
    assert howdah.pool("postgres", "admin") is None


@pytest.mark.parametrize("workers", [1, 2])
def test_peer_looked_up(with_rules, workers):
    """A peer must be a user we know: from the user file, or from PostgreSQL."""
    howdah = with_rules("local all all peer map=us", maps=[f"us {ME} all"], forced=False,
                        auth_user="admin", workers=workers)
    for _ in range(3):
        with over_unix(howdah, user="plain_user") as client:
            assert client.value("select current_user") == "plain_user"
    assert refusal(lambda: over_unix(howdah, user="nobody_at_all")) == "password authentication failed"


# peer -------------------------------------------------------------------------------------------

def test_peer(with_rules):
    """The system's user is let in under its own name, and under no other."""
    howdah = with_rules("local all all peer", verbose=2)
    with over_unix(howdah, user=ME) as client:
        assert client.value("select 1") == "1"
    howdah.wait_for_log(f"postgres/{ME}@unix.* HBA Line 2 is matched")
    assert refusal(lambda: over_unix(howdah, user="ann")) == NOT_A_PEER
    howdah.wait_for_log(f"WARNING .*postgres/ann@unix.* the system's user is {ME}, not ann")
    assert refusal(lambda: over_unix(howdah, user="nobody_at_all")) == NOT_A_PEER


def test_peer_with_map(with_rules):
    """An ident map says whom else the system's user may be."""
    howdah = with_rules("local sales all peer map=few", "local all all peer map=any",
                        maps=[f"few {ME} ann", f"few {ME} \"scram\"", "few someone_else bob",
                              f"any {ME} all"])
    for user in ("ann", "scram"):
        over_unix(howdah, database="sales", user=user).close()
    over_unix(howdah, user="bob").close()
    for user in ("bob", ME):
        mark = howdah.log_mark()
        connect = {"database": "sales", "user": user}
        assert refusal(lambda connect=connect: over_unix(howdah, **connect)) == NOT_A_PEER
        howdah.wait_for_log(f"ERROR .*sales/{user}@unix.* ident map few cannot be matched", mark)


def test_peer_that_says_more(with_rules):
    """What a client sends behind its start-up packet waits until it is let in."""
    howdah = with_rules("local all all peer map=any", maps=[f"any {ME} all"])
    with wire.Wire(howdah.socket_path) as client:
        client.send(wire.startup("ann", "postgres") + wire.query("select 41 + 1"))
        client.read_until("Z")
        got = client.read_until("Z")
        assert [message.row() for message in got if message.tag == "D"] == [[b"42"]]


def test_peers_that_leave(with_rules):
    """Clients that are gone before they are let in harm nobody."""
    howdah = with_rules("local all all peer map=any", maps=[f"any {ME} all"])
    for _ in range(50):
        with wire.Wire(howdah.socket_path) as client:
            client.send(wire.startup("ann", "postgres"))
    with over_unix(howdah, user="ann") as client:
        assert client.value("select 1") == "1"


# Reload and mistakes ----------------------------------------------------------------------------

@pytest.mark.parametrize("by_signal", [False, True])
def test_reload(with_rules, by_signal):
    """A reload reads rules and maps anew; one with a mistake in them changes nothing at all."""
    howdah = with_rules("host all ann all trust", "local all all peer map=m",
                        maps=[f"m {ME} ann"])

    def reload():
        mark = howdah.log_mark()
        if not by_signal:
            return howdah.reload()
        howdah.signal(signal.SIGHUP)
        return howdah.wait_for_log("got SIGHUP", mark)

    def until_refused(**options):
        """By signal nobody says when it is done: asks until the new rules hold."""
        machine.wait_until(lambda: not lets_in(**options), f"{options} to be refused")

    def lets_in(at=None, **options):
        try:
            wire.connect(at or howdah.address, **{"database": "postgres", **options}).close()
            return True
        except wire.Refused:
            return False

    assert lets_in(user="ann") and not lets_in(user="bob")
    assert lets_in(at=howdah.socket_path, user="ann")
    write_rules(howdah, "host all bob all trust", "local all all peer map=m", maps=[f"m {ME} bob"])
    reload()
    until_refused(user="ann")
    assert lets_in(user="bob")
    assert lets_in(at=howdah.socket_path, user="bob")
    assert not lets_in(at=howdah.socket_path, user="ann")
    for rules, maps, said in [
        (["host all all all trust", "host all all all magic"], [f"m {ME} all"],
         r"could not parse hba config line 3: unsupported method magic .*hba.conf:3"),
        (["local all all peer map=gone"], [f"m {ME} all"],
         "could not parse hba config line 2: there is no ident map gone"),
        (["host all all all trust"], ["m"], "could not parse ident config line 1"),
    ]:
        write_rules(howdah, *rules, maps=maps)
        howdah.write(default_pool_size="7")
        mark = howdah.log_mark()
        if by_signal:
            reload()
        else:
            assert refusal(reload) == RELOAD_FAILED
        howdah.wait_for_log(f"ERROR {said}", mark)
        howdah.wait_for_log("WARNING config file loading failed", mark)
        assert lets_in(user="bob") and not lets_in(user="ann")
        assert not lets_in(at=howdah.socket_path, user="ann")
        assert howdah.setting("default_pool_size") == "20"


def test_reload_without_the_file(with_rules):
    """Rules that are gone stay in force."""
    howdah = with_rules("host all ann all trust")
    os.unlink(path(howdah, "hba.conf"))
    assert refusal(howdah.reload) == RELOAD_FAILED
    howdah.wait_for_log("ERROR could not open hba config file .*hba.conf: No such file")
    howdah.connect(user="ann").close()


def test_to_hba_and_back(with_rules):
    """auth_type may change by a reload; SET reads no files."""
    howdah = with_rules("host all ann all reject")
    assert refusal(howdah.connect, user="ann") == REJECTED
    howdah.write(auth_type="trust")
    howdah.reload()
    howdah.connect(user="ann").close()
    with pytest.raises(wire.Refused):
        howdah.console("SET auth_type = 'hba'")
    howdah.connect(user="ann").close()
    howdah.write(auth_type="hba")
    howdah.reload()
    assert refusal(howdah.connect, user="ann") == REJECTED


@pytest.mark.parametrize("rule, said", [
    ("lokal all all trust", "unknown type lokal"),
    ("hostgssenc all all all trust", "unknown type hostgssenc"),
    ("include_dir conf.d", "unknown type include_dir"),
    ("local all", "a user is missing"),
    ("local samerole all trust", "samerole is not supported"),
    ("local all +staff trust", "members of a role are not supported"),
    ("local all @nowhere trust", "could not open .*nowhere: No such file"),
    ("local all \"ann trust", "a quote is not closed"),
    ("host all all samehost trust", "failed to parse address samehost"),
    ("host all all 10.0.0.0/64 trust", "invalid mask 64"),
    ("host all all 10.0.0.0/8", "no method"),
    ("host all all all kerberos", "unsupported method kerberos"),
    ("local all all peer map=none", "there is no ident map none"),
    ("local all all md5 clientcert=verify-full", "clientcert needs TLS"),
    ("host /^db all all reject", "regular expressions are not supported"),
    ("host all all 127.0.0.1/32 rejct", "unsupported method rejct"),
    ("host all all 127.0.0.1/32 \\", "continued lines are not supported"),
    ("\ufeffhost all all 127.0.0.1/32 reject", "begins with a byte-order mark"),
])
def test_mistakes(with_rules, rule, said):
    """A line that can't be read stops the start, as in PostgreSQL: were it skipped, who is
    rejected by it would come in by the next. --check names each with file, line and remedy."""
    howdah = with_rules("# 2", rule, "host all all all trust", start=False)
    code, output = howdah.check()
    assert code == 1
    line = next(line for line in output.splitlines() if "hba.conf:3)" in line)
    assert line.startswith("ERROR ")
    code, output = howdah.run_to_end(howdah.ini_path)
    assert code == 1
    assert re.search(f"ERROR .*{said}.*hba.conf:3\\): .+", output), output


def test_all_mistakes_at_once(with_rules):
    """--check names mistakes of all the files together."""
    howdah = with_rules("local all all magic", "local all", maps=["m", "m a b c"], start=False,
                        pool_mode="carpool")
    code, output = howdah.check()
    assert code == 1
    for place in ("pool_mode", "hba.conf:2", "hba.conf:3", "ident.conf:1", "ident.conf:2"):
        assert place in output, output


def test_good_rules(with_rules):
    """--check is content with what is right, and only warns of what needs TLS without it."""
    howdah = with_rules("local all all peer map=m", "hostssl all all all md5",
                        maps=["m root all"], start=False)
    code, output = howdah.check()
    assert code == 0
    assert "WARNING client_tls_sslmode is disable: hostssl lines match nobody" in output


@pytest.mark.parametrize("changes", [
    {"auth_hba_file": None}, {"auth_hba_file": ""}, {"auth_hba_file": "/nowhere/hba.conf"},
])
def test_no_rules(with_rules, changes):
    """Without rules there is no start, and --check says so."""
    howdah = with_rules("host all all all trust", start=False)
    howdah.write(**changes)
    code, output = howdah.check()
    assert code == 1 and "hba" in output
    assert howdah.run_to_end(howdah.ini_path)[0] == 1
