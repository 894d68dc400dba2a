"""Queries one by one: the log of slow ones, which take the most, traces."""

import http.server
import json
import re
import threading
import time
import urllib.request

import psycopg
import pytest

from harness import machine, wire

pytestmark = [pytest.mark.timeout(60), pytest.mark.own, pytest.mark.one_driver]


def queries(howdah):
    """SHOW QUERIES, by the text."""
    return {row["query"]: row for row in howdah.console("SHOW QUERIES")}


def test_a_slow_query_has_a_line(make_howdah, postgres):
    """Both that which runs for long, and that which waits for it."""
    howdah = make_howdah(slow_query_time="0.2", default_pool_size=1)
    with howdah.connect(application_name="till") as client, howdah.connect() as other:
        with postgres.lock(20) as lock:
            client.send(wire.query(f"SELECT {lock}, 'a secret' AS x"))
            howdah.wait_for_pool(sv_active=1)
            other.send(wire.query("SELECT   2"))
            howdah.wait_for_pool(cl_waiting=1)
            time.sleep(0.3)
        client.read_until()
        other.read_until()
        howdah.wait_for_log(r"(?m): select \?$")
        text = howdah.log()
    slow = [line for line in text.splitlines() if "slow query" in line]
    assert len(slow) == 2, text
    first = re.search(r"C-0x[0-9a-f]+: postgres/postgres@\S+ slow query: wait ([\d.]+) ms, "
                      r"run ([\d.]+) ms, rows 1, application \"till\", "
                      r"fingerprint [0-9a-f]{16}: select pg_advisory_xact_lock\(\?\), \? as x$",
                      slow[0])
    assert first and float(first[2]) >= max(200, float(first[1])), slow
    second = re.search(r"wait ([\d.]+) ms, run ([\d.]+) ms", slow[1])
    assert float(second[1]) >= max(200, float(second[2])), "it was the wait that took long"
    assert "secret" not in "".join(slow)


def test_a_slow_query_as_json_with_its_error(make_howdah):
    howdah = make_howdah(slow_query_time="0.1", log_format="json")
    with howdah.connect(application_name="a \"b\"") as client:
        client.ask(wire.query("SET statement_timeout = 150"))
        client.ask(wire.query("SELECT pg_sleep(5)"))
        seen = json.loads(howdah.wait_for_log(r'.*"query":"select pg_sleep.*\n')[0])
    assert (seen["database"], seen["user"], seen["application_name"]) == (
        "postgres", "postgres", 'a "b"')
    assert seen["text"] == "slow query" and seen["query"] == "select pg_sleep(?)"
    assert seen["sqlstate"] == "57014"
    assert seen["run_ms"] >= 140 and seen["wait_ms"] >= 0 and seen["rows"] == 0
    assert re.fullmatch("[0-9a-f]{16}", seen["fingerprint"])
    assert re.fullmatch("C-0x[0-9a-f]+", seen["connection"]) and "values" not in seen


def test_values_are_logged_only_if_asked_for(make_howdah):
    howdah = make_howdah(slow_query_time="0.1", slow_query_values=1)
    with psycopg.connect(howdah.url(), autocommit=True) as client:
        client.execute("SELECT pg_sleep(0.2), %s::text, %s::int", ("it's", None), prepare=True)
        line = howdah.wait_for_log(r"slow query.*pg_sleep.*\n")[0]
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


def test_a_storm_in_one_pool_leaves_lines_to_others(make_howdah):
    """A pool has half of the lines that others leave."""
    howdah = make_howdah(slow_query_time="0.000001", slow_query_rate=5, workers=1)
    with howdah.connect() as noisy, howdah.connect(user="admin") as quiet:
        for _ in range(5):
            for _ in range(100):
                noisy.ask(wire.query("SELECT 1"))
            quiet.ask(wire.query("SELECT 'quiet'"))
        howdah.wait_for_log("slow_query_rate is 5")
    lines = [line for line in howdah.log().splitlines() if "slow query: " in line]
    assert any("postgres/admin@" in line for line in lines), lines


SECRETS = ["set app.key = hunter2", "set app.key to \"hunter2\"", "set local app.key = hunter2",
           "begin; set app.key = hunter2; commit", "alter role limited set app.key = hunter2",
           "alter role limited in database postgres set app.key to hunter2", "listen hunter2",
           "notify hunter2, 'hunter2'", "unlisten hunter2",
           "create function pg_temp.f() returns int set app.key to hunter2 as 'select 1' language sql"]


