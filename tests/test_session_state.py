"""What a session has is its client's on every server, and nobody else's on any (transaction mode)."""

import pytest

from harness import machine, wire
from harness.wire import bind, describe, execute, parse, query, sync

pytestmark = pytest.mark.timeout(120)

POOLS = pytest.mark.parametrize("size", [1, 3])


@pytest.fixture
def pool(make_howdah):
    """Starts a pooler: pool(size, workers=1, ...)."""
    def make(size=1, **options):
        return make_howdah(default_pool_size=size, **options)
    return make


def extended(client, sql, values=()):
    """Runs a statement by the extended protocol; gives its rows."""
    replies = client.ask(parse(sql), bind(values=values), describe(kind="P"), execute(), sync())
    for reply in replies:
        if reply.tag == "E":
            raise wire.Refused(reply.fields())
    return [reply.row() for reply in replies if reply.tag == "D"]


def show(client, name):
    return client.value(f"show {name}")


def disturb(howdah, count=3):
    """Others use every server at once, in transactions, and leave settings of their own."""
    others = [howdah.connect() for _ in range(count)]
    for other in others:
        other.rows("begin")
    for other in others:
        assert show(other, "work_mem") == "4MB"
        assert show(other, "statement_timeout") == "0"
        assert other.value("select current_setting('app.tenant', true)") in (None, "")
        assert other.value("select current_user") == "postgres"
    for other in others:
        other.rows("set work_mem = '9MB'")
        other.rows("commit")
        other.close()


# Settings ---------------------------------------------------------------------------------------

WAYS = {
    "set": ("set work_mem = '7MB'", None),
    "set-session": ("SET SESSION work_mem TO '7MB'", None),
    "extended": ("set work_mem = '7MB'", ()),
    "several": ("select 1; set work_mem = '7MB'; select 2", None),
    "in-a-transaction": ("begin; set work_mem = '1MB'; savepoint a; set work_mem = '2MB'; "
                         "rollback to a; set work_mem = '7MB'; commit", None),
    "set_config": ("select set_config('work_mem', '7MB', false)", None),
    "bound": ("select set_config('work_mem', $1, false)", ("7MB",)),
    "a-comment": ("/* it's */ set -- x\n work_mem = '7MB'", None),
    "in-do": ("do $$begin set work_mem = '7MB'; end$$", None),
}


@POOLS
@pytest.mark.parametrize("way", WAYS, ids=str)
def test_a_setting_follows_its_client(pool, way, size):
    sql, values = WAYS[way]
    howdah = pool(size)
    with howdah.connect() as client:
        client.rows(sql) if values is None else extended(client, sql, values)
        assert howdah.console("SHOW CLIENTS")
        for _ in range(3):
            disturb(howdah, size)
            assert show(client, "work_mem") == "7MB"
        client.rows("reset work_mem")
        disturb(howdah, size)
        assert show(client, "work_mem") == "4MB"


@POOLS
@pytest.mark.parametrize("workers", [1, 3])
def test_nobody_sees_anothers_settings(pool, size, workers):
    howdah = pool(size, workers=workers)
    with howdah.connect() as one, howdah.connect() as two:
        one.rows("set work_mem = '7MB'; set statement_timeout = '50s'")
        one.rows("set app.tenant = 'it''s \\ \u00e9'")
        one.rows("set role plain_user")
        one.rows("set default_transaction_read_only = on")
        for _ in range(4):
            assert two.rows("select current_setting('work_mem'), current_user, "
                            "current_setting('default_transaction_read_only'), "
                            "coalesce(current_setting('app.tenant', true), '')"
                            ) == [["4MB", "postgres", "off", ""]]
            assert one.rows("select current_setting('work_mem'), current_user, "
                            "current_setting('default_transaction_read_only'), "
                            "current_setting('app.tenant')"
                            ) == [["7MB", "plain_user", "on", "it's \\ \u00e9"]]
        one.rows("reset role; reset default_transaction_read_only")
        assert one.value("select current_user") == "postgres"
        two.rows("create temp table t (a int) on commit drop")


