"""Logins by a directory server: a real slapd, and one that does not answer."""

import os
import socket
import threading

import pytest

from harness import machine, slapd as directories, wire

pytestmark = [
    pytest.mark.timeout(120),
    pytest.mark.skipif(directories.program() is None, reason="slapd is not installed"),
]

FAILED = ("28000", "LDAP authentication failed")
EMPTY = ("28P01", "empty password returned by client")
CONSOLE_RULE = "host pgbouncer admin 127.0.0.1/32 trust"


@pytest.fixture(scope="module")
def slapd(scratch):
    """The directory all tests of this file share; nobody stops it."""
    server = directories.Slapd(scratch, "slapd")
    yield server
    server.stop()


@pytest.fixture
def silent():
    """A directory that takes connections and says nothing."""
    with socket.create_server(("127.0.0.1", 0), backlog=200) as listener:
        yield listener


def options_of(listener):
    """Binds at a listener of ours."""
    host, port = listener.getsockname()
    return f"ldapserver={host} ldapport={port} ldapprefix=uid="


@pytest.fixture
def with_rules(make_howdah, postgres):
    """Starts a Howdah with these rules; all its databases log in as postgres."""
    def make(*rules, **options):
        target = f"host={postgres.host} port={postgres.port} dbname=postgres user=postgres"
        howdah = make_howdah(start=False, databases={"*": target}, **options)
        write_rules(howdah, *rules)
        howdah.write(auth_type="hba", auth_hba_file=os.path.join(howdah.folder, "hba.conf"))
        return howdah.start()
    return make


def write_rules(howdah, *rules):
    """Replaces the rules, behind one that lets us use the console."""
    howdah._write_file(os.path.join(howdah.folder, "hba.conf"),
                       "\n".join([CONSOLE_RULE, *rules, ""]))


def refusal(howdah, **who):
    """SQLSTATE and text of a login that is refused."""
    with pytest.raises(wire.Refused) as refused:
        howdah.connect(**who)
    return refused.value.code, refused.value.text


def let_in(howdah, user, password):
    """This login succeeds, and queries run."""
    with howdah.connect(user=user, password=password) as client:
        assert client.value("select 1") == "1"


def refused_as_they_should(howdah):
    """Wrong and empty passwords, and nobody."""
    assert refusal(howdah, user="ann", password="wrong") == FAILED
    assert refusal(howdah, user="nobody", password="secret") == FAILED
    assert refusal(howdah, user="ann", password="") == EMPTY


MODES = {
    "simple": lambda slapd: slapd.simple(),
    "search": lambda slapd: slapd.search(),
    "attribute": lambda slapd: slapd.search("ldapsearchattribute=uid"),
    "filter": lambda slapd: slapd.search(
        'ldapsearchfilter="(&(objectClass=person)(|(uid=$username)(mail=$username)))"'),
    "binddn": lambda slapd: slapd.search(
        f'ldapbinddn="{directories.ROOT}" ldapbindpasswd={directories.ROOT_PASSWORD}'),
    "url": lambda slapd: slapd.url(),
    "url filter": lambda slapd: slapd.url("??sub?(uid=$username)"),
    "second server": lambda slapd: slapd.simple().replace("=127.0.0.1", '="127.0.0.9 127.0.0.1"'),
    "name": lambda slapd: slapd.simple().replace("=127.0.0.1", "=localhost"),
}


@pytest.mark.parametrize("mode", MODES)
def test_ways_to_bind(with_rules, slapd, mode):
    """Each way lets in who has the right password, and nobody else."""
    howdah = with_rules(f"host all all all ldap {MODES[mode](slapd)}")
    let_in(howdah, "ann", "secret")
    let_in(howdah, "bob", "another")
    refused_as_they_should(howdah)
    howdah.wait_for_log(r"closing because: LDAP authentication failed \(age")
    howdah.wait_for_log(r"Invalid credentials")


def test_auth_type_ldap(make_howdah, slapd, own_postgres):
    """For everybody, the console's users as well. The password given leads to PostgreSQL, too, even
    if the user file has another."""
    own_postgres.sql("create role ann login password 'secret'; create role bob login")
    own_postgres.write_hba("local all all trust", "host all bob 127.0.0.1/32 scram-sha-256",
                           "host all ann 127.0.0.1/32 scram-sha-256",
                           "host all all 127.0.0.1/32 trust")
    own_postgres.reload()
    howdah = make_howdah(postgres=own_postgres, auth_type="ldap", secrets={"ann": "stale"},
                         auth_ldap_options=slapd.url())
    with howdah.connect(user="ann", password="secret") as client:
        assert client.value("select current_user") == "ann"
    refused_as_they_should(howdah)
    assert refusal(howdah, user="bob", password="another")[0] == "28P01", "PostgreSQL says no"
    assert refusal(howdah, user="admin", database="pgbouncer", password="wrong") == FAILED
    assert howdah.console("SHOW VERSION")


