"""Generated transactions over the tables of `sharded_world`, and their comparison.

A script is a list of steps. Each is sent whole, and read up to its last ReadyForQuery. What Howdah
refuses fails on the one database, too: an error takes its place there.
"""

import itertools
import random
from typing import NamedTuple

from . import machine, wire
from .sharded_play import difference, is_refusal, settled

# Takes the place of what Howdah has refused.
FAILS = "select refused_by_howdah"
# The last message of an answer, in a transaction, in a failed one, and outside.
READY = tuple(wire.message("Z", status) for status in (b"T", b"E", b"I"))


class Part(NamedTuple):
    """A statement of a group in the extended protocol."""

    text: str
    values: tuple = ()
    name: str = ""
    # What is sent: Parse, a Describe of the statement, Bind with Execute.
    parse: bool = True
    describe: bool = False
    run: bool = True

    def sent(self):
        """The part's messages."""
        found = [wire.parse(self.text, self.name)] if self.parse else []
        if self.describe:
            found.append(wire.describe(self.name))
        if self.run:
            found += [wire.bind(self.name, self.values), wire.describe("", "P"), wire.execute()]
        return b"".join(found)

    def replies(self):
        """How many messages say what is done, besides rows."""
        return int(self.parse) + 2 * int(self.describe) + 3 * int(self.run)


class Step(NamedTuple):
    """A Query, or a group of parts that ends with Sync. cancel: a cancel request comes before, or while the
    step sleeps. flush: it ends with Flush instead. piped: it is sent together with the step before."""

    query: str | None
    parts: tuple = ()
    cancel: bool = False
    flush: bool = False
    piped: bool = False

    def sent(self):
        """The step's messages."""
        if self.query is not None:
            return wire.query(self.query)
        return b"".join(part.sent() for part in self.parts) + (wire.flush() if self.flush else wire.sync())

    @property
    def sleeps(self):
        """Whether a cancel request must end it."""
        return "pg_sleep" in (self.query or "") or any("pg_sleep" in part.text for part in self.parts)

    def read(self, client):
        """What comes back. An error before a Flush is followed by a Sync."""
        if not self.flush:
            return client.read_until("Z")
        found = client.read_until("TnE")
        if found[-1].tag == "E":
            client.send(wire.sync())
            found += client.read_until("Z")
        return found

    def refused_at(self, messages):
        """The step with an error at the place where Howdah has refused it, which came behind these
        messages."""
        if self.query is not None:
            # The end of a failed transaction may have come before it.
            done = sum(got.tag == "C" for got in messages)
            texts = [text for text in self.query.split(";") if text.strip()]
            return Step(";".join([*texts[:done], FAILS]))
        done = sum(got.tag in "12tTnCI" for got in messages)
        for at, part in enumerate(self.parts):
            if done < part.replies():
                return self._replace(parts=(*self.parts[:at], Part(FAILS), *self.parts[at + 1:]))
            done -= part.replies()
        raise AssertionError("a refusal behind all parts")


BEGINS = ("begin", "begin", "BEGIN;", "start transaction", "begin work", "begin transaction",
          "begin isolation level repeatable read", "begin read only", "start transaction read write",
          "/* a */ begin -- b", "begin isolation level serializable, read only, deferrable")
ENDS = ("commit", "commit", "commit", "end", "COMMIT work", "rollback", "rollback", "abort",
        "commit and chain", "rollback and chain")
