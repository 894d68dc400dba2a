"""psycopg 3 with its defaults: named statements from the sixth use on, pipelines, COPY, cancel.

The server is told by PGHOST, PGPORT, PGUSER, PGPASSWORD and PGDATABASE, which libpq reads.
Prints one line "behaviour count" for each behaviour that went as it must.
"""

import itertools
import sys
from concurrent.futures import ThreadPoolExecutor

import psycopg
from psycopg import sql

CLIENTS = 8
conns = [None] * CLIENTS


def same(got, wanted, what):
    """Ends the run at the first difference."""
    if got != wanted:
        raise AssertionError(f"{what}: got {got!r}, not {wanted!r}")


def done(behaviour, count):
    """Reports a behaviour."""
    print(behaviour, count, flush=True)


def on_all(work):
    """Runs work(index, connection) on all connections at once; gives what they return."""
    with ThreadPoolExecutor(CLIENTS) as threads:
        running = [threads.submit(work, i, conn) for i, conn in enumerate(conns)]
        return [one.result() for one in running]


def connect(index, **options):
    """A connection with psycopg's defaults."""
    return psycopg.connect(application_name=f"psycopg {index}", **options)


def refused(conn, problem, statement, *arguments, **options):
    """Runs a statement that must fail in this way."""
    try:
        conn.execute(statement, *arguments, **options)
    except problem as error:
        return error
    raise AssertionError(f"not refused: {statement}")


def connects():
    """All at once, each sees itself."""
    with ThreadPoolExecutor(CLIENTS) as threads:
        conns[:] = threads.map(connect, range(CLIENTS))

    def work(index, conn):
        row = conn.execute("select current_setting('application_name')").fetchone()
        same(row, (f"psycopg {index}",), "application_name")
        conn.commit()
    on_all(work)
    done("connect", CLIENTS)


def repeats():
    """The same texts from all, under names that collide, far beyond the prepare threshold."""
    def work(index, conn):
        for turn in range(40):
            value = f"{index}.{turn}"
            row = conn.execute("select %s::text || '!', %s::int", (value, turn)).fetchone()
            same(row, (value + "!", turn), "shared text")
            row = conn.execute(f"select %s::text, {index}", (value,)).fetchone()
            same(row, (value, index), "own text under a common name")
            row = conn.execute("select %b::int + 1", (index * 1000 + turn,)).fetchone()
            same(row, (index * 1000 + turn + 1,), "binary parameter")
            if turn % 3 == 0:
                conn.commit()
        prepared = conn.execute("select 1", prepare=False) and conn._prepared._names
        same(len(prepared), 3, "names the driver has prepared")
        conn.commit()
        return turn + 1
    done("prepared by use", sum(on_all(work)))


def evictions():
    """More statements than psycopg keeps: it closes the oldest with Close messages."""
    def work(index, conn):
        for i in range(conn.prepared_max + 30):
            statement = sql.SQL("select {}::text, %s::int").format(sql.Literal(f"{index % 2}.{i}"))
            same(conn.execute(statement, (i,), prepare=True).fetchone(),
                 (f"{index % 2}.{i}", i), "one of many statements")
        same(len(conn._prepared._names), conn.prepared_max, "statements kept")
        conn.commit()
        return conn.prepared_max + 30
    done("evicted by Close", sum(on_all(work)))


def sql_prepares():
    """DEALLOCATE and DISCARD by SQL, then the same statements again."""
    def work(index, conn):
        conn.autocommit = True
        for statement in ("deallocate all", "discard all"):
            for turn in range(8):
                row = conn.execute("select %s::text || 'again'", (f"{index}.{turn}",)).fetchone()
                same(row, (f"{index}.{turn}again",), "after " + statement)
            conn.execute(statement)
        conn.autocommit = False
        return 2
    done("reset by SQL", sum(on_all(work)))


