"""What a session has is its client's on every server, and nobody else's on any (transaction mode)."""

import contextlib
import re
import threading

import pytest

from harness import machine, wire
from harness.wire import bind, close, describe, execute, parse, query, sync

pytestmark = [pytest.mark.timeout(120), pytest.mark.one_driver]

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


def test_resets_go_back_to_the_login_at_once(pool):
    """Within the transaction, and while a server is kept."""
    howdah = pool(2)
    login = {"options": "-c search_path=pg_catalog -c role=plain_user"}
    with howdah.connect(**login) as client:
        for reset in ("reset search_path", "set search_path to default", "reset all",
                      "select 1; reset all"):
            client.rows("begin; set search_path = public")
            client.rows(reset)
            assert show(client, "search_path") == "pg_catalog", reset
            client.rows("rollback")
        client.rows("begin; set search_path = public")
        extended(client, "reset search_path")
        assert show(client, "search_path") == "pg_catalog"
        client.rows("set role none")
        client.rows("reset role")
        assert client.value("select current_user") == "plain_user"
        client.rows("commit")
        client.rows("create temp table t (a int)")
        for reset in ("select pg_advisory_unlock_all(); close all; unlisten *; reset all;",
                      "/* comment */ reset all; select 'x'"):
            client.rows("set search_path = public")
            client.rows(reset)
            assert show(client, "search_path") == "pg_catalog", reset
            assert client.value("select current_user") == "plain_user"
            assert client.value("select count(*) from pg_temp.t") == "0"
        client.rows("discard all")
        assert show(client, "search_path") == "pg_catalog"
    with howdah.connect() as other:
        assert show(other, "search_path") == '"$user", public'
        assert other.value("select current_user") == "postgres"


@POOLS
@pytest.mark.parametrize("reset", [
    "set time zone 'UTC'; set search_path = public; select 'x'; reset timezone; reset search_path",
    "/* it's */ reset all; select 'x'",
    "set time zone 'UTC'; set search_path = public; set app.tenant = 'b'; select $$x$$; reset all"])
def test_whatever_text_resets_goes_back_to_the_login(pool, reset, size):
    """What PostgreSQL reports, too; and while a server is kept."""
    howdah = pool(size)
    login = {"TimeZone": "Asia/Tokyo", "options": "-c search_path=pg_catalog -c app.tenant=a"}
    with howdah.connect(**login) as client:
        for _ in range(2):
            for before in ("select 1", "set time zone 'Asia/Dubai'"):
                client.rows(before)
                client.rows(reset)
                disturb(howdah, size - howdah.pool()["sv_pinned"])
                assert show(client, "timezone") == "Asia/Tokyo"
                assert show(client, "search_path") == "pg_catalog"
                assert show(client, "app.tenant") == "a"
            client.rows("create temp table if not exists kept (a int)")
            howdah.wait_for_pool(sv_pinned=1)


@POOLS
def test_a_reset_that_fails_loses_nothing(pool, size):
    howdah = pool(size)
    with howdah.connect() as client:
        client.rows("begin; set work_mem = '7MB'; savepoint a")
        client.error(query("select 1/0"))
        assert client.error(query("reset work_mem"))["C"] == "25P02"
        client.rows("rollback to a; commit")
        disturb(howdah, size)
        assert show(client, "work_mem") == "7MB"


def test_a_name_that_no_reset_can_name(pool):
    howdah = pool(2, pin_limit=2)
    name = "app." + "x" * 70
    with howdah.connect() as client, howdah.connect() as other:
        client.rows(f"begin; select set_config('{name}', 'secret', false)")
        assert client.value(f"select current_setting('{name}')") == "secret"
        client.rows("commit")
        assert howdah.pool()["sv_pinned"] == 0
    with howdah.connect() as other:
        for _ in range(3):
            told = other.value(f"select coalesce(current_setting('{name}', true), '')")
            assert told == ""


@pytest.mark.parametrize("path", ["set local search_path = 'pg_temp'",
                                  "select set_config('search_path', 'pg_temp', true)"])
def test_what_is_made_on_a_path_to_what_is_temporary(pool, path):
    howdah = pool()
    with howdah.connect() as client:
        client.rows(f"begin; {path}; create table passing (a int); commit")
        assert client.value("select count(*) from pg_temp.passing") == "0"
        howdah.wait_for_pool(sv_pinned=1)
    with howdah.connect() as other:
        assert other.value("select to_regclass('pg_temp.passing')") is None


def test_a_question_has_no_timeout(pool):
    """What precedes it where it is asked again takes its client's timeout away."""
    howdah = pool()
    with howdah.connect() as client:
        # Long enough for all the rest that runs under it.
        client.rows("set statement_timeout = '300ms'")
        assert client.error(query("select pg_sleep(5)"))["C"] == "57014"
        client.rows("set local statement_timeout=0;select pg_sleep(0.4)")
        assert show(client, "statement_timeout") == "300ms"


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


@POOLS
def test_what_only_a_role_may_set(pool, postgres, size):
    """It ends neither who set it nor who comes next."""
    postgres.sql("drop role if exists plain_admin; create role plain_admin superuser")
    postgres.sql("grant plain_admin to plain_user")
    howdah = pool(size, secrets={"plain_user": "secret"})
    with howdah.connect(user="plain_user") as one, howdah.connect(user="plain_user") as two:
        one.rows("begin; set role plain_admin; set session_replication_role = replica; "
                 "set statement_timeout = '1s'; commit")
        for _ in range(2):
            assert two.value("select current_user") == "plain_user"
            assert show(two, "session_replication_role") == "origin"
            assert show(two, "statement_timeout") == "0"
            assert one.value("select current_user") == "plain_admin"
            assert show(one, "session_replication_role") == "replica"
        one.rows("reset role; reset all")
        assert show(two, "session_replication_role") == "origin"
        assert show(one, "session_replication_role") == "origin"
    with howdah.connect(user="plain_user") as client:
        client.rows("begin; set role plain_admin; set log_statement = 'all'; reset role; commit")
    with howdah.connect(user="plain_user") as other:
        assert show(other, "log_statement") == "none"
    with howdah.connect(user="plain_user") as client:
        client.rows("begin; set role plain_admin; set log_statement = 'all'; reset log_statement; "
                    "reset role; commit")
        disturb_as(howdah, "plain_user", size)
        assert client.value("select 1") == "1"


@POOLS
@pytest.mark.parametrize("ways", [
    ["begin; set role plain_admin; set log_statement = 'all'; reset role; commit"],
    ["set role plain_admin", "set log_statement = 'all'", "reset role"],
    ["set role plain_admin; set log_statement = 'all'", "set role none"]], ids=len)
def test_what_another_role_has_set_keeps_its_server(pool, postgres, ways, size):
    """The client's own rights can't set it elsewhere, and it is the client's as directly."""
    postgres.sql("drop role if exists plain_admin; create role plain_admin superuser")
    postgres.sql("grant plain_admin to plain_user")
    howdah = pool(size, secrets={"plain_user": "secret"})
    with howdah.connect(user="plain_user") as client:
        for way in ways:
            client.rows(way)
        howdah.wait_for_pool(user="plain_user", sv_pinned=1)
        for _ in range(2):
            disturb_as(howdah, "plain_user", size - 1)
            assert show(client, "log_statement") == "all"
            assert client.value("select current_user") == "plain_user"
        assert client.error(query("set log_statement = 'none'"))["C"] == "42501"
        client.rows("discard all")
        howdah.wait_for_pool(user="plain_user", sv_pinned=0)
        disturb_as(howdah, "plain_user", size)
        assert show(client, "log_statement") == "none"
    with howdah.connect(user="plain_user") as client:
        client.rows("set role plain_admin; set work_mem = '7MB'; set app.tenant = 'a'; reset role")
        assert show(client, "work_mem") == "7MB"
        assert howdah.pool(user="plain_user")["sv_pinned"] == 0


