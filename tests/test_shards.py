"""Sharded databases: each statement goes to the shard that has its rows, or is refused."""

import asyncio
import concurrent.futures

import asyncpg
import psycopg
import pytest
from psycopg import errors

from harness import machine, wire

SHARDS = ("prod_0", "prod_1", "prod_2")
DISTRIBUTIONS = {"tenant": "hash bigint slots=6 0-1=prod_0 2-3=prod_1 4-5=prod_2",
                 "region": "list text eu,uk=prod_0 us=prod_1 *=prod_2"}
TABLES = {"public.countries": "replicated(prod_0)", "public.settings": "prod_1",
          "public.*": "tenant(account_id)"}
TENANTS = range(1, 21)
SCHEMA = """
    create table accounts (account_id bigint not null primary key, name text);
    create table orders (account_id bigint not null, id bigint, total int, primary key (account_id, id));
    create table countries (code text primary key, name text);
    create table settings (name text primary key, value text);
    create table place (shard text);
    create table parted (account_id bigint) partition by hash (account_id);
"""


@pytest.fixture(scope="module")
def shards(postgres):
    """The databases of the shards, with the rows of their tenants."""
    for shard in SHARDS:
        postgres.sql(f"create database {shard}")
        postgres.sql(SCHEMA, database=shard)
        postgres.sql(f"insert into place values ('{shard}')", database=shard)
    return postgres


@pytest.fixture
def sharded(shards, make_howdah):
    """Starts a Howdah whose database prod is sharded."""
    def make(distributions=None, tables=None, shards_of=SHARDS, start=True, **settings):
        at = f"host={shards.host} port={shards.port}"
        databases = {name: at for name in SHARDS}
        databases["prod"] = f"shards={','.join(shards_of)}"
        howdah = make_howdah(start=False, databases=databases, **settings)
        howdah.sections["distributions:prod"] = distributions or DISTRIBUTIONS
        howdah.sections["tables:prod"] = tables or TABLES
        howdah.write()
        return howdah.start() if start else howdah
    return make


def connect(howdah, **options):
    """A client of the sharded database."""
    options = {"autocommit": True, "user": "postgres", "password": "secret", **options}
    return psycopg.connect(host=howdah.host, port=howdah.port, dbname="prod", **options)


def shard_of(client, **options):
    """The shard that answers."""
    return client.execute("select shard from place", **options).fetchone()[0]


def test_a_client_says_its_shard(sharded):
    """By SET, at its login, in a comment, in simple, extended and prepared form."""
    howdah = sharded()
    with connect(howdah) as client:
        for shard in SHARDS:
            client.execute(f"set howdah.shard = '{shard}'")
            assert client.execute("show howdah.shard").fetchone() == (shard,)
            for prepare in (False, True, True):
                assert shard_of(client, prepare=prepare) == shard
            comment = "/*howdah.key='region:us'*/ select shard from place where 1 = %s"
            assert client.execute(comment, [1]).fetchone() == ("prod_1",)
    for options, shard in (("-c howdah.shard=prod_2", "prod_2"), ("-c howdah.key=region:uk", "prod_0")):
        with connect(howdah, options=options) as client:
            assert shard_of(client) == shard
            client.execute("set howdah.shard = 'prod_1'")
            client.execute("reset howdah.shard")
            assert shard_of(client) == shard


def test_a_transaction_has_one_shard(sharded):
    """BEGIN waits for the first statement that says its shard; another shard is refused."""
    howdah = sharded()
    with connect(howdah, autocommit=False) as client:
        for shard in SHARDS:
            client.execute(f"set local howdah.shard = '{shard}'")
            assert shard_of(client) == shard
            client.execute("insert into place values ('none')")
            client.rollback()
        client.execute("set local howdah.shard = 'prod_1'")
        shard_of(client)
        with pytest.raises(errors.FeatureNotSupported, match="prod_2"):
            client.execute("set local howdah.shard = 'prod_2'")
        with pytest.raises(errors.InFailedSqlTransaction):
            shard_of(client)
        client.rollback()
        # Nothing has been sent.
        client.execute("set local howdah.shard = 'prod_1'")
        client.commit()


