"""Drain and client_lifetime: clients end between two transactions, spread over a time."""

import datetime
import http.client
import json
import re
import signal
import threading
import time

import psycopg
import pytest

from harness import haproxy, machine, wire
from harness.haproxy import HaProxy
from harness.howdah import console_rows
from harness.programs import built
from harness.wire import query

pytestmark = [pytest.mark.timeout(90), pytest.mark.one_driver, pytest.mark.own]

OVER = ("57P01", "pooler is shutting down")
CLIENTS = 100  # of each of two drivers


def ready(howdah):
    """What /ready says: the status and the text."""
    port = int(howdah.sections["pgbouncer"]["http_listen_port"])
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    try:
        connection.request("GET", "/ready")
        answer = connection.getresponse()
        return answer.status, answer.read().decode()
    except OSError:
        return None
    finally:
        connection.close()


def end_of(client):
    """SQLSTATE and text of the error with which a client ends."""
    got = client.read_to_end()
    assert [message.tag for message in got] == ["E"], got
    fields = got[0].fields()
    return fields["C"], fields["M"]


@pytest.fixture
def endpoint(make_howdah):
    """Starts a Howdah that tells whether it is ready, and waits until it is."""
    def start(**settings):
        howdah = make_howdah(http_listen_port=machine.free_port(), **settings)
        machine.wait_until(lambda: ready(howdah) == (200, "ready\n"), "it to be ready")
        return howdah
    return start


# Drain ------------------------------------------------------------------------------------------

@pytest.mark.parametrize("how", ["SIGINT", "SHUTDOWN"])
@pytest.mark.parametrize("workers", [1, 2])
def test_clients_end_one_after_the_other(endpoint, how, workers):
    """Unready at once, new clients for a moment, then nobody new, and the others end."""
    howdah = endpoint(drain_delay="0.5", drain_time="1", workers=workers)
    clients = [howdah.connect() for _ in range(5)]
    if how == "SIGINT":
        howdah.signal(signal.SIGINT)
        howdah.wait_for_log("draining: new clients are taken for 0.5 s, then all clients end within 1 s")
    else:
        howdah.console("SHUTDOWN WAIT_FOR_SERVERS")
    assert ready(howdah) == (503, "draining\n")
    clients.append(howdah.connect())
    clients[0].rows("begin")
    howdah.wait_for_log("the listening sockets are closed")
    with pytest.raises(OSError):
        howdah.raw().read()
    assert {end_of(client) for client in clients[1:]} == {OVER}
    assert clients[0].value("select 'still'") == "still"
    clients[0].send(query("commit"))
    assert clients[0].read_until("Z")[0].tag == "C"
    assert end_of(clients[0]) == OVER
    assert howdah.wait() == 0
    # One line for each of them.
    assert len(re.findall("pooler is shutting down", howdah.log())) == len(clients)


def test_behind_the_time_the_usual_rules_hold(endpoint):
    """Who has a server may finish, and the process ends with the last server."""
    howdah = endpoint(drain_time="0.2")
    with howdah.connect() as busy:
        busy.rows("begin")
        howdah.signal(signal.SIGINT)
        howdah.wait_for_log("drain_time is over")
        assert busy.value("select 'still'") == "still"
        busy.send(query("commit"))
        assert end_of_transaction(busy) == OVER
    assert howdah.wait() == 0


def end_of_transaction(client):
    """As end_of, behind the answer to a COMMIT."""
    tags = [message for message in client.read_to_end()]
    assert [message.tag for message in tags] == ["C", "Z", "E"], tags
    fields = tags[-1].fields()
    return fields["C"], fields["M"]


def test_with_a_delay_alone_no_client_is_ended(endpoint):
    howdah = endpoint(drain_delay="0.2")
    with howdah.connect() as busy:
        busy.rows("begin")
        howdah.signal(signal.SIGINT)
        howdah.wait_for_log("draining: ")
        assert busy.value("select 'still'") == "still"
        busy.rows("commit")
        assert howdah.wait() == 0
    assert "server connections dropped, exiting" in howdah.log()