FIRST = {
    "isolation": [query("begin isolation level serializable read only"), query("commit")],
    "alone": [query("vacuum pg_am")],
    "fails": [query("select 1/0")],
    "fails-in-a-group": [parse("select 1/0"), bind(), execute(), sync()],
    "group": [parse("select 1"), bind(), execute(), parse("select 2"), bind(), execute(), sync()],
    "pipelined": [query("select 1"), parse("select 2"), bind(), execute(), sync(), query("select 3")],
    "copy": [query("copy pg_am to stdout")],
    "sets": [query("set app.other = 'x'")],
    "local": [query("begin; set local app.tenant = 'none'"), query("commit")],
    "empty": [query("")],
}


@pytest.mark.parametrize("first", FIRST)
def test_settings_go_along_with_any_first_message(pool, first):
    """What a client sends first runs as if its settings had been there before, in a transaction of
    its own."""
    howdah = pool(1)
    with (howdah.connect(options="-c app.tenant=a -c work_mem=7MB") as client,
          howdah.connect(options="-c app.tenant=b") as other):
        client.ask(parse("select current_setting('app.tenant')", "s"), sync())
        fails = ["22012"] if first.startswith("fails") else []
        for _ in range(2):
            assert show(other, "app.tenant") == "b"
            assert show(other, "work_mem") == "4MB"
            client.send(*FIRST[first])
            ends = sum(part[:1] in b"QS" for part in FIRST[first])
            replies = [reply for _ in range(ends) for reply in client.read_until()]
            assert [reply.fields()["C"] for reply in replies if reply.tag == "E"] == fails
            assert not [reply for reply in replies if reply.tag in "NS"]
            assert other.value("select current_setting('app.tenant')") == "b"
            replies = client.ask(bind("s"), execute(), sync())
            assert [reply.row() for reply in replies if reply.tag == "D"] == [[b"a"]]
            assert show(client, "work_mem") == "7MB"


@pytest.mark.not_listening("its LISTEN is refused at once")
@pytest.mark.parametrize("messages", [
    [query("create table ran ()")],
    [parse("create table ran ()"), bind(), execute(), sync(), query("create table ran ()")],
], ids=["query", "group"])
def test_nothing_runs_where_settings_are_refused(pool, postgres, messages):
    """A wrong value of a start-up packet ends its client, before anything of it runs."""
    howdah = pool(1)
    with (howdah.connect(options="-c app.tenant=a -c work_mem=much") as client,
          howdah.connect(options="-c app.tenant=b") as other):
        assert show(other, "app.tenant") == "b"
        client.send(*messages)
        (error,) = [reply.fields() for reply in client.read_to_end() if reply.tag == "E"]
        assert (error["S"], error["C"]) == ("FATAL", "22023")
        assert postgres.value("select count(*) from pg_class where relname = 'ran'") == "0"
        assert show(other, "app.tenant") == "b"


def test_statements_that_are_not_followed(pool):
    """Without names of ours, what a named statement does is seen at its Parse only."""
    howdah = pool(2, max_prepared_statements=0)
    with howdah.connect() as client:
        client.ask(parse("select set_config('app.tenant', $1, false)", "s"), sync())
        howdah.wait_for_pool(sv_pinned=1)
        client.ask(bind("s", ["mine"]), execute(), sync())
        assert show(client, "app.tenant") == "mine"
        disturb(howdah, 1)
        client.ask(bind("s", ["still"]), execute(), sync())
        assert show(client, "app.tenant") == "still"
    disturb(howdah, 2)


def disturb_as(howdah, user, count):
    """Somebody else of this user runs something on each server at once."""
    others = [howdah.connect(user=user) for _ in range(count)]
    for other in others:
        other.rows("begin")
    for other in others:
        other.rows("set local work_mem = '9MB'")
    for other in others:
        other.rows("commit")
        other.close()


REFUSED = {
    "a-right": ["set log_statement = 'all'"],
    "at-the-start-only": ["set shared_buffers = '1GB'"],
    "never-run": ["select 1/0; set log_statement = 'all'"],
    "rolled-back": ["begin", "set work_mem = '7MB'", "rollback"],
    "rolled-back-to": ["begin", "savepoint s", "set work_mem = '7MB'", "rollback to s", "commit"],
    "no-such-value": ["set work_mem = 'much'"],
    "in-a-failed-block": ["begin", "select 1/0", "set log_statement = 'all'", "commit"],
    "deferred": ["create temp table d (a int primary key deferrable initially deferred) on commit drop; "
                 "insert into d values (1), (1); set work_mem = '7MB'"],
    "an-extended-one": [parse("set log_statement = 'all'") + bind() + execute() + sync()],
}


@POOLS
@pytest.mark.parametrize("way", REFUSED)
def test_what_postgresql_has_refused_is_nobodys(pool, way, size):
    """A SET that came to nothing is not tried again on other servers."""
    howdah = pool(size, secrets={"plain_user": "secret"})
    with howdah.connect(user="plain_user") as client:
        for command in REFUSED[way]:
            client.ask(command if isinstance(command, bytes) else query(command))
        for _ in range(size):
            disturb_as(howdah, "plain_user", size)
            assert client.value("select 1") == "1"
            assert show(client, "work_mem") == "4MB"
        client.rows("set work_mem = '5MB'")
        disturb_as(howdah, "plain_user", size)
        assert show(client, "work_mem") == "5MB"


@POOLS
@pytest.mark.parametrize("does", [
    "set search_path = nowhere", "set role plain_user", "reset search_path", "reset all", "discard all",
    "set work_mem = '7MB'", "create temp table pg_temp.t (a int)", "select pg_advisory_lock(7)"])
def test_connect_query_lasts(pool, postgres, does, size):
    """Whatever a client sets, takes back or leaves: what connect_query did is there for the next."""
    target = f"host={postgres.host} port={postgres.port}"
    howdah = pool(size, databases={
        "*": f"{target} connect_query='set search_path to from_connect_query'"})

    def looks():
        others = [howdah.connect() for _ in range(size)]
        for other in others:
            other.rows("begin")
        for other in others:
            assert show(other, "search_path") == "from_connect_query"
        for other in others:
            other.rows("commit")
            other.close()

    looks()
    with howdah.connect() as client:
        client.rows(does)
        # Behind this it is known whether the server is kept.
        client.rows("select 1")
        if not howdah.pool()["sv_pinned"]:
            looks()
            client.rows("select 1")
            looks()
    machine.wait_until(lambda: howdah.pool()["sv_active"] == 0, "all to be free")
    looks()


def test_who_changes_over_to_keep_gets_clean_servers(pool):
    """Nobody has followed what clients left there before."""
    howdah = pool(2, session_state="share")
    with howdah.connect() as one, howdah.connect() as two:
        one.rows("set work_mem = '7MB'; create temp table numbers (nothing int)")
        howdah.write(session_state="keep")
        howdah.reload()
        for _ in range(3):
            for client in (one, two):
                assert show(client, "work_mem") == "4MB"
                assert client.value("select count(*) from numbers") == "100"


@POOLS
def test_values_of_a_bind_say_what_is_set(pool, size):
    """As helpers for tenants call it: nothing of that keeps a server."""
    howdah = pool(size)
    call = "select set_config($1, $2, $3)"
    with howdah.connect() as client, howdah.connect() as other:
        client.rows("begin")
        assert extended(client, call, ["app.tenant", "mine", "true"]) == [[b"mine"]]
        assert client.value("select current_setting('app.tenant')") == "mine"
        client.rows("commit")
        assert howdah.pool()["sv_pinned"] == 0
        disturb(howdah, size)
        assert client.value("select coalesce(current_setting('app.tenant', true), '')") == ""
        extended(client, call, ["app.tenant", "mine", "false"])
        client.ask(parse(call, "named"), sync())
        client.ask(bind("named", ["work_mem", "7MB", "f"]), execute(), sync())
        assert howdah.pool()["sv_pinned"] == 0
        for _ in range(2):
            disturb(howdah, size)
            assert client.value("select current_setting('app.tenant')") == "mine"
            assert show(client, "work_mem") == "7MB"
        assert show(other, "work_mem") == "4MB"
        # The name is not told, so the setting ends with the transaction.
        extended(client, "select set_config($1 || 'x', $2, $3)", ["app.", "y", "false"])
        assert howdah.pool()["sv_pinned"] == 0
        for one in (client, other):
            assert one.value("select coalesce(current_setting('app.x', true), '')") == ""


