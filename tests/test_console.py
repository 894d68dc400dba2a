"""The console: what dashboards and scripts written for PgBouncer read."""

import os
import re
from datetime import datetime

import psycopg
import pytest

from harness import machine, wire
from harness.howdah import column_names, console_rows

pytestmark = [pytest.mark.timeout(60), pytest.mark.one_driver]

SOCKET_COLUMNS = ("type user database replication state addr port local_addr local_port "
                  "connect_time request_time wait wait_us close_needed ptr link remote_pid tls "
                  "application_name prepared_statements id")
BUFFER_COLUMNS = "recv_pos pkt_pos pkt_remain send_pos send_remain pkt_avail send_avail"
STATS = ("server_assignment_count xact_count query_count received sent xact_time query_time "
         "wait_time client_parse_count server_parse_count bind_count").split()
AVERAGES = ("server_assignment_count xact_count query_count recv sent xact_time query_time "
            "wait_time client_parse_count server_parse_count bind_count").split()

# Of PgBouncer 1.25.2: exactly these, since programs count them.
COLUMNS = {
    "CLIENTS": SOCKET_COLUMNS,
    "SERVERS": SOCKET_COLUMNS,
    "SOCKETS": f"{SOCKET_COLUMNS} {BUFFER_COLUMNS}",
    "ACTIVE_SOCKETS": f"{SOCKET_COLUMNS} {BUFFER_COLUMNS}",
    "MEM": "name size used free memtotal",
    "DNS_HOSTS": "hostname ttl addrs",
    "DNS_ZONES": "zonename serial count",
    "CONFIG": "key value default changeable",
    "DATABASES": "name host port database force_user pool_size min_pool_size reserve_pool_size "
                 "server_lifetime pool_mode load_balance_hosts max_connections "
                 "current_connections max_client_connections current_client_connections paused "
                 "disabled",
    "FDS": "fd task user database addr port cancel link client_encoding std_strings datestyle "
           "timezone password scram_client_key scram_server_key",
    "LISTS": "list items",
    "PEERS": "peer_id host port pool_size",
    "PEER_POOLS": "peer_id cl_active_cancel_req cl_waiting_cancel_req sv_active_cancel sv_login",
    "POOLS": "database user cl_active cl_waiting cl_active_cancel_req cl_waiting_cancel_req "
             "sv_active sv_active_cancel sv_being_canceled sv_idle sv_used sv_tested sv_login "
             "maxwait maxwait_us pool_mode load_balance_hosts",
    "STATE": "key value",
    "STATS": "database " + " ".join(f"total_{s}" for s in STATS) + " "
             + " ".join(f"avg_{s}" for s in AVERAGES),
    "STATS_TOTALS": "database server_assignment_count xact_count query_count bytes_received "
                    "bytes_sent xact_time query_time wait_time client_parse_count "
                    "server_parse_count bind_count",
    "STATS_AVERAGES": "database server_assignment_count xact_count query_count bytes_received "
                      "bytes_sent xact_time query_time wait_time avg_client_parse_count "
                      "avg_server_parse_count avg_bind_count",
    "USERS": "name pool_size reserve_pool_size pool_mode max_user_connections "
             "current_connections max_user_client_connections current_client_connections",
    "TOTALS": "name value",
    "VERSION": "version",
}

# Howdah's own, which may get more columns.
OUR_COLUMNS = {
    "CLIENTS_EXTENDED": f"{COLUMNS['CLIENTS']} wait_reason wait_place pin_reason pinned_since",
    "SERVERS_EXTENDED": f"{COLUMNS['SERVERS']} pin_reason pinned_since",
    "POOLS_EXTENDED": f"{COLUMNS['POOLS']} sv_listening sv_pinned pins unseen_state "
                      "sv_working sv_in_transaction waits_us oldest_transaction_us "
                      "sv_kept waits_in_vain",
    "HOLDERS": "database user state held_us state_us client_id client_addr application_name "
               "server_id remote_pid kept_for query",
    "QUERIES": "database user calls errors rows total_us mean_us p99_us max_us wait_us fingerprint "
               "query",
}

