"""Prepared statements over a transaction pool, where poolers are known to go wrong: what one client
leaves, others must never meet; caches are bounded; who vanishes harms nobody."""

import os
import re
import resource

import psycopg
import pytest

from harness import machine, wire
from harness.wire import bind, close, describe, execute, flush, parse, query, sync

pytestmark = [pytest.mark.timeout(60), pytest.mark.one_driver]


def rows(messages):
    """The rows among messages, as texts."""
    return [[value.decode() for value in got.row()] for got in messages if got.tag == "D"]


def tags(messages):
    """The types of messages, as one text."""
    return "".join(got.tag for got in messages)


@pytest.fixture
def howdah(shared_howdah):
    """One server for all."""
    return shared_howdah(default_pool_size=1)


def test_one_text_under_many_names(howdah):
    """Clients share a server's statement, each under names of its own."""
    clients = [howdah.connect() for _ in range(5)]
    for index, client in enumerate(clients):
        client.ask(parse("select $1::text || ' shared'", f"mine{index % 2}"), sync())
    for index, client in enumerate(clients):
        got = client.ask(bind(f"mine{index % 2}", [str(index)]), execute(), sync())
        assert rows(got) == [[f"{index} shared"]]
    assert int(howdah.console("SHOW SERVERS")[0]["prepared_statements"]) >= 1
    for client in clients:
        client.close()


def test_one_name_for_many_texts(howdah):
    """The same name means to each client what that client parsed."""
    clients = [howdah.connect() for _ in range(5)]
    for index, client in enumerate(clients):
        client.ask(parse(f"select 'text {index}'", "same"), sync())
    for _ in range(2):
        for index, client in enumerate(clients):
            assert rows(client.ask(bind("same"), execute(), sync())) == [[f"text {index}"]]
    for client in clients:
        client.close()


def test_one_text_with_other_types(howdah):
    """The same text with other types of its parameters is another statement."""
    with howdah.connect() as one, howdah.connect() as two:
        one.ask(parse("select $1", "s", types=[23]), sync())
        two.ask(parse("select $1", "s", types=[25]), sync())
        one_error = one.error(bind("s", ["x"]), execute(), sync())
        assert one_error["C"] == "22P02"
        assert rows(two.ask(bind("s", ["x"]), execute(), sync())) == [["x"]]
        assert rows(one.ask(bind("s", ["7"]), execute(), sync())) == [["7"]]


def test_one_text_with_another_search_path(make_howdah, newest_postgres):
    """Where search_path is tracked, the same text means each client's own table."""
    if newest_postgres.version < 18:
        pytest.skip("search_path is reported from version 18 on")
    newest_postgres.sql("""
        create schema if not exists a; create schema if not exists b;
        drop table if exists a.t, b.t;
        create table a.t as select 'a' as x; create table b.t as select 'b' as x""")
    howdah = make_howdah(postgres=newest_postgres, default_pool_size=1,
                         track_extra_parameters="search_path")
    with howdah.connect() as one, howdah.connect() as two:
        one.rows("set search_path to a")
        two.rows("set search_path to b")
        for client in (one, two):
            client.ask(parse("select x from t", "s"), sync())
        for _ in range(3):
            assert rows(one.ask(bind("s"), execute(), sync())) == [["a"]]
            assert rows(two.ask(bind("s"), execute(), sync())) == [["b"]]


@pytest.mark.parametrize("limit", [1, 2, 5])
def test_small_caches(make_howdah, postgres, limit):
    """A server's set stays within its limit, also when a group uses more than fit."""
    howdah = make_howdah(default_pool_size=1, max_prepared_statements=limit)
    with howdah.connect() as client:
        client.ask(*(parse(f"select {i}", f"s{i}") for i in range(10)), sync())
        group = b"".join(bind(f"s{i}") + execute() for i in range(10))
        for _ in range(3):
            assert rows(client.ask(group, sync())) == [[str(i)] for i in range(10)]
        client.send(group, flush())
        got = []
        while len(got) < 30:
            got.append(client.read())
        got += client.ask(sync())
        assert tags(got) == "2DC" * 10 + "Z"
        client.rows("begin")
        held = int(client.value("select count(*) from pg_prepared_statements"))
        client.rows("rollback")
        assert held <= limit


