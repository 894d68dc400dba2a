"""The HTTP endpoint: metrics, probes, limits; and what stands in packaging/ for Prometheus."""

import http.client
import json
import os
import re
import resource
import shutil
import signal
import socket
import ssl
import subprocess
import threading
import time

import pytest

from harness import machine, wire

pytestmark = [pytest.mark.timeout(60), pytest.mark.own, pytest.mark.one_driver]

PACKAGING = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "packaging")

UNSAMPLED = "nothing is sampled yet\n"


@pytest.fixture
def endpoint(make_howdah):
    """Starts a Howdah with the endpoint on."""
    def start(**settings):
        howdah = make_howdah(http_listen_port=machine.free_port(), **settings)
        howdah.http = int(howdah.sections["pgbouncer"]["http_listen_port"])
        machine.wait_until(lambda: reachable(howdah), "the endpoint to listen")
        token = f"Bearer {settings.get('http_token')}"
        machine.wait_until(lambda: get(howdah, "/metrics", Authorization=token)[1] != UNSAMPLED,
                           "the first sample")
        return howdah
    return start


def reachable(howdah):
    """Whether the endpoint answers."""
    try:
        return get(howdah, "/live")[0] in (200, 503)
    except OSError:
        return False


def get(howdah, path, method="GET", **headers):
    """Status, body and headers of an answer."""
    connection = http.client.HTTPConnection("127.0.0.1", howdah.http, timeout=30)
    try:
        connection.request(method, path, headers=headers)
        answer = connection.getresponse()
        return answer.status, answer.read().decode(), dict(answer.getheaders())
    finally:
        connection.close()


def metrics(howdah, **headers):
    """All values, by name and labels as written."""
    status, text, _ = get(howdah, "/metrics", **headers)
    if status != 200:
        return {}
    lines = [line for line in text.splitlines() if not line.startswith("#")]
    return {name: float(value) for name, value in (line.rsplit(" ", 1) for line in lines)}


def wait_for(howdah, name, expected):
    """Waits until a value is as expected: samples are up to a second old."""
    def reached():
        value = metrics(howdah).get(name)
        return value is not None and (expected(value) if callable(expected) else value == expected)
    machine.wait_until(reached, f"{name} to be {expected}; {metrics(howdah).get(name)}")


POOL = 'database="postgres",user="postgres"'


def test_metrics_count_what_happens(endpoint):
    howdah = endpoint(workers=2)
    with howdah.connect() as client:
        for _ in range(7):
            client.ask(wire.query("SELECT 1"))
        client.ask(wire.query("SELECT pg_sleep(0.2)"))
        name = "howdah_pool_transactions_total{%s}" % POOL
        wait_for(howdah, name, 8)
        seen = metrics(howdah)
    histogram = "howdah_pool_query_seconds"
    assert seen["%s_count{%s}" % (histogram, POOL)] == 8
    assert 0.2 <= seen["%s_sum{%s}" % (histogram, POOL)] < 20
    below = seen['%s_bucket{%s,le="0.134217728"}' % (histogram, POOL)]
    assert below <= 7, "the one that slept is above"
    assert seen['%s_bucket{%s,le="+Inf"}' % (histogram, POOL)] == 8
    # Who found a server at once has waited, for nothing.
    assert seen["howdah_pool_wait_seconds_count{%s}" % POOL] == 8
    assert seen["howdah_pool_login_seconds_count{%s}" % POOL] == 1
    assert seen["howdah_pool_connect_seconds_count{%s}" % POOL] == 1
    assert seen['howdah_pool_clients{%s,state="active"}' % POOL] == 1
    assert seen["process_cpu_seconds_total"] > 0
    assert seen["process_open_fds"] > 5
    assert sum(value for key, value in seen.items()
               if key.startswith("howdah_worker_transactions_total")) == 8


def test_why_clients_wait_is_a_label(endpoint):
    howdah = endpoint(default_pool_size=1)
    with howdah.connect() as holder, howdah.connect() as waiter:
        holder.ask(wire.query("BEGIN"))
        waiter.send(wire.query("SELECT 1"))
        wait_for(howdah, 'howdah_pool_waiting_clients{%s,reason="pool_full"}' % POOL, 1)
        # The holder idles in its transaction: no server is at work while the other waits.
        wait_for(howdah, 'howdah_pool_working_while_waiting_bucket{%s,le="0.0"}' % POOL,
                 lambda count: count >= 1)
        holder.ask(wire.query("COMMIT"))
        waiter.read_until()
        wait_for(howdah, 'howdah_pool_clients{%s,state="waiting"}' % POOL, 0)


