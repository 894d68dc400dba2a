"""asyncpg with its defaults: every statement named, Flush instead of Sync where it can, types looked
up in the catalogue, a reset query when a connection goes back to its pool.

The server is told by PGHOST, PGPORT, PGUSER, PGPASSWORD and PGDATABASE, which asyncpg reads.
Prints one line "behaviour count" for each behaviour that went as it must.
"""

import asyncio
import sys

import asyncpg

CLIENTS = 8
conns = [None] * CLIENTS


def same(got, wanted, what):
    """Ends the run at the first difference."""
    if got != wanted:
        raise AssertionError(f"{what}: got {got!r}, not {wanted!r}")


def done(behaviour, count):
    """Reports a behaviour."""
    print(behaviour, count, flush=True)


async def on_all(work):
    """Runs work(index, connection) on all connections at once; gives what they return."""
    return await asyncio.gather(*(work(i, conn) for i, conn in enumerate(conns)))


async def connect(index):
    """A connection with asyncpg's defaults."""
    return await asyncpg.connect(server_settings={"application_name": f"asyncpg {index}"})


async def refused(problem, running):
    """Awaits what must fail in this way."""
    try:
        await running
    except problem as error:
        return error
    raise AssertionError(f"not refused with {problem.__name__}")


async def connects():
    """All at once, each sees itself."""
    conns[:] = await asyncio.gather(*(connect(i) for i in range(CLIENTS)))
    names = await on_all(
        lambda _, conn: conn.fetchval("select current_setting('application_name')"))
    same(names, [f"asyncpg {i}" for i in range(CLIENTS)], "application_name")
    done("connect", CLIENTS)


async def repeats():
    """The same texts from all, under names that collide, and one text with several types."""
    async def work(index, conn):
        for turn in range(40):
            value = f"{index}.{turn}"
            row = await conn.fetchrow("select $1::text || '!' as a, $2::int as b", value, turn)
            same(tuple(row), (value + "!", turn), "shared text")
            same(await conn.fetchval(f"select $1::text || ' of {index}'", value),
                 f"{value} of {index}", "own text")
        return turn + 1
    done("prepared by use", sum(await on_all(work)))


async def evictions():
    """More statements than asyncpg keeps: it closes the oldest."""
    async def work(index, conn):
        for i in range(130):
            same(await conn.fetchval(f"select '{index % 2}.{i}'::text || $1::text", f" {index}"),
                 f"{index % 2}.{i} {index}", "one of many statements")
        return i + 1
    done("evicted by Close", sum(await on_all(work)))


async def prepared():
    """Explicit statements: described, run with row limits, dropped."""
    async def work(index, conn):
        for turn in range(5):
            statement = await conn.prepare("select i, $1::text from generate_series(1, $2::int) i")
            same([p.name for p in statement.get_parameters()], ["text", "int4"], "parameters")
            rows = await statement.fetch(f"{index}.{turn}", 30)
            same([tuple(row) for row in rows], [(i, f"{index}.{turn}") for i in range(1, 31)],
                 "explicit statement")
            same(await statement.fetchval(f"{index}", 3, column=1), f"{index}", "first row only")
            del statement
        await refused(asyncpg.UndefinedTableError, conn.prepare("select * from asyncpg_nowhere"))
        same(await conn.fetchval("select $1::int", index), index, "after a refused Parse")
        return turn + 1
    done("explicit statements", sum(await on_all(work)))


async def transactions():
    """Commit, rollback, savepoints, an error within, and life after it."""
    await conns[0].execute("""
        drop table if exists asyncpg_rows; create table asyncpg_rows (owner int, body text)""")

    async def work(index, conn):
        insert = "insert into asyncpg_rows values ($1, $2)"
        for turn in range(6):
            async with conn.transaction():
                await conn.execute(insert, index, f"kept {turn}")
                inner = conn.transaction()
                await inner.start()
                await conn.execute(insert, index, "undone")
                await inner.rollback()
                try:
                    async with conn.transaction():
                        await conn.execute(insert, index, "undone by an error")
                        await conn.fetchval("select $1::int / 0", index)
                except asyncpg.DivisionByZeroError:
                    pass
                await conn.execute(insert, index, f"kept too {turn}")
            failed = conn.transaction(isolation="repeatable_read")
            await failed.start()
            await conn.execute(insert, index, "failed")
            await refused(asyncpg.UndefinedColumnError, conn.fetch("select nonsense"))
            await refused(asyncpg.InFailedSQLTransactionError, conn.fetch("select $1::int", 1))
            await failed.rollback()
        rows = await conn.fetch("select body from asyncpg_rows where owner = $1 order by 1", index)
        wanted = sorted([f"kept {t}" for t in range(6)] + [f"kept too {t}" for t in range(6)])
        same([row["body"] for row in rows], wanted, "rows kept")
        return turn + 1
    done("transactions", sum(await on_all(work)))


