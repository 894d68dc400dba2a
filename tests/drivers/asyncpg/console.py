"""Reads the console with asyncpg's defaults: everything prepared, results in binary format."""

import asyncio
import sys

import asyncpg


async def main(tables):
    conn = await asyncpg.connect()
    for _ in range(2):
        for table in tables:
            print(table, len(await conn.fetch(f"show {table}")))
    async with conn.transaction():
        assert await conn.fetchval("select 1") == 1
    await conn.execute("pause postgres")
    await conn.execute("resume postgres")
    try:
        await conn.fetch("show nothing")
        raise AssertionError("no error")
    except asyncpg.PostgresError as error:
        assert error.sqlstate == "08P01", error
    await conn.reset()
    await conn.close()
    async with asyncpg.create_pool(min_size=1, max_size=2) as pool:
        assert await pool.fetchval("show server_version") == "1.25.2/bouncer"
    print("end 1")


asyncio.run(main(sys.argv[1:]))