# What has no key.
KEYLESS = (
    "select 1", "select 1", "show work_mem", "show statement_timeout", "show transaction_isolation",
    "show transaction_read_only", "set local statement_timeout = '77s'", "set local work_mem = '66kB'",
    "set work_mem = '88MB'", "reset work_mem", "set local app.tenant = 'a'", "select current_setting('work_mem')",
    "set application_name = 'one'", "show application_name", "", ";", "set local application_name = 'two'",
    "select 1 from pg_class where relname = 'accounts'", "select count(*) from countries",
    "set transaction read only", "set local search_path = other, public", "set search_path = public",
    "show search_path", "select coalesce(current_setting('app.tenant', true), '') <> ''", "deallocate all",
    "select pg_current_xact_id_if_assigned() is null", "select $$a$$ as text", "set constraints all deferred",
    "set local role postgres", "discard plans", "values (1), (2)", "set local timezone = 'Asia/Tokyo'",
    "select count(*) from settings", "reset all", "show timezone", "set session characteristics as "
    "transaction isolation level repeatable read", "set default_transaction_isolation = 'read committed'",
)
SAVEPOINTS = ("savepoint a", "savepoint a", "savepoint b", "rollback to a", "rollback to savepoint a",
              "release a", "release savepoint b", "rollback to b")
ERRORS = ("select 1/0", "selec 1", "select nothing", "select * from nothing", "savepoint", "release zzz",
          "select 'a'::int", "set work_mem = 'many'", "commit prepared 'x'")


