"""A client can't tell us from PostgreSQL when servers are given out in turn and others disturb.

`harness/in_turn.py` is the mode: who keeps no server never gets the same one twice running, and in
between somebody else has used each and left there what a session can hold. First come the scripts
of one client that `test_transparent.py` has, those for session mode among them; then scripts of
three clients that set, lock, create, prepare and look.
"""

import contextlib
import random
import re
from typing import NamedTuple

import pytest

from harness import wire
from harness.in_turn import Tally, Turns, turns
from harness.wire import bind, describe, execute, parse, query, sync
from test_listen import heard
from test_transparent import SCRIPTS, SESSION_SCRIPTS, compare, play, ready

pytestmark = [pytest.mark.timeout(120), pytest.mark.one_driver]

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
    "a setting behind an EXECUTE of what the protocol has prepared": [
        ready(parse("select pg_notify('x', $1)", "s1"), sync()),
        ready(query("execute s1('y'); set work_mem = '7MB'")), ready(query("show work_mem")),
        ready(query("execute s1(set_config('work_mem', '8MB', false))")),
        ready(query("show work_mem")), ready(query("reset all")), ready(query("show work_mem")),
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
        ready(query("execute p(4)")),
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
         "select objid, pid = pg_backend_pid() from pg_locks where locktype = 'advisory' and "
         "objid < 20 order by objid",
         "select name from numbers where id = 7")

SEQUENCES = ["shared_numbers", *(f"numbers_of_{who}" for who in "xyz")]

# What keeps a server for its client from then on.
KEEPS = re.compile(r"temp table|_lock\(|prepare p|declare c|currval|lastval")


def next_command(chance, in_block, who, step):
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
    commands = sets + keeps + looks + counts(chance, in_block, who)
    commands += notifies(chance, in_block, step) * 2
    if in_block:
        commands += ["commit", "commit", "rollback", "savepoint s", "rollback to s"] * 4
    else:
        commands += ["begin"] * 8 + ["discard all"] * 8
        commands += [f"set work_mem = '{size}MB'; select 1/0", f"begin; set work_mem = '{size}MB'; commit",
                     "set statement_timeout = 0; create temp table if not exists t (a int)"]
    command = chance.choice(commands)
    several = ";" in command and not command.startswith("do ")
    return command, "simple" if several else chance.choice(["simple", "extended"])


def counts(chance, in_block, who):
    """Commands about sequences, one for all and one for each client. In a block nobody asks for the
    number of an earlier transaction, which may be an error."""
    own = chance.choice(["shared_numbers", f"numbers_of_{who}"])
    commands = [f"select nextval('{own}')", f"select nextval('{own}')",
                f"select nextval('{own}'), currval('{own}'), lastval()"]
    if not in_block:
        commands += [f"begin; select nextval('{own}'); select currval('{own}'); commit",
                     "select lastval()", f"select currval('{own}')", "discard sequences"]
    return commands


def notifies(chance, in_block, step):
    """Commands about channels. What is notified bears its step. (`test_listen.py` has those that
    listen in a block, or ask who listens.)"""
    channel, other = chance.choice(["news", "other"]), chance.choice(["news", "other"])
    commands = [f"notify {channel}, '{step}'", f"select pg_notify('{channel}', '{step}')",
                f"do $$ begin perform pg_notify('{channel}', '{step}'); end $$"]
    if not in_block:
        commands += [f"listen {channel}", f"listen {channel}", f"unlisten {channel}", "unlisten *",
                     f"listen {channel}; notify {other}, '{step}'",
                     f"begin; notify {channel}, '{step}'; notify {other}, 'too'; rollback",
                     f"begin; notify {channel}, '{step}'; notify {other}, 'too'; commit"]
    return commands


def write(chance, alone=False):
    """A script: who sends what, and how. Alone, a client lets go of its server before another one's
    turn."""
    # From here on nobody gets a server with others' numbers.
    script = [step for who in "xyz" for step in [(who, "select lastval()", "simple"),
                                                 (who, "discard all", "simple")]]
    blocks, kept, who = {}, set(), "x"
    for step in range(80):
        if not alone or chance.random() < 0.3:
            if alone:
                script += let_go(who, blocks, kept)
            who = chance.choice("xyz")
        command, way = next_command(chance, blocks.get(who), who, step)
        script.append((who, command, way))
        if KEEPS.search(command):
            kept.add(who)
        if command == "begin":
            blocks[who] = True
        elif command in ("commit", "rollback"):
            blocks[who] = False
        elif command == "discard all":
            kept.discard(who)
    script += let_go(who, blocks, kept) if alone else []
    for who in "xyz":
        script += [(who, "rollback", "simple")] + [(who, look, "simple") for look in LOOKS]
    return script