def test_a_schema_for_each_role(pool, postgres):
    """One text is another statement for another role, where the path leads by its name."""
    postgres.sql("""
        drop schema if exists role_one cascade; drop schema if exists role_two cascade;
        drop role if exists role_one; drop role if exists role_two;
        create role role_one superuser; create role role_two superuser;
        create schema role_one; create schema role_two;
        create table role_one.owned (a int); create table role_two.owned (a text, b int);
        insert into role_one.owned values (1); insert into role_two.owned values ('two', 2)""")
    howdah = pool(1)
    with howdah.connect() as one, howdah.connect() as two:
        one.rows("set role role_one")
        two.rows("set role role_two")
        expected = {one: [[b"1"]], two: [[b"two", b"2"]]}
        for client in (one, two):
            replies = client.ask(parse("select * from owned", "s"), describe("s"), sync())
            assert "E" not in [reply.tag for reply in replies]
        for client in (one, two, one, two):
            replies = client.ask(bind("s"), execute(), sync())
            assert [reply.row() for reply in replies if reply.tag == "D"] == expected[client]


LOOKS_ELSEWHERE = {
    "set-local": lambda client, schema: client.rows(f"set local search_path to {schema}"),
    "behind-another": lambda client, schema: client.rows(f"select 1; set local schema '{schema}'"),
    "set-role": lambda client, schema: client.rows(f"set local role {schema}"),
    "set-session-role": lambda client, schema: client.rows(f"set role {schema}"),
    "extended": lambda client, schema: extended(client, f"set local search_path to {schema}"),
    "set_config": lambda client, schema: client.rows(
        f"select set_config('search_path', '{schema}', true), set_config('a.b', 'c', true)"),
    "bound": lambda client, schema: extended(
        client, "select set_config('search_path', $1, true), set_config($2, $3, true)",
        [schema, "role", schema]),
}


@pytest.mark.parametrize("way", LOOKS_ELSEWHERE)
def test_a_schema_for_each_transaction(pool, postgres, way):
    """One text is another statement for who looks elsewhere until the transaction ends; and the same
    one for all who look there."""
    postgres.sql("""
        drop schema if exists here_one cascade; drop schema if exists here_two cascade;
        drop role if exists here_one; drop role if exists here_two;
        create role here_one superuser; create role here_two superuser;
        create schema here_one; create schema here_two;
        drop table if exists public.held; create table public.held (a date);
        create table here_one.held (a int); create table here_two.held (a text, b int);
        insert into here_one.held values (1); insert into here_two.held values ('two', 2)""")
    howdah = pool(1)

    def run(client, schema):
        client.rows("begin")
        if schema:
            LOOKS_ELSEWHERE[way](client, schema)
        replies = client.ask(parse("select * from held", "s"), bind("s"), execute(), sync())
        assert "E" not in [reply.tag for reply in replies], replies
        rows = [reply.row() for reply in replies if reply.tag == "D"]
        client.rows("commit")
        client.ask(wire.close("s"), sync())
        return rows

    expected = {"here_one": [[b"1"]], "here_two": [[b"two", b"2"]], None: []}
    with howdah.connect() as one, howdah.connect() as two, howdah.connect() as three:
        clients = {"here_one": one, "here_two": two, None: three}
        for round in range(3):
            for schema, client in clients.items():
                assert run(client, schema) == expected[schema], (round, schema)
            if round == 1:
                before = parses(howdah)
        if way != "set-session-role":
            # All were there; what sets the path was parsed without a name.
            extra = {"extended": 2, "bound": 2}.get(way, 0)
            assert parses(howdah) - before == extra


def parses(howdah):
    """How many statements servers were sent to parse."""
    stats = howdah.console("SHOW STATS")
    return sum(int(row["total_server_parse_count"]) for row in stats)


def columns(described):
    """How many columns a RowDescription has."""
    return int.from_bytes(described.body[:2], "big")


def test_where_it_looks_is_not_told(pool, postgres):
    """What is parsed then is nobody else's."""
    postgres.sql("drop schema if exists unseen cascade; create schema unseen; "
                 "create table unseen.looked (a int); drop table if exists public.looked; "
                 "create table public.looked (a text, b text)")
    howdah = pool(1)
    text = parse("select * from looked", "s")
    with howdah.connect() as one, howdah.connect() as two:
        for way in ("select set_config('search_path', 'un' || 'seen', true)",
                    "do $$begin set local search_path = unseen; end$$"):
            for _ in range(2):
                one.rows("begin")
                one.rows(way)
                replies = one.ask(text, describe("s"), sync())
                assert [columns(reply) for reply in replies if reply.tag == "T"] == [1]
                one.rows("commit")
                one.ask(wire.close("s"), sync())
                replies = two.ask(text, describe("s"), bind("s"), execute(), wire.close("s"), sync())
                assert [columns(reply) for reply in replies if reply.tag == "T"] == [2]
                assert "E" not in [reply.tag for reply in replies], replies


def test_transaction_timeout_and_prefixes(pool):
    """Names that begin like keywords are settings."""
    howdah = pool(1)
    names = ["local.tenant", "transaction.user_id", "session.user_id", "names.x", "schema.x"]
    with howdah.connect() as one, howdah.connect() as two:
        for name in names:
            one.rows(f"set {name} = '7'")
        for name in names:
            assert not two.value(f"select current_setting('{name}', true)")
            assert show(one, name) == "7"


def test_temp_buffers(pool):
    """PostgreSQL does not let them be set where a temporary table was used."""
    howdah = pool(4)
    with howdah.connect() as client:
        client.rows("set temp_buffers = '2MB'")
        howdah.wait_for_pool(sv_pinned=1)
        disturb(howdah)
        assert show(client, "temp_buffers") == "2MB"


@POOLS
@pytest.mark.parametrize("ends", ["reset session authorization", "set session authorization default",
                                  "set session authorization postgres"])
def test_another_session_user_takes_the_role_back(pool, ends, size):
    howdah = pool(size)
    with howdah.connect() as client:
        client.rows("set session authorization plain_user")
        client.rows("set role plain_user")
        disturb(howdah, size)
        assert client.value("select session_user || ' ' || current_user") == "plain_user plain_user"
        client.rows(ends)
        disturb(howdah, size)
        assert client.value("select session_user || ' ' || current_user") == "postgres postgres"
        assert show(client, "role") == "none"


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
])
@pytest.mark.parametrize("ends", ["discard", "leaves", "breaks"])
def test_what_keeps_its_server(pool, way, still, ends):
    howdah = pool(2, listen="pin")
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


STAYS = {
    "load": "load 'plpgsql'",
    "setseed": "select setseed(0.5)",
    "origin": "select pg_replication_origin_session_setup('passing')",
    "backup": "select pg_backup_start('passing', true)",
    "dblink": "select dblink_connect('passing', 'dbname=postgres')",
}


@pytest.mark.parametrize("way", STAYS)
def test_what_only_the_sessions_end_takes_away(pool, postgres, way):
    """Its client keeps the server, which goes when the client leaves."""
    if way == "origin":
        postgres.sql("select pg_replication_origin_create('passing') where not exists "
                     "(select from pg_replication_origin where roname = 'passing')")
    if way == "backup" and postgres.version < 15:
        pytest.skip("it has another name there")
    if way == "dblink":
        there = "select count(*) from pg_available_extensions where name = 'dblink'"
        if postgres.value(there) == "0":
            pytest.skip("the extension is not installed")
        postgres.sql("create extension if not exists dblink")
    howdah = pool(2)
    with howdah.connect() as client:
        sql = STAYS[way]
        if way == "dblink":
            sql = sql.replace("dbname", f"host={postgres.host} port={postgres.port} user=postgres dbname")
        client.rows(sql)
        pid = client.value("select pg_backend_pid()")
        howdah.wait_for_pool(sv_pinned=1)
        disturb(howdah, 1)
        assert client.value("select pg_backend_pid()") == pid
        client.rows("discard all")
        assert client.value("select pg_backend_pid()") == pid
    machine.wait_until(lambda: postgres.value(
        f"select count(*) from pg_stat_activity where pid = {pid}") == "0", "the server to be gone")