async def set_local():
    """SET LOCAL lasts for its transaction."""
    async def work(index, conn):
        for _ in range(5):
            async with conn.transaction():
                await conn.execute(f"set local work_mem = '{index + 1}MB'")
                await conn.execute("select set_config('my.own', $1, true)", str(index))
                same(await conn.fetchval("select current_setting('my.own')"), str(index), "local")
                same(await conn.fetchval("show work_mem"), f"{index + 1}MB", "set local")
            same(await conn.fetchval("show work_mem"), "4MB", "after the transaction")
        return 5
    done("set local", sum(await on_all(work)))


async def batches():
    """executemany, which pipelines; with an error in the middle nothing of it stays."""
    await conns[0].execute("""drop table if exists asyncpg_batch;
        create table asyncpg_batch (owner int, n int, primary key (owner, n))""")

    async def work(index, conn):
        insert = "insert into asyncpg_batch values ($1, $2)"
        for turn in range(4):
            await conn.executemany(insert, [(index, turn * 500 + n) for n in range(500)])
            await refused(asyncpg.UniqueViolationError, conn.executemany(
                insert, [(index, 1_000_000 + n % 300) for n in range(400)]))
            got = await conn.fetchmany("select $1::int * 2", [(index + n,) for n in range(50)])
            same([row[0] for row in got], [(index + n) * 2 for n in range(50)], "fetchmany")
        row = await conn.fetchrow(
            "select count(*), sum(n) from asyncpg_batch where owner = $1", index)
        same(tuple(row), (2000, 1999 * 1000), "rows of batches")
        return turn + 1
    done("batches", sum(await on_all(work)))


async def cursors():
    """Portals with row limits within transactions."""
    async def work(index, conn):
        for turn in range(3):
            async with conn.transaction():
                got = [row[0] async for row in conn.cursor(
                    "select $1::int * 1000 + i from generate_series(1, 100) i", index, prefetch=7)]
                same(got, [index * 1000 + i for i in range(1, 101)], "iterated cursor")
                one = await conn.cursor("select $1::int + i from generate_series(1, 50) i", index)
                two = await conn.cursor("select $1::int - i from generate_series(1, 50) i", index)
                for step in range(5):
                    same([row[0] for row in await one.fetch(5)],
                         [index + step * 5 + i for i in range(1, 6)], "first of two cursors")
                    same(await two.forward(2), 2, "skipped")
                    same((await two.fetchrow())[0], index - step * 3 - 3, "second of two cursors")
        return turn + 1
    done("cursors", sum(await on_all(work)))


async def copies():
    """COPY in and out, and copies that fail on either side."""
    await conns[0].execute("""drop table if exists asyncpg_copied;
        create table asyncpg_copied (owner int, body text, primary key (owner, body))""")

    async def work(index, conn):
        rows = [(index, f"{i:03} of {index} " + "x" * 200) for i in range(300)]
        same(await conn.copy_records_to_table("asyncpg_copied", records=rows), "COPY 300", "copy")
        out = bytearray()

        async def take(data):
            out.extend(data)
        await conn.copy_from_query(
            "select * from asyncpg_copied where owner = $1 order by body", index, output=take)
        same(out.decode(), "".join(f"{a}\t{b}\n" for a, b in rows), "copied out")
        await refused(asyncpg.UniqueViolationError,
                      conn.copy_records_to_table("asyncpg_copied", records=rows))

        async def gives_up():
            yield f"{index}\tgiven up\n".encode()
            raise ZeroDivisionError
        await refused(ZeroDivisionError,
                      conn.copy_to_table("asyncpg_copied", source=gives_up()))
        same(await conn.fetchval("select count(*) from asyncpg_copied where owner = $1", index),
             300, "rows copied")
        return 1
    done("copies", sum(await on_all(work)))


async def timeouts():
    """A timeout cancels the statement; the connection and all others go on."""
    stop = asyncio.Event()

    async def others(index):
        turn = 0
        while not stop.is_set():
            same(await conns[index].fetchval("select $1::text", f"{index}.{turn}"),
                 f"{index}.{turn}", "beside a timeout")
            turn += 1
    beside = [asyncio.create_task(others(index)) for index in (4, 5, 6)]
    for index in range(4):
        await refused(asyncio.TimeoutError,
                      conns[index].fetch("select pg_sleep(60), $1::int", index, timeout=0.1))
        same(await conns[index].fetchval("select $1::int", index), index, "after a timeout")
        mark = f"select pg_sleep(60) /* {index} */"
        task = asyncio.create_task(conns[index].execute(mark))
        while not await conns[7].fetchval("select count(*) from pg_stat_activity "
                                          "where state = 'active' and query = $1", mark):
            pass
        task.cancel()
        await refused(asyncio.CancelledError, task)
        same(await conns[index].fetchval("select $1::int", index), index, "after a cancelled task")
    stop.set()
    await asyncio.gather(*beside)
    done("timeouts", 4)


async def large():
    """A parameter and an answer of 1 MB."""
    async def work(index, conn):
        text = chr(ord("a") + index) * (1 << 20)
        for _ in range(2):
            row = await conn.fetchrow("select $1::text, length($1)", text)
            same(tuple(row), (text, len(text)), "1 MB")
        return 2
    done("1 MB parameters", sum(await on_all(work)))


