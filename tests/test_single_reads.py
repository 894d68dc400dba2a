"""Single reads on standbys: which go there, and that no client notices what a standby can't do."""

import os
import signal

import pytest

from harness import machine, wire
from test_reads import routed  # noqa: F401 (fixture)
from test_roles import roles, trio  # noqa: F401 (fixture)

pytestmark = [pytest.mark.timeout(120), pytest.mark.one_driver]


@pytest.fixture
def single(routed, trio):  # noqa: F811
    """A Howdah whose single reads go to standbys, and tell where."""
    def start(**settings):
        howdah = routed(**{"read_routing": "statements", "read_routing_notice": 1, "read_wait": 5, **settings})
        with howdah.connect(database="rw") as client:
            reads_at_standbys(client, trio)
        return howdah
    return start


def reads_at_standbys(client, trio):  # noqa: F811
    """Waits until single reads of the client go to standbys."""
    machine.wait_until(lambda: goes(client, "select 1") == "standby", "a read at a standby")


def goes(client, *request):
    """Where a request goes, by its NOTICE: None if it is no read, `standby`, or why to the primary."""
    request = [wire.query(part) if isinstance(part, str) else part for part in request]
    got = client.ask(*request)
    told = [message.fields()["M"] for message in got if message.tag == "N"]
    places = {": a standby": "standby", "refused this": "known", "just refused": "again",
              "has seen": "behind", "no standby fits": "no standby", "shares": "shared"}
    return next((place for text, place in places.items() if told and text in told[0]), None)


def group(sql, name="", values=()):
    """The messages of a statement by the extended protocol."""
    return [wire.parse(sql, name), wire.describe(name), wire.bind(name, values), wire.execute(), wire.sync()]


def test_what_is_a_read(single, trio):  # noqa: F811
    howdah = single()
    trio.first.sql("create sequence numbers")
    with howdah.connect(database="rw") as client:
        for text in ["select 1", "SELECT count(*) FROM written;", "table written", "values (1)",
                     "with a as (select 1) select * from a", "(select now())", "select random()",
                     "select gen_random_uuid()", "/* hello */ select 1 -- there"]:
            assert goes(client, text) == "standby", text
        for text in ["select 1; select 2", "insert into written values (1)",
                     "select * from written for update", "select set_config('a.b', 'c', false)",
                     "select pg_backend_pid()", "select txid_current()", "show work_mem",
                     "explain select 1", "select nextval('numbers')", "select last_value from numbers",
                     """ select "nextval"('numbers') """, "select ('numbers'::regclass).nextval",
                     """ select U&"\\006eextval"('numbers') """, "begin", "select 1", "commit",
                     "with a as (insert into written values (2) returning *) select * from a",
                     "select 1 into made", "select * from written for/**/share",
                     f"select '{'x' * 17000}'"]:
            assert goes(client, text) is None, text
        assert goes(client, *[wire.query("select 1")] * 2) is None, "more is behind the first one"
        client.read_until("Z")
        assert goes(client, "/* howdah.route=primary */ select 1") is None
        client.rows("set default_transaction_isolation = serializable")
        assert goes(client, "select 1") is None
        client.rows("reset default_transaction_isolation")
        client.rows("set application_name = 'mine'")
        client.rows("set work_mem = '5MB'")
        assert goes(client, "select 1") == "standby", "with its settings"
        assert client.value("select current_setting('work_mem')") == "5MB"
        client.rows("create temporary table mine (a int)")
        assert goes(client, "select 1") is None, "it keeps its server"