LISTS = ("databases users peers pools peer_pools free_clients used_clients login_clients "
         "free_servers used_servers dns_names dns_zones dns_queries dns_pending").split()


@pytest.fixture
def howdah(shared_howdah):
    """One that all tests of this file share, with something in it."""
    return shared_howdah(default_pool_size=3, workers=2, stats_users="plain_user", top_queries=100,
                         secrets={"plain_user": "secret"})


@pytest.fixture
def console(howdah):
    """An open connection to the console."""
    with howdah.connect(user="admin", database="pgbouncer", password="secret") as client:
        yield client


@pytest.mark.parametrize("what", COLUMNS | OUR_COLUMNS)
def test_columns(console, howdah, what):
    """PgBouncer's columns in PgBouncer's order and no more, and the tag SHOW."""
    with howdah.connect() as client:
        client.rows("begin")
        messages = console.ask(wire.query(f"SHOW {what};"))
        client.rows("commit")
    assert column_names(messages[0]) == (COLUMNS | OUR_COLUMNS)[what].split()
    assert messages[-2] == wire.Message("C", b"SHOW\0")
    if not what.startswith(("DNS_", "PEER")):
        assert [got for got in messages if got.tag == "D"], "no rows"


def test_strangers_are_refused_before_a_password(make_howdah):
    """As by PgBouncer: places on the console are for administrators and statisticians."""
    howdah = make_howdah(auth_type="md5", secrets={"ann": "secret", "admin": "secret"},
                         admin_users="admin", read_driver=False)
    with howdah.raw() as client:
        client.send(wire.startup("ann", "pgbouncer"))
        got = client.read()
        assert got.tag == "E"
        assert got.fields()["M"] == 'permission denied for database "pgbouncer"'
    with howdah.raw() as client:
        client.send(wire.startup("admin", "pgbouncer"))
        assert client.read().tag == "R"


def test_few_get_round_the_bounds_by_a_name(make_howdah):
    """Anybody can say an administrator's name. So many only are let in whatever is full before they
    have proved it; who has proved it counts no more."""
    howdah = make_howdah(auth_type="md5", secrets={"admin": "secret", "ann": "secret"},
                         admin_users="admin", workers=1, max_client_conn=3, read_driver=False)

    def knock():
        client = howdah.raw()
        client.send(wire.startup("admin", "pgbouncer"))
        return client, client.read()
    proved = [howdah.connect(user="admin", password="secret", database="pgbouncer")
              for _ in range(5)]
    knocking = [knock() for _ in range(64)]
    assert {got.tag for _, got in knocking} == {"R"}
    late, got = knock()
    assert got.tag == "E" and got.fields()["C"] == "53300"
    late.close()
    for client, _ in knocking:
        client.close()

    def let_in():
        client, got = knock()
        client.close()
        return got.tag == "R"
    machine.wait_until(let_in, "room for another")
    for client in proved:
        client.close()


def test_a_proof_is_short(make_howdah):
    """What a digest or SCRAM takes is held of who has proved nothing, not what a password may."""
    howdah = make_howdah(auth_type="md5", secrets={"ann": "secret"}, read_driver=False)
    with howdah.raw() as client:
        client.send(wire.startup("ann", "postgres"))
        assert client.read().tag == "R"
        client.send(b"p" + (5000).to_bytes(4, "big"))
        assert client.read_to_end()[-1].tag == "E"


def test_help(console):
    """The usage comes as a notice."""
    messages = console.ask(wire.query("SHOW HELP"))
    assert [got.tag for got in messages] == ["N", "C", "Z"]
    fields = messages[0].fields()
    assert fields["M"] == "Console usage"
    assert "SHOW" in fields["D"] and "PAUSE" in fields["D"]
    for what in COLUMNS | OUR_COLUMNS:
        assert re.search(rf"[ |]{what}\b", fields["D"]), what


def test_two_names(howdah):
    """The console answers to both names."""
    for database in ("pgbouncer", "howdah"):
        with howdah.connect(user="admin", database=database, password="secret") as client:
            version = client.value("SHOW VERSION")
    assert re.fullmatch(r"PgBouncer 1\.25\.2\.0 \(Howdah \d+\.\d+\.\d+\)", version)
    # pgbouncer_fdw's way to three numbers.
    parts = re.search(r"\d.+", version)[0].split(".")[:3]
    assert [int(part) for part in parts] == [1, 25, 2]


