"""What operators of Kubernetes do with PgBouncer: their files, their command, their questions, their signals.

The files have the shapes of those that CloudNativePG and Crunchy's PGO write (Percona's is PGO's)."""

import os
import re
import signal
import ssl
import subprocess

import pytest

from harness import machine, wire

pytestmark = [pytest.mark.timeout(60), pytest.mark.own, pytest.mark.one_driver]

# A line as CloudNativePG's reader takes it apart; lines that begin with a tab go on with the one before.
LINE = re.compile(r"^.* \[[0-9]+\] [A-Z]+ .+$")

# What CloudNativePG's and Prometheus' exporters have metrics for: the columns, by their places.
POOLS = ("database user cl_active cl_waiting cl_active_cancel_req cl_waiting_cancel_req sv_active sv_active_cancel "
         "sv_being_canceled sv_idle sv_used sv_tested sv_login maxwait maxwait_us pool_mode load_balance_hosts").split()
STATS = ("database total_server_assignment_count total_xact_count total_query_count total_received total_sent "
         "total_xact_time total_query_time total_wait_time total_client_parse_count total_server_parse_count "
         "total_bind_count avg_server_assignment_count avg_xact_count avg_query_count avg_recv avg_sent avg_xact_time "
         "avg_query_time avg_wait_time avg_client_parse_count avg_server_parse_count avg_bind_count").split()
MODES = {"session", "transaction", "statement"}
LISTS = {"databases", "users", "pools", "free_clients", "used_clients", "login_clients", "free_servers",
         "used_servers", "dns_names", "dns_zones", "dns_queries", "dns_pending", "peers", "peer_pools"}


def make_lookup(cluster, user):
    """The role and the function that operators make for auth_query."""
    cluster.sql(f"create role {user} login password 'lookup_word'")
    cluster.sql("create role app login password 'app_word'")
    cluster.sql("create database app owner app")
    for database in ("postgres", "app"):
        cluster.sql("create function public.user_search(uname text) returns table (usename name, passwd text) "
                    "language sql security definer set search_path = pg_catalog as "
                    "'select usename, passwd from pg_shadow where usename = $1'", database)


def put(howdah, name, text):
    """A file beside the log."""
    path = os.path.join(howdah.folder, name)
    os.makedirs(os.path.dirname(path), exist_ok=True)
    machine.hand_over(os.path.dirname(path))
    howdah._write_file(path, text)
    return path