def test_target_session_attrs_of_a_client(single):
    """libpq's words at login, alone or in `options`, are words for `howdah.route`."""
    howdah = single()
    write = "insert into written values (0)"
    for word, read_goes, write_goes in [
            ("any", "standby", None), ("read-write", None, None), ("primary", None, None),
            ("read-only", "standby", "standby"), ("standby", "standby", "standby"),
            ("prefer-standby", "standby", "standby")]:
        for keys in [{"target_session_attrs": word}, {"options": f"-c target_session_attrs={word}"}]:
            with howdah.connect(database="rw", **keys) as client:
                assert (goes(client, "select 1"), goes(client, write)) == (read_goes, write_goes), keys
    with pytest.raises(wire.Refused) as refused:
        howdah.connect(database="rw", target_session_attrs="master")
    assert refused.value.code == "22023" and "read-write" in refused.value.fields["H"]
    # Where no reads are routed, the word has no effect.
    with howdah.connect(database="ro", target_session_attrs="primary") as client:
        assert client.value("select pg_is_in_recovery()") == "t"


def test_show_hosts_says_why_a_host_gets_no_reads(single, trio):  # noqa: F811
    howdah = single(max_standby_lag=1)
    one, other = trio.others

    def reads(host):
        return next(row["reads"] for row in howdah.console("SHOW HOSTS") if int(row["port"]) == host.port)

    def wait(host, expected):
        machine.wait_until(lambda: reads(host) == expected, f"{expected} instead of {reads(host)}", 20)

    def lags():
        trio.first.sql("insert into written values (1)")
        return reads(other) == "over max_standby_lag"
    assert reads(trio.first) == "the primary"
    for host in trio.others:
        wait(host, "yes")
    howdah.console(f"DRAIN_HOST 127.0.0.1:{one.port}")
    wait(one, "drained")
    howdah.console(f"RESUME_HOST 127.0.0.1:{one.port}")
    wait(one, "yes")
    other.sql("select pg_wal_replay_pause()")
    machine.wait_until(lags, "a standby that lags", 20)
    other.sql("select pg_wal_replay_resume()")
    wait(other, "yes")
    # What managed services do not tell. A reload begins all checks anew.
    trio.first.sql("revoke execute on function pg_control_system() from public")
    howdah.console("RELOAD")
    wait(one, "tells no LSN")
    howdah.console("SET read_consistency = eventual")
    howdah.console("SET max_standby_lag = 0")
    wait(one, "yes")
    one.stop()
    wait(one, "down")
    howdah.console("SET read_routing = off")
    wait(other, None)


def test_groups(single, trio):  # noqa: F811
    """All that a group does must be reads, and its Sync decides."""
    howdah = single()
    with howdah.connect(database="rw") as client:
        assert goes(client, *group("select 1")) == "standby"
        assert goes(client, *group("select $1::int", values=["5"])) == "standby"
        assert goes(client, wire.parse("select 7", "a"), wire.sync()) == "standby"
        bind = [wire.bind("a"), wire.execute(), wire.sync()]
        for _ in range(3):
            assert goes(client, *bind) == "standby"
        assert [got.row() for got in client.ask(*bind) if got.tag == "D"] == [[b"7"]]
        assert goes(client, wire.describe("a"), wire.sync()) == "standby"
        assert goes(client, *bind[:2], *group("select 1")) == "standby"
        # It may come in pieces.
        client.send(*group("select 8")[:3])
        client.quiet()
        got = client.ask(*group("select 8")[3:])
        assert "".join(message.tag for message in got) == "N1tT2DCZ"
        writes = group("insert into written values (1)")
        assert goes(client, *writes) is None
        assert goes(client, *bind[:2], *writes) is None
        assert goes(client, *writes[:4], *group("select 1")) is None
        flushed = [*bind[:2], wire.flush()]
        client.send(*flushed)
        assert client.read_until("C")[-1].tag == "C"
        assert "".join(message.tag for message in client.ask(wire.sync())) == "Z"
        assert client.error(wire.parse("select 9", "a"), wire.sync())["C"] == "42P05"
        assert goes(client, wire.close("a"), wire.sync()) is None
        assert client.error(wire.bind("a"), wire.sync())["C"] == "26000"