def test_many_statements_of_many_clients(make_howdah, postgres):
    """Hundreds of different statements: bounded on the server, all still right."""
    howdah = make_howdah(default_pool_size=1, max_prepared_statements=50)
    clients = [howdah.connect() for _ in range(4)]
    for index, client in enumerate(clients):
        for i in range(100):
            client.ask(parse(f"select '{index}.{i}'", f"s{i}"), sync())
    for i in range(0, 100, 7):
        for index, client in enumerate(clients):
            assert rows(client.ask(bind(f"s{i}"), execute(), sync())) == [[f"{index}.{i}"]]
    assert int(clients[0].value("select count(*) from pg_prepared_statements")) <= 50
    for client in clients:
        client.close()


def test_off(make_howdah):
    """max_prepared_statements = 0: messages pass as they are, for session-bound use."""
    howdah = make_howdah(pool_mode="session", max_prepared_statements=0)
    with howdah.connect() as client:
        assert rows(client.ask(parse("select 'as is'", "s"), bind("s"), execute(), sync())) == [
            ["as is"]]
        assert client.value("select name from pg_prepared_statements") == "s"


def test_others_deallocate(howdah):
    """DEALLOCATE ALL and DISCARD ALL of one client do not take another's statements."""
    with howdah.connect() as one, howdah.connect() as two:
        two.ask(parse("select 'two'", "s"), bind("s"), execute(), sync())
        for command in ("deallocate all", "discard all"):
            one.ask(parse("select 'two'", "other"), sync())
            one.rows(command)
            assert rows(two.ask(bind("s"), execute(), sync())) == [["two"]]
            assert one.error(bind("other"), sync())["C"] == "26000"


@pytest.mark.both_drivers
def test_vanishes_between_parse_and_sync(howdah):
    """A client drops after Parse without Sync; another one parses the same text."""
    for parts in ([parse("select 'half'", "s")], [parse("select 'half'", "s"), flush()],
                  [parse("select 'half'", "s"), describe("s"), flush()],
                  [parse("select 'half'", "s"), bind("s"), execute()],
                  [parse("select 'half'"), bind(), execute(rows=1), flush()]):
        for ending in ("close", "abort"):
            with howdah.connect() as client:
                client.send(*parts)
                getattr(client, ending)()
            with howdah.connect() as next_one:
                got = next_one.ask(parse("select 'half'", "s"), bind("s"), execute(), sync())
                assert tags(got) == "12DCZ"
                assert rows(got) == [["half"]]
                # Not inside a transaction another one left.
                assert got[-1] == wire.Message("Z", b"I")
                assert next_one.value("select now() = statement_timestamp()") == "t"


@pytest.mark.both_drivers
def test_vanishes_at_every_byte(howdah):
    """A client that dies after any byte of its messages; the next one gets its own replies."""
    data = (query("begin") + parse("select 'gone'", "s") + bind("s") + execute() + sync()
            + query("select 'gone'") + parse("select 'gone'") + bind() + execute() + sync())
    with howdah.connect() as witness:
        witness.ask(parse("select 'witness'", "s"), sync())
        for at in range(len(data)):
            client = howdah.connect()
            client.send(data[:at])
            client.abort() if at % 2 else client.close()
            got = witness.ask(bind("s"), execute(), sync(), query("select 'own'"))
            got += witness.read_until()
            assert rows(got) == [["witness"], ["own"]], at
    howdah.wait_for_pool(cl_active=0, sv_active=0)


@pytest.mark.both_drivers
def test_late_reply_reaches_nobody_else(howdah):
    """A client leaves while its query runs; the next one gets only its own rows."""
    for turn in range(30):
        with howdah.connect() as client:
            client.send(parse(f"select 'late {turn}', pg_sleep(0.003)"), bind(), execute(), sync())
            client.abort()
        with howdah.connect() as next_one:
            assert next_one.value(f"select 'mine {turn}'") == f"mine {turn}"


