"""asyncpg on a database that may be sharded: tenants in WHERE, and a tenant said for each request.

The server is told by PGHOST, PGPORT, PGUSER, PGPASSWORD and PGDATABASE. What is printed is the same
whether there are shards or not.
"""

import asyncio

import asyncpg

TENANTS = range(1, 13)
COUNT = "select count(*) from orders where account_id = $1"
INSERT = "insert into orders (account_id, id) values ($1, $2)"
NOT_PROVED = "select count(*) from orders where account_id + 0 = $1"


async def prepared(connection):
    """A statement that is prepared alone, and run for all tenants, in transactions and outside."""
    count = await connection.prepare(COUNT)
    in_transactions = await connection.prepare(COUNT + " and id > 0")
    for tenant in TENANTS:
        async with connection.transaction():
            yield await in_transactions.fetchval(tenant)
        yield await count.fetchval(tenant)


async def prepared_inside(connection):
    """A statement that is prepared in a transaction, behind which a Query comes: asyncpg sends no Sync."""
    for tenant in TENANTS:
        work = connection.transaction()
        await work.start()
        await connection.prepare(COUNT + f" and id > {tenant}")
        await connection.execute(f"insert into orders (account_id, id) values ({tenant}, 503)")
        yield await connection.fetchval(COUNT, tenant)
        await work.rollback()
        yield await connection.fetchval(COUNT, tenant)


async def transactions(connection):
    """The first statement of each has a key; an error in the middle is rolled back to a savepoint."""
    for tenant in TENANTS:
        async with connection.transaction(isolation="repeatable_read"):
            before = await connection.fetchval(COUNT, tenant)
            try:
                async with connection.transaction():
                    await connection.execute(INSERT, tenant, 500)
                    await connection.execute(INSERT, tenant, 500)
            except asyncpg.UniqueViolationError:
                pass
            assert await connection.fetchval(COUNT, tenant) == before
            yield before


async def many(connection):
    """Many rows of a tenant at once, and a cursor."""
    for tenant in TENANTS:
        await connection.executemany(INSERT, [(tenant, 501), (tenant, 502)])
        async with connection.transaction():
            rows = connection.cursor("select id from orders where account_id = $1 order by 1", tenant, prefetch=2)
            yield [row["id"] async for row in rows]
        yield await connection.execute("delete from orders where account_id = $1 and id > 500", tenant)


async def requests(_connection):
    """Each takes a connection of a pool, and says its tenant."""
    async with asyncpg.create_pool(min_size=1, max_size=2) as pool:
        for tenant in TENANTS:
            async with pool.acquire() as connection:
                await connection.execute(f"set howdah.key = 'tenant:{tenant}'")
                yield await connection.fetchval(NOT_PROVED, tenant)


async def main():
    for behaviour in (prepared, prepared_inside, transactions, many, requests):
        connection = await asyncpg.connect()
        print(behaviour.__name__, *[found async for found in behaviour(connection)])
        await connection.close()
    print("end 1")


asyncio.run(main())