def test_welcome(console):
    """What drivers and psql look at."""
    assert console.parameters["server_version"] == "1.25.2/bouncer"
    assert console.parameters["client_encoding"] == "UTF8"
    assert console.parameters["standard_conforming_strings"] == "on"


def test_pools(howdah):
    """Counts of clients and servers by state, over all workers."""
    clients = [howdah.connect() for _ in range(5)]
    try:
        for client in clients[:3]:
            client.rows("begin")
        for client in clients[3:]:
            client.send(wire.query("select 1"))
        row = howdah.wait_for_pool(cl_active=3, cl_waiting=2, sv_active=3)
        assert row["pool_mode"] == "transaction"
        states = [row["state"] for row in howdah.console("SHOW CLIENTS")
                  if row["database"] == "postgres"]
        assert sorted(states) == ["active"] * 3 + ["waiting"] * 2
        servers = [row for row in howdah.console("SHOW SERVERS")]
        assert [row["state"] for row in servers] == ["active"] * 3
        pids = {client.value("select pg_backend_pid()") for client in clients[:3]}
        assert {row["remote_pid"] for row in servers} == pids
    finally:
        for client in clients:
            client.close()
    howdah.wait_for_pool(cl_active=0, cl_waiting=0, sv_active=0)


def test_links(howdah):
    """A client's link is its server's ptr, and the other way round; ids are all different."""
    with howdah.connect(application_name="linked") as client:
        client.rows("begin")
        clients = howdah.console("SHOW CLIENTS")
        servers = howdah.console("SHOW SERVERS")
        ours = next(row for row in clients if row["application_name"] == "linked")
        theirs = next(row for row in servers if row["link"] == ours["ptr"])
        assert ours["link"] == theirs["ptr"]
        assert (ours["type"], theirs["type"]) == ("C", "S")
        ids = [row["id"] for row in clients + servers]
        assert len(set(ids)) == len(ids)


def totals(howdah, database="postgres"):
    """A database's row of SHOW STATS_TOTALS, as numbers."""
    for row in howdah.console("SHOW STATS_TOTALS"):
        if row.pop("database") == database:
            return {key: int(value) for key, value in row.items()}
    return {}


def test_stats(make_howdah):
    """Counts of transactions, queries, statements and logins are exact."""
    howdah = make_howdah(workers=2)
    with howdah.connect() as client:
        client.value("select 1")
        before = totals(howdah)
        client.rows("begin")
        client.rows("select 2")
        client.rows("commit")
        client.ask(wire.parse("select 3", "s1"), wire.bind("s1"), wire.execute(), wire.sync())
        client.ask(wire.bind("s1"), wire.execute(), wire.sync())
        after = totals(howdah)
    grown = {key: after[key] - before[key] for key in after}
    assert grown["xact_count"] == 3
    assert grown["query_count"] == 5
    assert grown["client_parse_count"] == 1
    assert grown["server_parse_count"] == 1
    assert grown["bind_count"] == 2
    assert grown["server_assignment_count"] == 3
    assert grown["bytes_received"] > 0 and grown["bytes_sent"] > 0


def test_stats_are_logged_once_for_all_workers(make_howdah):
    howdah = make_howdah(workers=3, stats_period=1)
    line = r"(\d\d:\d\d:\d\d\.\d+).*stats: \d+ xacts/s"
    howdah.wait_for_log(f"(?s){line}.*{line}.*{line}", seconds=30)
    times = [datetime.strptime(at, "%H:%M:%S.%f") for at in re.findall(line, howdah.log())]
    # The workers' periods end within one look at the clock; each has its own line otherwise.
    apart = [(later - earlier).total_seconds() for earlier, later in zip(times, times[1:])]
    assert all(seconds > 0.3 or seconds < 0 for seconds in apart), apart


def test_lists(console):
    """The names of SHOW LISTS in order."""
    rows = console_rows(console, "SHOW LISTS")
    assert [row["list"] for row in rows] == LISTS


