"""Generated statements over the tables of `sharded_world`.

Their keys are proved, or almost: the comparison stands in an arm of OR, on the wrong side of an outer
join, under NOT, in a subquery that does not reach, in HAVING or FILTER, has a cast or another operator.
Whatever comes back has one order, and no error depends on the order in which PostgreSQL reads rows.
"""

from typing import NamedTuple

from .sharded_queries import Queries
from .sharded_tables import DEEPEST, TABLES
from .sharded_values import family, quoted

WRITTEN = ["accounts", "orders", "orders", "items", "events", "events", "visits", "docs", "tags", "serials",
           "other.accounts", "countries", "rates", "settings"]
# Columns that are unique together.
UNIQUE = {"accounts": "account_id", "orders": "account_id, id", "items": "account_id, order_id, n",
          "events": "account_id, day, id", "visits": "region, id", "docs": "doc", "tags": "label, id",
          "serials": "serial_no", "other.accounts": "account_id", "countries": "code",
          "rates": "code, kind", "settings": "name"}


class Statement(NamedTuple):
    """A text with its parameters."""

    text: str
    parameters: list
    writes: bool
    # Rows come in no order.
    unordered: bool
    # The shard that a hint names.
    shard: int | None = None


class Generator(Queries):
    """Makes one statement from a random source and a world's keys."""

    def statement(self):
        """The next statement."""
        writes = self.chance(0.4)
        text = self.values.settle(self.write() if writes else self.read())
        found = Statement(text, self.values.parameters, writes or bool(self.written), writes)
        if not found.writes and self.chance(0.07):
            return self.hinted(found)
        return found

    def hinted(self, statement):
        """The same with a hint: it may say a shard where the statement is proved not to be."""
        key = self.key("tenant")
        shard = next(number for number, keys in enumerate(self.keys["tenant"]) if key in keys)
        comment = f"/*howdah.key={quoted(f'tenant:{key}')}*/"
        return statement._replace(text=f"{comment} {statement.text}", shard=shard)

    def target(self):
        """A table to write that this statement has not written."""
        table = self.rng.choice([name for name in WRITTEN if name not in self.written])
        self.written.add(table)
        return table

    def writing_query(self):
        """A write as a part of WITH, with its columns."""
        table = self.target()
        column = self.columns(table, table.split(".")[-1])[0]
        text = self.rng.choice([self.insert, self.update, self.delete])(table)
        return f"{text} returning {column.ref}", [column]

    def write(self):
        """A statement that writes. Its rows come in no order."""
        if self.chance(0.1):
            ctes = self.with_queries()
        else:
            ctes = ""
        table = self.target()
        made = self.rng.choice([self.insert, self.insert, self.update, self.update, self.delete])
        text = ctes + made(table)
        if self.chance(0.4):
            columns = self.columns(table, table.split(".")[-1])
            # Of another table PostgreSQL takes any row that fits.
            back = self.rng.choice([f"{table.split('.')[-1]}.*", self.rng.choice(columns).ref, self.hidden(),
                                    f"{self.expression('int', columns, DEEPEST)}, {columns[0].ref}"])
            text += f" returning {back}"
        return text

    def row(self, table, ids):
        """A row of VALUES."""
        distribution, columns = TABLES[table]
        found = []
        for at, (name, kind) in enumerate(columns.items()):
            if at == 0 and distribution:
                if self.chance(0.05):
                    found.append(self.values.odd(self.key(distribution), kind))
                elif self.chance(0.04):
                    found.append(f"({self.key_query(distribution)} order by 1 limit 1)")
                else:
                    found.append(self.values.value(self.key(distribution), kind))
            elif name in ("id", "n"):
                found.append(str(ids.pop()))
            elif name == "day":
                found.append(str(self.rng.randrange(20)))
            elif name in UNIQUE[table].split(", "):
                found.append(self.values.value(self.some(kind), kind))
            else:
                found.append(self.rng.choice(["null", "default",
                                              *[self.values.value(self.some(kind), kind)] * 3]))
        return found

    def insert(self, table):
        """INSERT of rows, or of what a query gives."""
        distribution, columns = TABLES[table]
        names = list(columns)
        text = f"insert into {table}"
        if self.chance(0.35):
            text += f" ({', '.join(names)}) {self.inserted_query(table)}"
        else:
            ids = self.rng.sample(range(1, 30), 8)
            rows = [self.row(table, ids) for _ in range(self.rng.choice([1, 1, 1, 2, 3]))]
            if self.chance(0.85):
                order = list(range(len(names)))
                self.rng.shuffle(order)
                names = [names[at] for at in order]
                rows = [[row[at] for at in order] for row in rows]
                text += f" ({', '.join(names)})"
            elif table in ("items", "other.accounts"):
                text += f" ({', '.join(names)})"
            text += " values " + ", ".join(f"({', '.join(row)})" for row in rows)
        return text + self.conflict(table, distribution, columns)

    def conflict(self, table, distribution, columns):
        """ON CONFLICT, or nothing."""
        style = self.rng.random()
        if style < 0.45:
            return ""
        if style < 0.65:
            return " on conflict do nothing"
        name = list(columns)[-1]
        if name in UNIQUE[table].split(", "):
            return " on conflict do nothing"
        key = next(iter(columns))
        set_ = self.rng.choice([f"{name} = excluded.{name}", f"{name} = excluded.{name}",
                                f"{name} = {table.split('.')[-1]}.{name}", f"{key} = excluded.{key}",
                                f"{key} = {self.values.plain(self.key(distribution), columns[key])}"
                                if distribution else f"{name} = null"])
        where = f" where excluded.{name} is not null" if self.chance(0.2) else ""
        if self.chance(0.05):
            where = f" where ({self.hidden()}) is not null"
        return f" on conflict ({UNIQUE[table]}) do update set {set_}{where}"

    def inserted_query(self, table):
        """A query with the columns of a table, whose rows have unique keys."""
        distribution, columns = TABLES[table]
        source = self.rng.choice([name for name, (of, _) in TABLES.items()
                                  if of == distribution] or ["countries"])
        alias = self.alias()
        theirs = self.columns(source, alias)
        unique = UNIQUE[table].split(", ")
        out = []
        for at, (name, kind) in enumerate(columns.items()):
            if at == 0 and distribution:
                value = self.values.value(self.key(distribution), kind)
                out.append(self.rng.choice([*[theirs[0].ref] * 5, f"cast({value} as {kind})", value]))
            elif name in unique and family(kind) == "int":
                out.append(f"row_number() over (order by {', '.join(column.ref for column in theirs)}) + 8")
            elif name in unique:
                out.append(f"max({theirs[0].ref}::text) over () || row_number() over (order by "
                           f"{', '.join(column.ref for column in theirs)})")
            else:
                out.append(f"cast({self.expression(kind, theirs, DEEPEST)} as {kind})")
        distinct = "distinct " if len(unique) == 1 and distribution else ""
        if distinct:
            # One row a key, always the same.
            out = [out[0]] + [f"cast(null as {kind})" for kind in list(columns.values())[1:]]
        where = self.where(theirs, [], DEEPEST - 1, ())
        return f"select {distinct}{', '.join(out)} from {source} {alias}{where}"

    def update(self, table):
        """UPDATE, with FROM perhaps."""
        distribution, columns = TABLES[table]
        alias = table.split(".")[-1]
        mine = self.columns(table, alias)
        unique = UNIQUE[table].split(", ")
        free = [column for column in mine if column.ref.split(".")[1] not in unique]
        sets = []
        for column in self.rng.sample(free, self.rng.choice([1, 1, min(2, len(free))])):
            name = column.ref.split(".")[1]
            value = self.expression(column.kind, mine, DEEPEST - 1) if self.chance(0.92) else \
                f"({self.hidden()})::text::{column.kind}"
            value = f"cast({value} as {column.kind})" if self.chance(0.8) else "default"
            sets.append(f"{name} = {value}")
        if distribution and self.chance(0.15):
            key = mine[0].ref.split(".")[1]
            value = self.rng.choice([mine[0].ref, self.values.value(self.key(distribution), mine[0].kind),
                                     self.values.odd(self.key(distribution), mine[0].kind)])
            sets.append(f"{key} = {value}")
            if len(sets) == 2 and self.chance(0.3):
                left, right = zip(*(one.split(" = ", 1) for one in sets))
                sets = [f"({', '.join(left)}) = ({', '.join(right)})"]
        return f"update {table} set {', '.join(sets)}{self.others('from', mine)}"

    def delete(self, table):
        """DELETE, with USING perhaps."""
        mine = self.columns(table, table.split(".")[-1])
        return f"delete from {table}{self.others('using', mine)}"

    def others(self, word, mine):
        """FROM or USING of a write, and WHERE."""
        text, given, columns = "", [], mine
        if self.chance(0.3):
            text, its, given = self.sources([], DEEPEST - 1)
            text = f" {word} {text}"
            given = [*given, self.link(its, mine)]
            columns = mine + its
        return text + self.where(columns, given, DEEPEST - 1, (), proved=0.85)
