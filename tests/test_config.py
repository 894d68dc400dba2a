"""pgbouncer.ini, userlist.txt, flags and listeners, with PgBouncer's habits."""

import os
import re
import socket
import subprocess

import pytest

from harness import machine, wire

pytestmark = pytest.mark.timeout(60)


def test_version(make_howdah):
    """-V's first line has the version in SHOW VERSION, and the other way round."""
    howdah = make_howdah()
    shown = howdah.console("SHOW VERSION")[0]["version"]
    ours = re.fullmatch(r"PgBouncer 1\.25\.2\.0 \((Howdah \d+\.\d+\.\d+)\)", shown)[1]
    for flag in ("-V", "--version"):
        code, said = howdah.run_to_end(flag)
        assert code == 0
        assert said.splitlines()[0] == f"{ours} (PgBouncer 1.25.2 compatible)"
    code, said = howdah.run_to_end("-V", "-v")
    facts = [line.split(":")[0] for line in said.splitlines()[1:]]
    assert facts == ["commit", "compiler", "target", "features", "TLS", "drivers", "kernel"], said


def test_help(make_howdah):
    """-h names the flags and ends with 0."""
    howdah = make_howdah(start=False)
    for flag in ("-h", "--help"):
        code, said = howdah.run_to_end(flag)
        assert code == 0
        for word in ("--check", "--daemon", "--quiet", "--verbose", "--user", "--version"):
            assert word in said


def test_unknown_flag(make_howdah):
    """A flag nobody knows."""
    code, said = make_howdah(start=False).run_to_end("--elephant", "x.ini")
    assert code != 0 and "--elephant" in said


def test_workers_and_driver_by_flag(make_howdah, driver):
    """Our own settings may come from the command line, and go before the file."""
    howdah = make_howdah(start=False, workers=1, driver="auto")
    howdah.child = howdah.spawn("--quiet", "--workers", "3", "--io-driver", driver,
                                howdah.ini_path)
    machine.wait_until(howdah._listens, "it to listen")
    assert howdah.setting("io_driver") == driver
    assert howdah.setting("workers") == "3"


def test_automatic_choices_are_logged(make_howdah):
    """workers = 0 and io_driver = auto: what was chosen is in the log and on the console."""
    howdah = make_howdah(workers=0, driver="auto")
    chosen = howdah.setting("io_driver")
    assert chosen == ("io_uring" if machine.io_uring_works() else "epoll")
    said = howdah.wait_for_log(rf"(\d+) workers? on (\d+) cores?.*{chosen}")
    # A container may be allowed fewer than there are.
    assert howdah.setting("workers") == said[1] == said[2]
    assert 1 <= int(said[2]) <= len(os.sched_getaffinity(0))


def test_quirks_of_the_file(make_howdah, postgres):
    """Indented lines, both comment signs, repeated keys and sections, %include, odd numbers."""
    howdah = make_howdah(start=False)
    with open(howdah.ini_path) as file:
        own = file.read().split("[pgbouncer]")[1]
    more = os.path.join(howdah.folder, "more.ini")
    howdah._write_file(more, "[databases]\nincluded = host={} port={} dbname=postgres\n".format(
        postgres.host, postgres.port))
    howdah._write_file(howdah.ini_path, f"""
; a comment
# another
    [databases]
      indented = host={postgres.host} port={postgres.port} dbname='postgres' pool_size=2
    quoted=host={postgres.host} port={postgres.port} dbname=postgres connect_query='select ''x'''
%include {more}
[pgbouncer]
default_pool_size = 99
max_db_connections = 99
[pgbouncer]
{own}
default_pool_size = 3
default_pool_size = 0x10
reserve_pool_size = 010
query_timeout = 1.5
POOL_MODE_COMMENT_FOLLOWS =
[users]
postgres =
""".replace("POOL_MODE_COMMENT_FOLLOWS =\n", ""))
    howdah.start()
    assert howdah.setting("default_pool_size") == "16"
    assert howdah.setting("reserve_pool_size") == "8"
    assert howdah.setting("query_timeout") == "1.5"
    # A new [pgbouncer] section starts from the defaults again.
    assert howdah.setting("max_db_connections") == "0"
    for database in ("indented", "quoted", "included"):
        with howdah.connect(database=database) as client:
            assert client.value("select current_database()") == "postgres"