def test_what_a_standby_refuses_runs_at_the_primary(single, trio):  # noqa: F811
    """Functions that lie, unlogged tables: the client sees the primary's answer."""
    howdah = single()
    trio.first.sql("""
        create table log (a int);
        create function adds(int) returns int language sql as 'insert into log values ($1) returning a';
        create function lies(int) returns int language plpgsql stable as 'begin return adds($1); end';
        create view writes as select lies(1);
        create unlogged table fast as select 3 as b;
        create function fails(int) returns int language plpgsql stable as $$
            begin if pg_is_in_recovery() then perform adds(1); end if; return 1 / $1; end $$;
    """)
    lsn = trio.first.sql("select pg_current_wal_insert_lsn()")[0][0]
    for host in trio.others:
        machine.wait_until(lambda: host.sql(f"select pg_last_wal_replay_lsn() >= '{lsn}'")[0][0], "replay")
    with howdah.connect(database="rw") as client:
        got = client.ask(wire.query("select * from writes"))
        assert "".join(message.tag for message in got) == "NNTDCZ"
        assert [got.row() for got in got if got.tag == "D"] == [[b"1"]]
        told = [message.fields()["M"] for message in got if message.tag == "N"]
        assert "a standby" in told[0] and "just refused" in told[1]
        assert goes(client, "select * from writes") == "known"
        assert client.value("select count(*) from log") == "2"
        for _ in range(2):
            assert client.value("select b from fast") == "3"
        # A name is as if it had been given once.
        named = group("select lies($1)", "n", ["4"])
        assert "".join(message.tag for message in client.ask(*named)) == "NN1tT2DCZ"
        assert client.error(wire.parse("select 1", "n"), wire.sync())["C"] == "42P05"
        assert goes(client, wire.bind("n", ["6"]), wire.execute(), wire.sync()) == "known"
        # The primary's error is the client's.
        assert client.error(wire.query("select fails(0)"))["C"] == "22012"
        assert client.error(wire.query("select fails(0)"))["C"] == "22012"
        assert goes(client, "select fails(0)") == "standby"
        assert client.error(wire.query("select nothing from nowhere"))["C"] == "42P01"
        assert client.error(wire.query("select 1 / 0"))["C"] == "22012"
        # The standby has the statement: Howdah has answered the Parse before the refusal.
        with howdah.connect(database="rw") as other:
            for name, value in (("m", "11"), ("", "12"), ("o", "13")):
                text = f"select lies($1) -- {'named' if name else 'unnamed'}"
                with howdah.connect(database="rw") as first:
                    first.ask(*group(text, "x", ["10"])[:2], wire.sync())
                    trio.first.sql("create table if not exists forgets (a int)")
                got = other.ask(*group(text, name, [value]))
                assert "".join(message.tag for message in got if message.tag != "N") == "1tT2DCZ", (name, got)
                assert [message.row() for message in got if message.tag == "D"] == [[value.encode()]]
        # Both messages are answered, in order.
        client.send(wire.query("select lies(7)"))
        client.send(wire.query("insert into log values (8)"))
        assert client.read_until("Z")[-2].tag == client.read_until("Z")[-2].tag == "C"
        assert client.value("select count(*) from log where a in (4, 6, 7, 8)") == "4"
        with howdah.connect(database="rw") as other:
            assert other.value("select a from log where a = 8") == "8"


def test_a_statement_outlives_changes(single, trio):  # noqa: F811
    """What Howdah asks about a statement before it runs is no answer to the client."""
    howdah = single()
    with howdah.connect(database="rw") as client:
        client.rows("create table changing (a int); insert into changing values (1)")
        asks = [wire.parse("select * from changing", "s"), wire.describe("s"), wire.sync()]
        machine.wait_until(lambda: "T" in {got.tag for got in client.ask(*asks)}, "replay")
        runs = [wire.bind("s"), wire.execute(), wire.sync()]
        for change in ("create table other (a int)", "create index on changing (a)", None):
            if change:
                client.rows(change)
            for _ in range(8):
                got = client.ask(*runs)
                assert "".join(message.tag for message in got if message.tag != "N") == "2DCZ", got
        client.rows("alter table changing add b int")
        for _ in range(3):
            assert client.error(*runs)["C"] == "0A000"
        assert client.value("select b is null from changing") == "t"


