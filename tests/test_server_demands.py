"""What we give to a server, and to which: require_auth, channel_binding, requirepeer."""

import os
import re

import pytest

from harness import machine, wire
from harness.logins import refusal
from harness.scripted import ScriptedServer, authentication, ready, welcome

pytestmark = [pytest.mark.timeout(60), pytest.mark.own]

FORBIDDEN = ("08P01", "server login failed: require_auth forbids the server's method")
UNBOUND = ("08P01", "server login failed: channel binding is required")


def rogue(request, said):
    """A server that asks for something else than PostgreSQL would: all that it is told goes
    into `said`."""
    def script(peer):
        peer.startup()
        peer.send(request)
        said.append(peer.read())
        peer.send(welcome())
        while peer.read().tag != "X":
            peer.send(ready())
    return ScriptedServer(script)


@pytest.mark.parametrize("request_, required, refused", [
    (authentication(3), "scram-sha-256", True),
    (authentication(3), "!password", True),
    (authentication(3), "", False),
    (authentication(5, b"salt"), "scram-sha-256", True),
    (authentication(5, b"salt"), "!password", False),
    (welcome(), "scram-sha-256", True),
    (welcome(), "!none", True),
])
@pytest.mark.parametrize("by_database", [False, True])
def test_require_auth(make_howdah, request_, required, refused, by_database):
    """Who asks for less than is allowed learns nothing of the password."""
    said = []
    with rogue(request_, said) as server:
        entry = f"host={server.host} port={server.port} user=postgres password=secret"
        # The nearer one counts.
        settings = {"server_require_auth": "none" if by_database else required}
        if by_database and required:
            entry += f" require_auth={required}"
        elif by_database:
            settings["server_require_auth"] = ""
        howdah = make_howdah(databases={"d": entry}, **settings)
        if refused:
            assert refusal(howdah, database="d") == FORBIDDEN
            howdah.wait_for_log(re.escape(f'require_auth is "{required}", but the server'))
            machine.wait_until(lambda: said, "the server to see the end")
            assert {got.tag for got in said} == {"X"}, said
        else:
            howdah.connect(database="d").close()
            assert said[0].tag == "p"


def test_require_auth_with_postgresql(make_howdah, own_postgres):
    """PostgreSQL's own methods are known by libpq's words."""
    own_postgres.sql("set password_encryption = 'md5'; create role old login password 'secret'")
    own_postgres.sql("create role new login password 'secret'")
    own_postgres.write_hba("local all all trust", "host all postgres all trust",
                           "host all old all md5", "host all new all scram-sha-256")
    own_postgres.reload()
    at = f"host={own_postgres.host} port={own_postgres.port} dbname=postgres password=secret"
    cases = {"old": ("md5", "scram-sha-256"), "new": ("scram-sha-256,md5", "md5"),
             "postgres": ("none,md5", "!none")}
    databases = {}
    for user, (fine, wrong) in cases.items():
        databases[f"{user}_fine"] = f"{at} user={user} require_auth={fine}"
        databases[f"{user}_wrong"] = f"{at} user={user} require_auth={wrong}"
    howdah = make_howdah(databases=databases)
    for user in cases:
        with howdah.connect(database=f"{user}_fine") as client:
            assert client.value("select current_user") == user
        assert refusal(howdah, database=f"{user}_wrong") == FORBIDDEN


def test_a_password_without_user_is_nobodys(make_howdah, own_postgres):
    """As with PgBouncer, it does not take the place of what the user list has."""
    own_postgres.sql("create role listed login password 'secret'")
    own_postgres.write_hba("local all all trust", "host all postgres all trust",
                           "host all all all scram-sha-256")
    own_postgres.reload()
    at = f"host={own_postgres.host} port={own_postgres.port} dbname=postgres"
    howdah = make_howdah(auth_type="plain", secrets={"listed": "secret"},
                         databases={"d": f"{at} password=wrong"})
    with howdah.connect(user="listed", password="secret", database="d") as client:
        assert client.value("select current_user") == "listed"
    howdah.wait_for_log('password of database "d" .* has no effect without user')


