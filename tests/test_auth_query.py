"""Users who are not in the user file are looked up in PostgreSQL."""

import os

import pytest

from harness import machine, wire
from harness.logins import nameless

pytestmark = [pytest.mark.timeout(60), pytest.mark.one_driver]

CONFIG_ERROR = "bouncer config error"
TELLS_SECRET = "select $1::text, 'secret'"


@pytest.mark.parametrize("auth_type, user", [
    ("md5", "md5_user"), ("md5", "scram_user"), ("scram-sha-256", "scram_user"),
    ("plain", "md5_user"), ("plain", "scram_user"),
])
@pytest.mark.parametrize("workers", [1, 2])
def test_looked_up(shared_howdah, auth_type, user, workers):
    """With the query that holds by default: the right password, a wrong one, and a user whom
    nobody knows, who is told so, as by PgBouncer."""
    howdah = shared_howdah(auth_type=auth_type, auth_user="admin", workers=workers)
    for _ in range(3):
        with howdah.connect(user=user, password="secret") as client:
            assert client.value("select current_user") == user
    refusals = []
    for name, password in ((user, "wrong"), ("nobody_at_all", "secret")):
        with pytest.raises(wire.Refused) as refused:
            howdah.connect(user=name, password=password)
        refusals.append((refused.value.code, nameless(refused.value.text)))
    assert refusals[0][0] == "28P01"
    assert refusals[1] == ("28P01", "password authentication failed")
    howdah.wait_for_log(r"closing because: no such user \(age=")


def test_trust_asks_too(shared_howdah):
    """auth_type = trust lets in whom PostgreSQL knows."""
    howdah = shared_howdah(auth_user="admin")
    with howdah.connect(user="md5_user") as client:
        assert client.value("select current_user") == "md5_user"
    with pytest.raises(wire.Refused) as refused:
        howdah.connect(user="nobody_at_all")
    assert refused.value.code == "28P01"


def test_without_a_password(shared_howdah):
    """NULL for a password means that none is right."""
    howdah = shared_howdah(auth_type="plain", auth_user="admin",
                           auth_query="select $1::text, null::text")
    with pytest.raises(wire.Refused) as refused:
        howdah.connect(user="md5_user", password="secret")
    assert refused.value.code == "28P01"


@pytest.mark.parametrize("workers", [1, 2])
def test_nobody_invents_users(make_howdah, postgres, workers):
    """A client of a forced user that runs the query, too, can't tell it of users there are none
    of: lookups run on connections that no client ever uses."""
    entry = f"host={postgres.host} port={postgres.port} dbname=postgres user=admin"
    howdah = make_howdah(auth_type="plain", auth_user="admin", admin_users="admin,invented",
                         workers=workers, databases={"postgres": entry}, auth_dbname="postgres",
                         default_pool_size=1, pool_mode="transaction",
                         auth_query="select usename, passwd from pg_shadow where usename = $1",
                         secrets={"ann": "ann", "admin": "secret"})
    with howdah.connect(user="ann", password="ann") as client:
        client.rows("create temporary table pg_shadow as "
                    "select 'invented'::name as usename, 'open'::text as passwd")
    for _ in range(3):
        for database in ("postgres", "pgbouncer"):
            with pytest.raises(wire.Refused) as refused:
                howdah.connect(user="invented", password="open", database=database)
            assert refused.value.text.startswith("password authentication failed")
    with howdah.connect(user="plain_user", password="secret") as client:
        assert client.value("select 1") == "1"


@pytest.mark.both_drivers
def test_who_is_not_let_in_says_little(shared_howdah):
    """While PostgreSQL is silent about a user, its client may send what a proof takes, and no more;
    that it hangs up is noticed."""
    howdah = shared_howdah(auth_user="admin", client_login_timeout=50,
                           auth_query="select $1::text, 'x' from pg_sleep(40)")
    with howdah.raw() as client:
        client.send(wire.startup("ann", "postgres"), wire.query("select '" + "x" * 8_000 + "'"))
        found = client.read_to_end()
        assert found[-1].fields()["M"] == "unexpected message before the end of the login"
    with howdah.raw() as client:
        client.send(wire.startup("bob", "postgres"), wire.query("select '" + "x" * 3_000 + "'"))
        howdah.wait_for_log("login attempt: db=postgres user=bob")
    howdah.wait_for_log("postgres/bob@.* closing because: client unexpected eof")