def test_shards_have_the_rows_of_postgresqls_hash(sharded, shards):
    """howdah.key finds the rows that PostgreSQL's own partitioning by hash puts there."""
    howdah = sharded()
    with connect(howdah) as client:
        for tenant in TENANTS:
            client.execute(f"set howdah.key = 'tenant:{tenant}'")
            shard = SHARDS.index(shard_of(client))
            fits = "select satisfies_hash_partition('parted'::regclass, 6, {}, {}::bigint)"
            mine = [shards.value(fits.format(slot, tenant), database="prod_0") for slot in range(6)]
            assert mine.index("t") // 2 == shard, tenant


@pytest.fixture(scope="module")
def filled(shards, scratch):
    """Rows of all tenants, each on its shard, and of replicated tables on all."""
    for number, shard in enumerate(SHARDS):
        mine = " or ".join(f"satisfies_hash_partition('parted'::regclass, 6, {slot}, t::bigint)"
                           for slot in (2 * number, 2 * number + 1))
        tenants = f"from generate_series({TENANTS[0]}, {TENANTS[-1]}) t where {mine}"
        shards.sql(f"insert into accounts select t, 'tenant ' || t {tenants}", database=shard)
        shards.sql(f"insert into orders select t, i, i from generate_series(1, 3) i, "
                   f"lateral (select t::bigint {tenants}) x", database=shard)
        shards.sql("insert into countries values ('de', 'Germany')", database=shard)
    return shards


@pytest.mark.parametrize("prepare", [False, True])
def test_statements_with_a_key_go_to_its_shard(sharded, filled, prepare):
    """Constants and parameters, text and binary, joins and subqueries: all rows of a tenant, and no
    others."""
    with connect(sharded()) as client:
        for tenant in TENANTS:
            for binary in (False, True):
                row = client.execute("select name from accounts where account_id = %s", [tenant],
                                     prepare=prepare, binary=binary).fetchall()
                assert row == [(f"tenant {tenant}",)]
            joined = client.execute(
                "select a.name, count(*) from accounts a join orders o using (account_id) "
                "where a.account_id = %s group by 1", [tenant], prepare=prepare).fetchall()
            assert joined == [(f"tenant {tenant}", 3)]
            assert client.execute(f"select sum(total) from orders where account_id = {tenant}"
                                  ).fetchone() == (6,)
            client.execute("update orders set total = total + 1 where account_id = %s and id = 1",
                           [tenant], prepare=prepare)
            client.execute("insert into orders (account_id, id, total) values (%s, 9, 0)", [tenant],
                           prepare=prepare)
            client.execute("delete from orders where account_id = %s and id = 9", [tenant],
                           prepare=prepare)
            client.execute("update orders set total = total - 1 where account_id = %s and id = 1",
                           [tenant], prepare=prepare)
        assert client.execute("select 1").fetchone() == (1,)
        assert client.execute("select name from countries").fetchall() == [("Germany",)]


def test_what_is_not_proved_is_refused(sharded, filled):
    """With the table as DETAIL and the remedy as HINT."""
    with connect(sharded()) as client:
        for text in ("select count(*) from accounts",
                     "select * from accounts where account_id > 3",
                     "update accounts set name = 'x'",
                     "delete from orders",
                     "select * from accounts a full join orders o on a.account_id = o.account_id "
                     "and o.account_id = 5",
                     "select * from place, accounts where accounts.account_id = 1 or true"):
            with pytest.raises(errors.FeatureNotSupported) as caught:
                client.execute(text)
            assert caught.value.diag.message_hint, text
        with pytest.raises(errors.SyntaxError):
            client.execute("selec 1")


def test_a_transaction_stays_with_its_tenant(sharded, filled):
    """BEGIN goes with the first statement that has a key; another tenant's shard is refused."""
    with connect(sharded(), autocommit=False) as client:
        seen = {}
        for tenant in TENANTS:
            client.execute("select name from accounts where account_id = %s", [tenant])
            seen.setdefault(client.execute("select inet_server_port(), current_database()").fetchone()[1],
                            tenant)
            client.rollback()
        assert set(seen) == set(SHARDS)
        first, second, *_ = seen.values()
        client.execute("select name from accounts where account_id = %s", [first])
        with pytest.raises(errors.FeatureNotSupported, match="transaction"):
            client.execute("select name from accounts where account_id = %s", [second])
        client.rollback()