def test_config(console):
    """Every setting of PgBouncer's is there, with its default."""
    rows = {row["key"]: row for row in console_rows(console, "SHOW CONFIG")}
    assert len(rows) > 80
    assert rows["default_pool_size"]["value"] == "3"
    assert rows["default_pool_size"]["default"] == "20"
    assert rows["query_wait_timeout"]["default"] == "120"
    assert rows["server_reset_query"]["value"] == "DISCARD ALL"
    assert rows["listen_port"]["changeable"] == "no"
    assert rows["pool_mode"]["changeable"] == "yes"


def test_own_settings_are_shown(console, driver):
    """What was chosen for workers and driver."""
    rows = {row["key"]: row["value"] for row in console_rows(console, "SHOW CONFIG")}
    assert rows["io_driver"] == driver
    assert rows["workers"] == "2"
    state = {row["key"]: row["value"] for row in console_rows(console, "SHOW STATE")}
    assert state["active"] == "yes" and state["paused"] == "no" and state["suspended"] == "no"


@pytest.mark.parametrize("command, text, hint", [
    ("DANCE", "invalid command 'DANCE', use SHOW HELP;", None),
    ("SHOW POOL", "invalid command 'SHOW POOL', use SHOW HELP;", "did you mean SHOW POOLS?"),
    ("PAUSE nowhere", "no such database: nowhere", None),
    ("RESUME", "pooler is not paused/suspended", None),
    ("RESUME postgres", "database postgres is not paused", None),
])
def test_errors(make_howdah, postgres, command, text, hint):
    """Errors as PgBouncer words them; the console goes on."""
    howdah = make_howdah(databases={"postgres": f"host={postgres.host} port={postgres.port}"})
    console = howdah.connect(user="admin", database="pgbouncer", password="secret")
    error = console.error(wire.query(command))
    assert (error["S"], error["C"], error["M"]) == ("ERROR", "08P01", text)
    assert error.get("H") == hint
    assert console.value("SHOW VERSION")
    console.close()


def test_users_found_by_auth_query(make_howdah, postgres):
    """SHOW USERS has all who are here, and forced users, not only those of the user file."""
    target = f"host={postgres.host} port={postgres.port} dbname=postgres"
    howdah = make_howdah(databases={"postgres": target, "forced": target + " user=limited"},
                         auth_type="md5", auth_user="postgres")
    with howdah.connect(user="scram_user", password="secret") as client:
        client.rows("select 1")
        rows = {row["name"]: row for row in howdah.console("SHOW USERS")}
        assert set(rows) == {"admin", "limited", "pgbouncer", "postgres", "scram_user"}
        here = rows["scram_user"]
        assert here["current_client_connections"] == here["current_connections"] == "1"


def test_disabled_database_of_the_star(make_howdah):
    """SHOW DATABASES has what was paused or disabled, if nobody has used it yet, too."""
    howdah = make_howdah()
    for command, column in (("DISABLE other", "disabled"), ("PAUSE other", "paused")):
        howdah.console(command)
        row = next(row for row in howdah.console("SHOW DATABASES") if row["name"] == "other")
        assert row[column] == "1"


def test_set_in_vain(make_howdah):
    """It is said which setting is wrong, and how, also in the log, and what takes a restart."""
    howdah = make_howdah()
    for command, why in (("query_timeout=soon", "must be a number of seconds"),
                         ("nosuch=1", "unknown setting nosuch")):
        said = f"SET failed: {command.split('=')[0]}: {why}"
        with pytest.raises(wire.Refused, match=said):
            howdah.console(f"SET {command}")
        howdah.wait_for_log(rf"WARNING C-0x\w+: pgbouncer/admin@\S+ pooler error: {said}")
    with howdah.connect(user="admin", database="pgbouncer", password="secret") as console:
        got = console.ask(wire.query("SET listen_port=1"))
    notices = [message.fields()["M"] for message in got if message.tag == "N"]
    assert len(notices) == 1 and "takes a restart" in notices[0]


