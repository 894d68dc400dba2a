"""A client can't tell us from PostgreSQL when servers are given out in turn and others disturb.

`harness/in_turn.py` is the mode: who keeps no server never gets the same one twice running, and in
between somebody else has used each and left there what a session can hold. First come the scripts
of one client that `test_transparent.py` has, those for session mode among them; then scripts of
three clients that set, lock, create, prepare and look.
"""

import contextlib
import random

import pytest

from harness import wire
from harness.in_turn import Tally, Turns, turns
from harness.wire import bind, describe, execute, parse, query, sync
from test_transparent import SCRIPTS, SESSION_SCRIPTS, compare, play, ready

pytestmark = pytest.mark.timeout(120)

TALLY = Tally()

STATES = {
    "settings nobody reports": [
        ready(query("set work_mem = '7MB'")), ready(query("show work_mem")),
        ready(query("begin; set work_mem = '8MB'")), ready(query("rollback")),
        ready(query("show work_mem")), ready(query("reset work_mem")), ready(query("show work_mem")),
    ],
    "settings by functions": [
        ready(query("select set_config('app.tenant', 'it''s', false)")),
        ready(query("show app.tenant")), ready(parse("select set_config($1, $2, false)", "s1"), sync()),
        ready(bind("s1", ["statement_timeout", "50s"]), execute(), sync()),
        ready(query("show statement_timeout")), ready(query("reset all")),
        ready(query("show statement_timeout")),
    ],
    "roles": [
        ready(query("set role plain_user")), ready(query("select current_user, session_user")),
        ready(query("reset role")), ready(query("set session authorization plain_user")),
        ready(query("select current_user, session_user")),
        ready(query("reset session authorization")),
        ready(query("select current_user, session_user")),
    ],
    "characteristics": [
        ready(query("set session characteristics as transaction read only, isolation level serializable")),
        ready(query("show transaction_read_only; show transaction_isolation")),
        ready(query("create table never (a int)")),
        ready(query("set session characteristics as transaction read write, "
                    "isolation level read committed")),
        ready(query("show transaction_read_only; show transaction_isolation")),
    ],
    "held cursors": [
        ready(query("declare c cursor with hold for select * from generate_series(1, 9)")),
        ready(query("fetch 2 from c")), ready(query("select name from pg_cursors")),
        ready(query("fetch 2 from c")), ready(query("close c")), ready(query("fetch 1 from c")),
        ready(query("select name from pg_cursors")),
    ],
    "locks of a session": [
        ready(query("select pg_advisory_lock(42)")), ready(query("select pg_advisory_lock(42)")),
        ready(query("select pg_advisory_unlock(42)")), ready(query("select pg_advisory_unlock(42)")),
        ready(query("select pg_advisory_unlock(42)")),
        ready(query("select count(*) from pg_locks where locktype = 'advisory'")),
    ],
    "prepared by SQL": [
        ready(query("prepare p (int) as select $1 + 1")), ready(query("execute p(3)")),
        ready(query("select name from pg_prepared_statements")), ready(query("execute p(4)")),
        ready(query("deallocate p")), ready(query("execute p(5)")),
    ],
    "temporary objects": [
        ready(query("create temp table numbers as select 'mine' as name")),
        ready(query("select name || '' from numbers")), ready(query("create temp view v as table numbers")),
        ready(query("select name || '' from v")), ready(query("drop table numbers cascade")),
        ready(query("select name || '' from numbers where id = 1")),
        ready(query("create temp sequence counted_here; select nextval('counted_here')")),
        ready(query("select nextval('counted_here')")), ready(query("discard all")),
        ready(query("select nextval('counted_here')")),
    ],
    "all at once, then nothing": [
        ready(query("set work_mem = '7MB'; create temp table mine (a int); "
                    "declare c cursor with hold for select 1; prepare p as select 2")),
        ready(query("select pg_advisory_lock(4)")), ready(query("listen news")),
        ready(query("discard all")), ready(query("select 1")), ready(query("execute p")),
        ready(query("table mine")), ready(query("fetch c")), ready(query("show work_mem")),
    ],
}

# What is not the same on a server that does not have a statement yet, and why.
DIFFERENT = {
    "result type changes under a statement": "there it is parsed anew, so it works",
    "a known statement in a failed transaction": "its error names another line of PostgreSQL's source",
    "constants are of the settings of their Parse": "refused: docs/prepared-statements.md",
}
ALL = {**SCRIPTS, **SESSION_SCRIPTS, **STATES}


def named():
    """The scripts. Most of those that `test_transparent.py` plays anyhow come with `--long` only."""
    for number, name in enumerate(ALL):
        marks = [pytest.mark.xfail(strict=True, reason=DIFFERENT[name])] if name in DIFFERENT else []
        if name in SCRIPTS and number % 4:
            marks.append(pytest.mark.long)
        yield pytest.param(name, marks=marks)


@pytest.mark.parametrize("name", list(named()))
def test_same_replies(shared_howdah, postgres, name):
    """Scripts of one client."""
    howdah = shared_howdah(**turns(1))
    with Turns(howdah, postgres, 1, TALLY) as between:
        direct = play(postgres.connect(), ALL[name])
        compare(direct, play(howdah.connect(), ALL[name], between=between.ended))