def test_ddl_is_seen(sharded, filled):
    """A table that was made after the catalogue was read is found."""
    howdah = sharded()
    with connect(howdah) as client:
        client.execute("select name from accounts where account_id = 1")
        for shard in SHARDS:
            client.execute(f"set howdah.shard = '{shard}'")
            client.execute("create table made (account_id bigint not null)")
        client.execute("reset howdah.shard")
        client.execute("insert into made values (17)")
        assert client.execute("select * from made where account_id = 17").fetchall() == [(17,)]
        for shard in SHARDS:
            client.execute(f"set howdah.shard = '{shard}'")
            client.execute("drop table made")


def test_a_shard_that_is_down_harms_no_other(sharded, filled):
    """Others are served; its own tenants get an error."""
    howdah = sharded(start=False)
    howdah.sections["databases"]["prod_2"] = f"host=127.0.0.1 port={machine.free_port()}"
    howdah.write(query_wait_timeout=2)
    howdah.start()
    with connect(howdah) as client:
        served = 0
        for tenant in TENANTS:
            try:
                client.execute("select name from accounts where account_id = %s", [tenant])
                served += 1
            except psycopg.OperationalError:
                client = connect(howdah)
        assert 0 < served < len(TENANTS)
        # Nobody knows what that shard has.
        with pytest.raises(errors.FeatureNotSupported) as caught:
            client.execute("select * from missing where account_id = 1")
        assert "catalogue of shard \"prod_2\" can't be read" in caught.value.diag.message_detail
        client.close()
    rows = {row["shard"]: row for row in howdah.console("SHOW SHARDS")}
    assert (rows["prod_0"]["reachable"], rows["prod_0"]["catalogue_failures"]) == ("yes", "0")
    assert rows["prod_2"]["reachable"] == "no" and rows["prod_2"]["error"]
    assert int(rows["prod_2"]["catalogue_failures"]) > 0


def test_a_shard_keeps_clients_out(sharded, filled):
    """By users_only, or because DISABLE holds for the first shard, at which clients log in."""
    howdah = sharded(start=False)
    entries = howdah.sections["databases"]
    entries["prod_1"] += " users_only=1"
    howdah.write()
    howdah.start()
    with pytest.raises(psycopg.OperationalError, match="permission denied"):
        connect(howdah)
    entries["prod_1"] = entries["prod_0"]
    howdah.write()
    howdah.console("RELOAD")
    connect(howdah).close()
    howdah.console("DISABLE prod_0")
    with pytest.raises(psycopg.OperationalError, match="\"prod_0\" is disabled"):
        connect(howdah)


def test_a_key_in_another_encoding_is_not_read(sharded, filled):
    """A key must be the bytes that the shards have."""
    with connect(sharded(), client_encoding="latin1") as client:
        client.execute("set howdah.key = 'region:\u00e9'")
        with pytest.raises(errors.InvalidParameterValue, match="not read"):
            client.execute("select current_database()")
        client.execute("set client_encoding = 'utf8'")
        client.execute("set howdah.key = 'region:\u00e9'")
        assert client.execute("select current_database()").fetchone() == ("prod_2",)


def test_a_guess_is_taken_back(sharded, filled):
    """A transaction that begins with what has no key runs on the shard used last, and begins again
    where its first key is."""
    with connect(sharded(), autocommit=False) as client:
        places = "select current_database()"
        for tenant in TENANTS:
            client.execute("set local statement_timeout = '77s'")
            client.execute("savepoint one")
            client.execute("select 1")
            name = client.execute("select name from accounts where account_id = %s", [tenant])
            assert name.fetchone() == (f"tenant {tenant}",)
            assert client.execute("show statement_timeout").fetchone() == ("77s",)
            client.execute("rollback to savepoint one")
            before = client.execute(places).fetchone()
            client.commit()
            # The next transaction begins there, too.
            assert client.execute(places).fetchone() == before
            client.rollback()


def tenant_of(client, shard):
    """A tenant whose rows are on a shard."""
    for tenant in TENANTS:
        client.execute(f"set howdah.key = 'tenant:{tenant}'")
        at = client.execute("select current_database()").fetchone()[0]
        client.execute("reset howdah.key")
        if at == shard:
            return tenant
    raise AssertionError(shard)


