"""Generated texts that try to leave something in their session, hidden from who reads them.

A text is an act (a setting, a role, a lock, ...) in disguises of every kind: dynamic SQL, quotes in
quotes, escapes, constants over two lines, comments, other commands around it. PostgreSQL is the
judge: the next client of the pool's only server must find nothing. `--texts N` tries more of them,
`--first-seed N` begins elsewhere: pytest tests/test_hidden.py --texts 20000.
"""

import random

import pytest

from harness import wire
from harness.wire import bind, execute, parse, query, sync

# Acts as SQL commands, and as expressions.
COMMANDS = [
    "set app.tenant = 'evil'", "set role plain_user", "set work_mem = '7MB'", "set time zone 'Asia/Tokyo'",
    "create temp table hidden (a int)", "create table pg_temp.hidden (a int)",
    "select 1 as a into temp hidden", "select 1 as a into table pg_temp.hidden",
    "select 1 as insert into temp hidden", "with x as (select 1) select (1) merge into temp hidden from x",
    "prepare hidden as select 1", "listen hidden", "declare hidden cursor with hold for select 1",
    "set search_path = pg_temp, public", "alter role plain_user set work_mem = '1MB'",
    "update pg_settings set setting = '7168' where name = 'work_mem'",
]
CALLS = [
    "set_config('app.tenant', 'evil', false)", "set_config('work_mem', '7MB', false)",
    "set_config('role', 'plain_user', false)", "pg_advisory_lock(5)", "pg_try_advisory_lock(5, 6)",
    "pg_catalog.set_config('app.tenant', 'evil', false)", "set_config('app.tenant'::text, 'evil', 'f')",
    "set_config('search_path', 'pg_temp', false)",
]
# What the next client must find.
LOOKS = (
    "select current_setting('app.tenant', true) is not null and current_setting('app.tenant', true) <> '', "
    "current_setting('work_mem') <> '4MB', current_setting('timezone') = 'Asia/Tokyo', "
    "current_user <> 'postgres', current_setting('search_path') like '%pg_temp%', "
    "exists (select from pg_class where relnamespace = pg_my_temp_schema()), "
    "exists (select from pg_locks where locktype = 'advisory' and pid = pg_backend_pid()), "
    "exists (select from pg_prepared_statements where from_sql), exists (select from pg_cursors), "
    "exists (select from pg_listening_channels())")
WORDS = ("setting", "work_mem", "timezone", "role", "search_path", "temporary", "lock", "prepared",
         "cursor", "listen")


def spelled(rng, text):
    """The same text for PostgreSQL: other letters, comments between words."""
    def word(part):
        if rng.random() < 0.2 and "'" not in text:
            return part.upper()
        return part
    joints = [" ", "  ", "\n", "\t", " /* a /* ' */ */ ", " -- ;'\n"]
    if rng.random() < 0.5 or "$" in text or "'" in text and rng.random() < 0.5:
        return text
    parts, quoted = [], False
    for part in text.split(" "):
        parts.append(part if quoted else word(part))
        quoted ^= part.count("'") % 2 == 1
        parts.append(" " if quoted else rng.choice(joints))
    return "".join(parts[:-1])


def constant(rng, text):
    """A string constant with this value."""
    plain = "'" + text.replace("'", "''") + "'"
    ways = [lambda: plain, lambda: plain, lambda: "$$" + text + "$$" if "$$" not in text else plain,
            lambda: "$h$" + text + "$h$" if "$h$" not in text else plain,
            lambda: "E'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'",
            lambda: "E'" + "".join(f"\\x{ord(c):02x}" if c.isalpha() and rng.random() < 0.2
                                   else {"'": "''", "\\": "\\\\"}.get(c, c) for c in text) + "'",
            lambda: "U&'" + "".join(f"\\{ord(c):04x}" if c.isalpha() and rng.random() < 0.2
                                    else {"'": "''", "\\": "\\\\"}.get(c, c) for c in text) + "'"]
    if len(text) > 3:
        at = rng.randrange(1, len(text))
        halves = [part.replace("'", "''") for part in (text[:at], text[at:])]
        ways.append(lambda: f"'{halves[0]}'\n'{halves[1]}'")
    return rng.choice(ways)()


def name(rng, call):
    """The call with its function's name in another form."""
    function, _, rest = call.partition("(")
    if "." in function or rng.random() < 0.6:
        return call
    return rng.choice([
        f'"{function}"({rest}', f'{function} /* x */ ({rest}', f'{function}\n--\n({rest}',
        f'pg_catalog . "{function}" ({rest}', f'{function.upper()}({rest}',
        'U&"' + function.replace("o", "\\006f") + f'"({rest}',
        'U&"' + function.replace("o", "!006f") + f'" uescape \'!\' ({rest}'])


def value(rng, call):
    """The call with arguments that are put together."""
    if rng.random() < 0.7 or "'app.tenant'" not in call:
        return call
    return call.replace("'app.tenant'", rng.choice([
        "'app.' || 'tenant'", "concat('app', '.tenant')", "E'app\\x2etenant'", "U&'app\\002etenant'",
        "'app.'\n'tenant'", "'app.tenant'::varchar", "(select 'app.tenant')", "lower('APP.TENANT')"]))