def test_waits_for_a_server_in_the_middle_of_a_group(make_howdah):
    """No free server: one error at the wait limit, sent messages piecemeal or not."""
    howdah = make_howdah(default_pool_size=1, query_wait_timeout=1)
    with howdah.connect() as holder, howdah.connect() as client:
        holder.rows("begin")
        for part in (parse("select 1"), bind(), execute(), sync()):
            client.send(part)
        errors = [got.fields()["M"] for got in client.read_to_end() if got.tag == "E"]
        assert errors == ["query_wait_timeout"]


def test_settings_of_one_do_not_reach_another(howdah):
    """Tracked settings, set in every way, are each client's own."""
    with howdah.connect() as one, howdah.connect() as two:
        for statement in ("set timezone to 'Asia/Tokyo'",
                          "select set_config('timezone', 'Asia/Tokyo', false)"):
            one.rows(statement)
            assert two.value("show timezone") == "UTC"
            assert one.value("show timezone") == "Asia/Tokyo"
            one.rows("reset timezone")
            assert one.value("show timezone") == "UTC"


def test_close_of_what_was_never_sent(howdah):
    """A name parsed, closed and parsed again without a server in between."""
    with howdah.connect() as holder, howdah.connect() as client:
        holder.rows("begin")
        client.send(parse("select 'first'", "s"), sync(), close("s"), sync(),
                    parse("select 'second'", "s"), sync(), bind("s"), execute(), sync())
        howdah.wait_for_pool(cl_waiting=1)
        holder.rows("commit")
        got = [client.read_until() for _ in range(4)]
        assert [tags(group) for group in got] == ["1Z", "3Z", "1Z", "2DCZ"]
        assert rows(got[3]) == [["second"]]


@pytest.mark.parametrize("workers", [1, 2])
def test_psycopg_pipelines(make_howdah, workers):
    """psycopg's pipeline mode and its automatic statements, eight connections on two servers."""
    howdah = make_howdah(default_pool_size=2, workers=workers)
    connections = [psycopg.connect(howdah.url(), autocommit=True, prepare_threshold=0)
                   for _ in range(8)]
    for turn in range(5):
        for index, connection in enumerate(connections):
            with connection.pipeline() as pipeline:
                cursors = [connection.execute("select %s::int + %s", (i, index))
                           for i in range(10)]
                pipeline.sync()
                assert [cursor.fetchone()[0] for cursor in cursors] == [
                    i + index for i in range(10)]
            with pytest.raises(psycopg.errors.DivisionByZero), connection.pipeline():
                connection.execute("select 1 / %s", (0,))
                connection.execute("select 'skipped'")
            assert connection.execute("select %s", (f"{turn}",)).fetchone() == (f"{turn}",)
    for connection in connections:
        connection.close()


def test_query_inside_an_open_group(make_howdah, newest_postgres):
    """New versions of PostgreSQL keep an open group's transaction behind a Query, and after the Sync
    that ends it the session's next statement fails: that must be nobody else's. Where the Query
    ends the transaction the server stays."""
    howdah = make_howdah(postgres=newest_postgres, default_pool_size=1)
    with howdah.connect() as one, howdah.connect() as other:
        pid = other.value("select pg_backend_pid()")
        for group in (parse("select 1"), parse("select 1") + bind()):
            one.send(group, query("select 2"))
            assert one.read_until()[-1].body == b"I"
            assert other.value("select pg_backend_pid()") == pid
        one.send(parse("select 1"), bind(), execute(), query("select 2"))
        kept = one.read_until()[-1].body == b"T"  # true for 18, false for 15
        one.send(sync())
        assert one.read_until()[-1].body == b"I"
        assert (other.value("select pg_backend_pid()") != pid) == kept


def test_one_text_with_another_datestyle(howdah):
    """PostgreSQL reads a constant when a text is parsed, by the settings of then: what one client
    has parsed after a SET is nobody else's who has the same text under other settings."""
    text = "select '01/02/2020'::date - '2020-01-01'::date"
    with howdah.connect() as one, howdah.connect() as two:
        one.rows("set datestyle to 'ISO, DMY'")
        for client, days in ((one, "31"), (two, "1"), (one, "31"), (two, "1")):
            client.ask(parse(text, f"s{days}"), sync())
            assert rows(client.ask(bind(f"s{days}"), execute(), sync())) == [[days]]
            client.ask(close(f"s{days}"), sync())


