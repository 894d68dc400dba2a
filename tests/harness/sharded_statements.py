"""Generated statements over the tables of `sharded_world`.

Their keys are proved, or almost: the comparison stands in an arm of OR, on the wrong side of an outer
join, under NOT, in a subquery that does not reach, in HAVING or FILTER, has a cast or another operator.
Whatever comes back has one order, and no error depends on the order in which PostgreSQL reads rows.
"""

from typing import NamedTuple

from .sharded_values import Values, family, quoted


class Column(NamedTuple):
    """A column that a query can name."""

    ref: str
    kind: str
    key: str | None = None  # the distribution whose key it is


class Statement(NamedTuple):
    """A text with its parameters."""

    text: str
    parameters: list
    writes: bool
    # Rows come in no order.
    unordered: bool
    # The shard that a hint names.
    shard: int | None = None


# Columns with their types; the first has the key.
TABLES = {
    "accounts": ("tenant", {"account_id": "bigint", "name": "text", "parent_id": "bigint", "plan": "text",
                            "score": "int"}),
    "orders": ("tenant", {"account_id": "int", "id": "int", "total": "int", "note": "text",
                          "tag": "varchar"}),
    "items": ("tenant", {"account_id": "smallint", "order_id": "int", "n": "int", "qty": "int",
                         "sku": "text"}),
    "events": ("tenant", {"account_id": "bigint", "day": "int", "id": "int", "kind": "text"}),
    "events_1": ("tenant", {"account_id": "bigint", "day": "int", "id": "int", "kind": "text"}),
    "account_view": ("tenant", {"account_id": "bigint", "name": "text", "score": "int"}),
    "visits": ("region", {"region": "text", "id": "int", "account_id": "bigint", "page": "text"}),
    "docs": ("document", {"doc": "uuid", "account_id": "bigint", "title": "text"}),
    "tags": ("label", {"label": "varchar", "id": "int", "account_id": "bigint", "weight": "int"}),
    "serials": ("serial", {"serial_no": "bigint", "account_id": "bigint", "weight": "int"}),
    "other.accounts": ("odd", {"account_id": "bigint", "other": "text"}),
    "countries": (None, {"code": "text", "name": "text", "area": "int"}),
    "rates": (None, {"code": "text", "kind": "int", "rate": "int"}),
    "settings": (None, {"name": "text", "value": "text", "account_id": "bigint"}),
}
TENANT_TABLES = [name for name, (distribution, _) in TABLES.items() if distribution == "tenant"]
READ = [*TENANT_TABLES * 3, *(name for name in TABLES if name not in TENANT_TABLES)]
WRITTEN = ["accounts", "orders", "orders", "items", "events", "events", "visits", "docs", "tags", "serials",
           "other.accounts", "countries", "rates", "settings"]
# Columns that are unique together.
UNIQUE = {"accounts": "account_id", "orders": "account_id, id", "items": "account_id, order_id, n",
          "events": "account_id, day, id", "visits": "region, id", "docs": "doc", "tags": "label, id",
          "serials": "serial_no", "other.accounts": "account_id", "countries": "code",
          "rates": "code, kind", "settings": "name"}
DEEPEST = 3