def test_what_is_rolled_back_was_never_set(pool):
    howdah = pool()
    with howdah.connect() as client:
        client.rows("begin")
        client.rows("set work_mem = '7MB'")
        client.rows("rollback")
        disturb(howdah, 1)
        assert show(client, "work_mem") == "4MB"
        client.error(query("set work_mem = '7MB'; select 1/0"))
        disturb(howdah, 1)
        assert show(client, "work_mem") == "4MB"
        client.rows("set work_mem = '8MB'")
        client.rows("begin")
        client.rows("reset all")
        client.rows("rollback")
        disturb(howdah, 1)
        assert show(client, "work_mem") == "8MB"
        client.rows("set local work_mem = '1MB'")
        assert show(client, "work_mem") == "8MB"


@POOLS
def test_resets(pool, size):
    howdah = pool(size)
    for command in ("reset all", "discard all", "set work_mem to default", "reset work_mem"):
        with howdah.connect() as client:
            client.rows("set work_mem = '7MB'")
            disturb(howdah, size)
            client.rows(command)
            disturb(howdah, size)
            assert show(client, "work_mem") == "4MB", command


def test_start_up_parameters(pool):
    """Any are taken; RESET goes back to them; PostgreSQL's error ends who asks for nonsense."""
    howdah = pool()
    asked = {"work_mem": "7MB", "options": "-c statement_timeout=50s -c app.tenant=a"}
    with howdah.connect(**asked) as client, howdah.connect() as other:
        for _ in range(2):
            assert client.rows("select current_setting('work_mem'), "
                               "current_setting('statement_timeout'), "
                               "current_setting('app.tenant')") == [["7MB", "50s", "a"]]
            assert show(other, "work_mem") == "4MB"
        client.rows("set work_mem = '8MB'")
        assert show(client, "work_mem") == "8MB"
        client.rows("reset all")
        assert show(other, "work_mem") == "4MB"
        assert show(client, "work_mem") == "7MB"
        client.rows("discard all")
        assert show(client, "work_mem") == "7MB"
    for name, value, code in [("work_mem", "x", "22023"), ("no_such_setting", "1", "42704"),
                              ("log_connections", "on", "55P02")]:
        with howdah.connect(**{name: value}) as client:
            with pytest.raises(wire.Refused) as refused:
                client.rows("select 1")
            assert refused.value.code == code
    with howdah.connect() as client:
        assert show(client, "work_mem") == "4MB"


def test_a_dropped_role_ends_its_client(pool, postgres):
    postgres.sql("drop role if exists passing; create role passing")
    howdah = pool()
    with howdah.connect() as client, howdah.connect() as other:
        client.rows("set role passing")
        assert client.value("select current_user") == "passing"
        other.rows("drop role passing")
        with pytest.raises((wire.Refused, wire.Ended)) as refused:
            client.rows("create table never_made (a int)")
        assert refused.value.code == "22023"
        assert other.value("select to_regclass('never_made')") is None


def test_pg_dumps_search_path(pool):
    howdah = pool()
    with howdah.connect() as dump:
        dump.rows("SELECT pg_catalog.set_config('search_path', '', false);")
        dump.error(query("select count(*) from numbers"))
    with howdah.connect() as psql:
        assert psql.value("select count(*) from numbers") == "100"


def test_other_encodings(pool):
    """A character whose second byte is a backslash travels as it is."""
    howdah = pool()
    value = "\u8868".encode("shift_jis")  # 0x95 0x5c
    with howdah.connect(client_encoding="SJIS") as client:
        text = b"set app.tenant = '" + value + b"'\0"
        client.ask(b"Q" + (4 + len(text)).to_bytes(4, "big") + text)
        disturb(howdah, 1)
        replies = client.ask(query("show app.tenant"))
        row = next(reply for reply in replies if reply.tag == "D")
        assert row.row() == [value]