def test_star_database(make_howdah):
    """An entry `*` stands for every name; the log tells of each."""
    howdah = make_howdah()
    with howdah.connect(database="other") as client:
        assert client.value("select current_database()") == "other"
    howdah.wait_for_log("registered new auto-database")


def test_database_is_the_user_by_default(make_howdah):
    """Without a database in the startup packet the user's name is meant."""
    howdah = make_howdah()
    with howdah.raw() as client:
        client.login("postgres", None)
        assert client.value("select current_database()") == "postgres"


def test_settings_of_a_database_entry(make_howdah, postgres):
    """pool_mode, connection settings and connect_query of an entry."""
    target = f"host={postgres.host} port={postgres.port} dbname=postgres"
    howdah = make_howdah(databases={
        "sessions": f"{target} pool_mode=session",
        "tuned": f"{target} application_name=tuned timezone=Asia/Tokyo datestyle=German "
                 f"client_encoding=LATIN1",
        "prepared": f"{target} connect_query='set search_path to pg_catalog'",
    })
    with howdah.connect(database="sessions") as client:
        client.rows("set work_mem to '7MB'")
        assert howdah.pool("sessions")["cl_active"] == 1
        assert client.value("show work_mem") == "7MB"
    with howdah.connect(database="tuned") as client:
        assert client.value("show timezone") == "Asia/Tokyo"
        assert client.parameters["TimeZone"] == "Asia/Tokyo"
        assert client.value("show application_name") == "tuned"
    with howdah.connect(database="prepared") as client:
        assert client.value("show search_path") == "pg_catalog"


def test_user_pool_mode(make_howdah):
    """A user's pool_mode goes before the global one."""
    howdah = make_howdah(users={"plain_user": "pool_mode=session"},
                         secrets={"plain_user": "secret"})
    with howdah.connect(user="plain_user") as client:
        client.rows("set work_mem to '7MB'")
        assert client.value("show work_mem") == "7MB"
        assert howdah.pool(user="plain_user")["pool_mode"] == "session"


def test_session_reset(make_howdah):
    """server_reset_query cleans a server between two sessions."""
    howdah = make_howdah(pool_mode="session", default_pool_size=1)
    with howdah.connect() as client:
        pid = client.value("select pg_backend_pid()")
        client.rows("set work_mem to '7MB'; create temp table left_over (a int); "
                    "prepare p as select 1")
    with howdah.connect() as client:
        assert client.value("select pg_backend_pid()") == pid
        assert client.value("show work_mem") != "7MB"
        assert client.error(wire.query("select * from left_over"))["C"] == "42P01"
        assert client.error(wire.query("execute p"))["C"] == "26000"


def test_startup_parameters(make_howdah):
    """What drivers send is accepted without any setting; ignored ones are ignored."""
    howdah = make_howdah(ignore_startup_parameters="colour, options")
    with howdah.connect(extra_float_digits="3", colour="red",
                        options="-c enable_seqscan=off") as client:
        assert client.value("select 1") == "1"
    plain = make_howdah(ignore_startup_parameters=None)
    with plain.connect(extra_float_digits="2") as client:
        assert client.value("select 1") == "1"


def test_tracked_settings_in_options(make_howdah):
    """Tracked settings may come by `options`."""
    howdah = make_howdah()
    with howdah.connect(options=r"-c timezone=Europe/Paris --datestyle=SQL,\ DMY "
                                "-capplication_name=by-options") as client:
        assert client.value("show timezone") == "Europe/Paris"
        assert client.value("show datestyle") == "SQL, DMY"
        assert client.value("show application_name") == "by-options"


def test_track_extra_parameters(make_howdah, newest_postgres):
    """Reported settings named there are kept for each client; PostgreSQL 18 reports
    search_path."""
    if newest_postgres.version < 18:
        pytest.skip("search_path is reported from version 18 on")
    howdah = make_howdah(postgres=newest_postgres, default_pool_size=1,
                         track_extra_parameters="IntervalStyle, search_path")
    with howdah.connect() as one, howdah.connect() as two:
        one.rows("set search_path to pg_catalog")
        two.rows("set search_path to public, pg_catalog")
        assert one.value("show search_path") == "pg_catalog"
        assert two.value("show search_path") == "public, pg_catalog"


def test_application_name_add_host(make_howdah):
    """The client's address is put behind its application_name."""
    howdah = make_howdah(application_name_add_host=1)
    with howdah.connect(application_name="app") as client:
        port = client.socket.getsockname()[1]
        assert client.value("show application_name") == f"app - 127.0.0.1:{port}"