async def notices():
    """Notices reach who caused them."""
    async def work(index, conn):
        heard = []

        def hear(_, notice):
            heard.append(notice.message)
        conn.add_log_listener(hear)
        for turn in range(5):
            await conn.execute(f"do $$begin raise notice 'from {index}.{turn}'; end$$")
        conn.remove_log_listener(hear)
        # Listeners are called from the event loop's next rounds.
        while len(heard) < 5:
            await asyncio.sleep(0)
        same(heard, [f"from {index}.{turn}" for turn in range(5)], "notices")
        return len(heard)
    done("notices", sum(await on_all(work)))


async def changed_types():
    """A table changes under cached plans: asyncpg prepares anew by itself."""
    await conns[0].execute(
        "drop table if exists asyncpg_shape; create table asyncpg_shape as select 1 as a")

    async def read(_, conn):
        for _ in range(6):
            same(tuple(await conn.fetchrow("select * from asyncpg_shape")), (1,), "before")
        return 1
    for column in range(2, 5):
        await on_all(read if column == 2 else read_again)
        await conns[column].execute(f"alter table asyncpg_shape add c{column} int default {column}")
        wanted = tuple(range(1, column + 1))

        async def read_again(_, conn):
            for _ in range(6):
                row = await conn.fetchrow("select * from asyncpg_shape")
                same(tuple(row), wanted, "changed shape")  # noqa: B023
            return 1
    done("changed result types", sum(await on_all(read_again)))


async def types():
    """Types that are looked up in the catalogue."""
    for labels in (("glad", "sad"), ("up", "down"), ("left", "right")):
        await conns[0].execute(f"""
            drop type if exists asyncpg_pair; drop type if exists asyncpg_mood;
            create type asyncpg_mood as enum {labels};
            create type asyncpg_pair as (name text, mood asyncpg_mood)""")

        async def work(index, conn):
            # Their oids are new, and asyncpg is told to look them up again.
            await conn.reload_schema_state()
            one, two = labels  # noqa: B023
            for turn in range(6):
                row = await conn.fetchrow(
                    "select $1::asyncpg_pair as pair, $2::asyncpg_mood[] as moods, "
                    "array[$3::int, 1] as numbers", (f"n{index}.{turn}", two), [one, two], index)
                same((tuple(row["pair"]), row["moods"], row["numbers"]),
                     ((f"n{index}.{turn}", two), [one, two], [index, 1]), "looked up")
            return turn + 1
        await on_all(work)
    done("types looked up", CLIENTS * 18)


async def pool():
    """asyncpg's own pool: each release sends its reset query."""
    async with asyncpg.create_pool(min_size=6, max_size=12) as own:
        async def work(index):
            for turn in range(10):
                async with own.acquire() as conn:
                    same(await conn.fetchval("select $1::text", f"{index}.{turn}"),
                         f"{index}.{turn}", "pooled")
                    if turn == 5:
                        await refused(asyncpg.DivisionByZeroError,
                                      conn.execute("begin; select 1/0"))
        await asyncio.gather(*(work(index) for index in range(24)))
    await on_all(lambda _, conn: conn.reset())
    done("pool with resets", 240)


async def sql_resets():
    """DEALLOCATE ALL and DISCARD ALL, after which asyncpg is told to forget its statements."""
    async def work(index, conn):
        for statement in ("deallocate all", "discard all"):
            await conn.fetchval("select $1::text || 'again'", str(index))
            await conn.execute(statement)
            # asyncpg does not see that its statements are gone, and says so by this error.
            await refused(asyncpg.InvalidSQLStatementNameError,
                          conn.fetchval("select $1::text || 'again'", str(index)))
            await conn.reload_schema_state()
            same(await conn.fetchval("select $1::text || 'again'", str(index)), f"{index}again",
                 "after " + statement)
        return 2
    done("reset by SQL", sum(await on_all(work)))


async def reconnects():
    """Connections come and go; some leave in the middle of a transaction."""
    async def work(index, _):
        for turn in range(12):
            conn = await connect(index)
            same(await conn.fetchval("select $1::text", f"{index}.{turn}"), f"{index}.{turn}",
                 "new connection")
            if turn % 3 == 0:
                await conn.close()
                continue
            await conn.execute("begin; insert into asyncpg_rows values (-1, 'left behind')")
            if turn % 3 == 1:
                await conn.close()
            else:
                conn.terminate()
        return turn + 1
    done("reconnects", sum(await on_all(work)))
    left = await conns[0].fetchval("select count(*) from asyncpg_rows where owner = -1")
    same(left, 0, "rows of transactions left open")


async def main():
    """All of it."""
    await connects()
    for behaviour in (repeats, evictions, prepared, transactions, set_local, batches, cursors,
                      copies, timeouts, large, notices, changed_types, types, pool, sql_resets,
                      reconnects):
        await behaviour()
    await on_all(lambda _, conn: conn.close())
    done("end", 1)


if __name__ == "__main__":
    try:
        asyncio.run(main())
    except (AssertionError, asyncpg.PostgresError, asyncpg.InterfaceError) as problem:
        sys.exit(f"asyncpg {asyncpg.__version__}: {type(problem).__name__}: {problem}")