def test_listed_users_are_not_looked_up(shared_howdah):
    """Who stands in the user file is let in by what stands there."""
    howdah = shared_howdah(auth_type="md5", auth_user="admin", auth_query="broken",
                           secrets={"md5_user": "another"})
    with howdah.connect(user="md5_user", password="another") as client:
        assert client.value("select current_user") == "md5_user"


@pytest.mark.parametrize("kept", [0, 3600])
def test_remembered(make_howdah, postgres, kept):
    """auth_query_cache: the query is not asked again, until a password is wrong or RELOAD; without
    it, every login asks."""
    table = f"secrets_{kept}_{os.getpid()}"
    postgres.sql(f"drop table if exists {table}")
    postgres.sql(f"create table {table} as select 'md5_user' as name, 'secret' as secret")
    entry = f"host={postgres.host} port={postgres.port} user=admin password=secret"
    howdah = make_howdah(auth_type="plain", auth_user="admin", workers=1, auth_query_cache=kept,
                         auth_query=f"select name, secret from {table} where name = $1",
                         databases={"postgres": entry})

    def lets_in(password):
        try:
            howdah.connect(user="md5_user", password=password).close()
        except wire.Refused as refused:
            assert refused.code == "28P01"
            return False
        return True
    assert lets_in("secret")
    postgres.sql(f"update {table} set secret = 'second'")
    assert lets_in("secret") == bool(kept)
    assert lets_in("second") == (not kept), "a wrong password is refused by what is remembered"
    assert lets_in("second"), "and has it asked anew"
    postgres.sql(f"update {table} set secret = 'third'")
    howdah.reload()
    assert lets_in("third")


@pytest.mark.parametrize("query", ["select 1 from nowhere", "select $1::text", "broken"])
def test_broken_query(shared_howdah, query):
    """The client is told that the configuration is wrong; the log says how. The server that ran it
    is good for the next."""
    howdah = shared_howdah(auth_type="md5", auth_user="admin", auth_query=query)
    mark = howdah.log_mark()
    with pytest.raises(wire.Refused) as refused:
        howdah.connect(user="md5_user", password="secret")
    assert refused.value.text == CONFIG_ERROR
    howdah.wait_for_log("error in auth_query", mark)
    with howdah.connect(user="admin", password="secret") as client:
        assert client.value("select 1") == "1"


@pytest.fixture
def entries(postgres):
    """Entries of [databases] with settings of their own."""
    at = f"host={postgres.host} port={postgres.port} dbname=postgres"
    return {
        "usual": at,
        "own": f"{at} auth_user=admin auth_query='{TELLS_SECRET.replace(chr(39), chr(39) * 2)}'",
        "elsewhere": f"{at} auth_user=admin auth_dbname=usual",
        "missing": f"{at} auth_user=admin auth_dbname=not_there",
    }


def test_settings_of_databases(make_howdah, entries):
    """auth_user, auth_query and auth_dbname of a database go before the global ones."""
    howdah = make_howdah(auth_type="md5", auth_query="broken", databases=entries)
    with howdah.connect(user="plain_user", password="secret", database="own") as client:
        assert client.value("select current_user") == "plain_user"
    with pytest.raises(wire.Refused) as refused:
        howdah.connect(user="md5_user", password="secret", database="elsewhere")
    assert refused.value.text == CONFIG_ERROR
    howdah.write(auth_query=TELLS_SECRET)
    howdah.reload()
    with howdah.connect(user="md5_user", password="secret", database="elsewhere") as client:
        assert client.value("select current_user") == "md5_user"
    howdah.wait_for_pool("usual", "admin", sv_idle=1)


def test_nowhere_to_look(make_howdah, entries):
    """The log says why nobody can be looked up."""
    howdah = make_howdah(auth_type="md5", databases=entries)
    with pytest.raises(wire.Refused) as refused:
        howdah.connect(user="md5_user", password="secret", database="missing")
    assert refused.value.text == CONFIG_ERROR
    howdah.wait_for_log('authentication database "not_there" is not configured')


def test_disabled(make_howdah, entries):
    """DISABLE holds for lookups, too."""
    howdah = make_howdah(auth_type="md5", databases=entries)
    howdah.console("DISABLE usual")
    with pytest.raises(wire.Refused) as refused:
        howdah.connect(user="md5_user", password="secret", database="elsewhere")
    assert refused.value.text == 'authentication database "usual" is disabled'