def test_unix_socket(make_howdah):
    """Clients by the unix socket; its mode; servers by the unix socket."""
    howdah = make_howdah(unix_socket_mode="0750")
    assert os.stat(howdah.socket_path).st_mode & 0o777 == 0o750
    with wire.connect(howdah.socket_path, "postgres", "postgres") as client:
        assert client.value("select 1") == "1"
    folder = howdah.postgres.socket_folder
    by_socket = make_howdah(databases={"*": f"host={folder} port={howdah.postgres.port}"})
    with by_socket.connect() as client:
        assert client.value("select inet_client_addr() is null") == "t"


def has_ipv6():
    """Whether this machine has an IPv6 loopback address."""
    try:
        with socket.socket(socket.AF_INET6) as probe:
            probe.bind(("::1", 0))
            return True
    except OSError:
        return False


@pytest.mark.skipif(not has_ipv6(), reason="no IPv6 on this machine")
@pytest.mark.parametrize("listen", ["127.0.0.1, ::1", "*"])
def test_several_addresses(make_howdah, listen):
    """Several addresses, IPv6 among them."""
    howdah = make_howdah(listen_addr=listen)
    for host in ("127.0.0.1", "::1"):
        with wire.connect((host, howdah.port), "postgres", "postgres") as client:
            assert client.value("select 1") == "1"
    howdah.wait_for_log(r"\[::1\]:\d+ login attempt")


def test_host_names(make_howdah, postgres):
    """A server by name."""
    howdah = make_howdah(databases={"*": f"host=localhost port={postgres.port}"})
    with howdah.connect() as client:
        assert client.value("select 1") == "1"


def test_unknown_host_name(make_howdah):
    """A name that does not resolve."""
    howdah = make_howdah(client_login_timeout=2,
                         databases={"*": f"host={machine.NO_HOST} port=5432"})
    with pytest.raises(wire.Refused):
        howdah.connect()
    howdah.wait_for_log("server DNS lookup failed")


def test_what_the_library_cannot_do_is_said(make_howdah):
    """A value that the TLS library can't do is named in the log, once, and does no harm."""
    howdah = make_howdah(client_tls_dheparams="legacy", so_reuseport=1)
    with howdah.connect() as client:
        assert client.value("select 1") == "1"
    assert howdah.wait_for_lines("client_tls_dheparams", 1) == 1


def test_reload_changes_pools(make_howdah, postgres):
    """A new target in the file is taken up: idle clients get servers there."""
    howdah = make_howdah(databases={
        "moving": f"host={postgres.host} port={postgres.port} dbname=postgres"})
    with howdah.connect(database="moving") as client:
        assert client.value("select current_database()") == "postgres"
        howdah.sections["databases"]["moving"] = (
            f"host={postgres.host} port={postgres.port} dbname=other")
        howdah.write()
        howdah.reload()
        assert client.value("select current_database()") == "other"


def test_reload_changes_the_forced_user(make_howdah, postgres):
    """Clients stay, idle, waiting or in a transaction, and their next server is the new user's; an
    entry that loses its forced user keeps it."""
    target = f"host={postgres.host} port={postgres.port} dbname=postgres"
    howdah = make_howdah(databases={"forced": target + " user=plain_user pool_size=1"}, workers=2)
    whoami = "select current_user"
    clients = [howdah.connect(database="forced") for _ in range(3)]
    idle, linked, waiting = clients
    assert idle.value(whoami) == "plain_user"
    linked.rows("begin")
    waiting.send(wire.query(whoami))
    howdah.wait_for_pool("forced", "plain_user", cl_waiting=1)
    howdah.sections["databases"]["forced"] = target + " user=limited pool_size=1"
    howdah.write()
    howdah.reload()
    assert linked.value(whoami) == "plain_user"
    rows = [got.row() for got in waiting.read_until() if got.tag == "D"]
    assert rows == [[b"limited"]]
    linked.rows("commit")
    for client in clients:
        assert client.value(whoami) == "limited"
    howdah.wait_for_pool("forced", "plain_user", cl_active=0, cl_waiting=0, sv_idle=0, sv_active=0)
    howdah.sections["databases"]["forced"] = target
    howdah.write()
    howdah.reload()
    howdah.wait_for_log("WARNING database forced: losing forced user not supported, keeping old")
    for client in clients:
        assert client.value(whoami) == "limited"
        client.close()


