"""psycopg on a database that may be sharded: tenants in WHERE, and a tenant said for each request.

The server is told by PGHOST, PGPORT, PGUSER, PGPASSWORD and PGDATABASE. What is printed is the same
whether there are shards or not.
"""

import psycopg
from psycopg import errors

TENANTS = range(1, 13)
COUNT = "select count(*) from orders where account_id = %s"
INSERT = "insert into orders (account_id, id) values (%s, %s)"
NOT_PROVED = "select count(*) from orders where account_id + 0 = %s"


def count(connection, tenant):
    """How many orders a tenant has."""
    return connection.execute(COUNT, [tenant]).fetchone()[0]


def transactions(connection):
    """The first statement of each has a key."""
    for tenant in TENANTS:
        before = count(connection, tenant)
        connection.execute(INSERT, [tenant, 500])
        assert count(connection, tenant) == before + 1
        connection.rollback()
        assert count(connection, tenant) == before
        connection.commit()
        yield before


def savepoints(connection):
    """An error in the middle, and a read behind it."""
    for tenant in TENANTS:
        with connection.transaction():
            try:
                with connection.transaction():
                    connection.execute(INSERT, [tenant, 501])
                    connection.execute(INSERT, [tenant, 501])
            except errors.UniqueViolation:
                pass
            yield count(connection, tenant)


def pipelines(connection):
    """A transaction that is sent at once."""
    for tenant in TENANTS:
        with connection.pipeline():
            with connection.transaction(force_rollback=True):
                connection.execute(INSERT, [tenant, 502])
                found = connection.execute(COUNT, [tenant])
                connection.cursor().executemany(INSERT, [[tenant, 503], [tenant, 504]])
        yield found.fetchone()[0]


def cursors(connection):
    """The server's cursors."""
    for tenant in TENANTS:
        with connection.cursor("mine") as cursor:
            cursor.itersize = 2
            cursor.execute("select id from orders where account_id = %s order by 1", [tenant])
            yield [row[0] for row in cursor]
        connection.commit()


def settings(connection):
    """Transactions that begin with their level and with settings of their own."""
    connection.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
    connection.read_only = True
    for tenant in TENANTS:
        connection.execute("set local statement_timeout = '55s'")
        found = count(connection, tenant)
        yield found, *connection.execute("select current_setting('transaction_isolation'), "
                                         "current_setting('statement_timeout')").fetchone()
        connection.rollback()


def requests(connection):
    """Each says its tenant, and its statements don't."""
    connection.autocommit = True
    for tenant in TENANTS:
        connection.execute(f"set howdah.key = 'tenant:{tenant}'")
        yield connection.execute(NOT_PROVED, [tenant]).fetchone()[0]
        with connection.transaction(force_rollback=True):
            with connection.cursor().copy("copy orders (account_id, id) from stdin") as copy:
                copy.write_row((tenant, 505))
            yield connection.execute(NOT_PROVED, [tenant]).fetchone()[0]
        connection.execute("reset howdah.key")


for threshold in (None, 0):
    for behaviour in (transactions, savepoints, pipelines, cursors, settings, requests):
        with psycopg.connect("", prepare_threshold=threshold) as opened:
            print(behaviour.__name__, threshold, *behaviour(opened))
print("end 1")