@POOLS
def test_settings_by_an_update(pool, size):
    """In doubt: the setting ends with its transaction."""
    howdah = pool(size)
    with howdah.connect() as client:
        client.rows("begin; update pg_settings set setting = '7168' where name = 'work_mem'")
        assert show(client, "work_mem") == "7MB"
        client.rows("commit")
        assert howdah.pool()["sv_pinned"] == 0
        assert show(client, "work_mem") == "4MB"
    disturb(howdah, size)


@pytest.mark.parametrize("way", [("select (5::bigint).pg_advisory_lock", ()),
                                 ("select $1.pg_advisory_lock", ("5",)),
                                 ("select query_to_xml('select pg_advisory_lock(5)', true, true, '')", ())],
                         ids=["attribute", "parameter", "xml"])
def test_locks_by_other_words(pool, way):
    """PostgreSQL finds these calls, and so must who reads the text: they are in doubt."""
    howdah = pool(2)
    with howdah.connect() as client:
        try:
            extended(client, *way)
        except wire.Refused as refused:
            # PostgreSQL may have been built without XML, and need the parameter's type.
            assert refused.code in ("0A000", "42P18", "42809"), refused.code
            pytest.skip("not on this PostgreSQL")
        assert howdah.pool()["sv_pinned"] == 0
    with howdah.connect() as other:
        held = "select count(*) from pg_locks where locktype = 'advisory'"
        machine.wait_until(lambda: other.value(held) == "0", "the lock to be given back")


def test_a_lock_is_its_clients(pool):
    """Advisory locks exclude another client, and are given back by their holder only."""
    howdah = pool(4)
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
        assert client.error(query("select lastval()"))["C"] == "55000"
        client.rows("discard all")
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


@POOLS
@pytest.mark.parametrize("workers", [1, 3])
def test_the_last_clients_numbers_are_its_own(pool, postgres, size, workers):
    """A first question behind an INSERT in autocommit, as drivers put it (`lastInsertId`), on servers
    that others have used."""
    postgres.sql("drop table if exists numbered; create table numbered (id serial, a text)")
    postgres.sql("alter sequence numbered_id_seq restart with 5000")
    questions = [("select lastval()", ()), ("select currval($1)", ("numbered_id_seq",))]
    for sql, values in questions:
        # A new process each: nobody has asked before.
        howdah = pool(size, workers=workers)
        disturb_numbers(howdah, size)
        with howdah.connect() as client:
            mine = client.value("insert into numbered (a) values ('x') returning id")
            assert extended(client, sql, values) == [[mine.encode()]]
        with howdah.connect() as client:
            client.rows("create temp table kept ()")
            mine = client.value("insert into numbered (a) values ('x') returning id")
            assert extended(client, sql, values) == [[mine.encode()]]
    disturb_numbers(howdah, size)
    if workers > 1:
        # Each counts such questions for itself.
        return
    # Somebody has asked, so no client has others' numbers, whatever it has run.
    clients = [howdah.connect() for _ in range(size)]
    for client in clients:
        client.rows("begin; select 1")
    for client in clients:
        assert client.error(query("select lastval()"))["C"] == "55000"
    for client in clients:
        client.close()


def disturb_numbers(howdah, count):
    """Others draw numbers on each server: two on each, one behind the other."""
    for _ in range(2):
        others = [howdah.connect() for _ in range(count)]
        for other in others:
            other.rows("begin; select nextval('numbered_id_seq')")
        for other in others:
            other.rows("commit")
            other.close()


def test_a_question_for_numbers_on_another_server(pool, postgres):
    """PostgreSQL's error, never another's number."""
    postgres.sql("drop table if exists numbered; create table numbered (id serial, a text)")
    howdah = pool(2)
    disturb_numbers(howdah, 2)
    with howdah.connect() as client, howdah.connect() as other:
        client.rows("insert into numbered (a) values ('x')")
        other.rows("begin")
        assert client.error(query("select lastval()"))["C"] == "55000"
        other.rows("commit")


@POOLS
def test_values_of_sequences_by_the_extended_protocol(pool, postgres, size):
    """The first question may be a message of its group, as with most drivers."""
    postgres.sql("create sequence if not exists counted start 1000")
    howdah = pool(size)
    others = [howdah.connect() for _ in range(3)]
    for other in others:
        other.rows("begin; select nextval('counted')")
        other.rows("commit")
    for sql, values in (("select lastval()", ()), ("select currval($1)", ("counted",))):
        with howdah.connect() as client:
            with pytest.raises(wire.Refused) as refused:
                extended(client, sql, values)
            assert refused.value.code == "55000"
        with howdah.connect() as client:
            # What the client has just got for itself is not forgotten.
            group = [parse("select nextval('counted')"), bind(), execute(),
                     parse(sql), bind(values=values), execute(), sync()]
            mine, told = [reply.row() for reply in client.ask(*group) if reply.tag == "D"]
            assert mine == told
    for other in others:
        other.close()


@pytest.mark.parametrize("command", ["reset all", "reset search_path", "discard all"])
def test_who_leaves_behind_a_reset_takes_its_settings_along(pool, command):
    howdah = pool()
    login = {"options": "-c search_path=pg_catalog"}
    with howdah.connect(**login) as other:
        with howdah.connect(**login) as client:
            assert show(client, "search_path") == "pg_catalog"
            client.send(query(command), wire.message("X", b""))
            client.read_to_end()
        assert show(other, "search_path") == "pg_catalog"


@pytest.mark.parametrize("options", [
    {"pool_mode": "session", "server_reset_query": "RESET ALL"},
    {"server_reset_query": "RESET ALL", "server_reset_query_always": 1},
    {"pool_mode": "session", "server_reset_query": ""},
], ids=["session", "always", "none"])
def test_start_up_parameters_behind_any_reset_query(pool, options):
    howdah = pool(**options)
    for _ in range(3):
        with howdah.connect(options="-c search_path=pg_catalog") as client:
            for _ in range(2):
                assert show(client, "search_path") == "pg_catalog"
            client.rows("set search_path = public")
            assert client.value("select 1") == "1"
    with howdah.connect() as client:
        assert show(client, "search_path") == '"$user", public'


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


@pytest.mark.parametrize("mode", ["transaction", "session"])
def test_ones_own_notifications_bear_ones_own_process_id(pool, mode):
    """The one that was told at login, which drivers compare."""
    howdah = pool(2, pool_mode=mode, listen="pin")
    with howdah.connect() as listener, howdah.connect() as other:
        server = listener.value("listen news; select pg_backend_pid()")
        for payload in ("", "x" * 7000):
            told = listener.ask(query(f"notify news, '{payload}'; select 1"))
            own = next(reply for reply in told if reply.tag == "A")
            assert own.body == listener.pid.to_bytes(4, "big") + f"news\0{payload}\0".encode()
            other.rows(f"notify news, '{payload}'")
            heard = listener.read()
            assert heard.tag == "A"
            assert int.from_bytes(heard.body[:4], "big") not in (listener.pid, int(server))
        listener.send(query("begin; notify news; notify news, 'b'; commit"))
        listener.read_until("Z")
        assert listener.value("select 1") == "1"


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


    with howdah.connect() as client:
        client.rows("select '" + "it''s &nbsp; Set up; listen to; " * 5_000 + "'")
        client.rows("set work_mem = '7MB'; select '" + "x" * 200_000 + "'")
        disturb(howdah, 1)
        assert show(client, "work_mem") == "7MB"
        howdah.wait_for_pool(sv_pinned=0)


