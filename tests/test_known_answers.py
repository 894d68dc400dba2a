"""Prepared statements that need no server, and unnamed statements that servers keep."""

import pytest

from harness import machine
from harness.wire import bind, close, describe, execute, parse, sync

pytestmark = [pytest.mark.timeout(120), pytest.mark.one_driver, pytest.mark.own]

NUMBERS = "select id, name from numbers where id = $1"


def rows(messages):
    """The rows among messages, as texts."""
    return [[value.decode() for value in got.row()] for got in messages if got.tag == "D"]


def tags(messages):
    """The types of messages, as one text."""
    return "".join(got.tag for got in messages)


# Known answers

def test_a_known_statement_needs_no_server(shared_howdah, postgres):
    """While the only server is in another client's transaction, a client prepares a known statement,
    describes and closes it, and gets what PostgreSQL says."""
    howdah = shared_howdah(default_pool_size=1)
    group = [parse(NUMBERS, "s"), describe("s"), sync()]
    with postgres.connect() as direct:
        expected = direct.ask(*group)
    assert tags(expected) == "1tTZ"
    with howdah.connect() as one, howdah.connect() as two:
        one.ask(*group)
        one.rows("begin")
        assert two.ask(*group) == expected
        assert tags(two.ask(describe("s"), close("s"), sync())) == "tT3Z"
        assert two.ask(*group) == expected
        two.send(bind("s", ["3"]), execute(), sync())
        howdah.wait_for_pool(cl_waiting=1)
        one.rows("commit")
        assert rows(two.read_until("Z"))[0][0] == "3"
        # Only PostgreSQL words this error.
        assert two.error(parse(NUMBERS, "s"), sync())["C"] == "42P05"


def test_a_changed_table_is_described_anew(shared_howdah, postgres):
    """DDL of another client, and DDL that Howdah does not see: no client gets rows that do not fit the
    description that it has got."""
    howdah = shared_howdah(default_pool_size=2)
    text = "select * from told_of"
    group = [parse(text, "s"), describe("s"), sync()]
    with howdah.connect() as one:
        one.rows("drop table if exists told_of; create table told_of as select 1 as a")
    with howdah.connect() as one, howdah.connect() as two, howdah.connect() as three:
        described = [got for got in one.ask(*group) if got.tag == "T"]
        assert [got for got in two.ask(*group) if got.tag == "T"] == described
        one.rows("alter table told_of add b int default 2")
        wider = [got for got in three.ask(*group) if got.tag == "T"]
        assert wider != described and two.error(bind("s"), execute(), sync())["C"] == "0A000"
        # Past Howdah.
        postgres.sql("alter table told_of add c int default 3")
        one.rows("begin")
        two.ask(close("s"), sync())
        assert [got for got in two.ask(*group) if got.tag == "T"] == wider
        assert two.error(bind("s"), execute(), sync())["C"] == "0A000"
        again = two.ask(close("s"), *group)
        assert [got for got in again if got.tag == "T"] not in (described, wider)
        assert rows(two.ask(bind("s"), execute(), sync())) == [["1", "2", "3"]]
        one.rows("commit")


@pytest.mark.parametrize("workers, threads", [(1, 1), (2, 1), (2, 4)])
def test_pgbench_with_few_threads(make_howdah, system_programs, bench, workers, threads):
    """pgbench prepares by a call that blocks its thread: until that is answered, no other client of the
    thread can end its transaction and give its server back."""
    howdah = make_howdah(default_pool_size=10, workers=workers)
    said = machine.run([
        system_programs.path("pgbench"), "-h", howdah.host, "-p", str(howdah.port), "-U", "postgres",
        "-n", "-M", "prepared", "-c", "50", "-j", str(threads), "-t", "20", bench])
    assert "processed: 1000/1000" in said


@pytest.fixture(scope="module")
def bench(postgres, system_programs):
    """pgbench's tables, in a database of their own."""
    postgres.sql("drop database if exists known_answers with (force)")
    postgres.sql("create database known_answers")
    machine.run([system_programs.path("pgbench"), "-h", postgres.host, "-p", str(postgres.port),
                 "-U", "postgres", "-i", "-q", "known_answers"])
    return "known_answers"


# Unnamed statements

def unnamed(client, text, *values):
    """Parses, binds, describes and runs the unnamed statement."""
    return client.ask(parse(text), bind(values=list(values)), describe(kind="P"), execute(), sync())


def test_unnamed_statements_are_planned_once(make_howdah):
    """A text that comes again is a prepared statement for PostgreSQL, with a generic plan in the end."""
    howdah = make_howdah(default_pool_size=1, unnamed_statements="share")
    text = "select $1::int + 1 as more"
    with howdah.connect() as one, howdah.connect() as two:
        for turn in range(20):
            client = [one, two][turn % 2]
            got = unnamed(client, text, str(turn))
            assert tags(got) == "12TDCZ" and rows(got) == [[str(turn + 1)]]
        kept = one.rows("select generic_plans, custom_plans from pg_prepared_statements"
                        f" where statement = '{text}'")
        assert len(kept) == 1 and sum(map(int, kept[0])) == 19 and int(kept[0][0]) > 0
        # A Query ends the client's unnamed statement.
        error = one.error(bind(values=["1"]), execute(), sync())
        assert (error["C"], error["M"]) == ("26000", "unnamed prepared statement does not exist")


def test_unnamed_statements_show_no_name(make_howdah, postgres):
    """Errors are those that PostgreSQL has for the unnamed statement."""
    howdah = make_howdah(default_pool_size=1, unnamed_statements="share")
    text = "select $1::int / $2::int"
    with postgres.connect() as direct, howdah.connect() as client:
        for values in [["4", "2"], ["4", "2"], ["4", "2"], ["1", "0"], ["x", "1"], ["1"], ["4", "2"]]:
            assert unnamed(client, text, *values) == unnamed(direct, text, *values)


def test_unnamed_statements_after_hidden_ddl(make_howdah, postgres):
    """After DDL that Howdah has not seen, one error."""
    howdah = make_howdah(default_pool_size=1, unnamed_statements="share")
    text = "select * from hidden_from where $1::int is not null"
    postgres.sql("drop table if exists hidden_from; create table hidden_from as select 1 as a")
    with howdah.connect() as client:
        for _ in range(3):
            assert tags(unnamed(client, text, "1")) == "12TDCZ"
        postgres.sql("alter table hidden_from add b int default 2")
        got = unnamed(client, text, "1")
        assert tags(got) == "1EZ" and got[1].fields()["C"] == "0A000"
        for _ in range(3):
            assert rows(unnamed(client, text, "1")) == [["1", "2"]]


def test_nothing_is_kept_by_default(make_howdah):
    """`pass`: PostgreSQL has no statement after unnamed ones."""
    howdah = make_howdah(default_pool_size=1)
    with howdah.connect() as client:
        for _ in range(3):
            unnamed(client, "select $1::int", "1")
        assert client.value("select count(*) from pg_prepared_statements") == "0"