class Generator:
    """Makes one statement from a random source and a world's keys."""

    def __init__(self, rng, keys, parameters, near=0.2):
        """keys: of each distribution, by shard. near: how often a proof is only almost one."""
        self.rng, self.keys, self.near = rng, keys, near
        self.values = Values(rng, parameters)
        self.shard = rng.randrange(len(keys["tenant"]))
        self.focus = {}
        self.aliases = 0
        self.ctes = []
        self.written = set()

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
        return statement._replace(text=f"/*howdah.key={quoted(f'tenant:{key}')}*/ {statement.text}", shard=shard)

    def chance(self, share):
        """True so often."""
        return self.rng.random() < share

    # Values

    def key(self, distribution):
        """A key of the distribution: mostly the same one, or one of its shard."""
        style = self.rng.random() * (1 if self.near else 0.95)
        shards = self.keys[distribution]
        here = shards[self.shard] or sum(shards, [])
        if style < 0.8:
            if distribution not in self.focus:
                self.focus[distribution] = self.rng.choice(here)
            return self.focus[distribution]
        return self.rng.choice(here if style < 0.95 else sum(shards, []))

    def some(self, kind):
        """A value that is no key."""
        if family(kind) == "int":
            return self.rng.choice([0, 1, 2, 3, 5, 7, self.key("tenant")])
        if kind == "uuid":
            return self.key("document")
        return self.rng.choice(["red", "note 1", "name 2", "eu", "kind 1", "de", "dark", ""])

    def alias(self, letter="t"):
        """A new name; now and then one that hides an outer one."""
        if letter == "t" and self.aliases and self.chance(0.07):
            return f"t{self.rng.randint(1, self.aliases)}"
        self.aliases += 1
        return f"{letter}{self.aliases}"

    # Comparisons of keys

    def proof(self, column, depth, scope=()):
        """A condition that says the shard of the column."""
        value = lambda: self.values.value(self.key(column.key), column.kind)  # noqa: E731
        ref = column.ref
        style = self.rng.randrange(15)
        if style < 6:
            return f"{ref} = {value()}"
        if style == 6:
            return f"{value()} = {ref}"
        if style == 7:
            return f"{ref} in ({value()}, {self.rng.choice([value(), value(), 'null'])})"
        if style == 8:
            return f"{ref} = any ({self.values.array([self.key(column.key) for _ in range(2)], column.kind)})"
        if style == 9:
            return f"({ref} = {value()} or {ref} = {value()})"
        if style == 10:
            noise = [self.noise(scope or [column], DEEPEST) for _ in range(2)]
            return f"(({ref} = {value()} and {noise[0]}) or ({noise[1]} and {ref} = {value()}))"
        if style == 11:
            return f"({ref}, {ref}) = ({value()}, {value()})"
        if style == 12 and scope:
            other = self.rng.choice(scope)
            some = self.values.plain(self.some(other.kind), other.kind)
            return f"({other.ref}, {ref}) in (({some}, {value()}), ({some}, {value()}))"
        if style == 13:
            return f"{ref} is not distinct from {value()}" if self.chance(0.7) else self.row_query(column, scope)
        if depth < DEEPEST:
            return f"{ref} in ({self.key_query(column.key)})"
        return f"{ref} operator(pg_catalog.=) {value()}"

    def almost(self, column, depth, scope=()):
        """A condition that looks as if it said the shard."""
        value = self.values.value(self.key(column.key), column.kind)
        ref, noise = column.ref, self.noise(scope or [column], DEEPEST)
        odd = self.values.odd(self.key(column.key), column.kind)
        found = [
            f"{ref} = {odd}", f"{ref} = {odd}", f"{odd} = {ref}", f"{ref} in ({value}, {odd})",
            f"({ref} = {value} or {noise})", f"({ref} = {value} or {noise})", f"not {ref} = {value}",
            f"not ({ref} <> {value})", f"({ref} = {value}) is true", f"({ref} = {value}) is not false",
            f"coalesce({ref} = {value}, true)", f"case when {noise} then {ref} = {value} else true end",
            f"case {ref} when {value} then true end", f"{ref}::text = {value}::text",
            f"{ref} between {value} and {value}", f"({ref} >= {value} and {ref} <= {value})",
            f"{ref} operator(other.=) {value}", f"{ref} <> {value}", f"{ref} = all (array[{odd}, {odd}])",
            f"not exists (select 1 where {ref} <> {value})", f"{ref} is distinct from {value}",
            f"exists (select 1 from countries where {ref} = {value})", f"coalesce({ref}, {value}) = {value}",
            f"nullif({ref}, {value}) is null", f"({ref} = {value}) = ({noise})", f"{ref} in (select {value})",
            f"({ref} = {value}) in (true, {noise})", f"not (not {ref} = {value} and {noise})",
            f"({ref} = {value}) is not distinct from ({noise})", f"array[{ref}] = array[{value}::{column.kind}]",
            f"row({ref}, 1) >= row({value}, 1)", f"({ref} = {value} and {noise}) is not null",
            f"({noise} or ({ref} = {value} and {noise}))", f"{ref} = (select {value} limit 1)",
            f"{ref} = any (select {value} union select {odd})", f"{ref} not in ({value})",
            f"{ref} is null", f"{ref} = {ref}", f"{ref} = coalesce({value}, {ref})",
            f"(select {ref} = {value})", f"{ref} > {value}",
        ]
        if "." in ref:
            alias, name = ref.split(".")
            found += [f"({alias}).{name} = {value}", f"row({alias}.*) is not null", f"{alias}.{name} = any "
                      f"(array(select {value}))", f"{alias} is not null and {noise}"]
        others = [other for other in scope if family(other.kind) == family(column.kind) and other != column]
        if others:
            other = self.rng.choice(others).ref
            found += [f"{ref} in ({value}, {other})", f"{ref} = {other}", f"{other} = {value}",
                      f"{ref} is not distinct from {other}", f"({ref}, {other}) in (({value}, {other}))",
                      f"{ref} = case when {noise} then {value} else {other} end"]
        if depth < DEEPEST:
            found.append(f"{ref} in (select {self.rng.choice(['account_id', 'parent_id'])} from accounts)"
                         if family(column.kind) == "int" else f"{ref} in (select code from countries)")
            found.append(f"{ref} not in ({self.key_query(column.key)})")
        return self.rng.choice(found)

    def key_query(self, distribution):
        """A query that gives keys of one shard."""
        table = self.rng.choice([name for name, (of, _) in TABLES.items() if of == distribution])
        alias = self.alias("k")
        column = self.columns(table, alias)[0]
        return f"select {column.ref} from {table} {alias} where {self.test(column, DEEPEST)}"

    def row_query(self, column, scope):
        """A row with the key, among the rows of a query."""
        table = self.rng.choice([name for name, (of, _) in TABLES.items() if of == column.key])
        theirs = self.columns(table, self.alias("r"))
        other = self.rng.choice([one for one in scope if one.kind == "int"] or [column._replace(ref="1")])
        values = self.rng.choice([one for one in theirs[1:] if one.kind == "int"] or [theirs[0]._replace(ref="1")])
        first, second = self.rng.choice([(0, 1), (1, 0), (1, 0)])
        mine, out = [column.ref, other.ref], [theirs[0].ref, values.ref]
        return f"({mine[first]}, {mine[second]}) in (select {out[first]}, {out[second]} " \
               f"from {table} {theirs[0].ref.split('.')[0]} where {self.test(theirs[0], DEEPEST)})"

    def test(self, column, depth, scope=()):
        """A condition on a key."""
        return self.almost(column, depth, scope) if self.chance(self.near) else self.proof(column, depth, scope)

    # Other conditions and expressions

    def noise(self, scope, depth):
        """A condition that says no shard."""
        column = self.rng.choice(scope)
        ref, kind = column.ref, column.kind
        value = self.values.value(self.some(kind), kind)
        found = [f"{ref} = {value}", f"{ref} is not null", f"{ref} is null", f"{ref} <> {value}",
                 f"{ref} > {value}", f"{ref} is distinct from {value}", f"{ref} in ({value}, {value})", "true"]
        if family(kind) == "int":
            found += [f"{ref} % 3 = 1", f"{ref} between 1 and 5", f"abs({ref}) < 7"]
        elif kind != "uuid":
            found += [f"{ref} like '%e%'", f"length({ref}) > 2", f"{ref} ~ '[a-m]'"]
        if depth < DEEPEST and self.chance(0.25):
            return self.subquery_condition(scope, depth)
        return self.rng.choice(found)

    def subquery_condition(self, scope, depth):
        """EXISTS, IN and comparisons with what a query gives."""
        column = self.rng.choice(scope)
        negated = self.rng.choice(["", "not "])
        if self.chance(0.5):
            return f"{negated}exists ({self.select(depth + 1, scope)[0]})"
        inner = self.select(depth + 1, scope, [column.kind])[0]
        if self.chance(0.7):
            return f"{column.ref} {negated}in ({inner})"
        return f"{column.ref} {self.rng.choice(['<', '>', '<=', '='])} {self.rng.choice(['any', 'all'])} ({inner})"

    def expression(self, kind, scope, depth):
        """An expression of this kind."""
        fitting = [column for column in scope if family(column.kind) == family(kind)]
        style = self.rng.random()
        if fitting and style < 0.6:
            return self.rng.choice(fitting).ref
        value = self.values.value(self.some(kind), kind)
        if fitting and style < 0.8:
            ref = self.rng.choice(fitting).ref
            found = [f"coalesce({ref}, {value})", f"nullif({ref}, {value})",
                     f"case when {self.noise(scope, depth)} then {ref} else {value} end"]
            if family(kind) == "int":
                found += [f"{ref} + 1", f"abs({ref})", f"pure({ref}::int)", f"greatest({ref}, 3)"]
            elif kind != "uuid":
                found += [f"upper({ref})", f"{ref} || 'x'", f"substr({ref}, 2)"]
            return self.rng.choice(found)
        if depth < DEEPEST and style < 0.9:
            return f"({self.scalar(kind, scope, depth)})"
        return f"cast({value} as {kind})"

    def scalar(self, kind, scope, depth):
        """A query that gives one value."""
        inner, columns = self.select(depth + 1, scope, [kind])
        alias = self.alias("q")
        function = "max" if kind != "uuid" else "count"
        if function == "count" or self.chance(0.4):
            return f"{inner} order by 1 limit 1"
        return f"select {function}({alias}.c1) from ({inner}) {alias} (c1)" if columns else inner

    # Sources

    def columns(self, table, alias):
        """A table's columns under an alias."""
        distribution, columns = TABLES[table]
        return [Column(f"{alias}.{name}", kind, distribution if at == 0 else None)
                for at, (name, kind) in enumerate(columns.items())]

    def source(self, outer, depth, lateral):
        """What FROM may have: its text and columns."""
        style = self.rng.random()
        alias = self.alias()
        if self.ctes and style < 0.22:
            name, columns = self.rng.choice(self.ctes)
            return f"{name} {alias}", [column._replace(ref=f"{alias}.{column.ref}") for column in columns]
        if style < 0.31 and depth < DEEPEST:
            word = "lateral " if lateral and self.chance(0.6) else ""
            text, columns = self.select(depth + 1, outer if word else ())
            names = [f"c{number}" for number in range(1, len(columns) + 1)]
            return (f"{word}({text}) {alias} ({', '.join(names)})",
                    [column._replace(ref=f"{alias}.{name}") for column, name in zip(columns, names)])
        if style < 0.36:
            rows = ", ".join(f"({self.values.plain(self.key('tenant'), 'int')}, {self.rng.randrange(5)})"
                             for _ in range(2))
            return f"(values {rows}) {alias} (k, n)", [Column(f"{alias}.k", "int", "tenant"),
                                                      Column(f"{alias}.n", "int")]
        if style < 0.39:
            keys = self.values.array([self.key("tenant") for _ in range(2)], "bigint")
            if not keys.endswith("]"):
                keys += "::bigint[]"
            return f"unnest({keys}) {alias} (k)", [Column(f"{alias}.k", "bigint", "tenant")]
        if style < 0.41:
            return f"generate_series(1, 4) {alias} (g)", [Column(f"{alias}.g", "int")]
        table = self.rng.choice(READ)
        only = self.rng.choice(["", "", "", "only "]) if table.startswith(("orders", "accounts")) else ""
        found = self.columns(table, alias)
        if self.chance(0.06):
            # Which table's column it is must be found.
            found = [column._replace(ref=column.ref.split(".")[1]) for column in found]
        return f"{only}{table} {alias}", found

    def link(self, new, before):
        """Equality of a new source with one before, mostly of keys."""
        mine = self.rng.choice([column for column in new if column.key] or new)
        same = [column for column in before if column.key and column.key == mine.key]
        if same and self.chance(0.85 if self.near else 1):
            return f"{mine.ref} = {self.rng.choice(same).ref}"
        fitting = [column for column in before if family(column.kind) == family(mine.kind)]
        if fitting:
            return f"{self.rng.choice(fitting).ref} = {mine.ref}"
        return "true"

    def sources(self, outer, depth):
        """FROM: its text, columns, and what must stand in WHERE."""
        text, columns = self.source(outer, depth, False)
        where = []
        for _ in range(self.rng.choice([0, 0, 0, 1, 1, 2] if depth == 0 else [0, 0, 0, 0, 0, 1])):
            kind = self.rng.choice([",", "cross join", "join", "join", "join", "inner join", "left join", "left join",
                                    "left join", "right join", "right join", "full join", "natural left join"])
            # A lateral source can't name the side that an outer join may make NULL.
            lateral = kind in (",", "cross join", "join", "left join")
            new, its = self.source([*columns, *outer], depth, lateral)
            if self.chance(0.12):
                new, its = self.nested(new, its, depth)
            if kind in (",", "cross join"):
                if self.chance(0.9):
                    where.append(self.link(its, columns))
                text = f"{text}{'' if kind == ',' else ' '}{kind} {new}" if kind != "," or depth else \
                    f"{text} cross join {new}"
            else:
                on = self.join_condition(kind, text, its, columns, depth)
                text = f"{text} {kind} {new}{on}"
                if "using" in on:
                    its = [*its, Column("account_id", its[0].kind, its[0].key)]
            columns = columns + its
            if "natural" not in text and " using " not in text and " cross " not in text and self.chance(0.06):
                text, columns = self.joined(text, columns)
        return text, columns, where

    def nested(self, text, columns, depth):
        """A join in parentheses, as one side of another."""
        new, its = self.source([], depth, False)
        kind = self.rng.choice(["join", "left join", "left join", "right join", "full join"])
        on = self.join_condition(kind, "", its, columns, depth)
        return f"({text} {kind} {new}{on})", columns + its

    def joined(self, text, columns):
        """A join under an alias of its own."""
        alias = self.alias("j")
        names = [f"c{number}" for number in range(1, len(columns) + 1)]
        return f"({text}) {alias} ({', '.join(names)})", \
            [column._replace(ref=f"{alias}.{name}") for column, name in zip(columns, names)]

    def join_condition(self, kind, before_text, new, before, depth):
        """ON or USING."""
        if kind.startswith("natural"):
            return ""
        if before_text and " join " not in before_text and self.chance(0.15) \
                and new[0].ref.endswith(".account_id") and before[0].ref.endswith(".account_id"):
            return " using (account_id)"
        parts = [self.link(new, before)]
        keys = [column for column in [*new, *before] if column.key]
        if kind != "full join" or self.chance(0.2):
            if keys and self.chance(0.35):
                parts.append(self.test(self.rng.choice(keys), DEEPEST))
            if self.chance(0.25):
                parts.append(self.noise([*new, *before], depth + 1))
        self.rng.shuffle(parts)
        if len(parts) == 2 and self.chance(0.1):
            return f" on ({parts[0]} or {parts[1]})"
        return " on " + " and ".join(parts)

    # Queries

    def where(self, columns, given, depth, outer, proved=0.75):
        """WHERE, with what must stand in it."""
        parts = list(given)
        keys = [column for column in columns if column.key]
        linked = False
        if not self.near:
            proved = 1
        for column in keys:
            mates = [other for other in outer if other.key and other.key == column.key]
            if mates and self.chance(0.6):
                parts.append(f"{column.ref} = {self.rng.choice(mates).ref}")
            elif self.chance(0.25 if linked and self.near else proved):
                parts.append(self.test(column, depth, columns))
                linked = True
        if self.chance(0.4) and columns:
            parts.append(self.noise([*columns, *outer], depth))
        if self.chance(0.06) and keys:
            parts = self.bridge(self.rng.choice(keys), columns) or parts
        self.rng.shuffle(parts)
        if len(parts) > 1 and self.chance(0.04):
            return f" where {' or '.join(parts)}"
        return f" where {' and '.join(parts)}" if parts else ""

    def bridge(self, key, columns):
        """A key that equals a column, which is compared with the value."""
        others = [column for column in columns if family(column.kind) == family(key.kind) and column != key]
        if not others:
            return []
        other = self.rng.choice(others)
        value = self.values.value(self.key(key.key), other.kind)
        return [f"{key.ref} = {other.ref}", self.rng.choice([
            f"{other.ref} = {value}", f"{other.ref} = {value}", f"{value} = {other.ref}",
            f"{other.ref} in ({value})", f"({other.ref} = {value} or {other.ref} is null)"])]

    def hidden(self):
        """An integer that comes from a query in an unusual place; the query may read all shards."""
        table = self.rng.choice([name for name, (of, _) in TABLES.items() if of])
        column = self.columns(table, self.alias("h"))[0]
        where = f" where {self.test(column, DEEPEST)}" if self.chance(0.85 if self.near else 1) else ""
        query = f"(select count(*)::int from {table} {column.ref.split('.')[0]}{where})"
        one = self.rng.choice([
            "{}", "array[{}]", "(array(select {}))[1]", "case {} when 1 then 2 else 3 end", "coalesce({}, 1)",
            "greatest(1, {})", "row({}, 1)::text", "({})::text::int", "case when {} > 1 then 1 end", "nullif(1, {})",
            "{} is distinct from 2", "{} between 1 and 9", "1 between {} and 9", "3 in (1, {})",
            "{} = any (array[1, {}])", "(array[1, 2, 3])[{}]", "substr('abcdef', {})", "extract(day from "
            "date '2026-01-01' + {})", "not {} = 3", "({}, 1) < (2, 2)", "'a' || {} collate \"C\"", "- {}",
            "exists (select {})", "(select max(x) from generate_series(1, {}) x)", "array(select {} union select 1)",
            "(select sum(x + {}) from (values (1), ({})) v (x))", "{} is null", "({} > 1) is not true",
            "(select count(*) from (select 1 limit {}) x)", "overlay('abc' placing 'x' from 1 for {})",
            "(select x from (values (1), (2), (3)) v (x) order by x = {}, x limit 1)", "xmlelement(name a, {})::text",
            "(select count(*) filter (where x > {}) from generate_series(1, 3) x)", "to_char({}, '99')",
            "(select sum(x) over (partition by x > {}) from generate_series(1, 2) x order by x limit 1)",
            "(select string_agg(x::text, ',' order by abs(x - {}), x) from generate_series(1, 4) x)",
            "(select percentile_disc(0.5) within group (order by x + {}) from generate_series(1, 3) x)",
            "(with w as (select {} as y) select y from w)", "(select x from lateral (select {} as x) l)",
            "(select count(*) from unnest(array[1, {}]) x)", "(select max(x) from rows from (generate_series(1, {})) x)",
            "(select max(x) from (select 1 as x union all select {}) u)", "concat(variadic array[{}, 1])",
            "(select 1 from (select 1) a join (select 2) b on {} > 0 limit 1)", "make_date(y := 2026, m := 1, d := {} + 1)",
            "(select count(*) from (select 1 group by rollup ({})) g)", "jsonb_build_object('a', {})::text",
            "(select count(*) from generate_series(1, 5) x having count(*) > {})", "current_date - current_date + {}",
            "(select y from (select {} as y offset 0) o)", "abs({})",
            "(select distinct on (x > {}) x from generate_series(1, 3) x order by x > {}, x limit 1)",
            "row({}) = row(1)",
        ])
        return one.replace("{}", query)

    def select(self, depth, outer=(), kinds=None):
        """A query without an order, with its columns (which have no names). kinds: of its columns."""
        if depth < DEEPEST and self.chance(0.1):
            return self.set_operation(depth, outer, kinds)
        text, columns, given = self.sources(list(outer), depth)
        where = self.where(columns, given, depth, outer)
        if self.chance(0.2):
            return self.grouped(text, columns, where, kinds, depth)
        wanted = kinds or [None] * self.rng.choice([1, 2, 2, 3])
        out, outputs = [], []
        for kind in wanted:
            fitting = [column for column in columns if not kind or family(column.kind) == family(kind)]
            if fitting and self.chance(0.7):
                column = self.rng.choice([column for column in fitting if column.key] or fitting
                                         if self.chance(0.6) else fitting)
                # A query's columns must have one kind in all its arms.
                cast = f"::{kind}" if kind and kind != column.kind and family(kind) == "text" else ""
                out.append(column.ref + cast)
                outputs.append(column)
            else:
                kind = kind or self.rng.choice(["int", "text"])
                out.append(self.expression(kind, [*columns, *outer], depth))
                outputs.append(Column("", kind))
        if self.chance(0.08) and not kinds:
            out.append(self.window(columns))
            outputs.append(Column("", "bigint"))
        distinct = "distinct " if self.chance(0.1) else ""
        if self.chance(0.05):
            first = self.rng.choice(columns).ref
            order = ", ".join(column.ref for column in columns)
            return f"select * from (select distinct on ({first}) {', '.join(out)} from {text}{where} " \
                   f"order by {first}, {order}) {self.alias('d')}", outputs
        return f"select {distinct}{', '.join(out)} from {text}{where}", outputs

    def window(self, columns):
        """A window function that has one answer."""
        order = ", ".join(column.ref for column in columns)
        part = self.rng.choice(columns).ref
        keys = [column for column in columns if column.key]
        some = f" filter (where {self.test(self.rng.choice(keys), DEEPEST)})" if keys and self.chance(0.4) else ""
        return self.rng.choice([f"row_number() over (order by {order})", f"rank() over (order by {part})",
                                f"count(*){some} over (partition by {part})",
                                f"count({part}){some} over (order by {order} rows 1 preceding)"])

    def grouped(self, text, columns, where, kinds, depth):
        """Aggregates, with GROUP BY and HAVING."""
        wanted = kinds or ["bigint"] * self.rng.choice([1, 2])
        group = [self.rng.choice(columns)] if self.chance(0.6) else []
        out, outputs = [], []
        for kind in wanted:
            fitting = [column for column in columns if family(column.kind) == family(kind)]
            if group and family(group[0].kind) == family(kind) and self.chance(0.4):
                out.append(group[0].ref)
                outputs.append(group[0])
                continue
            outputs.append(Column("", kind))
            if family(kind) == "int":
                out.append(self.aggregate(columns, fitting))
            elif fitting and kind != "uuid":
                ref = self.rng.choice(fitting).ref
                out.append(self.rng.choice([f"max({ref})", f"string_agg({ref}, ',' order by {ref})"]))
            else:
                out.append(f"cast({self.values.value(self.some(kind), kind)} as {kind})")
        if group and not kinds and self.chance(0.6):
            out.insert(0, group[0].ref)
            outputs.insert(0, group[0])
        tail = ""
        if group:
            sets = self.rng.choice([group[0].ref] * 6 + [f"rollup ({group[0].ref})"])
            tail = f" group by {sets}"
        if self.chance(0.2):
            keys = [column for column in group if column.key]
            tail += f" having {self.test(keys[0], DEEPEST) if keys else 'count(*) > 1'}"
        return f"select {', '.join(out)} from {text}{where}{tail}", outputs

    def aggregate(self, columns, fitting):
        """An aggregate that gives an integer."""
        keys = [column for column in columns if column.key]
        some = f" filter (where {self.test(self.rng.choice(keys), DEEPEST)})" if keys and self.chance(0.25) else ""
        ref = self.rng.choice(fitting or columns).ref
        found = [f"count(*){some}", f"count(distinct {ref}){some}", f"count({ref}){some}"]
        if fitting:
            found += [f"sum({ref})::bigint{some}" if not some else f"(sum({ref}){some})::bigint",
                      f"max({ref}){some}", f"min({ref}){some}"]
        return self.rng.choice(found)

    def set_operation(self, depth, outer, kinds):
        """UNION, EXCEPT, INTERSECT."""
        kinds = kinds or self.rng.choice([["int"], ["text"], ["int", "text"]])
        left, columns = self.select(depth + 1, outer, kinds)
        right, others = self.select(depth + 1, outer, kinds)
        word = self.rng.choice(["union", "union all", "except", "intersect"])
        both = [one if one.key == two.key else Column("", one.kind, one.key or two.key)
                for one, two in zip(columns, others)]
        return f"({left}) {word} ({right})", both

    def with_queries(self):
        """WITH, before any statement, or nothing."""
        if not self.chance(0.25):
            return ""
        parts = []
        for _ in range(self.rng.choice([1, 1, 2])):
            if self.chance(0.12):
                table = self.rng.choice([name for name in TENANT_TABLES if name != "events_1"])
                column = self.columns(table, self.alias("s"))[0]
                parts.append(f"{table} as (select * from {table} {column.ref.split('.')[0]} "
                             f"where {self.test(column, DEEPEST)})")
                continue
            name = self.alias("w")
            if self.chance(0.2):
                text, columns = self.writing_query()
            else:
                text, columns = self.select(1)
            names = [f"c{number}" for number in range(1, len(columns) + 1)]
            hint = self.rng.choice(["", "", "materialized ", "not materialized "])
            if text.startswith(("insert", "update", "delete")):
                hint = ""
            parts.append(f"{name} ({', '.join(names)}) as {hint}({text})")
            self.ctes.append((name, [column._replace(ref=one) for column, one in zip(columns, names)]))
        return f"with {', '.join(parts)} "

    def recursive(self):
        """WITH RECURSIVE along parents, mostly within a tenant."""
        key = Column("account_id", "bigint", "tenant")
        first = f"select account_id, parent_id, 1 from accounts where {self.test(key, DEEPEST)}"
        on = self.rng.choice(["a.account_id = t.account_id", "a.account_id = t.account_id and a.score > 0",
                              "a.account_id = t.parent_id", "a.parent_id = t.account_id",
                              f"a.account_id = {self.values.value(self.key('tenant'), 'bigint')}"])
        out = self.rng.choice(["a.account_id, a.parent_id", "t.account_id, a.parent_id",
                               "a.parent_id, a.account_id"])
        word = self.rng.choice(["union", "union all"])
        end = self.rng.choice([
            "select * from t", "select o.id, t.n from t join orders o on o.account_id = t.account_id",
            "select count(*) from orders where account_id in (select account_id from t)"])
        tail = " order by 1, 2, 3" if "*" in end[:9] else " order by 1, 2" if end.startswith("select o") else ""
        return f"with recursive t (account_id, parent_id, n) as ({first} {word} select {out}, t.n + 1 " \
               f"from accounts a join t on {on} where t.n < 4) {end}{tail}"

    def read(self):
        """A statement that gives rows in one order."""
        if self.chance(0.04):
            return self.recursive()
        ctes = self.with_queries()
        text, columns = self.select(0)
        if self.chance(0.1) and text.startswith("select ") and not text.startswith("select *"):
            text, more = self.hiding(text)
            columns = columns + more
        order = f" order by {', '.join(str(n) for n in range(1, len(columns) + 1))}"
        limit = self.rng.choice([""] * 8 + [" limit 3", " limit 2 offset 1"])
        if self.chance(0.02):
            limit = self.rng.choice([f" limit ({self.hidden()})", f" offset ({self.hidden()})",
                                     f" fetch first ({self.hidden()}) rows only"])
        if self.chance(0.03) and not self.values.allowed and not self.written:
            return f"copy ({ctes}{text}{order}{limit}) to stdout"
        lock = ""
        if not limit and self.chance(0.04):
            lock = self.rng.choice([" for update", " for share", " for key share"])
        return f"{ctes}{text}{order}{limit}{lock}"

    def hiding(self, text):
        """A query with an expression that has another in an unusual place, and what columns it has more."""
        hidden = self.hidden()
        style = self.rng.randrange(4)
        if style == 0 and " group by " not in text:
            return f"{text} {'and' if ' where ' in text.split(' from ')[-1] else 'where'} {hidden} is not null", []
        if style == 1:
            return f"select * from ({text}) {self.alias('x')} where ({hidden}) is not null", []
        if style == 2:
            return f"select * from ({text}) {self.alias('x')} join lateral (select {hidden}) y on true", \
                [Column("", "int")]
        if "distinct" in text[:20]:
            return text, []
        return text.replace("select ", f"select {hidden}, ", 1), [Column("", "int")]

    # Writes

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
        text = ctes + self.rng.choice([self.insert, self.insert, self.update, self.update, self.delete])(table)
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
                style = self.rng.random()
                value = self.values.value(self.key(distribution), kind)
                out.append(theirs[0].ref if style < 0.7 else f"cast({value} as {kind})" if style < 0.85 else value)
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
        return f"select {distinct}{', '.join(out)} from {source} {alias}{self.where(theirs, [], DEEPEST - 1, ())}"

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
            sets.append(f"{name} = cast({value} as {column.kind})" if self.chance(0.8) else f"{name} = default")
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