# How many may ------------------------------------------------------------------------------------

def row_of(howdah, show, **wanted):
    """The one row of a SHOW with these values."""
    rows = [row for row in howdah.console(show)
            if all(row[key] == value for key, value in wanted.items())]
    assert len(rows) == 1, rows
    return rows[0]


@contextlib.contextmanager
def at_work(client, postgres):
    """A statement of the client runs meanwhile."""
    client.send(query("select pg_sleep(100)"))
    postgres.wait_for_sleepers()
    yield
    client.cancel()
    assert [reply.fields()["C"] for reply in client.read_until("Z") if reply.tag == "E"] == ["57014"]


PINS = {
    "query": lambda client: client.rows("create temp table t (a int)"),
    "extended": lambda client: extended(client, "create temp table t (a int)"),
    "named": lambda client: client.ask(
        parse("select pg_advisory_lock(1)", "n"), sync(), bind("n"), execute(), sync()),
    "several": lambda client: client.rows("select 1; select pg_advisory_lock_shared(2)"),
}


@pytest.mark.parametrize("workers", [1, 3])
@pytest.mark.parametrize("way", PINS)
def test_who_would_keep_a_server_too_many_waits(pool, postgres, way, workers):
    """All servers but one may be kept. Who waits for that has no server meanwhile."""
    howdah = pool(3, workers=workers)
    holders = [howdah.connect() for _ in range(2)]
    for number, holder in enumerate(holders):
        holder.rows(f"create temp table t (a int); insert into t values ({number})")
    with howdah.connect(application_name="waits") as waiter, at_work(holders[1], postgres):
        asked = []
        thread = threading.Thread(target=lambda: asked.append(PINS[way](waiter)))
        thread.start()
        waits = {"application_name": "waits", "state": "waiting", "wait_reason": "pin_limit"}
        machine.wait_until(lambda: [row for row in howdah.console("SHOW CLIENTS_EXTENDED")
                                    if waits.items() <= row.items()], "it to wait")
        # Others have the rest of the pool meanwhile.
        with howdah.connect() as other:
            other.rows("begin")
            other.rows("create temp table gone (a int) on commit drop")
            other.rows("commit")
        assert not asked
        holders[0].rows("drop table t")
        thread.join(40)
        assert asked
        howdah.wait_for_pool(sv_pinned=2)
    assert holders[1].value("select a from t") == "1"
    for holder in holders:
        holder.close()
    machine.wait_until(lambda: howdah.pool()["sv_pinned"] == 0, "nobody to keep a server")


@pytest.mark.parametrize("protocol", ["simple", "extended", "not-renamed"])
def test_inside_a_transaction_it_is_refused(pool, protocol):
    howdah = pool(2, max_prepared_statements=0 if protocol == "not-renamed" else 200)
    with howdah.connect() as holder, howdah.connect() as other:
        holder.rows("select pg_advisory_lock(9)")
        other.rows("begin")
        other.rows("select 1")
        if protocol == "simple":
            fields = other.error(query("create temp table t (a int)"))
        else:
            fields = other.error(parse("create temp table t (a int)"), bind(), execute(), sync())
        assert (fields["C"], fields["S"]) == ("53000", "ERROR")
        assert "pin_limit" in fields["M"] and "outside of a transaction" in fields["H"]
        assert other.error(query("select 1"))["C"] == "25P02"
        other.rows("rollback")
        # It is told the same in a failed transaction as by PostgreSQL.
        other.rows("begin")
        other.error(query("select 1/0"))
        assert other.error(query("create temp table t (a int)"))["C"] == "25P02"
        other.rows("rollback")
        # What goes with its transaction is not refused, nor what only asks for numbers.
        other.rows("begin; create temp table t (a int) on commit drop; insert into t values (1)")
        assert other.error(query("select lastval()"))["C"] == "55000"
        other.rows("rollback")
        holder.rows("select pg_advisory_unlock_all()")
        other.rows("begin; create temp table t (a int)")
        other.rows("commit")
        assert other.value("select count(*) from t") == "0"


def test_who_waits_to_keep_a_server_may_give_up(pool, postgres):
    howdah = pool(2, query_wait_timeout=1)
    with howdah.connect() as holder:
        holder.rows("create temp table t (a int)")
        with howdah.connect() as waiter, at_work(holder, postgres):
            waiter.send(query("create temp table t (a int)"))
            (last,) = [reply for reply in waiter.read_to_end() if reply.tag == "E"]
            assert last.fields()["M"] == "query_wait_timeout"
        howdah.console("SET query_wait_timeout = 60")
        with howdah.connect() as waiter, at_work(holder, postgres):
            waiter.send(query("create temp table t (a int)"))
            howdah.wait_for_pool(cl_waiting=1)
            waiter.cancel()
            replies = waiter.read_until("Z")
            assert [reply.fields()["C"] for reply in replies if reply.tag == "E"] == ["57014"]
            assert waiter.value("select 1") == "1"
            waiter.send(query("create temp table t (a int)"))
            howdah.wait_for_pool(cl_waiting=1)
            waiter.abort()
        howdah.wait_for_pool(cl_waiting=0)
        holder.rows("drop table t")
    with howdah.connect() as other:
        other.rows("create temp table t (a int)")
        howdah.wait_for_pool(sv_pinned=1)


def test_a_pool_of_one_is_kept_by_one(pool, postgres):
    howdah = pool(1)
    with howdah.connect() as holder, howdah.connect() as other:
        holder.rows("create temp table t (a int)")
        with at_work(holder, postgres):
            other.send(query("create temp table t (a int)"))
            howdah.wait_for_pool(cl_waiting=1)
        holder.rows("discard all")
        assert other.read_until("Z")[-1].tag == "Z"
        assert other.value("select count(*) from t") == "0"


def test_a_higher_limit_lets_in_who_waits(pool, postgres):
    howdah = pool(2)
    with howdah.connect() as holder, howdah.connect() as waiter:
        holder.rows("create temp table t (a int)")
        with at_work(holder, postgres):
            waiter.send(query("create temp table t (a int)"))
            howdah.wait_for_pool(cl_waiting=1)
            howdah.console("SET pin_limit = 2")
            assert [reply.tag for reply in waiter.read_until("Z")] == ["C", "Z"]


@pytest.mark.parametrize("workers", [1, 3])
def test_whoever_asks_while_servers_are_idle_may_keep_one(pool, workers):
    howdah = pool(5, workers=workers)
    clients = [howdah.connect() for _ in range(4)]
    for client in clients:
        client.rows("create temp table t (a int)")
    assert howdah.wait_for_pool(sv_pinned=4)
    with howdah.connect() as other:
        assert other.value("select 1") == "1"
    for client in clients:
        client.close()


@pytest.mark.parametrize("protocol, workers", [("simple", 3), ("extended", 1)])
def test_nobody_waits_for_clients_that_are_silent(pool, protocol, workers):
    """One application may have all of these connections, and wait for its own."""
    howdah = pool(3, workers=workers)
    with howdah.connect() as one, howdah.connect() as two, howdah.connect() as three:
        one.rows("create temp table t (a int)")
        two.rows("create temp table t (a int)")
        text = "create temp table t (a int)"
        asks = [query(text)] if protocol == "simple" else [parse(text), bind(), execute(), sync()]
        fields = three.error(*asks)
        assert (fields["S"], fields["C"]) == ("ERROR", "53000")
        assert "pin_limit" in fields["M"] and "pool_size" in fields["H"]
        # A statement that needs no server of its own runs.
        assert three.value("select 1") == "1"
        one.rows("discard all")
        three.rows(text)
        assert three.value("select count(*) from t") == "0"