def transactions():
    """Commit, rollback, savepoints, an error within, and life after it."""
    conns[0].execute("drop table if exists psycopg_rows")
    conns[0].execute("create table psycopg_rows (owner int, body text)")
    conns[0].commit()

    def work(index, conn):
        insert = "insert into psycopg_rows values (%s, %s)"
        for turn in range(6):
            with conn.transaction():
                conn.execute(insert, (index, f"kept {turn}"))
                with conn.transaction("inner"):
                    conn.execute(insert, (index, "undone"))
                    raise psycopg.Rollback()
                try:
                    with conn.transaction():
                        conn.execute(insert, (index, "undone by an error"))
                        conn.execute("select %s::int / 0", (index,))
                except psycopg.errors.DivisionByZero:
                    pass
                conn.execute(insert, (index, f"kept too {turn}"))
            conn.execute(insert, (index, "rolled back"))
            conn.rollback()
            conn.execute(insert, (index, "failed"))
            refused(conn, psycopg.errors.UndefinedColumn, "select nonsense")
            refused(conn, psycopg.errors.InFailedSqlTransaction, "select 1")
            conn.rollback()
        rows = conn.execute("select body from psycopg_rows where owner = %s order by 1", (index,))
        wanted = sorted([f"kept {t}" for t in range(6)] + [f"kept too {t}" for t in range(6)])
        same([body for (body,) in rows], wanted, "rows kept")
        conn.commit()
        return 6
    done("transactions", sum(on_all(work)))


def set_local():
    """SET LOCAL lasts for its transaction."""
    def work(index, conn):
        for _ in range(5):
            conn.execute(sql.SQL("set local work_mem = {}").format(f"{index + 1}MB"))
            conn.execute(sql.SQL("set local my.own = {}").format(str(index)))
            row = conn.execute("select current_setting('work_mem'), current_setting('my.own')")
            same(row.fetchone(), (f"{index + 1}MB", str(index)), "set local")
            conn.commit()
            same(conn.execute("show work_mem").fetchone(), ("4MB",), "after the transaction")
            conn.commit()
        return 5
    done("set local", sum(on_all(work)))


def pipelines():
    """Pipelines, with an error in the middle, in and out of transactions."""
    def work(index, conn):
        for turn in range(5):
            with conn.pipeline():
                cursors = [conn.execute("select %s::text", (f"{index}.{turn}.{i}",))
                           for i in range(20)]
                same([c.fetchone()[0] for c in cursors],
                     [f"{index}.{turn}.{i}" for i in range(20)], "pipeline")
            conn.commit()
            try:
                with conn.pipeline() as pipeline:
                    first = conn.execute("select %s::text", (f"{index} before",))
                    pipeline.sync()
                    conn.execute("select 1 / (%s - %s)", (index, index))
                    conn.execute("select %s::text", (f"{index} skipped",))
            except psycopg.errors.DivisionByZero:
                pass
            else:
                raise AssertionError("the error in the pipeline was not told")
            same(first.fetchone(), (f"{index} before",), "before the error")
            conn.rollback()
            same(conn.execute("select %s::int", (index,)).fetchone(), (index,), "after the error")
            conn.commit()
            with conn.cursor() as cursor:
                cursor.executemany("select %s::int * 2", [(index + i,) for i in range(50)],
                                   returning=True)
                got = [result.fetchone()[0] for result in cursor.results()]
                same(got, [(index + i) * 2 for i in range(50)], "executemany")
            conn.commit()
        return 5
    done("pipelines", sum(on_all(work)))


def cursors():
    """Named cursors, and rows as they come."""
    def work(index, conn):
        for _ in range(3):
            with conn.cursor(name="cursor") as cursor:
                cursor.itersize = 7
                cursor.execute("select %s::int * 1000 + i from generate_series(1, 100) i", (index,))
                same([n for (n,) in cursor], [index * 1000 + i for i in range(1, 101)], "cursor")
            conn.commit()
            with conn.cursor() as cursor:
                rows = cursor.stream("select %s::int + i from generate_series(1, 300) i", (index,),
                                     size=10)
                same([n for (n,) in rows], [index + i for i in range(1, 301)], "stream")
            conn.commit()
        return 3
    done("cursors", sum(on_all(work)))