def test_no_name_means_more_than_itself(with_rules, slapd):
    """Names that would be filters or parts of other names in the tree."""
    howdah = with_rules(f"host found all all ldap {slapd.search()}",
                        f"host above all all ldap {slapd.simple().replace('ou=people,', '')}",
                        f"host all all all ldap {slapd.simple()}")
    for user in ("*", "ann)(uid=*", "*)(uid=ann", "a\\6en", "ann/"):
        mark = howdah.log_mark()
        assert refusal(howdah, user=user, database="found", password="secret") == FAILED
        howdah.wait_for_log("invalid character in user name for LDAP authentication", mark)
    let_in(howdah, "a,b", "comma")
    let_in(howdah, "jürgen", "schlüssel")
    # Were it not escaped, this would name ann's entry.
    assert refusal(howdah, user="ann,ou=people", database="above", password="secret") == FAILED
    assert refusal(howdah, user="ann+cn=ann", password="secret") == FAILED
    mark = howdah.log_mark()
    assert refusal(howdah, user="twin", database="found", password="one") == FAILED
    howdah.wait_for_log('LDAP user "twin" is not unique', mark)
    assert refusal(howdah, user="nobody", database="found", password="one") == FAILED
    howdah.wait_for_log('LDAP user "nobody" does not exist', mark)


def test_tls(with_rules, slapd, monkeypatch, scratch, request):
    """ldaps and StartTLS, where the certificate is trusted; and where it is not."""
    trusted = os.path.join(slapd.folder, "trusting.conf")
    slapd._write("trusting.conf", f"TLS_CACERT {slapd.certificate}\n")
    monkeypatch.setenv("LDAPCONF", trusted)
    rules = [f"host startls all all ldap {slapd.simple()} ldaptls=1",
             f"host ldaps all all ldap {slapd.url(scheme='ldaps')}",
             f"host wrongport all all ldap {slapd.url(scheme='ldaps')} ldapport={slapd.port}",
             f"host wrongname all all ldap {slapd.url(scheme='ldaps')} ldapserver=localhost"]
    howdah = with_rules(*rules)
    for database in ("startls", "ldaps"):
        with howdah.connect(user="ann", database=database, password="secret") as client:
            assert client.value("select 1") == "1"
        assert refusal(howdah, user="ann", database=database, password="wrong") == FAILED
    for database in ("wrongport", "wrongname"):
        mark = howdah.log_mark()
        assert refusal(howdah, user="ann", database=database, password="secret") == FAILED
        howdah.wait_for_log("could not connect to LDAP server .* TLS: ", mark)
    monkeypatch.delenv("LDAPCONF")
    strict = with_rules(*rules)
    for database in ("startls", "ldaps"):
        assert refusal(strict, user="ann", database=database, password="secret") == FAILED
    strict.wait_for_log("TLS: invalid peer certificate")
    slapd._write("credulous.conf", "TLS_REQCERT never\n")
    monkeypatch.setenv("LDAPCONF", os.path.join(slapd.folder, "credulous.conf"))
    credulous = with_rules(*rules)
    for database in ("startls", "ldaps", "wrongname"):
        with credulous.connect(user="ann", database=database, password="secret") as client:
            assert client.value("select 1") == "1"


def test_directory_down_and_back(with_rules, scratch, request):
    """While it is down nobody gets in; those who are in stay; back, it serves at once."""
    server = directories.Slapd(scratch, f"down{request.node.name[-12:-1].replace('[', '')}")
    try:
        howdah = with_rules(f"host all all all ldap {server.simple()}")
        with howdah.connect(user="ann", password="secret") as client:
            server.stop()
            assert refusal(howdah, user="ann", password="secret") == FAILED
            howdah.wait_for_log("could not connect to LDAP server 127.0.0.1 port .*refused")
            assert client.value("select 1") == "1"
        server.start()
        let_in(howdah, "ann", "secret")
    finally:
        server.stop()


def test_silent_directory_delays_only_its_own(with_rules, slapd, silent):
    """More logins wait for a directory that says nothing than are asked about at once: others get
    in meanwhile, clients may leave, and in the end those that stay are told."""
    howdah = with_rules(f"host silent all all ldap {options_of(silent)}",
                        f"host quick all all ldap {slapd.simple()}",
                        "host all postgres all trust", workers=2)
    before = asked(silent)
    waiting = [howdah.raw() for _ in range(60)]
    for client in waiting:
        client.send(wire.startup("ann", "silent"))
        assert client.read().tag == "R"
        client.send(wire.password_message("secret"))
    machine.wait_until(lambda: asked(silent) >= before + AT_ONCE, "the directory to be asked")
    for _ in range(5):
        with howdah.connect(user="ann", database="quick", password="secret") as client:
            assert client.value("select 1") == "1"
    let_in(howdah, "postgres", None)
    for client in waiting[1:]:
        client.close()
    machine.wait_until(lambda: waiting_logins(howdah) <= 1, "clients that left to be gone")
    end = waiting[0].read_to_end()
    assert (end[-1].fields()["C"], end[-1].fields()["M"]) == FAILED
    howdah.wait_for_log("LDAP server 127.0.0.1: no answer within 10 seconds")
    assert waiting_logins(howdah) == 0
    waiting[0].close()