def test_who_keeps_a_server_behind_the_limit_is_disconnected(pool):
    """What is found only behind a statement."""
    howdah = pool(2)
    with howdah.connect() as holder, howdah.connect() as other:
        holder.rows("create temp table t (a int)")
        other.rows("set search_path = pg_temp")
        try:
            other.send(query("create table u (a int)"))
            errors = [reply.fields() for reply in other.read_to_end() if reply.tag == "E"]
        except wire.Ended:
            errors = [{"C": "53000"}]
        assert [fields["C"] for fields in errors] == ["53000"]
        howdah.wait_for_pool(sv_pinned=1)


def test_why_a_server_is_kept(pool):
    howdah = pool(2, pin_notice=1, verbose=1)
    with howdah.connect(application_name="keeps") as client:
        mark = howdah.log_mark()
        replies = client.ask(query("create temp table p (a int)"))
        replies += client.ask(query("select pg_advisory_lock(3)"))
        notices = [reply.fields()["M"] for reply in replies if reply.tag == "N"]
        assert notices == ["this session keeps its server: temporary objects"]
        # What is left is known before the next statement runs.
        client.rows("select 1")
        row = row_of(howdah, "SHOW CLIENTS_EXTENDED", application_name="keeps")
        assert row["pin_reason"] == "temporary objects, advisory locks"
        assert row["pinned_since"].endswith(" UTC")
        server = row_of(howdah, "SHOW SERVERS_EXTENDED", link=row["ptr"])
        assert server["pin_reason"] == "temporary objects, advisory locks"
        howdah.wait_for_log("keeps its server: temporary objects", mark)
        assert (howdah.pool()["sv_pinned"], howdah.pool()["pins"]) == (1, 1)
        client.rows("discard all")
        row = row_of(howdah, "SHOW CLIENTS_EXTENDED", application_name="keeps")
        assert not row["pin_reason"] and not row["pinned_since"]
        assert (howdah.pool()["sv_pinned"], howdah.pool()["pins"]) == (0, 1)


def test_who_keeps_a_server_and_is_silent(pool):
    howdah = pool(2, pin_idle_timeout=1)
    with howdah.connect() as client, howdah.connect() as other:
        client.send(query("create temp table t (a int)"), query("begin"))
        client.read_until()
        assert client.read_until()[-1].body == b"T"
        machine.wait_until(lambda: other.value("select 1") == "1", "the other")
        client.send(query("commit"))
        (last,) = [reply for reply in client.read_to_end() if reply.tag == "E"]
        assert (last.fields()["C"], last.fields()["M"]) == ("57P05", "pin_idle_timeout")
        assert other.value("select 1") == "1"


# Orders -------------------------------------------------------------------------------------------

def test_a_kept_server_is_replaced_when_it_is_free(pool):
    """RECONNECT and server_lifetime wait for it."""
    howdah = pool(2)
    with howdah.connect() as client:
        client.rows("create temp table t (a int); insert into t values (7)")
        first = client.value("select pg_backend_pid()")
        howdah.console("RECONNECT")
        assert client.rows("select a, pg_backend_pid() from t") == [["7", first]]
        client.rows("discard all")
        second = client.value("select pg_backend_pid()")
        assert second != first
        client.rows("create temp table t (a int)")
        howdah.console("SET server_lifetime = 0")
        assert client.value("select pg_backend_pid()") == second
        client.rows("drop table t")
        assert client.value("select pg_backend_pid()") != second


def test_pause_waits_for_a_kept_server(pool):
    howdah = pool(2)
    with howdah.connect() as client:
        client.rows("create temp table t (a int)")
        done = threading.Event()

        def pauses():
            howdah.console("PAUSE")
            done.set()
        thread = threading.Thread(target=pauses)
        thread.start()
        machine.wait_until(howdah.paused, "the pause to begin")
        client.rows("insert into t values (1)")
        assert client.value("select count(*) from t") == "1"
        assert not done.is_set()
        client.rows("drop table t")
        thread.join(40)
        assert done.is_set()
        client.send(query("select 1"))
        howdah.wait_for_pool(cl_waiting=1)
        howdah.console("RESUME")
        assert [reply.row() for reply in client.read_until("Z") if reply.tag == "D"] == [[b"1"]]


# What no text tells ------------------------------------------------------------------------------

def test_a_server_that_listens_for_nobody(pool, postgres):
    postgres.sql("create or replace function hides() returns void language plpgsql as "
                 "$$begin execute 'listen hidden'; end$$")
    howdah = pool(1)
    with howdah.connect() as client, howdah.connect() as other:
        mark = howdah.log_mark()
        client.rows("select hides()")
        replies = other.ask(query("notify hidden"))
        assert "A" not in [reply.tag for reply in replies]
        howdah.wait_for_log("listens without its clients' texts telling", mark)
        assert other.value("select count(*) from pg_listening_channels()") == "0"
        # Between two clients.
        client.rows("select hides()")
        mark = howdah.log_mark()
        postgres.sql("notify hidden")
        howdah.wait_for_log("listens without its clients' texts telling", mark)
        assert other.value("select count(*) from pg_listening_channels()") == "0"


# Texts in doubt -----------------------------------------------------------------------------------

# Each hides a change of its session from who reads the text.
HIDDEN = {
    "doubled-quotes": "do $$begin execute 'comment on table commented is ''-- x''; "
                      "set app.tenant = ''evil'''; end$$",
    "two-lines": "do 'begin perform set_'\n'config(''app.tenant'', ''evil'', false); end'",
    "escape": "do E'begin perform s\\x65t_config(''app.tenant'', ''evil'', false); end'",
    "unicode-string": "do U&'begin perform s\\0065t_config(''app.tenant'', ''evil'', false); end'",
    "unicode-name": 'select U&"set\\005fconfig"(\'app.tenant\', \'evil\', false)',
    "no-constant": "select set_config('app.' || 'tenant', 'evil', false)",
    "name-of-a-row": "select set_config(name, '77MB', false) from pg_settings where name = 'work_mem'",
    "update": "update only U&\"pg_settings\" set setting = '7168' where name = 'work_mem'",
    "into": "select 1 a into table pg_temp.hidden",
    "explain": "explain analyze create table pg_temp.hidden as select 1 a",
    "path": "begin; select set_config('search_path', 'pg_' || 'temp', true); "
            "create table hidden (a int); commit",
    "local-path": "begin; set local search_path = U&'pg\\005ftemp'; create table hidden (a int); commit",
    "role": "do $$begin execute 'se' || 't role plain_user'; end$$",
    "attribute": "select (5::bigint).pg_advisory_lock",
    "alias": "select 1 as insert into temp hidden",
    "prepare": "do $$begin execute 'prep' || 'are hidden as select 1'; end$$",
    "listen": "do $$begin execute 'lis' || 'ten hidden'; end$$",
}


@pytest.mark.parametrize("state", ["keep", "discard"])
@pytest.mark.parametrize("protocol", ["simple", "extended"])
@pytest.mark.parametrize("way", HIDDEN)
def test_what_a_text_hides_reaches_nobody(pool, postgres, way, protocol, state):
    postgres.sql("create table if not exists commented (a int)")
    howdah = pool(1, session_state=state)
    sql = HIDDEN[way]
    with howdah.connect() as client:
        if protocol == "extended" and ";" in sql.split("end", 1)[0] and "do" not in sql:
            for part in sql.split("; "):
                extended(client, part)
        elif protocol == "extended":
            extended(client, sql)
        else:
            client.rows(sql)
        if howdah.pool()["sv_pinned"] > 0:
            # A temporary table: readable after all.
            assert client.value("select count(*) from hidden") is not None
    with howdah.connect() as other:
        assert other.value("select current_setting('app.tenant', true)") in (None, "")
        assert show(other, "work_mem") == "4MB"
        assert other.value("select current_user") == "postgres"
        assert other.value("select to_regclass('pg_temp.hidden')") is None
        assert other.value("select count(*) from pg_locks where locktype = 'advisory'") == "0"
        assert other.value("select count(*) from pg_prepared_statements where from_sql") == "0"
        assert other.value("select count(*) from pg_listening_channels()") == "0"