def test_pause_brings_a_new_map(sharded, filled):
    """PAUSE waits for open transactions, and holds back everything else; who has waited goes by the
    new map. Without PAUSE, the old map stays, with its first shard, at which clients log in."""
    howdah = sharded(distributions=dict(DISTRIBUTIONS))
    with (connect(howdah, autocommit=False) as busy, connect(howdah) as waiting,
          concurrent.futures.ThreadPoolExecutor() as threads):
        tenant = tenant_of(waiting, "prod_1")
        place = f"/*howdah.key='tenant:{tenant}'*/ select current_database()"
        name = "select name from accounts where account_id = %s"
        assert busy.execute(name, [tenant]).fetchone() == (f"tenant {tenant}",)
        pause = threads.submit(howdah.console, "PAUSE prod")
        machine.wait_until(lambda: [row["paused"] for row in howdah.console("SHOW DATABASES")
                                    if row["name"] == "prod"] == ["1"], "the pause")
        held = threads.submit(waiting.execute, place)
        assert busy.execute("select current_database()").fetchone() == ("prod_1",)
        assert not pause.done() and not held.done()
        busy.rollback()
        pause.result()
        assert not held.done()
        howdah.sections["distributions:prod"]["tenant"] = "hash bigint slots=6 0-5=prod_2"
        howdah.sections["databases"]["prod"] = "shards=prod_2,prod_1,prod_0"
        howdah.write()
        howdah.console("RELOAD")
        assert not held.done()
        howdah.console("RESUME prod")
        assert held.result().fetchone() == ("prod_2",)
        home = "update countries set name = name returning current_database()"
        assert waiting.execute(home).fetchone() == ("prod_0",)
        for client in (busy, waiting):
            assert client.execute(place).fetchone() == ("prod_2",)
        busy.rollback()
        # The first shard has PostgreSQL's own tables, and is where clients log in.
        catalogue = "select current_database() from pg_class limit 1"
        assert waiting.execute(catalogue).fetchone() == ("prod_2",)
        howdah.sections["databases"]["prod"] = "shards=prod_0,prod_1,prod_2"
        howdah.write()
        howdah.console("RELOAD")
        howdah.wait_for_log("its map of shards stays as it was")
        with connect(howdah) as late:
            assert late.execute(catalogue).fetchone() == ("prod_2",)
            assert late.execute(place).fetchone() == ("prod_2",)


def test_names_are_those_of_the_login(sharded, filled):
    """The search path is the default of the role that has logged in, whatever role is current."""
    filled.sql("drop role if exists elsewhere, nowhere")
    for shard in SHARDS:
        filled.sql("drop schema if exists other cascade; "
                   "create schema other; create table other.accounts (account_id bigint); "
                   "grant usage on schema other to public; grant all on other.accounts to public; "
                   "grant all on accounts to public", database=shard)
    filled.sql("create role elsewhere login superuser; create role nowhere; "
               "alter role elsewhere set search_path = other; alter role nowhere set search_path = none")
    howdah = sharded(tables={"other.accounts": "prod_1", **TABLES}, auth_user="admin")
    with connect(howdah, user="elsewhere") as client:
        place = "select count(*), current_database() from accounts"
        for become in ("set role none", "set role nowhere", "set role postgres"):
            client.execute(become)
            assert client.execute(place).fetchone() == (0, "prod_1")
        client.execute("reset role")
        client.execute("set session authorization nowhere")
        with pytest.raises(errors.FeatureNotSupported, match="which shard"):
            client.execute(place)
        client.execute("reset session authorization")
        assert client.execute(place).fetchone() == (0, "prod_1")


def test_catalogues_are_read_with_what_clients_have_shown(sharded, filled):
    """No shard's entry has a secret: PostgreSQL asks for a password, also for the catalogues."""
    for shard in SHARDS:
        filled.sql("grant all on accounts to scram_user", database=shard)
    howdah = sharded(auth_type="scram-sha-256", auth_user="admin")
    trusts = ("local all all trust", "host all all 127.0.0.1/32 trust", "local replication all trust",
              "host replication all 127.0.0.1/32 trust")
    filled.write_hba("host all scram_user 127.0.0.1/32 scram-sha-256", *trusts)
    filled.reload()
    try:
        with connect(howdah, user="scram_user") as client:
            for tenant in TENANTS:
                name = client.execute("select name from accounts where account_id = %s", [tenant])
                assert name.fetchone() == (f"tenant {tenant}",)
    finally:
        filled.write_hba(*trusts)
        filled.reload()


