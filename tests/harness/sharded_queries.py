"""Generated queries: joins, subqueries, WITH, set operations, aggregates and windows."""

from .sharded_conditions import Conditions
from .sharded_tables import DEEPEST, READ, TENANT_TABLES, Column
from .sharded_values import family


class Queries(Conditions):
    """Makes queries."""

    def subquery_condition(self, scope, depth):
        """EXISTS, IN and comparisons with what a query gives."""
        column = self.rng.choice(scope)
        negated = self.rng.choice(["", "not "])
        if self.chance(0.5):
            return f"{negated}exists ({self.select(depth + 1, scope)[0]})"
        inner = self.select(depth + 1, scope, [column.kind])[0]
        if self.chance(0.7):
            return f"{column.ref} {negated}in ({inner})"
        operator = self.rng.choice(["<", ">", "<=", "="])
        return f"{column.ref} {operator} {self.rng.choice(['any', 'all'])} ({inner})"

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
            kind = self.rng.choice([",", "cross join", *["join"] * 3, "inner join", *["left join"] * 3,
                                    *["right join"] * 2, "full join", "natural left join"])
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
            if not any(f" {word} " in text for word in ("natural", "using", "cross")) and self.chance(0.06):
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

    def filter(self, keys):
        """FILTER with a condition on a key, if there is one."""
        return f" filter (where {self.test(self.rng.choice(keys), DEEPEST)})" if keys else ""

    def window(self, columns):
        """A window function that has one answer."""
        order = ", ".join(column.ref for column in columns)
        part = self.rng.choice(columns).ref
        keys = [column for column in columns if column.key]
        some = self.filter(keys) if self.chance(0.4) else ""
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
        some = self.filter(keys) if self.chance(0.25) else ""
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
        tail = {"select * ": " order by 1, 2, 3", "select o.": " order by 1, 2"}.get(end[:9], "")
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
            word = "and" if " where " in text.split(" from ")[-1] else "where"
            return f"{text} {word} {hidden} is not null", []
        if style == 1:
            return f"select * from ({text}) {self.alias('x')} where ({hidden}) is not null", []
        if style == 2:
            return f"select * from ({text}) {self.alias('x')} join lateral (select {hidden}) y on true", \
                [Column("", "int")]
        if "distinct" in text[:20]:
            return text, []
        return text.replace("select ", f"select {hidden}, ", 1), [Column("", "int")]