# Three clients ----------------------------------------------------------------------------------

LOOKS = ("select current_setting('work_mem'), current_setting('statement_timeout'), current_user, "
         "session_user, current_setting('default_transaction_read_only'), "
         "coalesce(current_setting('app.tenant', true), ''), current_setting('search_path')",
         "select count(*) from pg_prepared_statements where from_sql",
         "select name from pg_cursors order by name",
         "select count(*) from pg_class where relnamespace = pg_my_temp_schema()",
         "select to_regclass('t') is null",
         "select count(*) from pg_locks where locktype = 'advisory' and pid = pg_backend_pid()",
         "select name from numbers where id = 7")


def next_command(chance, in_block, who):
    """A command of a client. Whom it waits for a lock is nobody: that number is its own."""
    number = {"x": 1, "y": 2, "z": 3}[who]
    size = chance.randrange(5, 9)
    sets = [f"set work_mem = '{size}MB'", f"set statement_timeout = '{size}0s'",
            f"select set_config('app.tenant', '{who}', false)", "set role plain_user",
            "reset role", "reset work_mem", "set app.tenant = 'it''s \\ mine'",
            f"set local work_mem = '{size + 10}MB'", "set default_transaction_read_only = off",
            "set search_path = public, pg_catalog", "reset all"]
    keeps = ["create temp table if not exists t (a int)", "drop table if exists pg_temp.t",
             f"select pg_advisory_lock({number + 10})", f"select pg_advisory_unlock({number + 10})",
             f"select pg_try_advisory_lock({chance.randrange(1, 4)})",
             f"select pg_advisory_unlock({chance.randrange(1, 4)})", "select pg_advisory_unlock_all()",
             "prepare p as select current_setting('work_mem')", "execute p", "deallocate p",
             "deallocate all", "declare c cursor with hold for select generate_series(1, 99)",
             "fetch 2 from c", "close c", "close all", "discard temp"]
    looks = list(LOOKS) * 2 + ["select 1/0"]
    commands = sets + keeps + looks
    if in_block:
        commands += ["commit", "commit", "rollback", "savepoint s", "rollback to s"] * 3
    else:
        commands += ["begin"] * 6 + ["discard all"] * 3
        commands += [f"set work_mem = '{size}MB'; select 1/0", f"begin; set work_mem = '{size}MB'; commit",
                     "set statement_timeout = 0; create temp table if not exists t (a int)"]
    command = chance.choice(commands)
    return command, "simple" if ";" in command else chance.choice(["simple", "extended"])


def write(chance):
    """A script: who sends what, how, and whether that may wait for a lock that another has."""
    script, blocks = [], {}
    for _ in range(60):
        who = chance.choice("xyz")
        command, way = next_command(chance, blocks.get(who), who)
        script.append((who, command, way))
        first = command.split(";")[0]
        if first == "begin" and "commit" not in command:
            blocks[who] = True
        elif command in ("commit", "rollback"):
            blocks[who] = False
    for who in "xyz":
        script += [(who, "rollback", "simple")] + [(who, look, "simple") for look in LOOKS]
    return script


def told(client, command, way):
    """What a client is told: rows, tags, errors, and its transaction's state."""
    if way == "simple":
        client.send(query(command))
    else:
        client.send(parse(command), bind(), describe(kind="P"), execute(), sync())
    replies = client.read_until("Z")
    rows = [reply.row() for reply in replies if reply.tag == "D"]
    tags = [reply.body for reply in replies if reply.tag == "C"]
    errors = [reply.fields()["C"] for reply in replies if reply.tag in "EN"]
    return rows, tags, errors, replies[-1].body


def play_together(script, connect, ended=None):
    """Plays a script of three clients; gives what each was told at each step."""
    found = []
    with contextlib.ExitStack() as open_ones:
        clients = {who: open_ones.enter_context(connect()) for who in "xyz"}
        for who, command, way in script:
            found.append((who, command, way, *told(clients[who], command, way)))
            if ended:
                ended(who, idle=found[-1][-1] == b"I")
    return found


@pytest.mark.parametrize("seed", range(6))
def test_three_clients(shared_howdah, postgres, seed):
    """What each is told in its session, among others, is what it is told directly, with one worker and
    with three."""
    script = write(random.Random(f"in turn {seed}"))
    direct = play_together(script, lambda: wire.connect((postgres.host, postgres.port)))
    howdah = shared_howdah(**turns(3, workers=1 + 2 * (seed % 2)))
    with Turns(howdah, postgres, 3, TALLY) as between:
        through = play_together(script, howdah.connect, between.ended)
    for step, (theirs, ours) in enumerate(zip(direct, through)):
        story = "\n".join(map(str, direct[:step + 1]))
        assert theirs == ours, f"step {step}, where PostgreSQL says what is last:\n{story}"


def test_most_transactions_are_free(capsys):
    """Keeping servers for all would pass everything above: most transactions must be given one."""
    if TALLY.ran < 500:
        pytest.skip("too few scripts were played to say")
    with capsys.disabled():
        print(f"\n{TALLY}")
    assert TALLY.free > 0.5 * TALLY.ran, str(TALLY)
