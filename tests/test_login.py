"""Who gets in, from clients and to servers, by every way of login."""

import asyncio

import asyncpg
import psycopg
import pytest

from harness import postgres as pg
from harness import wire

pytestmark = pytest.mark.timeout(60)

SECRETS = {
    "plain": "secret",
    "md5": wire.md5_secret("ann", "secret"),
    "scram": wire.scram_secret("secret"),
}
WORKING = [
    ("trust", "plain"), ("plain", "plain"), ("plain", "md5"), ("plain", "scram"),
    ("md5", "plain"), ("md5", "md5"), ("md5", "scram"), ("scram-sha-256", "plain"),
    ("scram-sha-256", "scram"),
]


@pytest.fixture(scope="session")
def strict(system_programs, scratch):
    """A cluster that asks for passwords: md5 in database md5, SCRAM in scram, clear text in
    clear, and nothing in postgres."""
    cluster = pg.Postgres(system_programs, scratch, "strict")
    for database in ("md5", "scram", "clear"):
        cluster.sql(f"create database {database}")
    cluster.sql("""
        create role ann login password 'secret';
        create role bob login password 'bobs';
        set password_encryption = 'md5';
        create role old login password 'secret';
    """)
    cluster.write_hba("local all all trust",
                      "host postgres all 127.0.0.1/32 trust",
                      "host md5 old 127.0.0.1/32 md5",
                      "host scram all 127.0.0.1/32 scram-sha-256",
                      "host clear all 127.0.0.1/32 password")
    cluster.reload()
    yield cluster
    cluster.stop()


@pytest.mark.parametrize("auth_type, stored", WORKING)
def test_right_password(shared_howdah, strict, auth_type, stored):
    """Every auth_type with every kind of secret it can work with."""
    howdah = shared_howdah(postgres=strict, auth_type=auth_type,
                           secrets={"ann": SECRETS[stored]})
    with howdah.connect(user="ann", password="secret") as client:
        assert client.value("select current_user") == "ann"


@pytest.mark.parametrize("auth_type, stored", [case for case in WORKING if case[0] != "trust"])
def test_wrong_password(shared_howdah, strict, auth_type, stored):
    """The same with a wrong one."""
    howdah = shared_howdah(postgres=strict, auth_type=auth_type,
                           secrets={"ann": SECRETS[stored]})
    with pytest.raises(wire.Refused) as refused:
        howdah.connect(user="ann", password="Secret")
    assert refused.value.code == "28P01"


@pytest.mark.parametrize("database", ["md5", "scram", "clear"])
def test_to_servers(shared_howdah, strict, database):
    """Howdah logs into PostgreSQL with a plain password from the user file, however it is
    asked."""
    howdah = shared_howdah(postgres=strict, secrets={"ann": "secret", "old": "secret"})
    user = "old" if database == "md5" else "ann"
    with howdah.connect(user=user, database=database) as client:
        assert client.value("select current_user") == user


def test_md5_secret_to_server(shared_howdah, strict):
    """An md5 secret is enough where PostgreSQL asks for md5."""
    howdah = shared_howdah(postgres=strict, auth_type="md5",
                           secrets={"old": wire.md5_secret("old", "secret")})
    with howdah.connect(user="old", database="md5", password="secret") as client:
        assert client.value("select current_user") == "old"


@pytest.mark.parametrize("workers", [1, 3])
def test_scram_keys_pass_through(make_howdah, strict, workers):
    """The secret from pg_authid in the user file: the client's login opens the server's."""
    howdah = make_howdah(postgres=strict, auth_type="scram-sha-256", workers=workers,
                         default_pool_size=6, secrets={"ann": strict.secret("ann")})
    clients = [howdah.connect(user="ann", database="scram", password="secret") for _ in range(6)]
    for client in clients:
        client.rows("begin")
    for client in clients:
        assert client.value("select current_user") == "ann"
        client.close()


def test_scram_secret_without_keys(make_howdah, strict):
    """With another salt than PostgreSQL's the keys do not fit: the client is told."""
    howdah = make_howdah(postgres=strict, auth_type="scram-sha-256", client_login_timeout=5,
                         secrets={"ann": SECRETS["scram"]})
    with pytest.raises(wire.Refused):
        howdah.connect(user="ann", database="scram", password="secret")
    howdah.wait_for_log("server login failed|login failed")