def test_a_cancelled_wait_is_an_error_of_the_pooler(endpoint):
    howdah = endpoint(default_pool_size=1)
    with howdah.connect() as holder, howdah.connect() as waiter:
        holder.ask(wire.query("BEGIN"))
        waiter.send(wire.query("SELECT 1"))
        howdah.wait_for_pool(cl_waiting=1)
        waiter.cancel()
        assert waiter.read_until()[0].fields()["C"] == "57014"
        wait_for(howdah, 'howdah_pool_errors_total{%s,source="pooler",class="57"}' % POOL, 1)


def test_errors_and_refused_clients_are_counted(endpoint):
    howdah = endpoint(auth_type="scram-sha-256", max_client_conn=2)
    with howdah.connect(password="secret") as client:
        client.ask(wire.query("SELECT * FROM nowhere"))
        client.ask(wire.query("SELECT 1/0"))
        client.ask(wire.query("BEGIN"))
        with pytest.raises(wire.Refused):
            howdah.connect(password="wrong")
        seen = 'howdah_pool_errors_total{%s,source="server",class="%%s"}' % POOL
        wait_for(howdah, seen % "42", 1)
        wait_for(howdah, seen % "22", 1)
        wait_for(howdah, 'howdah_login_failures_total{reason="password"}', 1)
        wait_for(howdah, "howdah_pool_oldest_transaction_seconds{%s}" % POOL, lambda age: age > 0)
        assert metrics(howdah)['howdah_pool_held_servers{%s,state="idle_in_transaction"}' % POOL] == 1
        with howdah.raw() as second, howdah.raw() as third:
            for raw, answer in ((second, "R"), (third, "E")):
                raw.send(wire.startup("postgres", "postgres"))
                assert raw.read().tag == answer
            wait_for(howdah, 'howdah_clients_refused_total{reason="too_many_clients"}', 1)
    began = metrics(howdah)["howdah_config_last_reload_success_timestamp_seconds"]
    howdah.write(pool_mode="nonsense")
    os.kill(howdah.child.pid, signal.SIGHUP)
    wait_for(howdah, "howdah_config_last_reload_successful", 0)
    howdah.write(pool_mode="transaction")
    howdah.reload()
    wait_for(howdah, "howdah_config_last_reload_successful", 1)
    seen = metrics(howdah)
    assert seen["howdah_config_last_reload_success_timestamp_seconds"] > began
    assert 0 <= seen['howdah_worker_busy_ratio{worker="0"}'] <= 1


def test_pins_are_counted_by_reason(endpoint):
    howdah = endpoint(session_state="keep")
    with howdah.connect() as client:
        client.ask(wire.query("CREATE TEMP TABLE t (a int)"))
        wait_for(howdah, "howdah_pool_pinned_clients{%s}" % POOL, 1)
        seen = metrics(howdah)
        assert seen["howdah_pool_pins_total{%s}" % POOL] == 1
        reason = 'howdah_pool_pin_reasons_total{%s,reason="%%s"}' % POOL
        assert seen[reason % "temporary"] == 1 and seen.get(reason % "lock", 0) == 0
    # The count of clients falls, those of pins stay.
    wait_for(howdah, "howdah_pool_pinned_clients{%s}" % POOL, 0)
    assert metrics(howdah)["howdah_pool_pins_total{%s}" % POOL] == 1


def test_slow_queries_and_tls_are_counted(endpoint, authority):
    site = authority.issue()
    howdah = endpoint(slow_query_time=0.5, client_tls_sslmode="allow",
                      client_tls_key_file=site.key, client_tls_cert_file=site.chain)
    context = ssl.create_default_context(cafile=authority.certificate)
    with howdah.connect(tls=context) as client:
        client.ask(wire.query("SELECT pg_sleep(0.6)"))
        client.ask(wire.query("SELECT 1"))
        wait_for(howdah, "howdah_pool_slow_queries_total{%s}" % POOL, 1)
    seen = metrics(howdah)
    assert seen['howdah_client_tls_handshakes_total{result="full"}'] == 1
    ends = seen['howdah_tls_certificate_expiry_seconds{setting="client_tls_cert_file"}']
    assert ends > time.time(), "the certificate is valid"