# Pins -------------------------------------------------------------------------------------------

@POOLS
def test_temporary_tables(pool, size):
    howdah = pool(size)
    with howdah.connect() as client:
        client.rows("create temp table t (a int)")
        client.rows("insert into t values (1)")
        if size > 1:
            with howdah.connect() as other:
                for _ in range(5):
                    other.error(query("select * from t"))
        assert client.rows("select a from t") == [["1"]]
        client.rows("drop table t")
        disturb(howdah, size)
    with howdah.connect() as other:
        other.error(query("select * from t"))


@POOLS
@pytest.mark.parametrize("way", [
    "create temp table t (a int) on commit drop",
    "begin; create temp table t (a int); drop table t; commit",
    "begin; create temp table t (a int); rollback",
    "select pg_advisory_lock(1), pg_advisory_unlock(1)",
    "select pg_advisory_xact_lock(1)",
    "begin; declare c cursor with hold for select 1; close c; commit",
    "prepare p as select 1; deallocate p",
    "listen a; unlisten a",
    "select pg_advisory_unlock_all(); CLOSE ALL; UNLISTEN *; RESET ALL",
    "discard all",
])
def test_what_leaves_nothing_keeps_nothing(pool, way, size):
    """The pool of one serves others at once."""
    howdah = pool(size)
    with howdah.connect() as client:
        client.rows(way)
        disturb(howdah, size)
        client.rows(way)
        disturb(howdah, size)


@pytest.mark.parametrize("way, still", [
    ("create temp table t (a int)", "select count(*) from t"),
    ("select pg_advisory_lock(77)", "select pg_advisory_unlock(77)"),
    ("select pg_try_advisory_lock_shared(78)", "select pg_advisory_unlock_shared(78)"),
    ("prepare p as select 1", "execute p"),
    ("begin; declare c cursor with hold for select 1; commit", "fetch c"),
    ("listen a", "select * from pg_listening_channels()"),
    ("select 1 as a into temp t", "select a from t"),
    ("do $$begin create temp table t (a int); end$$", "select count(*) from t"),
])
@pytest.mark.parametrize("ends", ["discard", "leaves", "breaks"])
def test_what_keeps_its_server(pool, way, still, ends):
    howdah = pool(2)
    with howdah.connect() as client, howdah.connect() as other:
        client.rows(way)
        for _ in range(2):
            with howdah.connect() as third:
                other.rows("begin")
                other.rows("select 1")
                other.rows("commit")
            result = client.rows(still)
        if ends == "discard":
            client.rows("discard all")
            disturb(howdah, 2)
        elif ends == "leaves":
            client.close()
        else:
            client.abort()
        machine.wait_until(lambda: howdah.pool()["sv_active"] == 0, "the server to be free")
        assert result is not None
        others = [howdah.connect() for _ in range(2)]
        for one in others:
            one.rows("begin")
        for one in others:
            assert one.value("select count(*) from pg_locks where locktype = 'advisory'") == "0"
            assert one.value("select count(*) from pg_prepared_statements where from_sql") == "0"
            assert one.value("select count(*) from pg_cursors") == "0"
            assert one.value("select count(*) from pg_listening_channels()") == "0"
            assert one.value("select to_regclass('pg_temp.t')") is None
        for one in others:
            one.close()


def test_a_lock_is_its_clients(pool):
    """Advisory locks exclude another client, and are given back by their holder only."""
    howdah = pool(3)
    with howdah.connect() as holder, howdah.connect() as other:
        assert holder.value("select pg_try_advisory_lock(5)") == "t"
        for _ in range(3):
            assert other.value("select pg_try_advisory_lock(5)") == "f"
            assert other.value("select pg_advisory_unlock(5)") == "f"
        assert holder.value("select pg_advisory_unlock(5)") == "t"
        assert other.value("select pg_try_advisory_lock(5)") == "t"