def test_channel_binding_without_tls(make_howdah, postgres):
    """require needs TLS; prefer goes without."""
    at = (f"host={postgres.host} port={postgres.port} dbname=postgres user=scram_user "
          "password=secret")
    howdah = make_howdah(databases={"must": f"{at} channel_binding=require",
                                    "may": f"{at} channel_binding=prefer"},
                         server_tls_sslmode="disable")
    assert refusal(howdah, database="must") == UNBOUND
    howdah.connect(database="may").close()


def test_requirepeer(make_howdah, postgres):
    """A server behind a unix socket is said nothing before it is known who runs it."""
    me = machine.unprivileged_user().pw_name
    at = f"host={postgres.socket_folder} port={postgres.port} dbname=postgres"
    over_tcp = f"host={postgres.host} port={postgres.port} dbname=postgres requirepeer=somebody"
    howdah = make_howdah(databases={
        "mine": f"{at} requirepeer={me}", "other": f"{at} requirepeer=somebody",
        "global": at, "tcp": over_tcp}, server_requirepeer="nobody-at-all")
    for database in ("mine", "tcp"):
        with howdah.connect(database=database) as client:
            assert client.value("select 1") == "1"
    for database, wanted in (("other", "somebody"), ("global", "nobody-at-all")):
        code, text = refusal(howdah, database=database)
        assert (code, text) == ("08001", f'requirepeer specifies "{wanted}", but actual peer user '
                                         f'name is "{me}"')
    howdah.console("SET server_requirepeer = ''")
    with howdah.connect(database="global") as client:
        assert client.value("select 1") == "1"


@pytest.mark.parametrize("entry", [
    "require_auth=scram", "require_auth=md5,!password", "require_auth=md5,md5",
    "channel_binding=yes",
])
def test_bad_values(make_howdah, entry):
    """A value that means nothing is named, with what can be written."""
    howdah = make_howdah(start=False, databases={"d": f"host=h {entry}"})
    code, output = howdah.check()
    assert code == 1 and entry.replace("=", " = ") + " (" in output, output


def demanding(iterations):
    """A server whose SCRAM takes so many iterations."""
    def script(peer):
        peer.startup()
        peer.send(authentication(10, b"SCRAM-SHA-256\0\0"))
        first = peer.read().body.split(b"\0", 1)[1][4:]
        nonce = first.split(b"r=", 1)[1]
        peer.send(authentication(11, b"r=" + nonce + b"rest,s=c2FsdHNhbHQ=,i=" + iterations))
        asked.append(peer)
        peer.read()
    asked = []
    server = ScriptedServer(script)
    server.asked = asked
    return server


def test_iterations_are_bounded(make_howdah):
    """A server that asks for more work than is allowed is refused at once."""
    with demanding(b"5000000") as server:
        entry = f"host={server.host} port={server.port} user=postgres password=secret"
        howdah = make_howdah(databases={"d": entry})
        assert refusal(howdah, database="d") == (
            "08P01",
            "server login failed: more SCRAM iterations than server_scram_iterations_max allows")
        howdah.wait_for_log("the server asks for 5000000 SCRAM iterations")


def test_hostile_servers_delay_no_client(make_howdah, postgres):
    """Keys for servers that ask for much work do not stand in the way of clients' logins, nor do
    those of who has left."""
    with demanding(b"10000000") as server:
        entry = f"host={server.host} port={server.port} user=postgres password=secret"
        databases = {f"d{number}": entry for number in range(8)}
        own = {"*": f"host={postgres.host} port={postgres.port}"}
        howdah = make_howdah(start=False, databases={**databases, **own},
                             server_scram_iterations_max=10_000_000)
        rules = os.path.join(howdah.folder, "hba.conf")
        howdah._write_file(rules, "".join(f"host {name} all all trust\n" for name in databases)
                           + "host all all all scram-sha-256\n")
        howdah.write(auth_type="hba", auth_hba_file=rules)
        howdah.start()
        waiting = [howdah.raw() for _ in databases]
        for client, database in zip(waiting, databases, strict=True):
            client.send(wire.startup("postgres", database))
        machine.wait_until(lambda: server.asked, "a server to ask for much")
        with howdah.connect(password="secret") as client:
            assert client.value("select 'on'") == "on"
        for client in waiting:
            client.close()