def test_doubt_keeps_no_server_and_takes_no_setting_that_is_known(pool):
    howdah = pool(1)
    with howdah.connect() as client:
        client.rows("set work_mem = '7MB'")
        pid = client.value("select pg_backend_pid()")
        client.rows("select set_config(name, 'view', false) from pg_settings where name = 'x'")
        client.rows(HIDDEN["doubled-quotes"])
        assert howdah.pool()["sv_pinned"] == 0
        assert show(client, "work_mem") == "7MB"
        assert client.value("select current_setting('app.tenant', true)") in (None, "")
        assert client.value("select pg_backend_pid()") == pid


def test_a_long_text_in_doubt(pool):
    """Longer than what is held and read as a whole."""
    howdah = pool(1)
    filler = "'" + "x" * 1_100_000 + "'"
    with howdah.connect() as client, howdah.connect() as other:
        client.rows(f"select {filler}")
        client.rows(f"select {filler}, set_config('work_mem', '7MB', false)")
        for one in (client, other):
            assert show(one, "work_mem") == "4MB"


def test_no_name_of_ours_runs_by_sql(pool):
    howdah = pool(1)
    named = "select name from pg_prepared_statements where name like 'howdah!_%' escape '!'"
    with howdah.connect() as client, howdah.connect() as other:
        client.ask(parse("select 42", "mine"), sync())
        name = other.value(named)
        for text in (f"execute {name}", f"deallocate {name}"):
            with pytest.raises(wire.Refused) as refused:
                other.rows(text)
            assert refused.value.code == "26000"
        for text in (f"select 1; deallocate {name}", f"explain analyze execute {name}",
                     f"do $$begin execute 'deallocate {name}'; end$$"):
            other.rows(text)
            replies = client.ask(bind("mine"), execute(), sync())
            assert [reply.row() for reply in replies if reply.tag == "D"] == [[b"42"]], text


# SQL's PREPARE -----------------------------------------------------------------------------------

def failing(client, sql):
    """The SQLSTATE of a text that fails."""
    with pytest.raises(wire.Refused) as refused:
        client.rows(sql)
    return refused.value.code


def test_a_prepare_of_sql_moves_with_its_client(pool):
    howdah = pool(2)
    with howdah.connect() as client, howdah.connect() as other:
        client.rows("prepare p (int, text) as select $1 + 1, $2")
        other.rows("prepare p as select 'other'")
        assert howdah.pool()["sv_pinned"] == 0
        for _ in range(2):
            disturb(howdah, 2)
            assert client.rows("execute p (1, 'a')") == [["2", "a"]]
            assert client.rows("select 0; execute p (2, 'b')") == [["0"], ["3", "b"]]
            assert client.value("begin; execute p (3, ';'); commit") == "4"
            assert client.rows("explain (costs off) execute p (1, 'a')") == [["Result"]]
            assert extended(client, "execute p (5, 'x')") == [[b"6", b"x"]]
            replies = client.ask(bind("p", ["7", "y"]), execute(), sync())
            assert [reply.row() for reply in replies if reply.tag == "D"] == [[b"8", b"y"]]
            assert other.value("execute p") == "other"
        # PostgreSQL's own answers.
        assert failing(client, "prepare p as select 1") == "42P05"
        assert failing(client, "execute q") == "26000"
        assert failing(client, "execute p ('x', 'y')") == "22P02"
        client.rows("deallocate p")
        assert failing(client, "execute p (1, 'a')") == "26000"
        assert other.value("execute p") == "other"
        other.rows("discard all")
        assert failing(other, "execute p") == "26000"
    with howdah.connect() as third:
        assert third.value("select count(*) from pg_prepared_statements where from_sql") == "0"


def test_what_a_rollback_leaves_of_a_prepare(pool):
    howdah = pool(2)
    with howdah.connect() as client:
        client.rows("begin; prepare p as select 1; rollback")
        assert client.value("execute p") == "1"
        client.rows("begin")
        client.rows("deallocate p")
        client.rows("rollback")
        assert failing(client, "execute p") == "26000"
        assert failing(client, "prepare q as select none") == "42703"
        assert failing(client, "execute q") == "26000"
        assert failing(client, "prepare q as select 1; select none; prepare r as select 2") == "42703"
        assert client.value("execute q") == "1"
        assert failing(client, "execute r") == "26000"
        client.rows("deallocate q; prepare q as select 2; prepare r as select 3; deallocate r")
        assert client.value("execute q") == "2"
        assert failing(client, "execute r") == "26000"


def test_arguments_and_company_of_an_execute(pool, postgres):
    postgres.sql("drop table if exists executed; create table executed (a text)")
    howdah = pool(2)
    with howdah.connect(TimeZone="Asia/Tokyo") as client:
        client.rows("prepare ins (text) as insert into executed values ($1)")
        client.rows("prepare n as select count(*), max(length(a)) from executed")
        client.rows("execute ins ('Copy of a report')")
        client.rows("execute ins ('" + "x" * 2_000_000 + "')")
        assert client.rows("execute n") == [["2", "2000000"]]
        # Columns of an EXECUTE are those of its statement.
        replies = client.ask(parse("execute n"), describe(""), bind(), execute(), sync())
        assert [reply.tag for reply in replies] == list("1tT2DCZ")
        client.rows("set time zone 'UTC'")
        client.rows("deallocate n; reset all")
        assert show(client, "timezone") == "Asia/Tokyo"
        assert failing(client, "execute n") == "26000"
        # PostgreSQL's own error, in both protocols.
        postgres.sql("drop table executed")
        assert failing(client, "execute ins ('a')") == "42P01"
        with pytest.raises(wire.Refused) as refused:
            extended(client, "execute ins ('a')")
        assert refused.value.code == "42P01"


def test_a_name_that_is_given_anew_within_a_group(pool):
    howdah = pool(1)
    with howdah.connect() as client:
        client.rows("prepare p as select 'old'")
        replies = client.ask(parse("execute p", "s"), bind("s"), execute(), close("p"),
                             parse("select 'new'", "p"), bind("s"), execute(), sync())
        assert [reply.row() for reply in replies if reply.tag == "D"] == [[b"old"], [b"new"]]


def test_a_prepare_with_effects(pool):
    howdah = pool(2)
    with howdah.connect() as client:
        client.rows("prepare s as select set_config('work_mem', '7MB', false)")
        client.rows("prepare l (int) as select pg_advisory_lock($1)")
        client.rows("execute s")
        disturb(howdah, 2)
        assert show(client, "work_mem") == "7MB"
        client.rows("execute l (1)")
        howdah.wait_for_pool(sv_pinned=1)


def test_a_prepare_that_is_not_followed(pool):
    """Of a type without a known number, or by the extended protocol: the client keeps its server."""
    howdah = pool(2)
    for way in ("prepare p (money) as select $1", None):
        with howdah.connect() as client:
            client.rows(way) if way else extended(client, "prepare p (int) as select $1")
            howdah.wait_for_pool(sv_pinned=1)
            disturb(howdah, 1)
            assert client.value("execute p ('1')") in ("1", "$1.00")
            client.rows("deallocate p")
            client.rows("select 1")
        howdah.wait_for_pool(sv_pinned=0)


def test_applications_that_prepare_by_sql_on_many_connections(pool):
    """As Qt does: as many connections as servers, each with a statement of the same name."""
    howdah = pool(2, query_wait_timeout=20)
    clients = [howdah.connect() for _ in range(4)]
    for n, client in enumerate(clients):
        client.rows(f"PREPARE qpsqlpstmt_1 AS select $1::int + {n}")
    for n, client in enumerate(clients):
        assert client.value("EXECUTE qpsqlpstmt_1 (0)") == str(n)
        client.rows("DEALLOCATE qpsqlpstmt_1")
        client.close()