def test_parameters_of_clients_do_not_reach_it(make_howdah, postgres):
    """A client shares its pool, and so its server, with the lookup, and has a parameter of its own
    there. The lookup runs without it; the client has it again afterwards."""
    query = "select $1::text, case current_setting('IntervalStyle') " \
            "when 'postgres' then 'secret' else 'wrong' end"
    at = f"host={postgres.host} port={postgres.port} dbname=postgres user=admin pool_size=1"
    howdah = make_howdah(auth_type="md5", auth_user="admin", auth_query=query,
                         databases={"shared": at})
    with howdah.connect(user="admin", password="secret", database="shared",
                        IntervalStyle="iso_8601") as client:
        for _ in range(2):
            assert client.value("show IntervalStyle") == "iso_8601"
            with howdah.connect(user="md5_user", password="secret", database="shared",
                                IntervalStyle="sql_standard") as other:
                assert other.value("show IntervalStyle") == "sql_standard"


@pytest.mark.parametrize("workers", [1, 2])
def test_databases_that_strangers_invent_are_forgotten(make_howdah, postgres, workers):
    """Whoever has no password, too, can have a lookup begin in a database of any name."""
    howdah = make_howdah(auth_type="md5", auth_user="admin", workers=workers, databases={
        "*": f"host={postgres.host} port={postgres.port}"})
    howdah.wait_for_log("auth_user with a database .* without auth_dbname")
    for number in range(20):
        with pytest.raises(wire.Refused) as refused:
            howdah.connect(user="md5_user", password="secret", database=f"invented_{number}")
        assert refused.value.code == "3D000"
    with howdah.connect(user="md5_user", password="secret", database="postgres") as client:
        assert client.value("select 1") == "1"

        def invented():
            return [row for row in howdah.console("SHOW POOLS")
                    if row["database"].startswith("invented")]
        machine.wait_until(lambda: not invented(), "the pools to go")
        assert howdah.pool(user="md5_user")["cl_active"] == 1


def test_the_client_leaves(make_howdah, postgres):
    """A client that leaves while it is looked up costs no server."""
    with postgres.lock(21) as lock:
        howdah = make_howdah(auth_type="md5", auth_user="admin", default_pool_size=1,
                             auth_query=f"select $1::text, 'secret' from {lock}")
        for _ in range(3):
            client = howdah.raw()
            client.send(wire.startup(user="md5_user", database="postgres"))
            howdah.wait_for_pool(user="admin", sv_active=1)
            client.close()
    with howdah.connect(user="md5_user", password="secret") as client:
        assert client.value("select 1") == "1"
    howdah.wait_for_pool(user="admin", sv_idle=1)


@pytest.mark.parametrize("workers", [1, 3])
def test_a_role_made_anew_gets_servers_of_its_own(make_howdah, postgres, workers):
    """A role of the same name has other rights than the servers of the dropped one."""
    howdah = make_howdah(auth_type="plain", auth_user="admin", workers=workers,
                         default_pool_size=4)
    postgres.sql("drop role if exists anew")
    for password in ("one", "two"):
        postgres.sql(f"create role anew login password '{password}'")
        clients = [howdah.connect(user="anew", password=password) for _ in range(4)]
        for client in clients:
            client.rows("begin")
        for client in clients:
            client.rows("create temp table gone (a int) on commit drop")
            client.rows("commit")
            client.close()
        postgres.sql("drop role anew")


def test_a_changed_password_is_known_to_all_workers(make_howdah, own_postgres):
    """One login with the new password is enough for the servers of all clients."""
    postgres = own_postgres
    postgres.write_hba("local all all trust", "host all anew all scram-sha-256",
                       "host all all all trust")
    postgres.sql("select pg_reload_conf()")
    howdah = make_howdah(postgres=postgres, auth_type="plain", auth_user="postgres", workers=3,
                         default_pool_size=10, pool_spread="always")
    postgres.sql("drop role if exists anew")
    postgres.sql("create role anew login password 'one'")
    clients = [howdah.connect(user="anew", password="one") for _ in range(6)]
    postgres.sql("alter role anew password 'two'")
    howdah.connect(user="anew", password="two").close()
    for client in clients:
        client.rows("begin")
    for client in clients:
        client.rows("commit")
        client.close()
    postgres.sql("drop role anew")


def test_another_secret_in_the_user_file_is_another_role(make_howdah, postgres):
    howdah = make_howdah(secrets={"anew": "one"})
    postgres.sql("drop role if exists anew")
    processes = set()
    for password in ("one", "two"):
        postgres.sql(f"create role anew login password '{password}'")
        howdah.secrets["anew"] = password
        howdah.write()
        howdah.console("RELOAD")
        with howdah.connect(user="anew") as client:
            client.rows("create temp table gone (a int) on commit drop")
            processes.add(client.value("select pg_backend_pid()"))
        postgres.sql("drop role anew")
    assert len(processes) == 2