@pytest.mark.parametrize("setting, value, text", [
    ("transform_null_equals", "on",
     "select count(*)::text from (values (1), (null)) v(x) where x = null"),
    ("array_nulls", "off", "select count(*)::text from unnest('{a,NULL}'::text[]) x where x is null"),
    ("timezone_abbreviations", "India", "select '2020-01-01 12:00 IST'::timestamptz::text"),
    ("bytea_output", "escape", "select 'a'::bytea::text"),
])
def test_settings_that_only_one_has_set(howdah, setting, value, text):
    """What a text says under a setting is only for clients with that setting: set before, or in the
    transaction, or at the login."""
    other = {"options": f"-c {setting}={value}"}
    with howdah.connect() as one, howdah.connect() as two, howdah.connect(**other) as three:
        plain = rows(two.ask(parse(text, "before"), bind("before"), execute(), sync()))
        assert plain
        fresh = text + " -- in a transaction"
        one.rows(f"begin; set local {setting} = '{value}'")
        assert rows(one.ask(parse(fresh, "in"), bind("in"), execute(), sync())) != plain
        one.rows("rollback")
        assert rows(two.ask(parse(fresh, "in"), bind("in"), execute(), sync())) == plain
        fresh = text + " -- set"
        one.rows(f"set {setting} = '{value}'")
        for client in (one, three):
            assert rows(client.ask(parse(fresh, "s"), bind("s"), execute(), sync())) != plain
        assert rows(two.ask(parse(fresh, "s"), bind("s"), execute(), sync())) == plain


def test_settings_known_to_be_harmless(make_howdah, postgres):
    """Clients share a statement whose one has set a setting only if the setting is on the list of
    those that change no text: each setting of this PostgreSQL is tried."""
    here = os.path.dirname(os.path.abspath(__file__))
    source = os.path.join(here, "..", "crates", "sql", "src")
    with open(os.path.join(source, "harmless.rs"), encoding="utf-8") as file:
        harmless = set(re.findall(r'^ +b"(\w+)",$', file.read(), re.M))
    names = postgres.sql("select name from pg_settings where context in ('user', 'superuser')")
    # Who sets `temp_buffers` keeps the server.
    names = [name for name, in names
             if not name.startswith("transaction_") and name != "temp_buffers"]
    reported = {"client_encoding", "datestyle", "intervalstyle", "standard_conforming_strings",
                "timezone"}
    shared = set()
    howdah = make_howdah(default_pool_size=1, max_prepared_statements=1000)
    with howdah.connect() as two:
        for name in names:
            with howdah.connect() as one:
                one.rows(f"select set_config('{name}', current_setting('{name}'), false)")
                for client in (one, two):
                    client.ask(close("s"), parse(f"select null as {name}", "s"), sync())
            held = two.value("select count(*) from pg_prepared_statements"
                             f" where statement = 'select null as {name}'")
            if held == "1":
                shared.add(name.lower())
    assert "work_mem" in shared and "array_nulls" not in shared
    assert shared - reported == harmless & {name.lower() for name in names}


def test_constants_are_read_under_the_settings_of_their_parse_or_refused(make_howdah):
    """A server that has the statement runs it as it was read; another one can't read it so."""
    text = "select '01/02/2020'::date - '2020-01-01'::date, '2020-06-01 00:00'::timestamptz::text"
    howdah = make_howdah(default_pool_size=2)
    with howdah.connect() as one, howdah.connect() as two, howdah.connect() as busy:
        for client in (one, two):
            client.rows("set timezone to 'Asia/Tokyo'")
            client.ask(parse(text, "s"), parse("select 'open', $1::date::text", "plain"), sync())
        one.rows("set datestyle to 'ISO, DMY'")
        one.rows("set timezone to 'UTC'")
        assert rows(one.ask(bind("s"), execute(), sync())) == [["1", "2020-05-31 15:00:00+00"]]
        busy.ask(query("begin"))
        # On another server, which has neither.
        error = one.error(bind("s"), execute(), sync())
        assert (error["C"], error["R"]) == ("0A000", "RevalidateCachedQuery")
        assert rows(one.ask(bind("plain", ["03/02/2020"]), execute(), sync())) == [
            ["open", "2020-02-03"]]
        assert rows(two.ask(bind("s"), execute(), sync())) == [["1", "2020-06-01 00:00:00+09"]]
        assert rows(one.ask(parse(text, "t"), bind("t"), execute(), sync())) == [
            ["31", "2020-06-01 00:00:00+00"]]
        one.rows("set datestyle to 'ISO, MDY'")
        one.rows("set timezone to 'Asia/Tokyo'")
        assert rows(one.ask(bind("s"), execute(), sync())) == [["1", "2020-06-01 00:00:00+09"]]
        busy.ask(query("rollback"))