@pytest.mark.parametrize("second", [signal.SIGINT, signal.SIGTERM])
def test_a_second_signal_ends_at_once(endpoint, second):
    howdah = endpoint(drain_delay="60", drain_time="60")
    with howdah.connect() as client:
        client.rows("begin")
        howdah.signal(signal.SIGINT)
        howdah.wait_for_log("draining: ")
        howdah.signal(second)
        assert howdah.wait() == 0
        client.read_to_end()


def test_a_draining_process_is_not_taken_over(endpoint):
    """Its successor would get clients that are about to end."""
    howdah = endpoint(drain_delay="60")
    howdah.signal(signal.SIGINT)
    howdah.wait_for_log("draining: ")
    old = howdah.begin_takeover()
    assert howdah.child.wait(30) != 0
    assert old.poll() is None
    howdah.child = old


# Lifetimes --------------------------------------------------------------------------------------

def test_old_clients_end_between_transactions(make_howdah):
    """At rest, and in a transaction; the console stays, and a reload counts for who is there."""
    howdah = make_howdah()
    with wire.connect(howdah.address, user="admin", database="pgbouncer", password="secret") as console, \
            howdah.connect() as idle, howdah.connect() as busy:
        busy.rows("begin")
        howdah.write(client_lifetime="0.5")
        howdah.reload()
        assert end_of(idle) == ("57P01", "client_lifetime")
        assert busy.value("select 'still'") == "still"
        busy.send(query("commit"))
        assert end_of_transaction(busy) == ("57P01", "client_lifetime")
        assert console.rows("show version")
    with howdah.connect() as late:
        assert end_of(late) == ("57P01", "client_lifetime")


def test_a_lifetime_travels(make_howdah):
    """The successor counts from when the client connected."""
    howdah = make_howdah(client_lifetime="3")
    with howdah.connect() as client:
        assert client.value("select 1") == "1"
        howdah.take_over(client_lifetime="3600")
        assert end_of(client) == ("57P01", "client_lifetime")


# Pools behind a balancer -------------------------------------------------------------------------

class Crowd:
    """Clients of psycopg that add rows through a balancer, as the program of pgx does."""

    def __init__(self, balancer):
        self.url = f"postgresql://postgres@{balancer.host}:{balancer.port}/postgres"
        self.over = threading.Event()
        self.confirmed = self.moved = 0
        self.problems = []
        self.lock = threading.Lock()
        self.threads = [threading.Thread(target=self.work, args=(f"psycopg {number}",))
                        for number in range(CLIENTS)]
        for thread in self.threads:
            thread.start()

    def work(self, client):
        """Adds rows, each in a transaction of its own, on a connection that lasts."""
        connection, number, confirmed, moved = None, 0, 0, 0
        while not self.over.wait(0.1):
            number += 1
            while True:
                try:
                    connection = connection or psycopg.connect(self.url, autocommit=True)
                    inside = False
                    with connection.transaction():
                        inside = connection.info.transaction_status.name == "INTRANS"
                        connection.execute("insert into drained values (%s, %s)", (client, number))
                    confirmed += 1
                    break
                except psycopg.errors.AdminShutdown as error:
                    connection = None
                    moved += 1
                    if inside:
                        self.problem(client, error)
                        break
                except psycopg.Error as error:
                    connection = None
                    self.problem(client, error)
                    break
        if connection:
            connection.close()
        with self.lock:
            self.confirmed += confirmed
            self.moved += moved

    def problem(self, client, error):
        """Something that an application would notice."""
        with self.lock:
            self.problems.append(f"{client}: {error!r}")

    def result(self):
        """Ends all threads: how many rows were confirmed, how often connections moved, and problems."""
        self.over.set()
        for thread in self.threads:
            thread.join()
        return self.confirmed, self.moved, self.problems