def test_asyncpg(sharded, filled):
    """A driver that prepares each statement, with binary parameters."""
    howdah = sharded()

    async def work():
        client = await asyncpg.connect(host=howdah.host, port=howdah.port, user="postgres",
                                       password="secret", database="prod")
        for tenant in TENANTS:
            rows = await client.fetch("select name from accounts where account_id = $1", tenant)
            assert [row["name"] for row in rows] == [f"tenant {tenant}"]
            async with client.transaction():
                await client.execute("insert into orders (account_id, id, total) values ($1, 99, 1)",
                                     tenant)
                total = "select sum(total) from orders where account_id = any($1::bigint[])"
                assert await client.fetchval(total, [tenant]) == 7
                await client.execute("delete from orders where id = 99 and account_id = $1", tenant)
        with pytest.raises(asyncpg.FeatureNotSupportedError):
            await client.fetch("select count(*) from accounts")
        await client.close()

    asyncio.run(work())


def test_a_rehearsal_refuses_nothing(sharded, filled):
    """With one shard, SHOW SHARD_REFUSALS tells what would be refused with several."""
    howdah = sharded({"tenant": "hash bigint slots=6 0-5=prod_0"},
                     {"public.countries": "replicated(prod_0)", "public.*": "tenant(account_id)"},
                     ["prod_0"])
    by_two_keys = "select name from accounts where account_id in (1, 2, 3, 4, 5, 6, 7)"
    with connect(howdah) as client:
        for text in ("select count(*) from accounts", by_two_keys, "lock accounts", "select 1 from place",
                     "prepare p as select 1", "create table made (a int)", "drop table made"):
            with client.transaction():
                client.execute(text, prepare=False)
        with client.transaction():
            for tenant in TENANTS:
                client.execute("select name from accounts where account_id = %s", [tenant])
        for tenant in TENANTS:
            with client.transaction():
                for _ in range(2):
                    client.execute("select account_id from accounts where account_id = %s", [tenant])
        with pytest.raises(errors.SyntaxError):
            client.execute("selec 1")
    rows = {row["query"]: row for row in howdah.console("SHOW SHARD_REFUSALS")}
    assert {row["refused"] for row in rows.values()} == {"no"}
    found = {query: (row["reason"], row["sqlstate"]) for query, row in rows.items()}
    assert found["select count(*) from accounts"] == ("unproved", "0A000")
    assert found["select name from accounts where account_id in (?, ...)"] == ("unproved", "0A000")
    assert found["lock accounts"] == ("command", "0A000")
    assert found["select ? from place"] == ("unlisted", "0A000")
    assert found["create table made(a int)"] == ("command", "0A000")
    assert found["selec ?"] == ("syntax", "42601")
    assert "select account_id from accounts where account_id = ?" not in found
    one_key = "select name from accounts where account_id = ?"
    assert found[one_key] == ("elsewhere", "0A000")
    assert 0 < int(rows[one_key]["count"]) < len(TENANTS)
    assert howdah.console("ROUTE prod 'select count(*) from accounts'")[0]["shard"] == "prod_0"