def test_sql_finds_what_was_prepared_by_message(howdah):
    """EXECUTE of a name that the protocol has given, as a Query."""
    with howdah.connect() as one, howdah.connect() as two:
        one.ask(parse("select $1::int + 1 as next", "add"), sync())
        two.ask(parse("select 'other'", "add"), sync())
        for _ in range(2):
            assert one.rows("execute add(1)") == [["2"]]
            assert two.rows("EXECUTE add") == [["other"]]
        one.rows("begin")
        assert one.rows("execute add(2)") == [["3"]]
        with pytest.raises(wire.Refused) as refused:
            one.rows("execute add('x')")
        assert refused.value.code == "22P02"
        assert one.error(query("execute add(2)"))["C"] == "25P02"
        one.rows("rollback")
        with pytest.raises(wire.Refused) as refused:
            one.rows("execute nobody")
        assert refused.value.code == "26000"
        one.rows("deallocate add")
        with pytest.raises(wire.Refused) as refused:
            one.rows("execute add(1)")
        assert refused.value.code == "26000"
        assert two.rows("execute add") == [["other"]]
        # Only its own Query has the name on the server.
        assert two.value("select count(*) from pg_prepared_statements where name = 'add'") == "0"
        # Nor is it found in place of SQL's own.
        one.rows("prepare mine as select 'sql'")
        assert one.rows("execute mine") == [["sql"]]


@pytest.mark.parametrize("of", ["statement", "portal"])
@pytest.mark.parametrize("formats", [[1, 1], [1], []], ids=["each", "all", "text"])
def test_result_that_changed_on_another_server(make_howdah, newest_postgres, formats, of):
    """A server that never had the statement as it was described says what one that had it says:
    drivers describe it anew at that."""
    howdah = make_howdah(postgres=newest_postgres, default_pool_size=2)
    with howdah.connect() as one, howdah.connect() as holder:
        one.rows("drop table if exists changing")
        one.rows("create table changing as select 1 as a, 2 as b")
        if of == "statement":
            described = [parse("select * from changing", "s"), describe("s"), sync()]
            assert tags(one.ask(*described)) == "1tTZ"
        else:
            # As libpq does: the portal of each execution is described.
            described = [bind("s", results=formats), describe("", "P"), execute(), sync()]
            assert tags(one.ask(parse("select * from changing", "s"), *described)) == "12TDCZ"
        asked = [bind("s", results=formats), execute(), sync()]
        assert tags(one.ask(*asked)) == "2DCZ"
        # The only server is taken: the next request runs on another.
        holder.rows("begin")
        holder.rows("alter table changing add c int")
        holder.rows("commit")
        with howdah.connect() as third:
            holder.rows("begin")
            third.rows("begin")
            holder.rows("commit")
            errors = [one.ask(*asked)[0].fields() for _ in range(2)]
            third.rows("commit")
        errors += [one.ask(*asked)[0].fields() for _ in range(2)]
        assert {(e["C"], e["M"], e["R"]) for e in errors} == {
            ("0A000", "cached plan must not change result type", "RevalidateCachedQuery")}
        assert tags(one.ask(parse("select * from changing", "t"), describe("t"), sync())) == "1tTZ"
        assert tags(one.ask(bind("t", results=formats and [1]), execute(), sync())) == "2DCZ"
        one.rows("drop table changing")