def test_text_is_what_promtool_takes(endpoint):
    if not shutil.which("promtool"):
        pytest.skip("promtool is missing (Debian: prometheus)")
    howdah = endpoint()
    with howdah.connect() as client:
        client.ask(wire.query("SELECT 1"))
        wait_for(howdah, "howdah_pool_transactions_total{%s}" % POOL, 1)
    text = get(howdah, "/metrics")[1]
    checked = subprocess.run(["promtool", "check", "metrics"], input=text, text=True,
                             capture_output=True)
    assert checked.returncode == 0 and not checked.stderr, checked.stderr
    status, text, headers = get(howdah, "/metrics", Accept="application/openmetrics-text")
    assert status == 200 and text.endswith("# EOF\n")
    assert headers["content-type"].startswith("application/openmetrics-text; version=1.0.0")


def test_alert_rules_load_and_fire():
    if not shutil.which("promtool"):
        pytest.skip("promtool is missing (Debian: prometheus)")
    rules = os.path.join(PACKAGING, "prometheus-alerts.yml")
    checked = subprocess.run(["promtool", "check", "rules", rules], capture_output=True, text=True)
    assert checked.returncode == 0, checked.stdout + checked.stderr
    tests = os.path.join(PACKAGING, "prometheus-alerts-test.yml")
    checked = subprocess.run(["promtool", "test", "rules", tests], capture_output=True, text=True)
    assert checked.returncode == 0, checked.stdout + checked.stderr


def test_dashboard_and_rules_use_metrics_that_exist(make_howdah):
    howdah = make_howdah(start=False)
    code, page = howdah.run_to_end("--metrics")
    assert code == 0
    known = set(re.findall(r"^\| `(\w+)` \|", page, re.MULTILINE))
    with open(os.path.join(PACKAGING, "grafana-dashboard.json")) as file:
        dashboard = json.load(file)
    panels = dashboard["panels"]
    expressions = [target["expr"] for panel in panels for target in panel.get("targets", [])]
    assert len(expressions) > 15
    with open(os.path.join(PACKAGING, "prometheus-alerts.yml")) as file:
        expressions.append(file.read())
    used = {name for text in expressions for name in re.findall(r"\b(?:howdah|process)_\w+", text)}
    families = {re.sub(r"_(bucket|sum|count)$", "", name) for name in used}
    assert families <= known, families - known
    # Panels do not lie above each other.
    places = [(p["gridPos"]["x"], p["gridPos"]["y"]) for p in panels]
    assert len(places) == len(set(places))
    assert len({panel["id"] for panel in panels}) == len(panels)


def test_live_and_ready(endpoint):
    howdah = endpoint()
    machine.wait_until(lambda: get(howdah, "/ready")[0] == 200, "it to be ready")
    assert get(howdah, "/live")[:2] == (200, "live\n")
    howdah.console("PAUSE")
    machine.wait_until(lambda: get(howdah, "/ready")[:2] == (503, "paused\n"), "unready")
    assert get(howdah, "/live")[0] == 200
    # By policy, that does not count.
    howdah.console("SET ready_fails_when = 'draining'")
    assert get(howdah, "/ready")[0] == 200
    howdah.console("RESUME")
    with howdah.connect() as client:
        client.ask(wire.query("SELECT 1"))
        howdah.console("SHUTDOWN WAIT_FOR_CLIENTS")
        machine.wait_until(lambda: get(howdah, "/ready")[:2] == (503, "draining\n"), "unready")
        assert client.ask(wire.query("SELECT 1"))


def test_ready_fails_without_postgresql(endpoint):
    howdah = endpoint(databases={"*": f"host=127.0.0.1 port={machine.free_port()}"})
    with pytest.raises((wire.Refused, wire.Ended, OSError, AssertionError)):
        howdah.connect(seconds=3)
    machine.wait_until(lambda: get(howdah, "/ready")[:2] == (503, "unreachable\n"), "unready")