def test_why_a_refused_server_is_closed(make_howdah, postgres):
    """In PostgreSQL's words, for servers as for the clients that waited, as PgBouncer logs it."""
    howdah = make_howdah(databases={
        "refused": f"host={postgres.host} port={postgres.port} dbname=postgres user=no_such_role"})
    with pytest.raises(wire.Refused):
        howdah.connect(database="refused")
    for kind in "CS":
        howdah.wait_for_log(
            f'{kind}-\\S+: refused/\\S+ closing because: role "no_such_role" does not exist')


def test_forced_user(make_howdah, strict):
    """`user=` and `password=` of a database entry are used for its servers."""
    target = f"host={strict.host} port={strict.port} dbname=scram"
    howdah = make_howdah(postgres=strict, databases={
        "forced": f"{target} user=bob password=bobs",
        "listed": f"{target} user=bob",
    }, secrets={"ann": "secret", "bob": "bobs"})
    for database in ("forced", "listed"):
        with howdah.connect(user="ann", database=database) as client:
            assert client.value("select current_user") == "bob"
        assert howdah.pool(database, "bob")


def test_any(make_howdah, strict):
    """auth_type=any lets everybody in, as the forced user; without one it is a fault of the
    configuration."""
    target = f"host={strict.host} port={strict.port} dbname=postgres"
    howdah = make_howdah(postgres=strict, auth_type="any", databases={
        "forced": f"{target} user=bob", "free": target}, secrets={"bob": "bobs"})
    with howdah.connect(user="whoever", database="forced") as client:
        assert client.value("select current_user") == "bob"
    with pytest.raises(wire.Refused, match="bouncer config error"):
        howdah.connect(user="whoever", database="free")
    howdah.wait_for_log("auth_type=any requires forced user")


@pytest.mark.parametrize("auth_type", ["scram-sha-256", "md5"])
def test_unknown_user_takes_the_same_way(shared_howdah, strict, auth_type):
    """An unknown user is asked for the same things in the same way as a known one, and always
    with the same salt: nobody learns who exists."""
    howdah = shared_howdah(postgres=strict, auth_type=auth_type,
                           secrets={"ann": SECRETS["scram"]})

    def challenge(user):
        with howdah.raw() as client:
            client.send(wire.startup(user, "postgres"))
            asked = client.read().body
            client.send(wire.Scram("x").first())
            reply = client.read().body[4:].decode()
            return asked, dict(part.split("=", 1) for part in reply.split(","))
    known, unknown, again = challenge("ann"), challenge("eve"), challenge("eve")
    assert known[0] == unknown[0]
    assert set(known[1]) == set(unknown[1])
    assert len(known[1]["s"]) == len(unknown[1]["s"])
    assert known[1]["i"] == unknown[1]["i"]
    assert unknown[1]["s"] == again[1]["s"]
    assert unknown[1]["r"] != again[1]["r"]
    assert challenge("mallory")[1]["s"] != unknown[1]["s"]


def test_password_file_is_reread(make_howdah, strict):
    """RELOAD takes up new users and new passwords."""
    howdah = make_howdah(postgres=strict, auth_type="scram-sha-256", secrets={"ann": "old"})
    with pytest.raises(wire.Refused):
        howdah.connect(user="ann", password="secret")
    howdah.secrets.update(ann="secret", bob="bobs")
    howdah.write()
    howdah.reload()
    for user, password in (("ann", "secret"), ("bob", "bobs")):
        with howdah.connect(user=user, password=password) as client:
            assert client.value("select current_user") == user


def test_odd_names_and_passwords(make_howdah, strict):
    """Quotes, blanks, other scripts, and a long password."""
    users = {'qu"ote': 'pass"word', "blank name": " p w ", "elefánt": "pässwörd", "long": "x" * 900}
    for user, password in users.items():
        name = user.replace('"', '""')
        strict.sql(f'drop role if exists "{name}"')
        strict.sql(f'create role "{name}" login password \'{password}\'')
    howdah = make_howdah(postgres=strict, auth_type="scram-sha-256", secrets=users)
    for user, password in users.items():
        with howdah.connect(user=user, database="scram", password=password) as client:
            assert client.value("select current_user") == user


@pytest.mark.parametrize("auth_type", ["trust", "md5", "scram-sha-256"])
def test_unix_socket_and_drivers(make_howdah, strict, auth_type):
    """libpq and asyncpg, by TCP and by the unix socket."""
    howdah = make_howdah(postgres=strict, auth_type=auth_type, secrets={"ann": "secret"})
    for host in (howdah.host, howdah.folder):
        with psycopg.connect(host=host, port=howdah.port, user="ann", password="secret",
                             dbname="scram") as connection:
            assert connection.execute("select current_user").fetchone() == ("ann",)

        async def by_asyncpg(host=host):
            connection = await asyncpg.connect(host=host, port=howdah.port, user="ann",
                                               password="secret", database="scram")
            assert await connection.fetchval("select $1::text", "asyncpg") == "asyncpg"
            await connection.close()
        asyncio.run(by_asyncpg())


