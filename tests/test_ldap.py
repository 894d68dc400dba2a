"""Logins by a directory server: a real slapd, and ones that misbehave."""

import itertools
import os
import socket
import ssl

import pytest

from harness import directory, logins, machine, slapd as directories, wire
from harness.directory import Directory, bound, entry, message, reference, searched, value
from harness.howdah import console_rows
from harness.logins import refusal
from test_takeover import take_over

pytestmark = [
    pytest.mark.one_driver,
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
    strict.wait_for_log("TLS: certificate verify failed: ")
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
    assert (end[-1].fields()["C"], logins.nameless(end[-1].fields()["M"])) == FAILED
    howdah.wait_for_log("LDAP server 127.0.0.1: no answer within 10 seconds")
    machine.wait_until(lambda: waiting_logins(howdah) == 0, "the last to be gone")
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
    passwords = ["wrong", "secret"] * 50
    assert logins.at_once(howdah, passwords) == [FAILED[1], "in"] * 50


def test_reload(with_rules, slapd, silent):
    """New options hold for the next login; bad ones are refused, and the old ones stay."""
    howdah = with_rules(f"host all all all ldap {slapd.simple().replace('people', 'others')}")
    assert refusal(howdah, user="ann", password="secret") == FAILED
    write_rules(howdah, "host other all all scram-sha-256", f"host all all all ldap {slapd.url()}")
    howdah.reload()
    let_in(howdah, "ann", "secret")
    assert refusal(howdah, user="ann", database="other", password="secret")[1] \
        == "password authentication failed"
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


# What slapd does not do ---------------------------------------------------------------------------

SEARCH = f'ldapbasedn="{directories.BASE}"'


def elsewhere(url):
    """The referral of a result."""
    return value(0xa3, value(4, url.encode()))


CUT_OFF = {
    "two entries": (lambda n, _: entry(n, "uid=ann") + entry(n, "uid=eve") + searched(n),
                    "is not unique"),
    "endless entries": (lambda n, _: (entry(n, f"uid={i}") for i in itertools.count()),
                        "is not unique|says too much"),
    "size limit": (lambda n, _: entry(n, "uid=ann") + searched(n, 4), "is not unique"),
    "time limit": (lambda n, _: entry(n, "uid=ann") + searched(n, 3), "Time limit exceeded"),
    "administrative limit": (lambda n, _: entry(n, "uid=ann") + searched(n, 11),
                             "Administrative limit exceeded"),
    "referral": (lambda n, url: entry(n, "uid=ann") + searched(n, 10, elsewhere(url)),
                 "could not search LDAP for filter .*: Referral"),
    "only a reference": (lambda n, url: reference(n, url) + searched(n), "does not exist"),
    "no name": (lambda n, _: entry(n, "") + searched(n), "is not unique"),
    "no end": (lambda n, _: entry(n, "uid=ann"), "no answer within 10 seconds"),
}


@pytest.mark.parametrize("kind", CUT_OFF)
def test_cut_off_searches(with_rules, kind):
    """Where more may fit than was told, nobody is logged in as whoever came first; and nobody is
    asked whom a directory refers to."""
    made, said = CUT_OFF[kind]
    with Directory() as other, Directory() as first:
        url = f"ldap://{other.host}:{other.port}/{directories.BASE}"
        first.answers["search"] = lambda number: made(number, url)
        howdah = with_rules(f"host all all all ldap {first.options(SEARCH)}")
        assert refusal(howdah, user="ann", password="secret") == FAILED
        howdah.wait_for_log(said)
        assert first.binds == [("", "")], "only who searches has bound"
        # As Active Directory does beside every entry.
        first.answers["search"] = lambda number: (
            reference(number, url) + entry(number, "uid=ann") + searched(number))
        let_in(howdah, "ann", "secret")
        assert first.binds[1:] == [("", ""), ("uid=ann", "secret")]
        assert other.connections == 0


def test_size_limit_of_slapd(with_rules, scratch):
    """A real directory that tells one entry where more fit."""
    server = directories.Slapd(scratch, "limited", more="sizelimit 1")
    try:
        everybody = 'ldapsearchfilter="(|(uid=$username)(objectClass=person))"'
        howdah = with_rules(f"host one all all ldap {server.search()}",
                            f"host all all all ldap {server.search(everybody)}")
        assert refusal(howdah, user="ann", password="secret") == FAILED
        howdah.wait_for_log("is not unique")
        with howdah.connect(user="ann", database="one", password="secret") as client:
            assert client.value("select 1") == "1"
    finally:
        server.stop()


TOO_MUCH = {
    "a message without end": lambda n: itertools.chain([b"\x30\x84\x7f\xff\xff\xff"],
                                                       itertools.repeat(bytes(4096))),
    "a length without end": lambda n: itertools.chain([b"\x30\xff"],
                                                      itertools.repeat(b"\xff" * 4096)),
    "messages nobody waits for": lambda n: itertools.repeat(bound(99) * 100),
    "references": lambda n: itertools.repeat(reference(n, "ldap://127.0.0.9/") * 100),
    "a value that leads behind its message": lambda n: itertools.chain(
        [message(n, 0x61, b"\x04\x7f")], itertools.repeat(bytes(4096))),
    "a huge entry": lambda n: [entry(n, "uid=ann", value(4, bytes(1 << 24)))],
}


@pytest.mark.parametrize("kind", TOO_MUCH)
def test_bounded_answers(with_rules, slapd, kind):
    """A directory that talks without end is cut short: memory does not grow by it."""
    with Directory(search=TOO_MUCH[kind]) as talker:
        howdah = with_rules(f"host talker all all ldap {talker.options(SEARCH)}",
                            f"host all all all ldap {slapd.simple()}", workers=1)
        let_in(howdah, "ann", "secret")
        before = machine.peak_resident_kib(howdah.child.pid)
        verdicts = logins.at_once(howdah, ["secret"] * 4, database="talker")
        assert verdicts == [FAILED[1]] * 4
        howdah.wait_for_log("LDAP server 127.0.0.1 says too much")
        assert machine.peak_resident_kib(howdah.child.pid) < before + 8 * 1024
        assert {name for name, _ in talker.binds} == {""}
        let_in(howdah, "ann", "secret")


def nested(levels):
    """Values within values."""
    nest = b""
    for _ in range(levels):
        nest = value(0x30, nest)
    return nest


NO_LDAP = {
    "nothing": lambda n: [],
    "text": lambda n: b"HTTP/1.1 400 Bad Request\r\n\r\n",
    "an empty message": lambda n: b"\x30\x00",
    "a number alone": lambda n: b"\x30\x03\x02\x01" + bytes([n]),
    "no number": lambda n: value(0x30, value(4, b"x") + value(0x61, directory.outcome(0))),
    "no operation": lambda n: message(n, 0x02, b"x"),
    "an empty outcome": lambda n: message(n, 0x61),
    "an outcome of one part": lambda n: message(n, 0x61, value(10, b"\0")),
    "an outcome that is none": lambda n: message(n, 0x61, value(4, b"\0") * 3),
    "a text that is none": lambda n: bound(n, text=b"\xff\xfe"),
    "a list in place of a text": lambda n: message(
        n, 0x61, value(10, b"\0") + value(0x30, value(4)) * 2),
    "an entry": lambda n: entry(n, "uid=ann"),
    "broken controls": lambda n: value(
        0x30, value(2, bytes([n])) + value(0x61, directory.outcome(0)) + value(0xa0, value(5))),
    "another's answer": lambda n: bound(n + 1),
    "a farewell": lambda n: message(0, 0x78, directory.outcome(52)),
    "nesting": lambda n: nested(3900),
    "nesting in an answer": lambda n: message(n, 0x61, nested(3900)),
    "half an answer": lambda n: bound(n)[:-1],
}


@pytest.mark.parametrize("kind", NO_LDAP)
def test_answers_that_are_none(with_rules, kind):
    """What is no answer lets nobody in, and ends nothing but that login."""
    with Directory() as strange:
        def last_words(number):
            yield from made if not isinstance(made := NO_LDAP[kind](number), bytes) else [made]
            raise ConnectionError("it hangs up")
        howdah = with_rules(f"host search all all ldap {strange.options(SEARCH)}",
                            f"host all all all ldap {strange.options('ldapprefix=uid=')}")
        for operation, database in (("bind", "postgres"), ("search", "search")):
            strange.answers = {operation: last_words}
            mark = howdah.log_mark()
            assert refusal(howdah, user="ann", database=database, password="secret") == FAILED
            howdah.wait_for_log("LDAP server 127.0.0.1 closed|does not answer as an LDAP server",
                                mark)
            strange.answers = {}
            with howdah.connect(user="ann", database=database, password="secret") as client:
                assert client.value("select 1") == "1"
        assert "FATAL" not in howdah.log()


def test_nothing_counts_that_came_before_tls(with_rules, slapd, monkeypatch):
    """Answers that somebody on the way slips in behind the one to StartTLS."""
    slapd._write("credulous.conf", "TLS_REQCERT never\n")
    monkeypatch.setenv("LDAPCONF", os.path.join(slapd.folder, "credulous.conf"))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(slapd.certificate, os.path.join(slapd.folder, "server.key"))
    slipped = b"".join(bound(number) for number in range(1, 5))
    slips = lambda number: directory.extended(number) + slipped
    with Directory(tls=context, bind=lambda number: bound(number, 49)) as honest:
        howdah = with_rules(f"host all all all ldap {honest.options('ldapprefix=uid= ldaptls=1')}")
        for answer in (directory.extended, slips):
            honest.answers["extended"] = answer
            assert refusal(howdah, user="ann", password="secret") == FAILED
        howdah.wait_for_log("Invalid credentials")
        honest.answers["extended"] = lambda number: directory.extended(number, 2)
        assert refusal(howdah, user="ann", password="secret") == FAILED
        howdah.wait_for_log("could not start LDAP TLS session: Protocol error")
        assert ("uid=ann", "secret") in honest.binds
        del honest.answers["bind"]
        honest.answers["extended"] = directory.extended
        let_in(howdah, "ann", "secret")


NAMES = {
    "ann": "ann",
    "ann,ou=others": "ann\\,ou\\=others",
    "ann+cn=x": "ann\\+cn\\=x",
    "a\\b": "a\\\\b",
    "#ann": "\\#ann",
    " ann": "\\ ann",
    "ann ": "ann\\ ",
    "an n#": "an n#",
    'a"<>;': 'a\\"\\<\\>\\;',
    "a\nb": "a\\0ab",
    "jürgen": "jürgen",
    "a)(*": "a)(*",
}


def test_names_stay_in_their_place(with_rules):
    """What the directory is asked to bind as, between prefix and suffix of a distinguished name;
    names of another kind are left as they are."""
    with Directory() as seen:
        named = f'ldapprefix="uid=" ldapsuffix=",{directories.BASE}"'
        howdah = with_rules(f"host mail all all ldap {seen.options('ldapsuffix=@example.net')}",
                            f"host all all all ldap {seen.options(named)}")
        for user in NAMES:
            let_in(howdah, user, "secret")
        assert [name for name, _ in seen.binds] == [
            f"uid={name},{directories.BASE}" for name in NAMES.values()]
        seen.binds.clear()
        with howdah.connect(user="ann+x,y", database="mail", password="secret"):
            assert seen.binds == [("ann+x,y@example.net", "secret")]
        assert refusal(howdah, user="ann", password="") == EMPTY
        assert len(seen.binds) == 1, "an empty password is not asked about"


def test_passwords_are_not_told(make_howdah, postgres):
    """The searcher's and the users' passwords are in no log, no answer of the console, no error."""
    target = f"host={postgres.host} port={postgres.port} dbname=postgres user=postgres"
    with Directory() as seen:
        rest = seen.options(f"{SEARCH} ldapbinddn=cn=x")
        howdah = make_howdah(auth_type="ldap", verbose=3, databases={"*": target}, driver="auto",
                             auth_ldap_options=f'{rest} ldapbindpasswd="pa55 word"')
        outputs = []
        with howdah.connect(user="admin", database="pgbouncer", password="a pa55") as console:
            let_in(howdah, "ann", "my pa55")
            assert seen.binds[-2:] == [("cn=x", "pa55 word"), ("uid=ann", "my pa55")]
            show = lambda what: str(console_rows(console, f"SHOW {what}"))
            config = show("CONFIG")
            assert "ldapbindpasswd=***" in config and seen.options("").split()[0][11:] in config
            seen.answers["bind"] = lambda number: bound(number, 49)
            assert refusal(howdah, user="ann", password="my pa55") == FAILED
            howdah.wait_for_log("could not perform initial LDAP bind for ldapbinddn")
            bad = f"{rest} ldapbindpasswd=pa55, pa55=pa55 pa55="
            with pytest.raises(wire.Refused) as refused:
                console_rows(console, f"SET auth_ldap_options = '{bad}'")
            outputs = [config, refused.value.text, show("CONFIG"), show("FDS"), show("USERS"),
                       show("CLIENTS"), show("SERVERS"), show("DATABASES")]
            for options in (bad, f"{rest} ldapbindpasswd=pa55, pa55=pa55",
                            f'{rest} ldapbindpasswd="pa55', f"{rest} ldapbindpasswd = pa55"):
                howdah.write(auth_ldap_options=options)
                with pytest.raises(wire.Refused) as refused:
                    console_rows(console, "RELOAD")
                outputs += [refused.value.text, howdah.check()[1]]
        assert [said for said in [*outputs, howdah.said()] if "pa55" in said] == []


@pytest.mark.both_drivers
def test_login_survives_a_takeover(make_howdah, scratch, own_postgres):
    """Who has logged in is logged in behind -R, too, even if the directory is gone, and its pool
    opens servers with the password it gave."""
    own_postgres.sql("create role ann login password 'secret'")
    own_postgres.write_hba("local all all trust", "host all ann 127.0.0.1/32 scram-sha-256",
                           "host all all 127.0.0.1/32 trust")
    own_postgres.reload()
    server = directories.Slapd(scratch, "leaving")
    try:
        howdah = make_howdah(postgres=own_postgres, auth_type="ldap", secrets={"ann": "stale"},
                             auth_ldap_options=server.url(), workers=2)
        servers = "from pg_stat_activity where usename = 'ann'"
        with howdah.connect(user="ann", password="secret") as client:
            client.rows("set timezone to 'Asia/Tokyo'")
            for turn in range(2):
                take_over(howdah)
                if turn == 1:
                    server.stop()
                own_postgres.sql(f"select pg_terminate_backend(pid) {servers}")
                machine.wait_until(lambda: not own_postgres.sql(f"select pid {servers}"),
                                   "the pool to have no server")
                assert client.value("select current_user") == "ann"
                assert client.value("show timezone") == "Asia/Tokyo"
                if turn == 0:
                    assert refusal(howdah, user="ann", password="wrong") == FAILED
                    let_in(howdah, "ann", "secret")
            assert refusal(howdah, user="ann", password="secret") == FAILED
    finally:
        server.stop()