def test_a_token_is_demanded(endpoint):
    howdah = endpoint(http_token="s3cret", http_page=1)
    for path in ("/metrics", "/", "/page.json", "/?token=wrong", "/metrics?token=s3cret"):
        status, text, headers = get(howdah, path)
        assert status == 401 and headers["www-authenticate"] == "Bearer", path
        assert "s3cret" not in text
    assert get(howdah, "/metrics", Authorization="Bearer wrong")[0] == 401
    assert get(howdah, "/metrics", Authorization="Bearer s3cretary")[0] == 401
    machine.wait_until(lambda: metrics(howdah, Authorization="Bearer s3cret"), "metrics")
    for scheme in ("bearer", "BEARER"):
        assert get(howdah, "/metrics", Authorization=f"{scheme} s3cret")[0] == 200
    status, _, headers = get(howdah, "/?token=s3cret")
    assert status == 303 and headers["location"] == "/"
    cookie = headers["set-cookie"].split(";")[0]
    assert "HttpOnly" in headers["set-cookie"]
    assert get(howdah, "/", Cookie=cookie)[0] == 200
    assert get(howdah, "/page.json", Cookie=cookie)[0] == 200
    assert get(howdah, "/live")[0] == 200
    assert howdah.setting("http_token") == "****"


def test_a_foreign_page_does_not_read_metrics(endpoint):
    """A name of somebody else's that leads to loopback (DNS rebinding)."""
    howdah = endpoint()
    assert get(howdah, "/metrics", Host="evil.example")[0] == 403
    assert get(howdah, "/metrics", Host="localhost:80")[0] == 200
    assert get(howdah, "/live", Host="evil.example")[0] == 200


def test_the_page_is_off_unless_asked_for(endpoint):
    howdah = endpoint()
    assert get(howdah, "/")[0] == 404
    assert get(howdah, "/page.json")[0] == 404
    howdah.console("SET http_page = 1")
    status, text, headers = get(howdah, "/")
    assert status == 200 and "<title>Howdah" in text
    assert "default-src 'none'" in headers["content-security-policy"]
    assert get(howdah, "/", Host="evil.example")[0] == 403
    # Nothing of it comes from elsewhere.
    assert not re.search(r"""(src|href)\s*=\s*["']?(https?:)?//""", text)


def test_the_page_needs_a_token_beyond_loopback(endpoint):
    howdah = endpoint(http_listen_addr="0.0.0.0", http_page=1)
    assert get(howdah, "/")[0] == 403
    assert get(howdah, "/page.json")[0] == 403
    howdah.wait_for_log("the page is not served, because http_listen_addr is not loopback")
    howdah.wait_for_log("http_listen_addr = 0.0.0.0 without http_token: whoever reaches it reads")
    machine.wait_until(lambda: metrics(howdah), "metrics, which need none")


def test_page_json_tells_who_waits_for_whom(endpoint):
    howdah = endpoint(default_pool_size=1, http_page=1)
    with howdah.connect(application_name="holder") as holder, \
            howdah.connect(application_name="waiter") as waiter:
        holder.ask(wire.query("BEGIN"))
        waiter.send(wire.query("SELECT 1"))

        def told():
            status, text, _ = get(howdah, "/page.json")
            pools = json.loads(text)["pools"] if status == 200 else []
            return next((pool for pool in pools if pool["waiting"]), None)
        pool = machine.wait_until(told, "the wait to be seen")
        assert pool["reason"]["word"] == "pool_full"
        assert pool["recent"]["wait_p99"] > 0, "the wait that is not over counts"
        assert [one["application"] for one in pool["waiters"]] == ["waiter"]
        assert [(one["application"], one["state"]) for one in pool["holders"]] == [
            ("holder", "idle in transaction")]


def test_the_endpoint_moves_at_reload(endpoint):
    howdah = endpoint()
    old, new = howdah.http, machine.free_port()
    howdah.write(http_listen_port=new)
    howdah.reload()
    howdah.http = new
    machine.wait_until(lambda: reachable(howdah), "the new port to answer")
    with pytest.raises(OSError):
        socket.create_connection(("127.0.0.1", old), timeout=30).close()
    howdah.write(http_listen_port=0)
    howdah.reload()

    def closed():
        return not reachable(howdah)
    machine.wait_until(closed, "the endpoint to close")