def test_a_change_found_at_one_statement_is_looked_for_at_others(shared_howdah, postgres):
    """DDL in a function shows in no answer. The first statement that it changed tells of it."""
    postgres.sql("drop table if exists unseen; create table unseen as select 1 as a; "
                 "create or replace function widen() returns void language sql as "
                 "$$alter table unseen add b int$$")
    howdah = shared_howdah(default_pool_size=1, max_prepared_statements=1)
    with howdah.connect() as client, howdah.connect() as other:
        client.rows("begin")
        client.rows("create table undone ()")
        # A statement of a transaction with DDL is parsed anew after it, and compared.
        client.ask(parse("select * from unseen", "one"), describe("one"), sync())
        client.rows("rollback")
        # The server keeps one statement only.
        client.ask(parse("select a.* from unseen a", "two"), describe("two"), sync())
        client.ask(parse("select 1", "three"), sync())
        other.rows("select widen()")
        for name in ("one", "two", "one"):
            error = client.ask(bind(name), execute(), sync())[0].fields()
            assert (error["C"], error["R"]) == ("0A000", "RevalidateCachedQuery"), name
    postgres.sql("drop table unseen; drop function widen")


def test_texts_too_long_to_be_kept(make_howdah):
    """Without a name they pass through; with one they are refused, and their client goes on."""
    howdah = make_howdah()
    text = "select length('" + "x" * (66 << 20) + "')"
    with howdah.connect(seconds=60) as client:
        got = client.ask(parse(text), bind(), execute(), sync())
        assert [message.row() for message in got if message.tag == "D"] == [[b"%d" % (66 << 20)]]
        refused = client.error(parse(text, "big"), bind("big"), execute(),
                               sync())
        assert refused["C"] == "54000"
        assert "pooler" in refused["M"]
        assert client.value("select 'on'") == "on"


def resident(howdah):
    """Resident bytes of the process."""
    with open(f"/proc/{howdah.child.pid}/statm") as file:
        return int(file.read().split()[1]) * resource.getpagesize()


@pytest.mark.both_drivers
@pytest.mark.timeout(180)
@pytest.mark.parametrize("named", [True, False])
def test_memory_of_texts_comes_back(make_howdah, named):
    """A burst of long statements leaves nothing once its clients have gone."""
    howdah = make_howdah(default_pool_size=2)
    howdah.connect().close()
    before = resident(howdah)
    clients = [howdah.connect(seconds=60) for _ in range(12)]
    for index, client in enumerate(clients):
        text = f"select length('{index}" + "x" * (7 << 20) + "')"
        name = f"s{index}" if named else ""
        got = client.ask(parse(text, name), bind(name), execute(), sync())
        assert [message.tag for message in got][-1] == "Z"
    known = next(row for row in howdah.console("show mem") if row["name"] == "statement_cache")
    assert int(known["memtotal"]) > (7 << 20)
    for client in clients:
        client.close()
    howdah.console("reconnect")
    # What is freed after memory was last given back stays, up to a quarter of the process.
    machine.wait_until(lambda: resident(howdah) * 3 / 4 < before + (8 << 20),
                       "memory to be given back", seconds=120)
    known = next(row for row in howdah.console("show mem") if row["name"] == "statement_cache")
    assert int(known["memtotal"]) < (1 << 20)


def kept(howdah, name):
    """The bytes that Howdah keeps for clients, of one kind."""
    return int(next(row for row in howdah.console("show mem") if row["name"] == name)["memtotal"])


def test_too_many_names(howdah):
    """A client may have 10,000 names, and goes on."""
    with howdah.connect() as one, howdah.connect() as two:
        for first in range(0, 10_000, 1000):
            group = [parse("select 1", f"n{first + i}") for i in range(1000)]
            assert set(tags(one.ask(*group, sync()))) == {"1", "Z"}
        assert kept(howdah, "kept_names") > 10_000
        assert one.error(parse("select 1", "more"), sync())["C"] == "54000"
        one.ask(close("n7"), sync())
        one.ask(parse("select 1", "more"), sync())
        # Also at once: only the first of these is one too many.
        one.ask(*(close(f"n{i}") for i in range(4)), sync())
        group = [parse("select 1", f"m{i}") for i in range(6)]
        assert tags(one.ask(*group, sync())) == "1111EZ"
        two.ask(parse("select 1", "s"), sync())
    machine.wait_until(lambda: kept(howdah, "kept_names") == 0, "names to be forgotten")