def unevenness(log, seconds):
    """How far the ends of clients are from an even spread over a time: 0 for even, 1 for all at once."""
    ends = re.findall(r"^(\S+ \S+) UTC .*closing because: pooler is shutting down", log, re.MULTILINE)
    at = sorted(datetime.datetime.fromisoformat(time).timestamp() for time in ends)
    begun = re.search(r"^(\S+ \S+) UTC .*the listening sockets are closed", log, re.MULTILINE)[1]
    begun = datetime.datetime.fromisoformat(begun).timestamp()
    assert at, log
    shares = [min(max((time - begun) / seconds, 0), 1) for time in at]
    return len(at), max(abs(share - index / len(at)) for index, share in enumerate(shares))


def clients_of(howdahs):
    """How many clients they have, by the unix socket: TCP needs a header."""
    rows = []
    for howdah in howdahs:
        with wire.connect(howdah.socket_path, user="admin", database="pgbouncer") as console:
            rows += console_rows(console, "SHOW CLIENTS")
    return sum(row["database"] == "postgres" for row in rows)


def drained_in_turn(endpoint, scratch, postgres, rounds, seconds):
    """200 clients of two drivers behind HAProxy over two processes, which are drained in turn."""
    settings = dict(proxy_protocol="127.0.0.1", read_driver=False, workers=2, default_pool_size=10,
                    max_client_conn=1000, drain_delay=1, drain_time=seconds)
    pair = [endpoint(**settings) for _ in range(2)]
    lines = ["option httpchk GET /ready", "option redispatch",
             "default-server send-proxy-v2 check inter 100ms fall 1 rise 1"]
    lines += [f"server s{howdah.port} {howdah.host}:{howdah.port} "
              f"check port {howdah.sections['pgbouncer']['http_listen_port']}" for howdah in pair]
    postgres.sql("drop table if exists drained")
    postgres.sql("create table drained (client text, number bigint, primary key (client, number))")
    pgx = built("pgx")
    spreads = []
    with HaProxy(scratch, f"drain-{pair[0].port}", *lines) as balancer:
        crowd = Crowd(balancer)
        child = pgx.start(balancer.host, balancer.port, "postgres", "", "postgres",
                          ["built/pool"])
        try:
            machine.wait_until(lambda: clients_of(pair) >= 2 * CLIENTS, "all clients to be there")
            for howdah in pair * rounds:
                mark = howdah.log_mark()
                howdah.signal(signal.SIGINT)
                assert howdah.wait(60) == 0
                spreads.append(unevenness(howdah.log()[mark:], seconds))
                howdah.start()
                machine.wait_until(lambda: ready(howdah) == (200, "ready\n"), "it to be ready")
                time.sleep(0.5)  # HAProxy looks ten times a second.
        finally:
            confirmed, moved, problems = crowd.result()
            child.terminate()
            output, errors = child.communicate(timeout=60)
    told = json.loads(output)
    assert problems + told["problems"] == [], errors
    with postgres.connect() as direct:
        found = int(direct.value("select count(*) from drained"))
    assert found == confirmed + told["confirmed"]
    postgres.sql("drop table drained")
    return spreads, moved + told["moved"]


@haproxy.needed
@pytest.mark.slow
def test_two_processes_are_drained_in_turn(endpoint, scratch, postgres):
    spreads, moved = drained_in_turn(endpoint, scratch, postgres, rounds=1, seconds=3)
    # The second process had all clients; a pool opens connections again as it needs them. How even their ends
    # lie is a question of time, which the longer run tells.
    assert spreads[1][0] > CLIENTS
    assert moved > 0


@haproxy.needed
@pytest.mark.long
@pytest.mark.timeout(600)
def test_two_processes_are_drained_five_times(endpoint, scratch, postgres):
    spreads, moved = drained_in_turn(endpoint, scratch, postgres, rounds=5, seconds=10)
    assert all(uneven < 0.1 for count, uneven in spreads if count >= CLIENTS)
    assert sum(count for count, _ in spreads) > 5 * CLIENTS and moved > 0
