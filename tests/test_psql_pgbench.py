"""PostgreSQL's own programs through Howdah."""

import os
import re

import pytest

from harness import machine

pytestmark = pytest.mark.timeout(120)

PSQL_SCRIPT = r"""
\set ON_ERROR_STOP off
select 1 as one, 'two' as two;
\d numbers
select * from numbers where id < 4 order by id;
begin; insert into copied values (1, 'psql'); select count(*) from copied; rollback;
select 1/0;
\echo :SQLSTATE :LAST_ERROR_MESSAGE
select :'SQLSTATE' as sqlstate \gset
\echo :sqlstate
begin; savepoint a; select nonsense; rollback to a; commit;
\copy (select i, 'row ' || i from generate_series(1, 5) i) to stdout
\copy copied from stdin
10	ten
11	eleven
\.
select * from copied order by id; delete from copied;
\copy copied from stdin
12	twelve
not a number	x
\.
select count(*) from copied;
do $$ begin raise notice 'a notice'; end $$;
\encoding LATIN1
\encoding
set client_encoding to 'UTF8';
select 'a' as "first", null as "second" \crosstabview
\x on
select * from numbers where id = 5;
\gdesc
select current_setting('application_name');
"""


def psql(programs, port, database, folder, script=PSQL_SCRIPT, options=()):
    """Runs psql with a script; gives all it printed."""
    path = os.path.join(folder, "script.sql")
    with open(path, "w") as file:
        file.write(script)
    return machine.run([programs.path("psql"), "-X", "-h", "127.0.0.1", "-p", str(port), "-U",
                        "postgres", "-d", database, "-f", path, *options], as_user=False)


@pytest.mark.parametrize("mode", ["session", "transaction"])
def test_psql(shared_howdah, system_programs, postgres, scratch, mode):
    """A session of psql prints the same directly and through Howdah."""
    howdah = shared_howdah(pool_mode=mode, default_pool_size=2)
    through = psql(system_programs, howdah.port, "postgres", scratch)
    assert through == psql(system_programs, postgres.port, "postgres", scratch)
    assert "eleven" in through and "division by zero" in through


def test_newest_psql(shared_howdah, programs, newest_postgres, scratch):
    """The newest psql, with its pipelines and prepared statements."""
    newest = programs[max(programs)]
    if newest.version < 18:
        pytest.skip("psql has pipelines from version 18 on")
    howdah = shared_howdah(postgres=newest_postgres, default_pool_size=1)
    script = PSQL_SCRIPT + r"""
\x off
select $1::int + $2::int \bind 1 2 \g
select $1 || 'x' \parse s1
\bind_named s1 'a' \g
\startpipeline
select 1 \bind \sendpipeline
select 1/0 \bind \sendpipeline
\syncpipeline
select 2 \bind \sendpipeline
\getresults
\endpipeline
\close_prepared s1
\bind_named s1 'a' \g
"""
    through = psql(newest, howdah.port, "postgres", scratch, script)
    assert through == psql(newest, newest_postgres.port, "postgres", scratch, script)


@pytest.fixture(scope="session")
def pgbench_tables(postgres, system_programs):
    """pgbench's tables, small."""
    postgres.sql("create database bench")
    machine.run([system_programs.path("pgbench"), "-h", postgres.host, "-p", str(postgres.port),
                 "-U", "postgres", "-i", "-q", "-s", "2", "bench"], as_user=False)


def pgbench(programs, howdah, *options):
    """Runs pgbench through Howdah; gives the number of transactions, none failed."""
    said = machine.run([programs.path("pgbench"), "-h", howdah.host, "-p", str(howdah.port),
                        "-U", "postgres", "-n", *options, "bench"], as_user=False)
    assert re.search(r"number of failed transactions: 0 ", said), said
    return int(re.search(r"actually processed: (\d+)", said).group(1))


@pytest.mark.parametrize("protocol", ["simple", "extended", "prepared"])
@pytest.mark.parametrize("mode", ["session", "transaction", "statement"])
def test_pgbench(shared_howdah, system_programs, postgres, pgbench_tables, mode, protocol):
    """Three protocols in three pool modes; statement mode has no transactions, so only reads."""
    size = 10 if mode == "session" else 3
    howdah = shared_howdah(pool_mode=mode, default_pool_size=size, workers=2)
    reads = pgbench(system_programs, howdah, "-S", "-M", protocol, "-c", "10", "-j", "2",
                    "-t", "100")
    assert reads == 1000
    if mode != "statement":
        writes = pgbench(system_programs, howdah, "-M", protocol, "-c", "10", "-j", "2",
                         "-t", "40")
        assert writes == 400
        sums = postgres.sql("""select sum(abalance) from pgbench_accounts union all
            select sum(bbalance) from pgbench_branches union all
            select sum(tbalance) from pgbench_tellers""", "bench")
        assert len({row[0] for row in sums}) == 1
    howdah.wait_for_pool("bench", sv_active=0)
    assert postgres.sessions(database="bench") <= 16


@pytest.mark.parametrize("protocol", ["simple", "extended", "prepared"])
def test_pgbench_logs_in_each_time(shared_howdah, system_programs, pgbench_tables, protocol):
    """A login for each transaction."""
    howdah = shared_howdah(pool_mode="transaction", default_pool_size=2)
    done = pgbench(system_programs, howdah, "-S", "-C", "-M", protocol, "-c", "4", "-j", "2",
                   "-t", "50")
    assert done == 200


def test_pgbench_pipeline(shared_howdah, system_programs, pgbench_tables, scratch):
    """pgbench's own pipelines."""
    path = os.path.join(scratch, "pipeline.sql")
    with open(path, "w") as script:
        script.write("\\startpipeline\nselect 1;\nselect 2;\nbegin;\n"
                     "select count(*) from pgbench_branches;\nend;\n\\endpipeline\n")
    howdah = shared_howdah(pool_mode="transaction", default_pool_size=2)
    for protocol in ("extended", "prepared"):
        assert pgbench(system_programs, howdah, "-f", path, "-M", protocol, "-c", "8", "-j", "2",
                       "-t", "50") == 400