def test_an_address_in_use_is_tried_again(make_howdah):
    # A port that the kernel gives to no outgoing connection once it is let go.
    port = machine.free_port()
    with socket.create_server(("127.0.0.1", port)):
        howdah = make_howdah(http_listen_port=port)
        howdah.http = port
        howdah.wait_for_log(f"http: cannot listen on 127.0.0.1:{port}: Address already in use")
        with howdah.connect() as client:
            client.ask(wire.query("SELECT 1"))
    machine.wait_until(lambda: reachable(howdah), "the endpoint to listen")


def test_bad_settings_are_named(make_howdah):
    for setting, value, said in [
        ("http_listen_addr", "nowhere", "an IPv4 or IPv6 address"),
        ("http_listen_port", "70000", "from 0 to 65535"),
        ("http_token", "a b", "letters, digits"),
        ("ready_fails_when", "paused, tired", "draining, paused, unreachable"),
    ]:
        howdah = make_howdah(start=False, **{setting: value})
        code, output = howdah.check()
        assert code == 1 and said in output, output


HOSTILE = [
    b"\x00\x01\x02\x03\r\n\r\n",
    b"GET\r\n\r\n",
    b"GET / HTTP/9.9\r\n\r\n",
    b"GET /" + b"a" * 100_000 + b" HTTP/1.1\r\nHost: x\r\n\r\n",
    b"GET / HTTP/1.1\r\n" + b"X: y\r\n" * 1000 + b"\r\n",
    b"GET / HTTP/1.1\r\nX: " + b"y" * 100_000 + b"\r\n\r\n",
    b"POST /metrics HTTP/1.1\r\nHost: x\r\nContent-Length: 99999999999\r\n\r\n" + b"z" * 100_000,
    b"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\nffffffffffffffff1\r\n",
    b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    b"CONNECT example.org:80 HTTP/1.1\r\nHost: x\r\n\r\n",
    b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + b"\x00" * 500,
]


def hostile(howdah, request):
    """What is answered to raw bytes, until the other side closes."""
    with socket.create_connection(("127.0.0.1", howdah.http), timeout=15) as stream:
        answer = b""
        try:
            stream.sendall(request)
            stream.shutdown(socket.SHUT_WR)
            while got := stream.recv(65536):
                answer += got
        except OSError:
            pass
        return answer


def test_hostile_requests_are_refused(endpoint):
    howdah = endpoint(http_page=1)
    with howdah.connect() as client:
        for request in HOSTILE:
            answer = hostile(howdah, request)
            refused = not answer or re.match(rb"HTTP/1.[01] 4\d\d", answer)
            assert refused, (request[:40], answer[:200])
            assert client.ask(wire.query("SELECT 1"))
    for method in ("POST", "PUT", "DELETE", "OPTIONS", "TRACE", "PATCH"):
        status, _, headers = get(howdah, "/metrics", method)
        assert (status, headers["allow"]) == (405, "GET, HEAD")
    assert get(howdah, "/metrics", "HEAD")[:2] == (200, "")
    assert get(howdah, "/nowhere")[0] == 404
    assert get(howdah, "/../../etc/passwd")[0] == 404


def test_many_slow_connections_keep_nobody_out(endpoint):
    howdah = endpoint()
    crowd = []
    try:
        with howdah.connect() as client:
            for number in range(300):
                stream = socket.create_connection(("127.0.0.1", howdah.http), timeout=30)
                stream.sendall(b"GET /metrics HTTP/1.1\r\nHost:")
                crowd.append(stream)
                if number % 50 == 0:
                    assert client.ask(wire.query("SELECT 1"))
                    assert get(howdah, "/live")[0] == 200

            def few():
                folder = f"/proc/{howdah.child.pid}/net/tcp"
                with open(folder) as file:
                    lines = [line.split() for line in file.readlines()[1:]]
                # Established sockets at our end.
                return sum(line[1].endswith(f":{howdah.http:04X}") and line[3] == "01"
                           for line in lines) <= 40
            machine.wait_until(few, "old connections to be closed")
            assert client.ask(wire.query("SELECT 1"))
    finally:
        for stream in crowd:
            stream.close()