def test_off_is_off(single, trio):  # noqa: F811
    """A reload turns single reads off, and on again."""
    howdah = single()
    with howdah.connect(database="rw") as client:
        assert goes(client, "select 1") == "standby"
        howdah.console("SET read_routing = transactions")
        assert goes(client, "select 1") is None and goes(client, *group("select 1")) is None
        howdah.console("SET read_routing = off")
        assert goes(client, "select 1") is None and goes(client, *group("select 1")) is None
        howdah.console("SET read_routing = statements")
        reads_at_standbys(client, trio)


def test_what_follows_the_first_row_is_the_clients(single, trio):  # noqa: F811
    howdah = single()
    trio.first.sql("""
        create function late() returns setof int language plpgsql stable as $$
            begin for i in 1..3000 loop return next i; end loop; end $$;
        create function adds(int) returns int language sql as 'insert into written values ($1) returning id';
        create function breaks(int) returns int language plpgsql stable as $$
            begin if $1 = 3000 then perform adds(1); end if; return $1; end $$;
    """)
    with howdah.connect(database="rw") as client:
        reads = "select breaks(a), repeat('x', 100) from late() a"
        machine.wait_until(lambda: "D" in {got.tag for got in client.ask(wire.query(reads))}, "replay")
        got = client.ask(wire.query(reads))
        assert "".join(message.tag for message in got).startswith("NTDDD")
        assert got[-2].fields()["C"] == "25006"
        assert goes(client, "select 1") == "standby"


def test_functions_are_asked_for_again(single, trio):  # noqa: F811
    """After a change of the schema that Howdah sees; until then, writes heal."""
    howdah = single()
    with howdah.connect(database="rw") as client:
        client.rows("create function mine() returns int language sql stable as 'select 1'")
        machine.wait_until(lambda: goes(client, "select mine()") == "standby", "a read")
        client.rows("create table log (a int)")
        client.rows("create or replace function mine() returns int language sql as "
                    "'insert into log values (1) returning a'")
        machine.wait_until(lambda: goes(client, "select mine()") is None, "the names")
        client.rows("create aggregate adds (int) (sfunc = int4pl, stype = int)")
        client.rows("create function adds_one(int, int) returns int language sql as 'select $1 + 1'")
        client.rows("create aggregate writes (int) (sfunc = adds_one, stype = int, initcond = '0')")
        assert client.value("select writes(id) from written") == "0"
        machine.wait_until(lambda: goes(client, "select writes(id) from written") is None, "the names")
        assert goes(client, "select adds(id) from written") == "standby"


def test_a_cancel_hits_the_run_under_way(single, trio):  # noqa: F811
    howdah = single()
    sleeps = """create function sleeps() returns int language plpgsql stable as
        $$ begin if not pg_is_in_recovery() then perform pg_sleep(100); end if;
        perform adds(1); return 1; end $$"""
    trio.first.sql("create function adds(int) returns int language sql as "
                   "'insert into written values ($1) returning id'")
    trio.first.sql(sleeps)
    with howdah.connect(database="rw") as client:
        client.send(wire.query("select sleeps()"))
        machine.wait_until(lambda: trio.first.sql(
            "select 1 from pg_stat_activity where wait_event = 'PgSleep'"), "the second run")
        client.cancel()
        got = client.read_until("Z")
        assert [message.fields()["C"] for message in got if message.tag == "E"] == ["57014"]
        assert goes(client, "select 1") == "standby"
        sleeps = "select count(*) from generate_series(1, 100000000000)"
        client.send(wire.query(sleeps))
        machine.wait_until(lambda: any(host.sql(
            "select 1 from pg_stat_activity where query like '%generate_series(1, 1%' and state = 'active' "
            "and pid <> pg_backend_pid()") for host in trio.others), "the read")
        client.cancel()
        got = client.read_until("Z")
        assert [message.fields()["C"] for message in got if message.tag == "E"] == ["57014"]
        # It may leave in the middle.
        client.send(wire.query(sleeps))
        client.send(wire.terminate())
    with howdah.connect(database="rw") as client:
        assert client.value("select 5") == "5"