def test_texts_of_one_pool_leave_room_for_others(make_howdah, postgres):
    """Whatever one pool's clients prepare, also behind DDL: its own clients get an error, those of
    other pools do not."""
    howdah = make_howdah(default_pool_size=3, workers=1,
                         databases={name: f"host={postgres.host} port={postgres.port} dbname=postgres"
                                    for name in ("one", "two")})
    long = "select length('" + "x" * (15 << 20) + "')"
    clients = [howdah.connect(database="one", seconds=60) for _ in range(3)]
    clients[0].rows("begin; create temp table behind (a int) on commit drop")
    taken = 0
    for client in clients:
        for at in range(4):
            got = client.ask(parse(f"{long} -- {taken}", f"s{at}"), sync())
            taken += "E" not in tags(got)
    assert taken == 8
    assert clients[2].error(parse(long, "more"), sync())["C"] == "54000"
    assert kept(howdah, "kept_private_texts") > (40 << 20)
    assert kept(howdah, "kept_texts") > (40 << 20)
    with howdah.connect(database="two", seconds=60) as other:
        other.ask(parse(long, "s"), sync())
        assert rows(other.ask(bind("s"), execute(), sync())) == [[str(15 << 20)]]
    clients[0].rows("rollback")
    for client in clients:
        client.close()
    machine.wait_until(lambda: kept(howdah, "kept_private_texts") == 0, "texts to be forgotten")


def test_long_messages_take_turns(make_howdah, postgres):
    """A Parse that must be held whole is read when there is room for it. Who sends a part and no
    more holds up neither another pool nor, once gone, its own."""
    howdah = make_howdah(default_pool_size=3, workers=1,
                         databases={name: f"host={postgres.host} port={postgres.port} dbname=postgres"
                                    for name in ("one", "two")})
    long = parse("select length('" + "x" * (50 << 20) + "')", "long")
    clients = [howdah.connect(database="one", seconds=60) for _ in range(3)]
    for client in clients[:2]:
        client.send(long[:100_000])
    machine.wait_until(lambda: kept(howdah, "kept_messages") == 2 * len(long), "two turns")
    last = clients[2]
    last.send(long[:100_000])
    with howdah.connect(database="two", seconds=60) as other:
        assert tags(other.ask(long, sync())) == "1Z"
        other.ask(close("long"), sync())
    assert kept(howdah, "kept_messages") == 2 * len(long)
    clients[0].close()
    assert tags(last.ask(long[100_000:], sync())) == "1Z"
    clients[1].send(long[100_000:], sync())
    assert tags(clients[1].read_until("Z")) == "1Z"
    assert kept(howdah, "kept_messages") == 0


def test_a_temporary_table_in_the_place_of_another(shared_howdah, postgres):
    """Outside of the transaction that made it as well."""
    postgres.sql("drop table if exists stood_for; create table stood_for (a int)")
    howdah = shared_howdah(default_pool_size=1)
    sql = "insert into stood_for values ($1)"
    with howdah.connect() as one, howdah.connect() as two:
        # The server has had a temporary table at some time.
        one.rows("create temp table first_one (a int)")
        one.rows("drop table first_one")
        two.ask(parse(sql, "s"), bind("s", ["1"]), execute(), sync())
        one.rows("create temp table stood_for (a int)")
        one.ask(parse(sql, "s"), bind("s", ["2"]), execute(), sync())
        one.ask(bind("s", ["3"]), execute(), sync())
        one.ask(parse(sql), bind("", ["4"]), execute(), sync())
        assert one.rows("select a from pg_temp.stood_for order by a") == [["2"], ["3"], ["4"]]
        assert one.rows("select a from public.stood_for") == [["1"]]
        one.rows("drop table pg_temp.stood_for")
        two.ask(bind("s", ["5"]), execute(), sync())
        one.ask(bind("s", ["6"]), execute(), sync())
        assert two.rows("select a from stood_for order by a") == [["1"], ["5"], ["6"]]