def calling(rng):
    """A text that calls."""
    call = value(rng, name(rng, rng.choice(CALLS)))
    return rng.choice([
        "select {}", "select 1, {} as x", "select * from (select {}) as q", "with q as (select {}) select * from q",
        "select (select {}::text)", "insert into hides select {}::text", "insert into hides values ({}::text)",
        "update hides set a = {}::text", "delete from hides where {}::text is null", "values ({})",
        "explain analyze select {}", "explain (analyze) insert into hides select {}::text",
        "create table if not exists hides_2 as select {}::text as a", "copy (select {}) to stdout",
        "select case when true then {}::text end", "select coalesce(null, {}::text)",
        "select a from hides union all select {}::text", "select f from {} as f",
        "prepare hidden_2 as select {}; execute hidden_2; deallocate hidden_2",
        "select query_to_xml('select 1', true, true, ''), {}", "select '(' , {}", "select ');', {}",
        "select 1 where {}::text <> '' or true",
    ]).format(call)


def running(rng, text):
    """A text that runs this one."""
    if text.startswith("select") and rng.random() < 0.2:
        return f"select query_to_xml({constant(rng, text)}, true, true, '')"
    sql = text if rng.random() < 0.4 else "execute " + constant(rng, text)
    if rng.random() < 0.2:
        at = rng.randrange(1, len(text))
        sql = f"execute {constant(rng, text[:at])} || {constant(rng, text[at:])}"
    if rng.random() < 0.2:
        sql = f"execute format('%s', {constant(rng, text)})"
    if sql.startswith("select") and " into " not in sql:
        sql = "perform" + sql[len("select"):]
    body = f"begin {sql}; end"
    if rng.random() < 0.2:
        return f"do {constant(rng, 'begin execute ' + constant(rng, 'do ' + constant(rng, body)) + '; end')}"
    return rng.choice(["do {}", "do language plpgsql {}", "do {} language plpgsql", "DO {}"]).format(
        constant(rng, body))


def paths(rng):
    """A path to what is temporary, until the transaction ends, and a table."""
    path = rng.choice([
        "set local search_path = pg_temp", "set local search_path = 'PG_TEMP', public",
        "set local search_path = E'pg\\x5ftemp'", "set local search_path = U&'pg\\005ftemp'",
        "set local schema 'pg_temp'", "set local search_path = 'pg_'\n'temp'",
        "select set_config('search_path', 'pg_temp', true)",
        "select set_config('search_path', 'pg_' || 'temp', true)",
        "do $$begin perform set_config('search_path', 'pg_temp', true); end$$"])
    make = rng.choice(["create table hidden (a int)", "select 1 as a into hidden", "create view hidden as select 1",
                       "explain analyze create table hidden as select 1", "create table hidden as select 1",
                       "with x as (select 1 as a) select a into hidden from x"])
    return ["begin", path, make, "commit"]


def texts(rng):
    """The texts of one client."""
    kind = rng.random()
    if kind < 0.12:
        parts = paths(rng)
    else:
        text = rng.choice(COMMANDS) if rng.random() < 0.5 else calling(rng)
        if rng.random() < 0.4:
            text = running(rng, text)
        else:
            text = spelled(rng, text)
        parts = [text]
    if rng.random() < 0.3:
        around = ["select 1", "begin", "commit", "select 'x;'", "savepoint s", "rollback to s", "release s",
                  "select '\\'", "select E'\\''", "reset all", "rollback", "select $$;$$", "insert into hides values ('\\')"]
        parts = ([rng.choice(around)] if rng.random() < 0.5 else []) + parts + [rng.choice(around)]
    if rng.random() < 0.4:
        parts = ["; ".join(parts) + rng.choice(["", ";", " ; -- x"])]
    if rng.random() < 0.05:
        parts[-1] = "/*" + "x" * 20_000 + "*/ " + parts[-1]
    return parts


def send(rng, client, text):
    """By either protocol. What PostgreSQL refuses is nobody's."""
    try:
        if rng.random() < 0.5 or ";" in text:
            client.ask(query(text))
        else:
            client.ask(parse(text), bind(), execute(), sync())
    except wire.Refused:
        pass


def found(howdah, seed):
    """What is left of the texts of this seed for the next client, and the texts."""
    rng = random.Random(seed)
    sent = texts(rng)
    with howdah.connect() as client:
        for text in sent:
            send(rng, client, text)
        if rng.random() < 0.5:
            client.ask(query("rollback"))
    with howdah.connect() as other:
        rows = other.rows(LOOKS)
    return [word for word, there in zip(WORDS, rows[0]) if there == "t"], sent


@pytest.mark.parametrize("state", ["keep", "discard"])
def test_nothing_that_a_text_hides_is_left(shared_howdah, postgres, request, state):
    postgres.sql("drop table if exists hides, hides_2; create table hides (a text)")
    howdah = shared_howdah(default_pool_size=1, session_state=state)
    first = request.config.getoption("--first-seed")
    for seed in range(first, first + request.config.getoption("--texts")):
        left, sent = found(howdah, seed)
        assert not left, f"seed {seed}: {left} of {sent}"