@pytest.mark.parametrize("begin", [
    [wire.query("begin read only")], [wire.query("/* howdah.route=standby */ START TRANSACTION")],
    group("begin isolation level repeatable read, read only"), group("begin read only", "named")],
    ids=["simple", "hint", "extended", "named"])
def test_a_begin_whose_standby_is_lost_is_sent_again(single, trio, begin):  # noqa: F811
    """A BEGIN has done nothing, so it goes to another host. A read may have killed its standby."""
    howdah = single()
    trio.others[1].stop()
    with howdah.connect(database="rw", seconds=40) as client:
        pid = begun_at_dead_process(howdah, client, trio, begin)
        got = client.read_until("Z")
        assert [message.tag for message in got if message.tag in "CEZ"] == ["C", "Z"]
        # What came meanwhile is in the transaction.
        assert client.value("select pg_backend_pid()") != pid
        assert client.error(wire.query("insert into written values (1)"))["C"] == "25006"
        client.rows("rollback")
    with howdah.connect(database="rw", seconds=40) as client:
        begun_at_dead_process(howdah, client, trio, [wire.query("select 1")])
        assert client.read_to_end()[-1].fields()["C"] == "08006", "nothing else is sent again"


def begun_at_dead_process(howdah, client, trio, request):  # noqa: F811
    """Sends a request to a process of a standby that stands still, and then kills the process."""
    reads_at_standbys(client, trio)
    client.rows("begin read only")
    assert client.value("select pg_is_in_recovery()") == "t"
    pid = int(client.value("select pg_backend_pid()"))
    client.rows("commit")
    os.kill(pid, signal.SIGSTOP)
    client.send(*request)
    howdah.wait_for_pool("rw", sv_active=1)
    os.kill(pid, signal.SIGKILL)
    return str(pid)


def test_nobody_at_a_standby(single, trio):  # noqa: F811
    """Standbys go, in the middle of a read, too: the read's client gets an error, others none."""
    howdah = single()
    with howdah.connect(database="rw", seconds=40) as client:
        for host in trio.others:
            host.stop()
        assert client.value("select count(*) from written") == "0"
        assert goes(client, "select 1") == "no standby"
        trio.others[0].start()
        machine.wait_until(lambda: goes(client, "select 1") == "standby", "a read at a standby", 20)
        # Without a primary, the standby's errors are the client's.
        trio.first.stop()
        down = ("primary", "down")
        machine.wait_until(lambda: roles(howdah)[trio.first.port] == down, "a primary that is down")
        assert client.error(wire.query("select nothing from nowhere"))["C"] == "42P01"
        assert client.value("select count(*) from written") == "0"


def test_what_is_not_flushed_keeps_no_read_away(single, trio):  # noqa: F811
    """A statement that cleans a page and then fails leaves WAL behind that standbys do not get."""
    howdah = single(read_wait=0.02)
    with howdah.connect(database="rw") as client:
        client.rows("create table pruned (n int, filler text)")
        client.rows("insert into pruned select 0, repeat('x', 80) from generate_series(1, 60) g")
        client.rows("update pruned set n = n + 1 where ctid < '(0,20)'")
        reads_at_standbys(client, trio)
        failed = client.error(wire.query("/* howdah.route=primary */ select 1 / (n - n) from pruned"))
        assert failed["C"] == "22012"
        machine.wait_until(lambda: goes(client, "select 1") == "standby", "a read at a standby", 8)