@pytest.mark.parametrize("options", [
    {"options": "-c lock_timeout=3s"}, {"geqo": "off"}, {"TimeZone": "UTC"}, {"app.tenant": "x"},
    {"options": "-B 5 -c x=y"}, {"search_path": "a", "work_mem": "1MB"}])
def test_settings_of_a_session_have_no_effect(howdah, options):
    """Neither at login (PGOPTIONS, PGGEQO and the like) nor later."""
    with howdah.connect(user="admin", database="pgbouncer", password="secret", **options) as client:
        for sql in ("SET TIME ZONE 'UTC'", "SET lock_timeout = '3s'", "SET SESSION geqo TO off",
                    "SET search_path = a, b", "SET app.tenant = 'x'"):
            got = client.ask(wire.query(sql))
            assert [message.tag for message in got] == ["N", "C", "Z"], (sql, got)
            assert got[0].fields()["M"] == "SET ignored" and got[1].body == b"SET\0"


def test_there_is_no_catalogue(console):
    """Programs that take the console for a database meet PostgreSQL's errors, and go on."""
    for sql, sqlstate in (("SELECT nspname FROM pg_catalog.pg_namespace ORDER BY 1", "42P01"),
                          ("select * from current_schemas(true)", "42P01"),
                          ("select pg_backend_pid()", "42883")):
        for messages in ([wire.query(sql)], [wire.parse(sql), wire.sync()]):
            assert console.error(*messages)["C"] == sqlstate, sql
    assert console.value("SHOW VERSION")


def test_stats_user_may_only_look(howdah):
    """`stats_users` may SHOW and nothing else."""
    with howdah.connect(user="plain_user", database="pgbouncer", password="secret") as client:
        assert console_rows(client, "SHOW POOLS") is not None
        for command in ("RELOAD", "PAUSE", "SHUTDOWN"):
            error = client.error(wire.query(command))
            assert (error["M"], error["S"]) == ("admin access needed", "ERROR")


def test_pause_and_resume(make_howdah, postgres):
    """PAUSE waits for transactions to end, then nobody gets a server until RESUME."""
    howdah = make_howdah(workers=2, default_pool_size=3)
    with howdah.connect() as busy, howdah.connect() as next_one, \
            howdah.connect(user="admin", database="pgbouncer", password="secret") as console:
        busy.rows("begin")
        console.send(wire.query("PAUSE"))
        machine.wait_until(howdah.paused, "the pause to begin")
        next_one.send(wire.query("select 'late'"))
        howdah.wait_for_pool(cl_waiting=1)
        assert busy.value("select 'still in its transaction'")
        assert console.quiet()
        busy.rows("commit")
        assert [got.tag for got in console.read_until()] == ["C", "Z"]
        row = howdah.pool()
        assert row["sv_idle"] + row["sv_active"] + row["sv_used"] == 0
        assert howdah.paused()
        assert next_one.quiet()
        console.ask(wire.query("RESUME"))
        assert [got.row() for got in next_one.read_until() if got.tag == "D"] == [[b"late"]]


def test_pause_of_one_database(make_howdah):
    """PAUSE of one database leaves the others alone."""
    howdah = make_howdah(workers=2)
    with howdah.connect() as one, howdah.connect(database="other") as other:
        one.value("select 1")
        howdah.console("PAUSE postgres")
        one.send(wire.query("select 'late'"))
        assert other.value("select 1") == "1"
        paused = {row["name"]: row["paused"] for row in howdah.console("SHOW DATABASES")}
        assert paused["postgres"] == "1"
        howdah.console("RESUME postgres")
        assert [got.row() for got in one.read_until() if got.tag == "D"] == [[b"late"]]


def test_shutdown(make_howdah):
    """SHUTDOWN ends the process at once."""
    howdah = make_howdah()
    with howdah.connect() as client:
        client.rows("begin")
        with pytest.raises((wire.Ended, ConnectionError)):
            howdah.console("SHUTDOWN")
        assert howdah.wait() == 0