def test_what_stands_without_quotes_may_be_a_secret(make_howdah):
    """In the log, on the console, on the page and in spans."""
    port = machine.free_port()
    with Collector() as collector:
        howdah = make_howdah(slow_query_time="0.000001", slow_query_rate=1000, top_queries=100,
                             trace_endpoint=collector.url, trace_ratio=1, http_listen_port=port,
                             http_page=1)
        with howdah.connect() as client:
            for sql in SECRETS:
                client.ask(wire.query(sql))
                client.ask(wire.parse(sql.split("; ")[0]), wire.bind(), wire.execute(), wire.sync())
            client.ask(wire.query("select 'the end'"))
            client.ask(wire.query("alter role limited reset all"))
        howdah.wait_for_log(r"(?m)slow query.*: select \?$")
        machine.wait_until(lambda: any(one.get("db.query.text") == "select ?"
                                       for one in collector.spans()), "spans")
        shown = repr(howdah.console("SHOW QUERIES"))
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/page.json") as answer:
            page = answer.read().decode()
        spans = b"".join(collector.bodies).decode(errors="replace")
    assert "set app.key = ?" in shown and "set app.key = ?" in howdah.log()
    for where in (shown, page, spans, howdah.log()):
        assert "hunter2" not in where


def test_thresholds_of_databases_and_users(make_howdah):
    howdah = make_howdah(slow_query_time="0.05", users={"postgres": "slow_query_time=0"})
    with howdah.connect() as client:
        client.ask(wire.query("SELECT pg_sleep(0.1)"))
    howdah.wait_for_log("postgres/postgres@.* closing because: client")
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
    totals = [int(row["total_us"]) for row in seen.values()]
    assert totals == sorted(totals, reverse=True), "who took the most comes first"
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


# Traces ------------------------------------------------------------------------------------------

class Collector:
    """Takes OTLP by HTTP: what came is kept as protobuf's fields."""

    def __init__(self, port=0, answer=200, delay=0.0):
        self.bodies, self.answer, self.delay = [], answer, delay
        collector = self

        class Handler(http.server.BaseHTTPRequestHandler):
            """One request."""

            def do_POST(self):  # noqa: N802 - the library's name
                """A batch of spans."""
                body = self.rfile.read(int(self.headers["content-length"]))
                collector.requests.append((self.path, self.headers["content-type"],
                                           self.headers["host"]))
                collector.bodies.append(body)
                collector.gate.wait(collector.delay)
                self.send_response(collector.answer)
                self.send_header("content-length", "0")
                self.end_headers()

            def log_message(self, *_):
                """Says nothing."""

        self.requests = []
        self.gate = threading.Event()
        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", port), Handler)
        self.server.daemon_threads = True
        self.port = self.server.server_address[1]
        self.url = f"http://127.0.0.1:{self.port}/v1/traces"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.gate.set()
        self.server.shutdown()
        self.server.server_close()

    def spans(self):
        """All spans: trace, id, parent, name, times and attributes."""
        return [span(value) for body in self.bodies
                for resource in values(body, 1) for scope in values(resource, 2)
                for value in values(scope, 2)]


def fields(data):
    """The fields of a protobuf message: number and value, as bytes or a number."""
    at = 0

    def varint():
        nonlocal at
        value = shift = 0
        while True:
            byte = data[at]
            at += 1
            value |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                return value
    while at < len(data):
        key = varint()
        kind = key & 7
        if kind == 0:
            yield key >> 3, varint()
            continue
        length = {1: 8, 5: 4}.get(kind) or varint()
        yield key >> 3, data[at:at + length]
        at += length


def values(data, number):
    """Those of one number."""
    return [value for field, value in fields(data) if field == number]


def span(data):
    """A span of trace.proto."""
    def attribute(pair):
        key, value = values(pair, 1)[0].decode(), next(fields(values(pair, 2)[0]))
        return key, value[1].decode() if value[0] == 1 else value[1]
    first = {number: value for number, value in fields(data) if number != 9}
    times = [int.from_bytes(first[number], "little") for number in (7, 8)]
    return {"trace": first[1].hex(), "id": first[2].hex(), "parent": first.get(4, b"").hex(),
            "name": first[5].decode(), "start": times[0], "end": times[1],
            "status": first.get(15, b""), **dict(map(attribute, values(data, 9)))}


TRACE, ABOVE = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"


def commented(sql, flags="01"):
    """As sqlcommenter writes it."""
    return f"{sql} /*application='x',traceparent='00-{TRACE}-{ABOVE}-{flags}'*/"