def start(howdah, path):
    """Starts the program under PgBouncer's name, its standard error in the log's file."""
    program = machine.readable_copy(howdah.program, os.path.dirname(howdah.folder))
    link = os.path.join(howdah.folder, "pgbouncer")
    os.symlink(program, link)
    with open(howdah.log_path, "a") as log:
        howdah.child = machine.spawn([link, path], cwd=howdah.folder, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
    machine.wait_until(howdah._listens, f"it to listen: {howdah.log_path}")
    with open(f"/proc/{howdah.child.pid}/comm") as name:
        assert name.read() == "pgbouncer\n"  # what `pkill --exact pgbouncer` looks for


def local(howdah, command):
    """What psql prints for a console command over the unix socket, as Howdah's own user of the system, who
    needs no password: columns and rows."""
    psql = howdah.postgres.programs.path("psql")
    said = machine.run([psql, "-XA", "-h", howdah.folder, "-p", str(howdah.port), "-U", "pgbouncer", "-c", command,
                        "pgbouncer"])
    lines = [line.split("|") for line in said.splitlines()]
    return (lines[0], lines[1:-1]) if lines[-1][0].endswith(" rows)") else (lines, [])


def check_numbers(howdah):
    """The three questions of CloudNativePG's exporter, as its code reads them."""
    columns, rows = local(howdah, "SHOW POOLS;")
    assert columns == POOLS and rows
    for row in rows:
        # The last one is PgBouncer's, too: nothing, unless there are several hosts.
        assert all(value.isdigit() for value in row[2:15]) and row[15] in MODES and row[16] == ""
    columns, rows = local(howdah, "SHOW STATS;")
    assert columns == STATS and rows and all(value.isdigit() for row in rows for value in row[1:])
    columns, rows = local(howdah, "SHOW LISTS;")
    assert len(columns) == 2 and {row[0] for row in rows} == LISTS and all(row[1].isdigit() for row in rows)


CNPG = """
[databases]
* = host={host} port={server}

[pgbouncer]
pool_mode = session
auth_user = cnpg_pooler_pgbouncer
auth_query = SELECT usename, passwd FROM public.user_search($1)
auth_dbname = postgres

admin_users = pgbouncer
auth_hba_file = {folder}/configs/pg_hba.conf
auth_type = hba
client_tls_ca_file = {authority}
client_tls_cert_file = {chain}
client_tls_key_file = {key}
client_tls_sslmode = prefer
ignore_startup_parameters = extra_float_digits,options
listen_addr = *
listen_port = {port}
log_stats = 0
server_tls_ca_file = {authority}
server_tls_cert_file = {own_chain}
server_tls_key_file = {own_key}
server_tls_sslmode = verify-ca
unix_socket_dir = {folder}
"""

CNPG_RULES = """
local pgbouncer pgbouncer peer



host all all 0.0.0.0/0 md5
host all all ::/0 md5
"""


def test_cloudnative_pg(make_howdah, own_postgres, authority):
    """Its files with a certificate for auth_user; its questions and orders; its reader of the log; SIGINT."""
    make_lookup(own_postgres, "cnpg_pooler_pgbouncer")
    server = authority.issue("/CN=cnpg-rw")
    own = authority.client("cnpg_pooler_pgbouncer")
    own_postgres.use_tls(server, authority.certificate, [
        "hostssl all cnpg_pooler_pgbouncer all cert", "host all postgres all trust", "hostssl all all all scram-sha-256"])
    howdah = make_howdah(start=False, postgres=own_postgres)
    for one in (server, own):
        machine.hand_over(one.key)
    text = CNPG.format(host=own_postgres.host, server=own_postgres.port, folder=howdah.folder, port=howdah.port,
                       authority=authority.certificate, chain=server.chain, key=server.key,
                       own_chain=own.chain, own_key=own.key)
    put(howdah, "configs/pg_hba.conf", CNPG_RULES)
    start(howdah, put(howdah, "configs/pgbouncer.ini", text))

    with howdah.connect(user="app", database="app", password="app_word") as client:
        assert client.value("select current_user") == "app"
        check_numbers(howdah)
        with pytest.raises(wire.Refused):
            howdah.connect(user="app", database="app", password="wrong")
        with pytest.raises(wire.Refused):
            howdah.connect(user="nobody", database="no\nsuch", password="wrong")
        client.error(wire.query("do $$ begin raise warning E'two\nlines'; end $$; select no\n_such"))
    local(howdah, "PAUSE")
    local(howdah, "RESUME")
    put(howdah, "configs/pgbouncer.ini", text.replace("pool_mode = session", "pool_mode = transaction"))
    local(howdah, "RELOAD")
    assert ["pool_mode", "transaction"] in [row[:2] for row in local(howdah, "SHOW CONFIG")[1]]
    put(howdah, "configs/pgbouncer.ini", text.replace("pool_mode", "pool_mod"))
    howdah.signal(signal.SIGHUP)
    howdah.wait_for_log("pool_mod")
    own_postgres.stop(signal.SIGQUIT)
    with pytest.raises(wire.Refused):
        howdah.connect(user="app", database="app", password="app_word")
    howdah.signal(signal.SIGINT)
    assert howdah.wait() == 0
    lines = howdah.log().splitlines()
    assert len(lines) > 20
    for line in lines:
        assert line.startswith("\t") or LINE.match(line), line


PGO = """# Generated by a test. DO NOT EDIT.

[pgbouncer]
%include {folder}/etc/pgbouncer.ini

[pgbouncer]
auth_file = {folder}/etc/~postgres-operator/users.txt
auth_query = SELECT usename, passwd from public.user_search($1)
auth_user = _crunchypgbouncer
client_tls_ca_file = {authority}
client_tls_cert_file = {chain}
client_tls_key_file = {key}
client_tls_sslmode = require
conffile = {folder}/etc/~postgres-operator.ini
ignore_startup_parameters = extra_float_digits
listen_addr = *
listen_port = {port}
pool_mode = {mode}
server_tls_ca_file = {authority}
server_tls_sslmode = verify-full
unix_socket_dir =

[databases]
* = host=localhost port={server}
"""


def test_pgo(make_howdah, own_postgres, authority):
    """Two headers with an include between them, conffile, TLS for everybody; the sidecar's SIGHUP."""
    make_lookup(own_postgres, "_crunchypgbouncer")
    server = authority.issue()
    own_postgres.use_tls(server, None, ["host all postgres all trust", "hostssl all all all scram-sha-256"])
    howdah = make_howdah(start=False, postgres=own_postgres)
    machine.hand_over(server.key)
    howdah.sections["pgbouncer"]["unix_socket_dir"] = ""

    def write(mode):
        return put(howdah, "etc/~postgres-operator.ini", PGO.format(
            folder=howdah.folder, authority=authority.certificate, chain=server.chain, key=server.key,
            port=howdah.port, server=own_postgres.port, mode=mode))
    put(howdah, "etc/pgbouncer.ini", "")
    put(howdah, "etc/~postgres-operator/users.txt", '"_crunchypgbouncer" "lookup_word"\n')
    start(howdah, write("session"))
    context = ssl.create_default_context(cafile=authority.certificate)

    def who():
        """The user at PostgreSQL, whom Howdah has looked up."""
        with howdah.connect(user="app", database="app", password="app_word", tls=context) as client:
            return client.value("select current_user")
    assert who() == "app"
    with pytest.raises(wire.Refused):
        howdah.connect(user="app", database="app", password="app_word")
    write("transaction")
    mark = howdah.log_mark()
    howdah.signal(signal.SIGHUP)
    howdah.wait_for_log("pool mode changed", since=mark)
    assert who() == "app"
    howdah.signal(signal.SIGINT)
    assert howdah.wait() == 0