class Script:
    """Makes the steps of a seed."""

    def __init__(self, seed, world):
        self.rng = random.Random(f"transactions {world.count} {seed}")
        self.keys = world.keys["tenant"]
        self.shard = self.rng.randrange(len(self.keys))
        self.names = []
        # Whether the session says a tenant, which places what is not proved.
        self.hints = self.rng.random() < 0.2
        self.ids = iter(range(100, 100_000))

    def steps(self):
        """The steps of a few transactions."""
        found = []
        for _ in range(self.rng.choice([2, 3, 4])):
            self.shard = self.rng.randrange(len(self.keys))
            texts = self.transaction()
            while texts:
                step, texts = self.step(texts)
                if found and found[-1].flush and "isolation" in str(step.query or step.parts):
                    # Of an open group PostgreSQL may have a snapshot already.
                    continue
                piped = found and not found[-1].flush and not found[-1].sleeps and self.rng.random() < 0.1
                alone = step.cancel or step.flush or step.sleeps
                found.append(step._replace(piped=True) if piped and not alone else step)
        # Whatever is open ends here.
        return [*found, Step("rollback"), Step("show work_mem"), Step("show search_path")]

    def key(self):
        """A tenant, mostly of the same shard."""
        shard = self.shard if self.rng.random() < 0.88 else self.rng.randrange(len(self.keys))
        return self.rng.choice(self.keys[shard])

    def transaction(self):
        """Statements from BEGIN to COMMIT, most of the time: texts with their values, or parts."""
        rng, found = self.rng, []
        if self.hints and rng.random() < 0.5:
            found.append((f"set howdah.key = 'tenant:{self.key()}'", ()))
        if rng.random() < 0.85:
            found.append((rng.choice(BEGINS), ()))
        for _ in range(rng.choice([0, 1, 2, 3, 4, 6])):
            found.append(self.statement())
        if found and rng.random() < 0.9:
            found.append((rng.choice(ENDS), ()))
        if rng.random() < 0.1:
            found.append((rng.choice([*BEGINS, *ENDS]), ()))
        return found or [("select 1", ())]

    def statement(self):
        """A statement inside."""
        rng = self.rng
        style = rng.random()
        if style < 0.45:
            return self.with_key()
        if style < 0.75:
            return rng.choice(KEYLESS), ()
        if style < 0.88:
            return rng.choice(SAVEPOINTS), ()
        if style < 0.93:
            return rng.choice(ERRORS), ()
        if style < 0.96:
            return f"set local howdah.key = 'tenant:{self.key()}'", ()
        if self.hints:
            return rng.choice([f"set howdah.key = 'tenant:{self.key()}'", "reset howdah.key", "discard all"]), ()
        return rng.choice(["select count(*) from accounts", *BEGINS, *ENDS]), ()

    def with_key(self):
        """A statement that says its shard, with a constant or a parameter, or a run of one that is
        prepared."""
        key, new = self.key(), next(self.ids)
        if self.names and self.rng.random() < 0.2:
            return Part("", (key,), self.rng.choice(self.names), parse=False)
        text = self.rng.choice([
            "select name from accounts where account_id = {}", "select count(*) from orders where account_id = {}",
            f"insert into orders (account_id, id, total) values ({{}}, {new}, 1)",
            f"insert into orders (account_id, id, total) values ({{}}, {new}, 2) returning id",
            "insert into orders (account_id, id) values ({}, 1)",
            "update orders set total = coalesce(total, 0) + 1 where account_id = {}",
            "update accounts set score = 7 where account_id = {} returning score",
            "delete from orders where account_id = {} and id = 2",
            "select sum(total) from orders where account_id = {} group by account_id",
            "select 1/0 from accounts where account_id = {}",
            "select name from accounts where account_id = {} for update",
            "declare c cursor for select id from orders where account_id = {} order by 1",
            "fetch 2 from c", "close c",
            "create temp table mine on commit drop as select id from orders where account_id = {}",
            "select count(*) from mine",
        ])
        if "{" not in text:
            return text, ()
        if self.rng.random() < 0.5 or text.startswith(("declare", "create")):
            return text.format(key), ()
        return text.format("$1"), (key,)

    def prepare(self):
        """A step that only prepares a statement, as drivers do it."""
        name = f"p{next(self.ids)}"
        self.names.append(name)
        text = self.rng.choice(["select name from accounts where account_id = $1",
                                "select count(*) from orders where account_id = $1",
                                "update accounts set score = 1 where account_id = $1"])
        return Step(None, (Part(text, (), name, describe=True, run=False),), flush=self.rng.random() < 0.5)

    def step(self, texts):
        """The first step of what is left, and the rest."""
        rng = self.rng
        if rng.random() < 0.08:
            return self.prepare(), texts
        cancel = rng.random() < 0.02
        if rng.random() < 0.04:
            text = f"select pg_sleep(60) from accounts where account_id = {self.key()}"
            return (Step(text) if rng.random() < 0.5 else Step(None, (Part(text),))), texts
        if isinstance(texts[0], Part):
            return Step(None, (texts[0],), cancel), texts[1:]
        plain = list(itertools.takewhile(lambda text: not isinstance(text, Part), texts))
        if rng.random() < 0.55:
            plain = plain[:rng.choice([1, 1, 1, 1, 2, 3])]
            query = "; ".join(text.replace("$1", str(values[0]) if values else "") for text, values in plain)
            return Step(query, cancel=cancel), texts[len(plain):]
        plain = plain[:rng.choice([1, 1, 1, 2, 3])]
        parts = [part for text, values in plain for part in self.parts(text, values)]
        return Step(None, tuple(parts), cancel), texts[len(plain):]

    def parts(self, text, values):
        """How a group has a statement."""
        rng = self.rng
        style = rng.random()
        # Of a prepared FETCH PostgreSQL keeps the columns of the cursor that was there then.
        if style < 0.6 or text.startswith("fetch"):
            return [Part(text, values)]
        name = f"s{next(self.ids)}"
        if style < 0.8:
            return [Part(text, values, name, describe=True)]
        if style < 0.95:
            return [Part(text, values, name, describe=True, run=False), Part(text, values, name, parse=False)]
        return [Part(text, values, name, describe=True, run=False)]


class Difference(Exception):
    """A step's answer is not that of the one database."""


def status(messages, before):
    """The transaction's status after a step."""
    return messages[-1].body.decode() if messages[-1].tag == "Z" else before