def test_login_storm(make_howdah, strict):
    """Two hundred SCRAM logins at once while another client works: all get in."""
    howdah = make_howdah(postgres=strict, auth_type="scram-sha-256", max_client_conn=300,
                         secrets={"ann": SECRETS["scram"], "bob": "bobs"}, default_pool_size=2,
                         workers=2)
    # Everybody but the first is in the middle of the login at the same time.
    logins = []
    for _ in range(200):
        client = howdah.raw()
        client.send(wire.startup("ann", "postgres"))
        logins.append((client, wire.Scram("secret")))
    for client, scram in logins:
        assert client.read().tag == "R"
        client.send(scram.first())
    with howdah.connect(user="bob", password="bobs") as worker:
        assert worker.value("select 1") == "1"
        for client, scram in logins:
            client.send(scram.final(client.read().body[4:]))
        for client, _ in logins:
            assert client.read_until("Z")[-1].tag == "Z"
        assert worker.value("select 2") == "2"
    for client, _ in logins:
        client.close()


def test_ignored_options_are_still_read(make_howdah):
    """Of start-up options that are to be ignored, those that are tracked hold all the same."""
    options = "-c enable_seqscan=off -c timezone=Europe/Lisbon --datestyle=German,\\ YMD"
    howdah = make_howdah(ignore_startup_parameters="options")
    with howdah.connect(options=options) as client:
        assert client.value("show timezone") == "Europe/Lisbon"
        assert client.value("show datestyle") == "German, YMD"
        assert client.value("show enable_seqscan") == "on"
    with make_howdah().connect(options=options) as client:
        assert client.value("show enable_seqscan") == "off"


def test_settings_of_a_user_are_no_login(make_howdah):
    """Who stands in [users] but not in the user file is not let in, not even by trust."""
    howdah = make_howdah(users={"md5_user": "pool_size=3"})
    with pytest.raises(wire.Refused) as refused:
        howdah.connect(user="md5_user")
    assert refused.value.text == 'role "md5_user" does not exist'


@pytest.mark.parametrize("name, value", [
    ("TimeZone", "Mars"), ("client_encoding", "nonsense"), ("DateStyle", "Mayan")])
def test_values_that_mean_nothing(make_howdah, postgres, name, value):
    """PostgreSQL refuses the login; here the first query is refused, in its words. The server is
    none the worse."""
    howdah = make_howdah(default_pool_size=1)
    with pytest.raises(wire.Refused) as direct:
        wire.connect((postgres.host, postgres.port), "postgres", "postgres", **{name: value})
    with howdah.connect() as client:
        pid = client.value("select pg_backend_pid()")
    with howdah.connect(**{name: value}) as client:
        client.send(wire.query("select 1"))
        (refusal,) = client.read_to_end()
    fields = refusal.fields()
    expected = direct.value.fields
    assert [fields[key] for key in "SCM"] == [expected[key] for key in "SCM"]
    howdah.wait_for_log("closing because: invalid server parameter")
    with howdah.connect() as client:
        assert client.value("select pg_backend_pid()") == pid


@pytest.mark.parametrize("name", ["x" * 63, "x" * 64, "x" * 62 + "äöü", "y" * 200])
@pytest.mark.parametrize("least", [None, "warning"])
def test_notice_of_a_cut_name(make_howdah, postgres, name, least):
    """A name that is too long is cut, and PostgreSQL's notice of that comes with the login."""
    howdah = make_howdah()
    keys = {"application_name": name}
    if least:
        keys["options"] = f"-c client_min_messages={least}"
    howdah.connect().close()
    seen = []
    for address in (howdah.address, (postgres.host, postgres.port)):
        with wire.Wire(address) as client:
            client.send(wire.startup("postgres", "postgres", **keys))
            got = client.read_until()
            notices = [message.fields() for message in got if message.tag == "N"]
            seen.append([{code: fields[code] for code in "SVCM"} for fields in notices])
            names = [message.body for message in got
                     if message.tag == "S" and message.body.startswith(b"application_name")]
            seen[-1].append(names)
    assert seen[0] == seen[1]