def copies():
    """COPY in and out, by text and binary; refused rows; a copy the client gives up."""
    conns[0].execute("drop table if exists psycopg_copied")
    conns[0].execute("create table psycopg_copied (owner int, body text, primary key (owner, body))")
    conns[0].commit()

    def work(index, conn):
        with conn.cursor() as cursor:
            rows = [(index, f"{index} row {i} " + "x" * 200) for i in range(300)]
            with cursor.copy("copy psycopg_copied from stdin") as copy:
                for row in rows:
                    copy.write_row(row)
            conn.commit()
            with cursor.copy("copy psycopg_copied from stdin (format binary)") as copy:
                copy.set_types(["int4", "text"])
                copy.write_row((index, f"{index} binary"))
            conn.commit()
            where = sql.SQL("copy (select * from psycopg_copied where owner = {} order by body) "
                            "to stdout").format(index)
            with cursor.copy(where) as copy:
                copy.set_types(["int4", "text"])
                same(list(copy.rows()), sorted([*rows, (index, f"{index} binary")]), "copied out")
            conn.commit()
            try:
                with cursor.copy("copy psycopg_copied from stdin") as copy:
                    for _ in range(2):
                        for row in rows:
                            copy.write_row(row)
            except psycopg.errors.UniqueViolation:
                conn.rollback()
            else:
                raise AssertionError("rows copied twice were not refused")
            try:
                with cursor.copy("copy psycopg_copied from stdin") as copy:
                    copy.write_row((index, "given up"))
                    raise ZeroDivisionError
            except ZeroDivisionError:
                conn.rollback()
            cursor.execute("select count(*) from psycopg_copied where owner = %s", (index,))
            same(cursor.fetchone(), (301,), "rows copied")
            conn.commit()
        return 1
    done("copies", sum(on_all(work)))


def cancels(behaviour, one_by_one):
    """A cancelled statement ends; those of all others go on."""
    def until_active(mark):
        for _ in itertools.count():
            seen = conns[7].execute("select count(*) from pg_stat_activity where state = 'active' "
                                    "and query like '%%' || %s and pid <> pg_backend_pid()",
                                    (mark,)).fetchone()
            conns[7].commit()
            if seen == (1,):
                return

    def others(index):
        for turn in range(100):
            row = conns[index].execute("select %s::text", (f"{index}.{turn}",)).fetchone()
            same(row, (f"{index}.{turn}",), "beside a cancel")
            conns[index].commit()

    with ThreadPoolExecutor(CLIENTS) as threads:
        beside = [threads.submit(others, index) for index in (4, 5, 6)]
        for conn in one_by_one:
            mark = f"/* {id(conn)} */"
            asleep = threads.submit(refused, conn, psycopg.errors.QueryCanceled,
                                    "select pg_sleep(60) " + mark)
            until_active("(60) " + mark)
            conn.cancel_safe(timeout=10)
            asleep.result()
            conn.rollback()
            same(conn.execute("select 'lives'").fetchone(), ("lives",), "after a cancel")
            conn.commit()
        for one in beside:
            one.result()
    done(behaviour, len(one_by_one))


def large():
    """A parameter and an answer of 1 MB."""
    def work(index, conn):
        text = chr(ord("a") + index) * (1 << 20)
        for _ in range(2):
            same(conn.execute("select %s::text, length(%s)", (text, text)).fetchone(),
                 (text, len(text)), "1 MB")
        conn.commit()
        return 2
    done("1 MB parameters", sum(on_all(work)))