def play(steps, through, direct, between=lambda: None, tally=None, asleep=None):
    """Plays a script on a client of Howdah and one of the database with all rows. Raises Difference.

    between: what others do meanwhile. tally: a Counter of what became of steps. asleep: whether a session
    of PostgreSQL sleeps."""
    last = "I"
    for at, step in enumerate(steps):
        if step.cancel:
            through.cancel()
        if not step.piped or at == 0:
            end = next((end for end in range(at + 1, len(steps)) if not steps[end].piped), len(steps))
            through.send(*(one.sent() for one in steps[at:end]))
        if step.sleeps:
            interrupt(through, asleep)
        try:
            ours = step.read(through)
        except (TimeoutError, wire.Ended, wire.Refused) as problem:
            raise Difference(f"step {at} {step} in status {last}: {problem!r}") from problem
        refusal = next((at for at, got in enumerate(ours)
                        if is_refusal(got) or is_judged(step, got) or is_misplaced(got)), None)
        if refusal is None:
            direct.send(step.sent())
            if step.sleeps:
                interrupt(direct, asleep)
            theirs = step.read(direct)
            found = difference(settled(theirs), settled(ours))
            if last == "E" and aborted(ours) and any(got.tag == "E" for got in theirs):
                found = ""
            if any(got.tag == "E" and b"before any query" in got.body for got in theirs):
                # PostgreSQL has had a snapshot to describe a statement.
                return
        else:
            instead = step.refused_at(ours[:refusal])
            direct.send(instead.sent())
            theirs = instead.read(direct)
            found = difference(settled(completed(theirs)), settled(completed(ours)))
        if tally is not None:
            tally["refused" if refusal is not None else "answered"] += 1
        if found or status(ours, last) != status(theirs, last):
            raise Difference(f"step {at} {step} in status {last}: {found}; status "
                             f"{status(ours, last)} instead of {status(theirs, last)}")
        last = status(ours, last)
        between()


def interrupt(client, asleep):
    """Cancels what a client has sent, unless that ends by itself."""
    def ended():
        return client.waiting() and client.peek().endswith(READY)
    machine.wait_until(lambda: ended() or asleep(), "a statement to sleep or to end")
    if not ended():
        client.cancel()


def is_judged(step, message):
    """Whether Howdah has found a mistake before it sent anything of a group with several statements."""
    fields = message.fields() if message.tag == "E" else {}
    return len(step.parts) > 1 and fields.get("C") == "42601" and "R" not in fields


def is_misplaced(message):
    """Whether Howdah refuses a SET of the tenant inside of a transaction."""
    return message.tag == "E" and message.fields()["C"] == "25001" and "howdah." in message.fields()["M"]


def aborted(messages):
    """Whether Howdah says that the transaction has failed. PostgreSQL first says what is wrong with the
    statement itself."""
    return any(got.tag == "E" and got.fields()["C"] == "25P02" for got in messages)


def completed(messages):
    """The messages of statements that have ended, and the status: what is before an error may come or
    not."""
    end = next((at for at, got in enumerate(messages) if got.tag == "E"), len(messages))
    while end and messages[end - 1].tag not in "CI":
        end -= 1
    return [*messages[:end], *(messages[-1:] if messages[-1].tag == "Z" else [])]


def shorter(steps, differs):
    """The shortest script found that still differs."""
    smaller = True
    while smaller:
        smaller = False
        for at in reversed(range(len(steps))):
            step = steps[at]
            less = [steps[:at] + steps[at + 1:]]
            less += [[*steps[:at], step._replace(parts=step.parts[:one] + step.parts[one + 1:]), *steps[at + 1:]]
                     for one in range(len(step.parts)) if len(step.parts) > 1]
            if step.query and ";" in step.query:
                texts = step.query.split(";")
                less += [[*steps[:at], Step(";".join(texts[:one] + texts[one + 1:])), *steps[at + 1:]]
                         for one in range(len(texts))]
            if step.cancel:
                less.append([*steps[:at], step._replace(cancel=False), *steps[at + 1:]])
            for fewer in less:
                if differs(fewer):
                    steps, smaller = fewer, True
                    break
    return steps
