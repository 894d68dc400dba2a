"""Conditions that say the shard of a table, and those that only look so."""

from .sharded_tables import DEEPEST, TABLES, Choices
from .sharded_values import family


class Conditions(Choices):
    """Makes conditions. The queries in them are made by `Queries`."""

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
            if self.chance(0.3):
                return self.row_query(column, scope)
            return f"{ref} is not distinct from {value()}"
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
        integers = [one for one in theirs[1:] if one.kind == "int"]
        values = self.rng.choice(integers or [theirs[0]._replace(ref="1")])
        first, second = self.rng.choice([(0, 1), (1, 0), (1, 0)])
        mine, out = [column.ref, other.ref], [theirs[0].ref, values.ref]
        return f"({mine[first]}, {mine[second]}) in (select {out[first]}, {out[second]} " \
               f"from {table} {theirs[0].ref.split('.')[0]} where {self.test(theirs[0], DEEPEST)})"

    def test(self, column, depth, scope=()):
        """A condition on a key."""
        made = self.almost if self.chance(self.near) else self.proof
        return made(column, depth, scope)

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