@pytest.mark.slow
def test_ten_thousand_connections_to_the_endpoint(endpoint):
    """All open at once, some with half a request: clients and probes are served."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    room = 12_000 if hard == resource.RLIM_INFINITY else min(12_000, hard)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, room), hard))
    howdah = endpoint()
    crowd = []
    try:
        with howdah.connect() as client:
            for number in range(min(10_000, room - 1000)):
                stream = socket.create_connection(("127.0.0.1", howdah.http), timeout=30)
                if number % 3 == 0:
                    stream.sendall(b"GET /metrics HTTP/1.1\r\nAuthorization: Bearer")
                crowd.append(stream)
                if number % 1000 == 999:
                    assert client.ask(wire.query("SELECT 1"))
                    assert get(howdah, "/live")[0] == 200
                    # The process keeps none but a few of them.
                    assert len(os.listdir(f"/proc/{howdah.child.pid}/fd")) < 200
    finally:
        for stream in crowd:
            stream.close()
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


TOKENS = [b"", b"Bearer", b"Bearer ", b"bearers s3cret", b"Basic czNjcmV0", b"Bearer s3cret x",
          b"Bearer " + b"s" * 10_000, b"Bearer \xff\xfe", b"Bearer s3cre", b"Bearer S3CRET"]


def test_bad_tokens(endpoint):
    howdah = endpoint(http_token="s3cret", http_page=1)
    for token in TOKENS:
        for path in (b"/metrics", b"/page.json"):
            answer = hostile(howdah, b"GET " + path + b" HTTP/1.1\r\nHost: x\r\nAuthorization: "
                             + token + b"\r\nConnection: close\r\n\r\n")
            assert re.match(rb"HTTP/1.1 4(01|00|31)", answer), (token[:30], answer[:80])
            cookie = b"howdah_token=" + token.removeprefix(b"Bearer ")
            answer = hostile(howdah, b"GET " + path + b" HTTP/1.1\r\nHost: x\r\nCookie: "
                             + cookie + b"\r\nConnection: close\r\n\r\n")
            assert re.match(rb"HTTP/1.1 4(01|00|31)", answer), (cookie[:30], answer[:80])
    assert get(howdah, "/metrics", Authorization="Bearer s3cret")[0] in (200, 503)


def test_a_log_that_is_full_or_gone_harms_no_client(make_howdah):
    """A full disk costs lines, and the next that can be written says how many."""
    howdah = make_howdah(start=False, slow_query_time="0.000001", slow_query_rate=1000,
                         log_format="json", read_driver=False)
    real = howdah.sections["pgbouncer"]["logfile"]
    howdah.write(logfile="/dev/full")
    howdah.start()
    with howdah.connect() as client:
        for _ in range(50):
            client.ask(wire.query("SELECT 1"))
        howdah.write(logfile=real)
        howdah.reload()
        client.ask(wire.query("SELECT 1"))
        howdah.wait_for_log(r"\d+ lines of the log could not be written: No space left on device")
        for line in howdah.log().splitlines():
            json.loads(line)
        # Its folder is taken away: RELOAD keeps what is open, and says so.
        howdah.write(logfile="/nonexistent/folder/log")
        howdah.reload()
        howdah.wait_for_log("Cannot open logfile: '/nonexistent/folder/log'")
        assert client.ask(wire.query("SELECT 1"))


def test_a_slow_head_is_cut_off(endpoint):
    howdah = endpoint()
    with socket.create_connection(("127.0.0.1", howdah.http), timeout=20) as stream:
        stream.sendall(b"GET /metrics HTTP/1.1\r\nHo")
        answer = b""
        while got := stream.recv(1000):
            answer += got
        assert not answer or b" 408 " in answer.splitlines()[0], answer


def test_samples_are_shared_by_all_who_ask(endpoint):
    howdah = endpoint()
    machine.wait_until(lambda: metrics(howdah), "metrics")
    texts, begun = [], time.monotonic()

    def ask():
        texts.append(get(howdah, "/metrics")[1])
    threads = [threading.Thread(target=ask) for _ in range(20)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    # One more sample for each second that ended meanwhile.
    assert len(texts) == 20 and len(set(texts)) <= 2 + int(time.monotonic() - begun)