KEPT = []
# Checks of one directory at the same time.
AT_ONCE = 32


def asked(listener):
    """How many connections have come by now; they stay open."""
    listener.setblocking(False)
    try:
        while True:
            KEPT.append(listener.accept()[0])
    except BlockingIOError:
        return len(KEPT)


def waiting_logins(howdah):
    """How many clients are logging in."""
    rows = {row["list"]: row["items"] for row in howdah.console("SHOW LISTS")}
    return int(rows["login_clients"])


def test_client_gone_before_the_answer(with_rules, slapd):
    """The verdict comes for a client that has left, and for a newcomer in its place."""
    howdah = with_rules(f"host all all all ldap {slapd.simple()}")
    for _ in range(50):
        client = howdah.raw()
        client.send(wire.startup("ann", "postgres") + wire.password_message("secret"))
        client.close()
    assert refusal(howdah, user="ann", password="wrong") == FAILED
    let_in(howdah, "ann", "secret")
    machine.wait_until(lambda: waiting_logins(howdah) == 0, "clients that left to be gone")


def test_many_at_once(with_rules, slapd):
    """More than are asked about at once, right and wrong ones, each gets its own verdict."""
    howdah = with_rules(f"host all all all ldap {slapd.search()}", workers=2)
    verdicts = {}

    def log_in(number):
        password = "secret" if number % 2 else "wrong"
        try:
            with howdah.connect(user="ann", password=password, seconds=60) as client:
                verdicts[number] = client.value("select 1")
        except wire.Refused as refused:
            verdicts[number] = refused.text

    threads = [threading.Thread(target=log_in, args=(number,)) for number in range(100)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert verdicts == {number: "1" if number % 2 else FAILED[1] for number in range(100)}


def test_reload(with_rules, slapd, silent):
    """New options hold for the next login; bad ones are refused, and the old ones stay."""
    howdah = with_rules(f"host all all all ldap {slapd.simple().replace('people', 'others')}")
    assert refusal(howdah, user="ann", password="secret") == FAILED
    write_rules(howdah, "host other all all scram-sha-256", f"host all all all ldap {slapd.url()}")
    howdah.reload()
    let_in(howdah, "ann", "secret")
    assert refusal(howdah, user="ann", database="other", password="secret")[1] \
        == "SASL authentication failed"
    write_rules(howdah, f"host all all all ldap {slapd.url()} ldapprefix=x")
    with pytest.raises(wire.Refused):
        howdah.reload()
    howdah.wait_for_log(r"cannot mix options .*hba\.conf:2")
    let_in(howdah, "ann", "secret")


@pytest.mark.parametrize("options, said", [
    ("", "requires argument"),
    ("ldapserver=a ldapbasedn=x ldapprefix=y", "cannot mix"),
    ("ldapserver=a ldapbasedn=x colour=red", "invalid LDAP option"),
    ("ldapurl=ldaps://a/dc=x ldaptls=1", "exclude each other"),
])
def test_check(make_howdah, options, said):
    """--check names bad options with file and line, in both places."""
    howdah = make_howdah(start=False)
    howdah._write_file(os.path.join(howdah.folder, "hba.conf"), f"\nlocal all all ldap {options}")
    howdah.write(auth_type="hba", auth_hba_file=os.path.join(howdah.folder, "hba.conf"))
    code, output = howdah.check()
    assert code == 1 and said in output and "hba.conf:2" in output
    howdah.write(auth_type="ldap", auth_ldap_options=options)
    code, output = howdah.check()
    assert code == 1 and said in output and "auth_ldap_options" in output


def test_not_with_auth_user(make_howdah, postgres, slapd):
    """A database whose users are looked up in PostgreSQL has none in a directory."""
    target = f"host={postgres.host} port={postgres.port} dbname=postgres"
    howdah = make_howdah(auth_type="ldap", auth_ldap_options=slapd.simple(), read_driver=False,
                         databases={"a": f"{target} auth_user=admin", "*": target})
    assert refusal(howdah, user="ann", database="a", password="secret")[1] == "bouncer config error"
    howdah.wait_for_log("LDAP can't be used together with database authentication")
