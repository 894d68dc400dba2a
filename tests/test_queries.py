"""Queries one by one: the log of slow ones, which take the most, traces."""

import json
import re

import psycopg
import pytest

from harness import machine, wire

pytestmark = [pytest.mark.timeout(60), pytest.mark.own]


def queries(howdah):
    """SHOW QUERIES, by the text."""
    return {row["query"]: row for row in howdah.console("SHOW QUERIES")}


def test_a_slow_query_has_a_line(make_howdah):
    howdah = make_howdah(slow_query_time="0.2", default_pool_size=1)
    with howdah.connect(application_name="till") as client, howdah.connect() as other:
        client.ask(wire.query("SELECT 1"))
        client.send(wire.query("SELECT pg_sleep(0.3), 'a secret' AS x"))
        howdah.wait_for_pool(sv_active=1)
        other.send(wire.query("SELECT   2"))
        client.read_until()
        other.read_until()
        howdah.wait_for_log(r": select \?$")
        text = howdah.log()
    slow = [line for line in text.splitlines() if "slow query" in line]
    assert len(slow) == 2, text
    first = re.search(r"C-0x[0-9a-f]+: postgres/postgres@\S+ slow query: wait ([\d.]+) ms, "
                      r"run ([\d.]+) ms, rows 1, application \"till\", "
                      r"fingerprint [0-9a-f]{16}: select pg_sleep\(\?\), \? as x$", slow[0])
    assert first and float(first[1]) < 200 <= float(first[2]), slow
    second = re.search(r"wait ([\d.]+) ms, run ([\d.]+) ms", slow[1])
    assert float(second[1]) > 100 > float(second[2]), "it was the wait that took long"
    assert "secret" not in "".join(slow)


def test_a_slow_query_as_json_with_its_error(make_howdah):
    howdah = make_howdah(slow_query_time="0.1", log_format="json")
    with howdah.connect(application_name="a \"b\"") as client:
        client.ask(wire.query("SET statement_timeout = 150"))
        client.ask(wire.query("SELECT pg_sleep(5)"))
        howdah.wait_for_log('"slow query"')
    line = next(line for line in howdah.log().splitlines() if '"slow query"' in line)
    seen = json.loads(line)
    assert (seen["database"], seen["user"], seen["application_name"]) == (
        "postgres", "postgres", 'a "b"')
    assert seen["sqlstate"] == "57014" and seen["query"] == "select pg_sleep(?)"
    assert seen["run_ms"] >= 140 and seen["wait_ms"] >= 0 and seen["rows"] == 0
    assert re.fullmatch("[0-9a-f]{16}", seen["fingerprint"])
    assert re.fullmatch("C-0x[0-9a-f]+", seen["connection"]) and "values" not in seen


def test_values_are_logged_only_if_asked_for(make_howdah):
    howdah = make_howdah(slow_query_time="0.1", slow_query_values=1)
    with psycopg.connect(howdah.url(), autocommit=True) as client:
        client.execute("SELECT pg_sleep(0.2), %s::text, %s::int", ("it's", None), prepare=True)
        howdah.wait_for_log("slow query")
    line = next(line for line in howdah.log().splitlines() if "slow query" in line)
    assert "[$1 = 'it''s', $2 = NULL]" in line, line


def test_a_storm_of_slow_queries_is_bounded(make_howdah):
    howdah = make_howdah(slow_query_time="0.000001", slow_query_rate=5, workers=1)
    with howdah.connect() as client:
        for _ in range(300):
            client.ask(wire.query("SELECT 1"))

        def told():
            client.ask(wire.query("SELECT 1"))
            return re.search(r"\d+ slow queries were not logged: slow_query_rate is 5", howdah.log())
        machine.wait_until(told, "a line about those that have none")
    lines = [line for line in howdah.log().splitlines() if "slow query: " in line]
    seconds = {}
    for line in lines:
        second = line.split(".")[0]
        seconds[second] = seconds.get(second, 0) + 1
    # A second of the log may have parts of two of ours.
    assert len(lines) < 300 and max(seconds.values()) <= 10, seconds


def test_thresholds_of_databases_and_users(make_howdah):
    howdah = make_howdah(slow_query_time="0.05", users={"postgres": "slow_query_time=0"})
    with howdah.connect() as client:
        client.ask(wire.query("SELECT pg_sleep(0.1)"))
        assert "slow query" not in howdah.log(), "this user's are not wanted"


def test_top_queries_are_counted(make_howdah):
    howdah = make_howdah(top_queries=100, workers=2)
    with howdah.connect() as client, psycopg.connect(howdah.url(), autocommit=True) as other:
        for number in range(5):
            client.ask(wire.query(f"SELECT generate_series(1, 3) -- {number}"))
            other.execute("SELECT generate_series(1, %s)", (4,), prepare=True)
        client.ask(wire.query("SELECT nonsense"))
        client.ask(wire.query("SELECT pg_sleep(0.1)"))
        seen = queries(howdah)
    row = seen["select generate_series(?, ...)"]
    assert (row["calls"], row["rows"], row["errors"]) == ("10", "35", "0"), row
    assert (row["database"], row["user"]) == ("postgres", "postgres")
    assert int(row["total_us"]) >= int(row["max_us"]) >= int(row["p99_us"]) > 0
    bad = seen["select nonsense"]
    assert (bad["calls"], bad["errors"]) == ("1", "1")
    slept = seen["select pg_sleep(?)"]
    assert 100_000 <= int(slept["total_us"]) == int(slept["max_us"])
    assert next(iter(seen)) == "select pg_sleep(?)", "who took the most comes first"
    howdah.console("RESET_QUERIES")
    assert howdah.console("SHOW QUERIES") == []
    howdah.console("SET top_queries = 0")
    with howdah.connect() as client:
        client.ask(wire.query("SELECT 1"))
    assert howdah.console("SHOW QUERIES") == []


@pytest.mark.parametrize("settings", [
    {"pool_mode": "session"}, {"max_prepared_statements": 0}, {"pool_mode": "statement"}])
def test_statements_are_known_in_every_mode(make_howdah, settings):
    howdah = make_howdah(top_queries=100, **settings)
    with psycopg.connect(howdah.url(), autocommit=True) as client:
        client.execute("SELECT %s + 1", (1,), prepare=False)
        client.execute("SELECT %s + 1", (2,), prepare=False)
    assert queries(howdah)["select ? + ?"]["calls"] == "2"


def test_more_texts_than_there_is_room_for(make_howdah):
    howdah = make_howdah(top_queries=20, workers=1)
    with howdah.connect() as client:
        for number in range(200):
            client.ask(wire.query(f"SELECT 1 AS c{number}"))
            client.ask(wire.query("SELECT 2 AS usual"))
        rows = howdah.console("SHOW QUERIES")
    assert len(rows) <= 21
    assert sum(int(row["calls"]) for row in rows) == 400
    assert rows[-1]["database"] == "(other)" and "were pushed out" in rows[-1]["query"]
    assert {row["query"]: row["calls"] for row in rows}["select ? as usual"] == "200"


def test_statisticians_see_queries_but_do_not_reset_them(make_howdah):
    howdah = make_howdah(top_queries=100, stats_users="plain_user",
                         secrets={"plain_user": "secret"})
    with howdah.connect() as client:
        client.ask(wire.query("SELECT 1"))
    with howdah.connect(user="plain_user", database="pgbouncer", password="secret") as console:
        assert console.rows("SHOW QUERIES")
        said = console.ask(wire.query("RESET_QUERIES"))
        assert said[0].fields()["M"] == "admin access needed"
    assert queries(howdah)["select ?"]["calls"] == "1"