def test_reload_drops_databases(make_howdah, postgres):
    """An entry that is gone from the file: its clients are told and closed."""
    target = f"host={postgres.host} port={postgres.port} dbname=postgres"
    howdah = make_howdah(databases={"stays": target, "goes": target})
    with howdah.connect(database="stays") as stays, howdah.connect(database="goes") as goes:
        goes.value("select 1")
        del howdah.sections["databases"]["goes"]
        howdah.write()
        howdah.reload()
        errors = [got.fields()["M"] for got in goes.read_to_end() if got.tag == "E"]
        assert errors == ["database removed"]
        assert stays.value("select 1") == "1"
    howdah.wait_for_log("WARNING dropping database 'goes' as it does not exist anymore")
    machine.wait_until(lambda: howdah.pool("goes") is None, "the pool to be forgotten")


def test_reload_takes_the_star_away(make_howdah, postgres):
    """Who came by `*` stays; nobody else comes."""
    target = f"host={postgres.host} port={postgres.port} dbname=postgres"
    howdah = make_howdah(databases={"other": target, "*": target})
    with howdah.connect() as client:
        assert client.value("select 1") == "1"
        howdah.sections["databases"] = {"other": target}
        howdah.write()
        howdah.reload()
        assert client.value("select 1") == "1"
        with pytest.raises(wire.Refused, match="does not exist"):
            howdah.connect()
    machine.wait_until(lambda: howdah.pool("postgres") is None, "the pool to be forgotten")


@pytest.mark.parametrize("workers", [1, 2])
def test_reload_makes_a_pool_smaller(make_howdah, postgres, workers):
    """Idle servers above the new size go at once, busy ones when they are given back."""
    target = f"host={postgres.host} port={postgres.port}"
    howdah = make_howdah(databases={"postgres": f"{target} pool_size=8"}, workers=workers)
    clients = [howdah.connect() for _ in range(6)]
    for client in clients:
        client.rows("begin")
    for client in clients[3:]:
        client.rows("commit")
    # More than six, if one of them was lent a server while its own was on the way.
    opened = sum(row["database"] == "postgres" for row in howdah.console("SHOW SERVERS"))
    howdah.sections["databases"]["postgres"] = f"{target} pool_size=2"
    howdah.write()
    howdah.reload()
    howdah.wait_for_pool(sv_active=3, sv_idle=0)
    for client in clients[:3]:
        client.rows("commit")
    howdah.wait_for_pool(sv_active=0, sv_idle=2)
    closed = howdah.wait_for_lines("closing because: too many servers in the pool", opened - 2)
    assert closed == opened - 2 >= 4
    for client in clients:
        client.close()


def test_daemon(make_howdah):
    """-d goes to the background and writes its pid."""
    howdah = make_howdah(start=False)
    pidfile = os.path.join(howdah.folder, "pid")
    howdah.write(pidfile=pidfile)
    code, said = howdah.run_to_end("-d", howdah.ini_path)
    assert code == 0, said
    machine.wait_until(lambda: os.path.exists(pidfile) and open(pidfile).read().strip(),
                       "the pid file")
    pid = int(open(pidfile).read())
    try:
        def listens():
            try:
                with howdah.connect() as client:
                    return client.value("select 1") == "1"
            except OSError:
                return False
        machine.wait_until(listens, "it to listen")
    finally:
        os.kill(pid, 3)
    machine.wait_until(lambda: not os.path.exists(pidfile), "the pid file to go")


def test_pid_file_of_a_living_one(make_howdah):
    """Two with one pid file: the second does not start."""
    howdah = make_howdah(start=False)
    pidfile = os.path.join(howdah.folder, "pid")
    howdah.write(pidfile=pidfile)
    howdah.start()
    second = make_howdah(start=False, pidfile=pidfile)
    code, said = second.run_to_end(second.ini_path)
    assert code == 1
    assert "another instance running" in said + second.log()
    assert howdah.running()


def test_who_reads_a_page_may_stop(make_howdah):
    """`howdah --settings | head` is no error."""
    howdah = make_howdah(start=False)
    for option in ("--settings", "--metrics", "--help"):
        reader, pipe = os.pipe()
        os.close(reader)
        child = howdah.spawn(option, stdout=pipe, stderr=subprocess.PIPE, text=True)
        os.close(pipe)
        _, said = child.communicate(timeout=30)
        assert (child.returncode, said) == (0, ""), option
