"""Sharded databases: each statement goes to the shard that has its rows, or is refused."""

import psycopg
import pytest
from psycopg import errors

from harness import machine

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
    def make(distributions=None, tables=None, shards_of=SHARDS, **settings):
        at = f"host={shards.host} port={shards.port}"
        databases = {name: at for name in SHARDS}
        databases["prod"] = f"shards={','.join(shards_of)}"
        howdah = make_howdah(start=False, databases=databases, **settings)
        howdah.sections["distributions:prod"] = distributions or DISTRIBUTIONS
        howdah.sections["tables:prod"] = tables or TABLES
        howdah.write()
        howdah.start()
        return howdah
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
            client.execute("insert into settings values ('a', 'b')")
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