def test_a_trace_goes_on_below_its_caller(make_howdah):
    with Collector() as collector:
        howdah = make_howdah(trace_endpoint=collector.url, trace_ratio=0, default_pool_size=1)
        before = time.time_ns()
        with howdah.connect(application_name="till") as client, howdah.connect() as other:
            other.ask(wire.query("BEGIN"))
            client.send(wire.query(commented("SELECT pg_sleep(0.05), 'secret'")))
            howdah.wait_for_pool(cl_waiting=1)
            other.ask(wire.query("COMMIT"))
            client.read_until()
            client.ask(wire.query(commented("SELECT 2", "00")))
            client.ask(wire.query("SELECT 3"))
            client.ask(wire.query(commented("SELECT nonsense")))
            machine.wait_until(lambda: len(collector.spans()) >= 5, "spans")
        spans = collector.spans()
    assert collector.requests[0][:2] == ("/v1/traces", "application/x-protobuf")
    assert collector.requests[0][2] == f"127.0.0.1:{collector.port}"
    whole, wait, run, failed, failed_run = spans
    assert len(spans) == 5, "what is not sampled has none"
    assert {one["trace"] for one in spans} == {TRACE}
    assert (whole["name"], whole["parent"]) == ("SELECT", ABOVE)
    assert [(one["name"], one["parent"]) for one in (wait, run)] == [
        ("wait for server", whole["id"]), ("run", whole["id"])]
    assert before < whole["start"] == wait["start"] < wait["end"] == run["start"]
    assert run["start"] + 45_000_000 < run["end"] == whole["end"] < time.time_ns()
    assert whole["db.query.text"] == "select pg_sleep(?), ?"
    assert (whole["db.namespace"], whole["application.name"]) == ("postgres", "till")
    assert failed["db.response.status_code"] == "42703" and b"42703" in failed["status"]
    assert failed_run["parent"] == failed["id"] != whole["id"]
    assert b"secret" not in b"".join(collector.bodies)


def test_a_share_of_queries_is_traced(make_howdah):
    with Collector() as collector:
        howdah = make_howdah(trace_endpoint=collector.url, trace_ratio="0.5")
        with howdah.connect() as client:
            for _ in range(200):
                client.ask(wire.query("SELECT 1"))
            machine.wait_until(lambda: len(collector.spans()) > 100, "spans")
            howdah.console("SET trace_ratio = 0")
            howdah.console(f"SET trace_endpoint = '{collector.url}'")
        roots = [one for one in collector.spans() if not one["parent"]]
    assert 50 <= len(roots) <= 150
    assert len({one["trace"] for one in roots}) == len(roots)


def test_a_collector_that_is_away_costs_a_line(make_howdah):
    port = machine.free_port()
    howdah = make_howdah(trace_endpoint=f"http://127.0.0.1:{port}/v1/traces", trace_ratio=1)
    with howdah.connect() as client:
        for _ in range(20):
            client.ask(wire.query("SELECT 1"))
        howdah.wait_for_log("traces: .* takes no spans: ")

        def goes_on():
            client.ask(wire.query("SELECT 1"))
            return "takes spans again" in howdah.log()
        with Collector(port) as collector:
            machine.wait_until(goes_on, "the collector to be found")
            assert collector.spans()
            # While it is there: spans that find it gone have a line of their own.
            lines = [line for line in howdah.log().splitlines() if "traces: " in line]
    assert len(lines) == 2, lines


def test_a_slow_collector_keeps_nobody(make_howdah):
    with Collector(delay=60) as collector:
        port = machine.free_port()
        howdah = make_howdah(trace_endpoint=collector.url, trace_ratio=1, workers=1,
                             http_listen_port=port)
        with howdah.connect() as client:
            machine.wait_until(lambda: client.ask(wire.query("SELECT 1")) and collector.bodies,
                               "the first batch")
            # More than the queue takes, while nothing goes out.
            for _ in range(60):
                client.ask(*[wire.query("SELECT 1")] * 50)
                for _ in range(49):
                    client.read_until()

            def lost():
                client.ask(wire.query("SELECT 1"))
                with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics") as answer:
                    text = answer.read().decode()
                found = re.search(r"^howdah_spans_lost_total (\d+)", text, re.MULTILINE)
                return found and int(found[1]) > 0
            machine.wait_until(lost, "spans to be lost", 30)


def test_bad_trace_settings_are_named(make_howdah):
    for setting, value, said in [
        ("trace_endpoint", "https://127.0.0.1:4318/v1/traces", "a URL such as http://"),
        ("trace_endpoint", "127.0.0.1:4318", "a URL such as http://"),
        ("trace_ratio", "1.5", "a number from 0 to 1"),
        ("slow_query_time", "-1", "a number of seconds, 0 or more"),
    ]:
        howdah = make_howdah(start=False, **{setting: value})
        code, output = howdah.check()
        assert code == 1 and said in output, output