def test_statements_beside_a_temporary_table_are_bounded(shared_howdah):
    """A driver that names each statement anew, and a client that keeps its server for long."""
    howdah = shared_howdah(default_pool_size=1)
    kept = "select count(*) from pg_prepared_statements"
    with howdah.connect() as client:
        client.rows("create temp table beside (a int)")
        for _ in range(13):
            client.ask(*(part for _ in range(100)
                         for part in (parse("select 1", "s"), close("s"))), sync())
        client.ask(parse("select 2", "last"), sync())
        assert int(client.value(kept)) < 750
        assert client.ask(bind("last"), execute(), sync())[-2].tag == "C"


def test_tenants_with_a_schema_each(shared_howdah, postgres):
    """One's columns are no error of another's."""
    for tenant, column in (("tenant_a", "a int"), ("tenant_b", "a int, b text")):
        postgres.sql(f"drop schema if exists {tenant} cascade; create schema {tenant}; "
                     f"create table {tenant}.one ({column})")
    howdah = shared_howdah(default_pool_size=1)
    with howdah.connect() as one, howdah.connect() as two:
        one.rows("set search_path = tenant_a")
        two.rows("set search_path = tenant_b")
        for name in ("s", "t"):
            for client, columns in ((one, 1), (two, 2)):
                client.ask(parse("select * from one", name), sync())
                got = client.ask(describe(name, "S"), sync())
                assert [message.body[1] for message in got if message.tag == "T"] == [columns]
                assert "E" not in tags(client.ask(bind(name), execute(), sync()))


def test_what_was_committed_before_a_rollback_counts(shared_howdah, postgres):
    postgres.sql("drop table if exists chained; create table chained (a int)")
    howdah = shared_howdah(default_pool_size=1)
    with howdah.connect() as one, howdah.connect() as two:
        one.ask(parse("select * from chained", "s"), bind("s"), execute(), sync())
        two.rows("begin; alter table chained add b int")
        two.rows("commit and chain")
        two.rows("rollback")
        got = two.ask(parse("select * from chained", "s"), bind("s"), execute(), sync())
        assert "E" not in tags(got)


def test_long_portal_names(make_howdah):
    """PostgreSQL would cut such a name and run the portal, which nobody has looked at."""
    howdah = make_howdah(default_pool_size=1)
    with howdah.connect() as one, howdah.connect() as two:
        two.ask(parse("select 'of two'"), bind(), execute(), sync())
        for statement in ("set work_mem = '7MB'", "select 1"):
            for length in (5000, 20_000, 300_000):
                name = "x" * length
                said = one.error(parse(statement), bind(portal=name), execute(name[:63]), sync())
                assert said["C"] == "54000", length
        assert one.error(bind(portal="x" * 300_000), execute("x" * 63), sync())["C"] == "54000"
        assert two.value("show work_mem") == one.value("show work_mem") != "7MB"
        # A name that PostgreSQL cuts is the same portal for Howdah.
        name = "y" * 100
        one.ask(query("begin"))
        assert tags(one.ask(parse("reset work_mem"), bind(portal=name), execute(name[:63]), sync())) == "12CZ"
        one.ask(query("rollback"))


def test_a_long_error_behind_a_refused_name(make_howdah):
    """The Query's own error is longer than what Howdah keeps of it, and the worker goes on."""
    howdah = make_howdah(default_pool_size=1)
    with howdah.connect() as one:
        one.ask(query("create temp table gone (a int)"))
        one.ask(parse("select * from gone", "p"), sync())
        one.ask(query("drop table gone"))
        raises = ("create function pg_temp.raises() returns int language plpgsql as $$ begin raise exception "
                  "using errcode = '26000', message = repeat('x', 3000000); end $$")
        one.ask(query(raises))
        for _ in range(3):
            said = one.error(query("select pg_temp.raises(); execute p"))
            assert said["C"] in ("26000", "42P01")
        assert one.value("select 1") == "1"
    assert "internal error" not in howdah.log()