@pytest.mark.parametrize("mode", ["transaction", "session"])
def test_a_deallocate_among_commands(pool, mode):
    """psqlODBC's defaults: the statement was prepared by the protocol, and its name is used again."""
    howdah = pool(2, pool_mode=mode)
    with howdah.connect() as client:
        client.rows("begin")
        for n in range(1, 4):
            client.ask(parse(f"select {n}", "_PLAN0x1"), sync())
            replies = client.ask(bind("_PLAN0x1"), execute(), sync())
            assert [reply.row() for reply in replies if reply.tag == "D"] == [[str(n).encode()]]
            client.rows('SAVEPOINT _per_query_svp_;DEALLOCATE "_PLAN0x1";RELEASE _per_query_svp_')
        client.ask(parse("select 9", "_PLAN0x1"), sync())
        # Not reached; then reached, and not undone.
        assert failing(client, 'select none; deallocate "_PLAN0x1"') == "42703"
        client.rows("rollback")
        replies = client.ask(bind("_PLAN0x1"), execute(), sync())
        assert [reply.row() for reply in replies if reply.tag == "D"] == [[b"9"]]
        client.rows('begin; savepoint a; deallocate "_PLAN0x1"; rollback to a; commit')
        replies = client.ask(bind("_PLAN0x1"), execute(), sync())
        assert [reply.fields()["C"] for reply in replies if reply.tag == "E"] == ["26000"]


# Bounds ------------------------------------------------------------------------------------------

def test_ever_more_settings(pool):
    """Who sets ever more is kept within bounds, and the others are served."""
    howdah = pool(2)
    with howdah.connect() as client, howdah.connect() as other:
        for first in range(0, 3_000, 50):
            client.rows(";".join(f"set app.n{n} = '{n}'" for n in range(first, first + 50)))
        assert show(client, "app.n2999") == "2999"
        assert other.value("select coalesce(current_setting('app.n1', true), '')") == ""
        howdah.wait_for_pool(sv_pinned=1)
        client.rows("reset all")
        howdah.wait_for_pool(sv_pinned=0)
        assert client.value("select coalesce(current_setting('app.n1', true), '')") == ""
        client.rows("set app.long = '" + "x" * 700_000 + "'")
        assert client.value("select length(current_setting('app.long'))") == "700000"
        howdah.wait_for_pool(sv_pinned=1)
        assert other.value("select length(coalesce(current_setting('app.long', true), ''))") == "0"


def test_hostile_amounts(pool):
    """A client that leaves ten thousand things keeps one server; the others are served."""
    howdah = pool(2)
    with howdah.connect() as client, howdah.connect() as other:
        for first in range(0, 10_000, 500):
            client.rows("".join(f"prepare p{n} as select {n};" for n in range(first, first + 500)))
        assert howdah.pool()["sv_pinned"] == 0
        assert client.value("execute p9999") == "9999"
        assert other.value("select count(*) from pg_prepared_statements where from_sql") == "0"
        client.rows("discard all")
        for first in range(0, 10_000, 2_000):
            numbers = range(first, first + 2_000)
            client.rows("".join(f"select pg_advisory_lock({n});" for n in numbers))
        howdah.wait_for_pool(sv_pinned=1)
        assert other.value("select count(*) from pg_locks where locktype = 'advisory'") == "10000"
        client.rows("discard all")
        howdah.wait_for_pool(sv_pinned=0)


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


LEFT = {
    "a setting": "set work_mem = '7MB'",
    "a role": "set role plain_user",
    "a temporary table": "create temp table t (a int)",
    "a lock": "select pg_advisory_lock(6)",
    "PREPARE": "prepare p as select 1",
    "a cursor": "declare c cursor with hold for select 1",
    "LISTEN": "listen a",
    "a number": "select nextval('counted')",
}
LOOKS = ("select current_setting('work_mem'), current_user, to_regclass('pg_temp.t') is null, "
         "(select count(*) from pg_locks where locktype = 'advisory' and pid = pg_backend_pid()), "
         "(select count(*) from pg_prepared_statements where from_sql), (select count(*) from pg_cursors), "
         "(select count(*) from pg_listening_channels())")


def test_discard_leaves_nothing_to_others(pool, postgres):
    postgres.sql("create sequence if not exists counted start 1000")
    howdah = pool(1, session_state="discard")
    with howdah.connect() as other:
        for what, command in LEFT.items():
            with howdah.connect() as client:
                client.rows(command)
                for who in (other, client):
                    assert who.rows(LOOKS) == [["4MB", "postgres", "t", "0", "0", "0", "0"]], what
            if what == "a number":
                assert other.error(query("select lastval()"))["C"] == "55000"


def test_session_state_for_a_database_and_a_user(make_howdah, postgres):
    """The user's counts before the database's, and that before the global one."""
    target = f"host={postgres.host} port={postgres.port} dbname=postgres"
    howdah = make_howdah(default_pool_size=1, session_state="discard", databases={
        "plain": target, "kept": target + " session_state=keep",
        "shared": target + " session_state=share"},
        users={"plain_user": "session_state=keep"}, secrets={"postgres": "", "plain_user": "secret"})
    for database, user, own, others in [
            ("plain", "postgres", "4MB", "4MB"), ("kept", "postgres", "7MB", "4MB"),
            ("shared", "postgres", "7MB", "7MB"), ("plain", "plain_user", "7MB", "4MB"),
            ("shared", "plain_user", "7MB", "4MB")]:
        login = {"user": user, "database": database}
        with howdah.connect(**login) as client, howdah.connect(**login) as other:
            client.rows("set work_mem = '7MB'")
            assert (show(other, "work_mem"), show(client, "work_mem")) == (others, own), login


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


# Settings that PostgreSQL reports ---------------------------------------------------------------

def told(messages, name):
    """The values of a parameter that a client was told among messages."""
    start = name.encode() + b"\0"
    return [got.body[len(start):-1].decode() for got in messages
            if got.tag == "S" and got.body.startswith(start)]


def test_reported_settings_are_their_clients(pool):
    """Newer versions report more settings than PgBouncer tracks (14: default_transaction_read_only).
    A client hears of its own, and of nobody else's, whichever server it has."""
    howdah = pool()
    name = "default_transaction_read_only"
    with howdah.connect() as one, howdah.connect() as two:
        assert told(one.ask(query(f"set {name} = on")), name) == ["on"]
        for _ in range(3):
            got = two.ask(query(f"show {name}"))
            assert [message.row() for message in got if message.tag == "D"] == [[b"off"]]
            assert told(got, name) == []
            got = one.ask(query(f"show {name}"))
            assert [message.row() for message in got if message.tag == "D"] == [[b"on"]]
            assert told(got, name) == []
        assert told(one.ask(query(f"reset {name}")), name) == ["off"]


def test_reported_settings_at_login(pool, postgres):
    """What a client asks for at login is what it is told, as by PostgreSQL."""
    howdah = pool()
    howdah.connect().close()
    name = "default_transaction_read_only"
    seen = []
    for address in (howdah.address, (postgres.host, postgres.port)):
        with wire.Wire(address) as client:
            client.send(wire.startup("postgres", "postgres", options=f"-c {name}=yes"))
            seen.append((told(client.read_until(), name), show(client, name)))
    assert seen == [(["on"], "on")] * 2


@pytest.mark.parametrize("encoding, value", [("SJIS", b"\x95\x5c"), ("BIG5", b"\xb3\x5c"),
                                             ("GBK", b"\x95\x5c"), ("SJIS", b"it's \\ \x95\x5c")])
def test_values_travel_whole_in_any_encoding(make_howdah, encoding, value):
    """A byte of a character that looks like a backslash is not taken for one."""
    howdah = make_howdah(default_pool_size=1, track_extra_parameters="IntervalStyle")
    with howdah.connect() as one, howdah.connect() as two:
        one.rows(f"set client_encoding = '{encoding}'")
        literal = value.replace(b"'", b"''")
        one.ask(wire.message("Q", b"set app.name = '" + literal + b"'\0"))
        for _ in range(2):
            assert two.value("select current_setting('app.name', true)") in (None, "")
            got = one.ask(query("show app.name"))
            assert [message.row() for message in got if message.tag == "D"] == [[value]]