def test_the_console_shows_shards_tables_and_refusals(sharded, filled, shards):
    """SHOW SHARDS, SHARD_TABLES, SHARD_CHECKS, SHARD_REFUSALS, and ROUTE, which runs nothing."""
    howdah = sharded()
    with pytest.raises(wire.Refused, match="not been read"):
        howdah.console("ROUTE prod 'select 1'")
    shards.sql("alter table orders add column note text", database="prod_1")
    shards.sql("alter table accounts add column x text, add column y text", database="prod_1")
    shards.sql("alter table accounts add column y text, add column x text", database="prod_2")
    shards.sql("alter database prod_2 set timezone = 'Asia/Tokyo'")
    with connect(howdah) as client:
        for _ in range(2):
            with pytest.raises(errors.FeatureNotSupported):
                client.execute("select count(*) from orders")
        client.execute("select 1 from orders where account_id = 7")
        with pytest.raises(errors.FeatureNotSupported, match="is closed") as caught:
            client.execute("select name from accounts where account_id = 7")
        assert "SHARD_CHECKS" in caught.value.diag.message_hint
        rows = howdah.console("SHOW SHARDS")
        assert [row["shard"] for row in rows] == list(SHARDS)
        assert {row["reachable"] for row in rows} == {"yes"}
        assert sum(int(row["clients"]) for row in rows) == 1
        assert sum(int(row["statements"]) for row in rows) == 1
        tables = {row["table"]: row for row in howdah.console("SHOW SHARD_TABLES")}
        orders = tables["public.orders"]
        assert (orders["line"], orders["key"], orders["type"], orders["state"]) == (
            "public.* = tenant(account_id)", "account_id", "bigint", "open")
        assert tables["public.countries"]["place"] == "replicated(prod_0)"
        assert tables["public.accounts"]["state"] == "closed"
        checks = {(row["subject"], row["closed"], row["found"]) for row in howdah.console("SHOW SHARD_CHECKS")}
        assert ("public.orders", "no", 'column "note" is not the same on all shards') in checks
        assert ("public.accounts", "yes", "its columns are in another order on another shard.") in checks
        assert any(found.startswith("TimeZone is") for _, _, found in checks)
        (refused,) = [row for row in howdah.console("SHOW SHARD_REFUSALS") if "orders" in row["query"]]
        assert (refused["count"], refused["refused"]) == ("2", "yes")
    def route(text):
        return howdah.console(f"ROUTE prod {text}")[0]
    by_key = route("'select * from orders where account_id = $1' 7")
    assert by_key["shard"] == route("'update orders set total = 1 where account_id = 7'")["shard"]
    assert by_key["reason"] == "key"
    refused = route("'select * from orders'")
    assert (refused["shard"], refused["reason"], refused["sqlstate"]) == (None, "unproved", "0A000")
    assert route("'/*howdah.shard=''prod_2''*/ select * from orders'")["shard"] == "prod_2"
    assert route("'select pg_advisory_lock(1)'")["shard"] == "prod_0"
    with pytest.raises(wire.Refused, match="no such sharded database"):
        howdah.console("ROUTE prod_0 'select 1'")
    for shard in ("prod_1", "prod_2"):
        shards.sql("alter table accounts drop column x, drop column y", database=shard)
    shards.sql("alter table orders drop column note", database="prod_1")
    shards.sql("alter database prod_2 reset timezone")


def test_shard_sql_guards_the_map(sharded, filled, shards):
    """PostgreSQL takes the rows of its own shard and no others, and no number of a sequence comes twice."""
    howdah = sharded()
    for shard in SHARDS:
        shards.sql("create table guarded (account_id bigint not null, id bigserial)", database=shard)
        shards.sql("create table by_region (region text not null)", database=shard)
    tables = {"public.by_region": "region(region)", **TABLES}
    howdah.sections["tables:prod"] = tables
    howdah.write()
    howdah.stop()
    howdah.start()
    with connect(howdah) as client:
        client.execute("select 1 from countries")
        guards = howdah.console("SHARD_SQL prod")
        for guard in guards:
            if "guarded" in guard["subject"] or "by_region" in guard["subject"]:
                shards.sql(guard["sql"], database=guard["shard"])
        numbers = []
        for tenant in TENANTS:
            insert = f"insert into guarded (account_id) values ({tenant})"
            numbers.append(client.execute(f"{insert} returning id").fetchone()[0])
            own = howdah.console(f"ROUTE prod '{insert}'")[0]["shard"]
            for shard in set(SHARDS) - {own}:
                client.execute(f"set howdah.shard = '{shard}'")
                with pytest.raises(errors.FeatureNotSupported, match="contradicts"):
                    client.execute(insert)
                with psycopg.connect(host=howdah.host, port=howdah.port, dbname=shard, user="postgres",
                                     password="secret", autocommit=True) as direct, \
                     pytest.raises(errors.CheckViolation):
                    direct.execute(insert)
            client.execute("reset howdah.shard")
        assert len(set(numbers)) == len(numbers)
        for region in ("eu", "us", "elsewhere"):
            client.execute("insert into by_region values (%s)", [region])
    howdah.stop()
    howdah.start()
    with connect(howdah) as client:
        client.execute("select 1 from countries")
    found = {row["subject"] for row in howdah.console("SHOW SHARD_CHECKS") if "same numbers" in row["found"]}
    assert found == set()
    for shard in SHARDS:
        shards.sql("drop table guarded, by_region", database=shard)