@pytest.mark.parametrize("command", ["SHUTDOWN WAIT_FOR_CLIENTS", "SHUTDOWN WAIT_FOR_SERVERS"])
def test_gentle_shutdown(make_howdah, command):
    """The two gentle ways: nobody new comes in, work is finished, the process ends."""
    howdah = make_howdah(default_pool_size=1)
    busy = howdah.connect()
    busy.rows("begin")
    howdah.console(command)
    assert busy.value("select 'still'") == "still"
    with pytest.raises((ConnectionRefusedError, wire.Refused, wire.Ended, ConnectionResetError)):
        howdah.connect()
    busy.rows("commit")
    busy.send(wire.terminate())
    assert howdah.wait() == 0


def test_console_by_psycopg(howdah):
    """psycopg's simple protocol works on the console, as monitoring agents use it."""
    with psycopg.connect(host=howdah.host, port=howdah.port, user="admin", password="secret",
                         dbname="pgbouncer", autocommit=True) as connection:
        cursor = psycopg.ClientCursor(connection)
        cursor.execute("SHOW POOLS")
        assert cursor.description[0].name == "database"
        assert isinstance(cursor.fetchall(), list)


def test_console_on_unix_socket_without_password(make_howdah):
    """User pgbouncer on the unix socket, from the same unix user, is an administrator. Others
    are not: only the process's own user is let in."""
    howdah = make_howdah(auth_type="scram-sha-256")
    if os.geteuid() == 0:
        # We are another unix user than the process: no way in without a password.
        with pytest.raises(wire.Refused):
            wire.connect(howdah.socket_path, user="pgbouncer", database="pgbouncer").close()
    else:
        with wire.connect(howdah.socket_path, user="pgbouncer", database="pgbouncer") as client:
            assert client.value("SHOW VERSION")


def test_sockets(make_howdah):
    """SHOW SOCKETS has both sides, SHOW ACTIVE_SOCKETS those at work."""
    howdah = make_howdah()
    with howdah.connect() as client, howdah.connect():
        client.rows("begin")
        states = sorted(row["state"] for row in howdah.console("SHOW SOCKETS")
                        if row["database"] == "postgres")
        assert states == ["cl_active", "cl_idle", "sv_active"]
        states = sorted(row["state"] for row in howdah.console("SHOW ACTIVE_SOCKETS"))
        assert states == ["cl_active", "sv_active"]
        caches = {row["name"]: row for row in howdah.console("SHOW MEM")}
        assert int(caches["server_cache"]["used"]) == 1


def test_limits_of_the_console(make_howdah):
    """Who may look is counted and bounded as every client; who may do anything always gets in.
    max_client_conn counts neither."""
    howdah = make_howdah(max_user_client_connections=1, max_client_conn=1,
                         stats_users="plain_user", secrets={"plain_user": "secret"})
    with howdah.connect(user="plain_user", database="pgbouncer") as client:
        with pytest.raises(wire.Refused) as refused:
            howdah.connect(user="plain_user", database="pgbouncer")
        assert "max_user_client_connections" in refused.value.text
        counts = {row["name"]: row["current_client_connections"]
                  for row in console_rows(client, "SHOW USERS")}
        assert counts["plain_user"] == "1"
        with howdah.connect(user="admin", database="pgbouncer"):
            howdah.console("SHOW VERSION")
        howdah.connect().close()


def test_ids_are_one_sequence(make_howdah):
    """Clients and servers of all workers are numbered together, without gaps."""
    howdah = make_howdah(workers=2)

    def numbers():
        for _ in range(6):
            with howdah.connect(user="admin", database="pgbouncer", password="secret") as client:
                yield max(int(row["id"]) for row in console_rows(client, "SHOW CLIENTS"))

    def without_gaps():
        seen = list(numbers())
        return seen == list(range(seen[0], seen[0] + 6))
    # A worker may come late to who looked whether it listens, and number them only then.
    assert any(without_gaps() for _ in range(3))


def test_a_server_that_serves_once(make_howdah):
    """With server_lifetime = 0 the server that a login opened serves its client, and nobody else."""
    howdah = make_howdah(server_lifetime=0)
    with howdah.connect() as client:
        pids = [client.value("select pg_backend_pid()") for _ in range(2)]
    assert pids[0] != pids[1]
    assert howdah.wait_for_lines("new connection to server", 2) == 2