def let_go(who, blocks, kept):
    """Steps that leave a client without a server."""
    steps = [(who, "rollback", "simple")] if blocks.pop(who, False) else []
    steps += [(who, "discard all", "simple")] if who in kept else []
    kept.discard(who)
    return steps


class Told(NamedTuple):
    """What a client is told at a step."""

    step: tuple
    rows: list
    # With the severities of notices.
    errors: list
    tags: list
    # Each with whether it is the client's own.
    notified: list
    state: bytes


def tell(client, step):
    """Has a client take a step."""
    _, command, way = step
    if way == "simple":
        client.send(query(command))
    else:
        client.send(parse(command), bind(), describe(kind="P"), execute(), sync())
    replies = client.read_until("Z")
    return Told(step, sorted((reply.row() for reply in replies if reply.tag == "D"), key=str),
                [reply.fields()["C"] for reply in replies if reply.tag in "EN"],
                [reply.body for reply in replies if reply.tag == "C"],
                [(pid == client.pid, *said) for pid, *said in heard(replies)], replies[-1].body)


def play_together(script, postgres, connect, ended=None):
    """Plays a script of three clients; gives what each was told at each step."""
    postgres.sql("".join(f"create sequence if not exists {name}; alter sequence {name} restart; "
                         f"grant all on sequence {name} to public; " for name in SEQUENCES))
    found = []
    with contextlib.ExitStack() as open_ones:
        clients = {who: open_ones.enter_context(connect()) for who in "xyz"}
        for step in script:
            found.append(tell(clients[step[0]], step))
            if ended:
                ended(step[0], idle=found[-1].state == b"I")
    return found


def agree(theirs, ours):
    """What is told is the same, but for what docs/session-state.md says.

    The number of an earlier transaction may be an error. PostgreSQL may tell of a channel what was
    said before LISTEN was committed, too, to a session that has listened to another before."""
    command = theirs.step[1]
    if ours.errors == ["55000"] and not theirs.errors and "nextval" not in command \
            and re.search("currval|lastval", command):
        return theirs.notified == ours.notified and theirs.state == ours.state
    early = [said for said in theirs.notified
             if said not in ours.notified and not said[0] and f"listen {said[1]}" in command]
    heard_directly = [said for said in theirs.notified if said not in early]
    return theirs._replace(notified=heard_directly) == ours


def compare_together(direct, through):
    """Fails at the first step at which somebody is told something else."""
    for number, (theirs, ours) in enumerate(zip(direct, through)):
        story = "\n".join(str(told) for told in direct[:number + 1])
        assert agree(theirs, ours), f"step {number}: {ours}\nPostgreSQL says what is last:\n{story}"


def directly(script, postgres):
    return play_together(script, postgres, lambda: wire.connect((postgres.host, postgres.port)))


@pytest.mark.parametrize("seed", range(6))
def test_three_clients(shared_howdah, postgres, seed):
    """What each is told in its session, among others, is what it is told directly, with one worker and
    with three."""
    script = write(random.Random(f"in turn {seed}"))
    howdah = shared_howdah(**turns(3, workers=1 + 2 * (seed % 2)))
    with Turns(howdah, postgres, 3, TALLY) as between:
        through = play_together(script, postgres, howdah.connect, between.ended)
    compare_together(directly(script, postgres), through)


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("size, workers", [(1, 1), (1, 3), (3, 1), (3, 3)])
def test_three_clients_of_few_servers(shared_howdah, postgres, seed, size, workers):
    """Likewise behind one server, which is each one's in turn, and behind three, which they keep."""
    script = write(random.Random(f"of {size}: {seed}"), alone=size == 1)
    howdah = shared_howdah(pool_mode="transaction", default_pool_size=size, pin_limit=size,
                           workers=workers)
    through = play_together(script, postgres, howdah.connect)
    compare_together(directly(script, postgres), through)


def test_most_transactions_are_free(capsys):
    """Keeping servers for all would pass everything above: most transactions must be given one."""
    if TALLY.ran < 500:
        pytest.skip("too few scripts were played to say")
    with capsys.disabled():
        print(f"\n{TALLY}")
    assert TALLY.free > 0.5 * TALLY.ran, str(TALLY)