@POOLS
def test_values_of_sequences(pool, postgres, size):
    """`lastval` and `currval` tell a client its own numbers, or PostgreSQL's error."""
    postgres.sql("create sequence if not exists counted start 1000")
    howdah = pool(size)
    others = [howdah.connect() for _ in range(3)]
    for other in others:
        other.rows("begin; select nextval('counted')")
        other.rows("commit")
    with howdah.connect() as client:
        for sql in ("select lastval()", "select currval('counted')"):
            assert client.error(query(sql))["C"] == "55000"
        mine = client.value("select nextval('counted')")
        # From its first question on it keeps its server.
        assert client.value("select lastval()") == mine
        assert client.value("select currval('counted')") == mine
        client.rows("discard all")
        others[0].rows("select nextval('counted')")
        assert client.error(query("select lastval()"))["C"] == "55000"
    with howdah.connect() as client:
        client.rows("begin")
        assert client.error(query("select lastval()"))["C"] == "55000"
        client.rows("rollback")
        client.rows("discard all")
        client.rows("begin")
        mine = client.value("select nextval('counted')")
        assert client.value("select lastval()") == mine
        client.rows("commit")
    for other in others:
        other.close()


def test_listen(pool):
    """Notifications come to who listens, and to nobody else."""
    howdah = pool(2)
    with howdah.connect() as listener, howdah.connect() as other:
        listener.rows("listen news")
        other.rows("notify news, 'one'")
        assert listener.read().tag == "A"
        for _ in range(3):
            replies = other.ask(query("select pg_notify('news', 'two')"))
            assert "A" not in [reply.tag for reply in replies]
            assert listener.read().tag == "A"
        listener.rows("unlisten *")
        other.rows("notify news, 'three'")
        assert listener.quiet()


def test_half_a_message(pool):
    """A client that leaves in the middle of a transaction leaves nothing."""
    howdah = pool()
    for end in ("close", "abort"):
        client = howdah.connect()
        client.rows("set work_mem = '7MB'")
        client.rows("begin; set statement_timeout = '50s'; create temp table t (a int)")
        getattr(client, end)()
        disturb(howdah, 1)


def test_long_queries_are_read(pool):
    """A command behind more than a buffer's worth of text is found."""
    howdah = pool()
    filler = "select '" + "x" * 100_000 + "';"
    with howdah.connect() as client:
        client.rows(filler)
        disturb(howdah, 1)
        client.rows(filler + " create temp table t (a int); " + filler)
        client.rows("insert into t values (1)")
        assert client.value("select count(*) from t") == "1"
    disturb(howdah, 1)


# The other two ----------------------------------------------------------------------------------

def test_discard(pool):
    howdah = pool(session_state="discard")
    with howdah.connect() as client:
        client.rows("set work_mem = '7MB'")
        client.rows("create temp table t (a int)")
        client.rows("set application_name = 'kept'")
        assert show(client, "work_mem") == "4MB"
        client.error(query("select * from t"))
        assert show(client, "application_name") == "kept"


def test_share(pool):
    howdah = pool(session_state="share")
    with howdah.connect() as client, howdah.connect() as other:
        client.rows("create temp table t (a int)")
        client.rows("set work_mem = '7MB'")
        assert other.value("select count(*) from t") == "0"
        assert show(other, "work_mem") == "7MB"
        with pytest.raises(wire.Refused):
            howdah.connect(work_mem="1MB")


def test_statement_mode_refuses_what_would_stay(pool):
    howdah = pool(pool_mode="statement")
    with howdah.connect() as client:
        client.rows("set work_mem = '7MB'")
        disturb_alone(howdah)
        assert show(client, "work_mem") == "7MB"
        with pytest.raises(wire.Refused) as refused:
            client.rows("create temp table t (a int)")
        assert refused.value.code == "0A000"


def disturb_alone(howdah):
    with howdah.connect() as other:
        assert show(other, "work_mem") == "4MB"