def notices():
    """Notices reach who caused them."""
    def work(index, conn):
        heard = []
        conn.add_notice_handler(lambda notice: heard.append(notice.message_primary))
        for turn in range(5):
            conn.execute(sql.SQL("do {}").format(
                f"begin raise notice 'from {index}.{turn}'; end"))
        conn.commit()
        same(heard, [f"from {index}.{turn}" for turn in range(5)], "notices")
        return len(heard)
    done("notices", sum(on_all(work)))


def changed_types():
    """A table changes under a cached plan: psycopg tells; after it forgot its names, all is well."""
    conns[0].execute("drop table if exists psycopg_shape")
    conns[0].execute("create table psycopg_shape as select 1 as a")
    conns[0].commit()

    def read(_, conn):
        for _ in range(10):
            same(conn.execute("select * from psycopg_shape").fetchone(), (1,), "before")
            conn.commit()
    on_all(read)
    conns[0].execute("alter table psycopg_shape add b int default 2")
    conns[0].commit()

    def read_again(_, conn):
        # On a server that had it prepared, the statement is refused once; psycopg leaves the rest
        # to its user, who starts anew.
        try:
            conn.execute("select * from psycopg_shape").fetchone()
        except psycopg.errors.FeatureNotSupported:
            pass
        conn.rollback()
        conn.execute("deallocate all")
        conn.commit()
        for _ in range(10):
            same(conn.execute("select * from psycopg_shape").fetchone(), (1, 2), "changed shape")
            conn.commit()
        return 1
    done("changed result types", sum(on_all(read_again)))


def types():
    """Types that are looked up in the catalogue."""
    conns[0].execute("drop type if exists psycopg_pair")
    conns[0].execute("create type psycopg_pair as (name text, number int)")
    conns[0].commit()

    def work(index, conn):
        from psycopg.types.composite import CompositeInfo, register_composite
        info = CompositeInfo.fetch(conn, "psycopg_pair")
        register_composite(info, conn)
        for turn in range(8):
            pair = conn.execute("select row(%s::text, %s::int)::psycopg_pair, array[%s, %s]",
                                (f"n{index}", turn, index, turn)).fetchone()
            same((tuple(pair[0]), pair[1]), ((f"n{index}", turn), [index, turn]), "composite")
        conn.commit()
        return 8
    done("types looked up", sum(on_all(work)))


def reconnects():
    """Connections come and go; some leave in the middle of a transaction."""
    def work(index, _):
        for turn in range(12):
            with connect(index) as conn:
                row = conn.execute("select %s::text", (f"{index}.{turn}",), prepare=True).fetchone()
                same(row, (f"{index}.{turn}",), "new connection")
            conn = connect(index)
            conn.execute("insert into psycopg_rows values (-1, 'left behind')")
            conn.close()
        return 24
    done("reconnects", sum(on_all(work)))
    left = conns[0].execute("select count(*) from psycopg_rows where owner = -1").fetchone()
    conns[0].commit()
    same(left, (0,), "rows of transactions left open")


def newest_protocol():
    """Protocol 3.2, with its long cancel keys."""
    if psycopg.pq.version() < 180000:
        raise AssertionError("libpq is too old for protocol 3.2")
    newest = [connect(i, max_protocol_version="3.2") for i in range(2)]
    for conn in newest:
        same(conn.pgconn.full_protocol_version, 30002, "protocol version")
    cancels("cancels by protocol 3.2", newest)
    for conn in newest:
        conn.close()


def main():
    """All of it."""
    connects()
    repeats()
    evictions()
    sql_prepares()
    transactions()
    set_local()
    pipelines()
    cursors()
    copies()
    cancels("cancels", conns[:4])
    large()
    notices()
    changed_types()
    types()
    newest_protocol()
    reconnects()
    on_all(lambda _, conn: conn.close())
    done("end", 1)


if __name__ == "__main__":
    try:
        main()
    except (AssertionError, psycopg.Error) as problem:
        sys.exit(f"psycopg {psycopg.__version__}: {type(problem).__name__}: {problem}")
