"""Sends a statement to a sharded database and to the one database, and compares what comes back."""

import random
import re
from collections import Counter

from . import wire
from .sharded_statements import Statement

# How a statement is sent: as a Query, by the unnamed statement, by one with a name (twice, if it only
# reads, and with other integers then), row by row, or only described.
MODES = ("simple", "extended", "prepared", "portal", "described")
REFUSALS = ("0A000", "22023")
NAME = "oracle"


def exchange(client, statement, mode, results=0):
    """Sends a statement and gives all that comes back. results: the format of rows."""
    if mode == "simple":
        return client.ask(wire.query(statement.text))
    name = NAME if mode in ("prepared", "described") else ""
    parse = wire.parse(statement.text, name, [parameter.oid for parameter in statement.parameters])
    if mode == "extended" or mode == "portal" and statement.writes:
        return client.ask(parse, *run(statement.parameters, name, results), wire.execute(), wire.sync())
    if mode == "portal":
        return client.ask(parse, *run(statement.parameters, name, results), wire.execute("", 1),
                          wire.execute(), wire.sync())
    found = client.ask(parse, wire.describe(name), wire.sync())
    if mode == "prepared" and error(found) is None:
        found += client.ask(*run(statement.parameters, name, results), wire.execute(), wire.sync())
        if not statement.writes:
            rng = random.Random(statement.text)
            others = [parameter.other(rng) for parameter in statement.parameters]
            found += client.ask(*run(others, name, results), wire.execute(), wire.sync())
    return found + client.ask(wire.close(name), wire.sync())


def run(parameters, name, results):
    """Bind and Describe of a statement's portal."""
    formats = [int(parameter.binary) for parameter in parameters]
    values = [parameter.value for parameter in parameters]
    return wire.bind(name, values, "", formats, [results]), wire.describe("", "P")


def settled(messages, unordered=False):
    """Messages as they are compared: of errors and notices their severity, code and text."""
    found = [(got.tag, *[got.fields().get(field) for field in "SCM"]) if got.tag in "EN" else tuple(got)
             for got in messages]
    if unordered:
        rows = iter(sorted(one for one in found if one[0] == "D"))
        found = [next(rows) if one[0] == "D" else one for one in found]
    return found


def error(messages):
    """The fields of the first error, or None."""
    return next((got.fields() for got in messages if got.tag == "E"), None)


def is_refusal(message):
    """Whether a message is a refusal of Howdah's. PostgreSQL names the place in its source."""
    fields = message.fields() if message.tag == "E" else {}
    return "R" not in fields and fields.get("C") in REFUSALS


class Tally:
    """What became of the statements."""

    def __init__(self):
        self.counts = Counter()
        self.reasons = Counter()

    def add(self, other):
        """Adds another's counts."""
        self.counts += other.counts
        self.reasons += other.reasons

    @property
    def answered(self):
        """The share of statements that were answered without an error."""
        return self.counts["answered"] / max(1, sum(self.counts.values()))

    def __str__(self):
        total = sum(self.counts.values())
        kinds = ", ".join(f"{kind} {number} ({100 * number / max(1, total):.0f} %)"
                          for kind, number in self.counts.most_common())
        return f"{total} statements: {kinds}"


class Pair:
    """A client of the sharded database, and one of the database with all rows."""

    def __init__(self, world, howdah):
        self.world, self.tally = world, Tally()
        self.through = wire.connect(howdah.address, "postgres", world.name)
        self.direct = world.connect(world.whole)
        self.shards = [world.connect(shard) for shard in world.shards]

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for client in (self.through, self.direct, *self.shards):
            client.close()

    def set(self, text):
        """Changes a setting of all sessions."""
        for client in (self.through, self.direct, *self.shards):
            client.rows(text)

    def run(self, statement, mode, results=0):
        """Plays one statement. Gives what differs as text, or an empty text."""
        ours = exchange(self.through, statement, mode, results)
        refusal = next(filter(is_refusal, ours), None)
        if refusal:
            self.tally.counts["refused"] += 1
            self.tally.reasons[re.sub(r"[\"'$\d].*", "", refusal.fields()["M"])] += 1
            return ""
        direct = self.direct if statement.shard is None else self.shards[statement.shard]
        theirs = exchange(direct, statement, mode, results)
        self.tally.counts["error" if error(ours) else "answered"] += 1
        return difference(settled(theirs, statement.unordered), settled(ours, statement.unordered))

    def differs_again(self, statement, mode, results=0):
        """Whether a statement's replies differ; nothing is kept of what it writes."""
        for client in (self.through, self.direct):
            client.ask(wire.query("begin"))
        try:
            counts = Counter(self.tally.counts)
            found = self.run(statement, mode, results)
            self.tally.counts = counts
            return bool(found)
        finally:
            for client in (self.through, self.direct):
                client.ask(wire.query("rollback"))


def difference(theirs, ours):
    """Where two lists of messages differ, as text."""
    if theirs == ours:
        return ""
    for at, (one, two) in enumerate(zip(theirs, ours)):
        if one != two:
            return f"message {at}: PostgreSQL {one}, Howdah {two}"
    return f"PostgreSQL has {len(theirs)} messages, Howdah {len(ours)}"


TOKEN = re.compile(r"\s+|'(?:[^']|'')*'|\$\w*\$.*?\$\w*\$|[A-Za-z_][\w.]*|\$\d+|\d[\w.]*|::|<>|>=|<=|.", re.S)


def shorter(statement, differs):
    """The shortest text found that still differs."""
    tokens = TOKEN.findall(statement.text)
    size = len(tokens) // 2
    while size:
        at, changed = 0, False
        while at < len(tokens):
            less = tokens[:at] + tokens[at + size:]
            if less and differs(Statement("".join(less), *statement[1:])):
                tokens, changed = less, True
            else:
                at += 1
        size = size if changed and size == 1 else size // 2
    return Statement("".join(tokens), *statement[1:])
