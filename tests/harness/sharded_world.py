"""One database with all rows, beside the same rows on several shards.

The shards are copies of the one database without the rows that belong elsewhere, so numbers of tables
and types are the same everywhere. PostgreSQL itself says where a row belongs: `owner_*` are SQL
functions over its own hash.
"""

from . import wire

# Rows of these tenants are there at the beginning; keys up to LAST_TENANT are used.
TENANTS = 12
LAST_TENANT = 20
REGIONS = ("eu", "uk", "us", "asia", "Mars")
LABELS = ("red", "green", "blue", "a b", "ä", "RED")
DOCS = tuple(f"{n:x}0000000-0000-4000-8000-00000000000{n:x}" for n in range(1, 11))
SERIALS = 40

SCHEMA = """
create table accounts (account_id bigint primary key, name text, parent_id bigint, plan text, score int);
create table orders (account_id int not null, id int, total int, note text, tag varchar(8),
    primary key (account_id, id));
create table items (order_id int, account_id smallint not null, n int, qty int, sku text,
    unique (account_id, order_id, n));
create table visits (region text not null, id int, account_id bigint, page text, primary key (region, id));
create table docs (doc uuid primary key, account_id bigint, title text);
create table tags (label varchar not null, id int, account_id bigint, weight int, primary key (label, id));
create table serials (serial_no bigint primary key, account_id bigint, weight int);
create table countries (code text primary key, name text, area int);
create table rates (code text, kind int, rate int, primary key (code, kind));
create table settings (name text primary key, value text, account_id bigint);
create table events (account_id bigint not null, day int, id int, kind text,
    primary key (account_id, day, id)) partition by range (day);
create table events_1 partition of events for values from (0) to (10);
create table events_2 partition of events for values from (10) to (20);
create view account_view as select account_id, name, score from accounts where score is not null;
create schema other;
create table other.accounts (account_id bigint primary key, other text);
create domain other.number as bigint;
create function other.always(other.number, other.number) returns boolean immutable language sql
    as 'select true';
create operator other.= (leftarg = other.number, rightarg = other.number, function = other.always);
create function pure(int) returns int immutable language sql as 'select $1 + 1';
create function reads_all() returns bigint stable language sql as 'select count(*) from accounts';
create table h_tenant (k bigint) partition by hash (k);
create table h_doc (k uuid) partition by hash (k);
create table h_label (k text) partition by hash (k);
"""

ROWS = """
insert into accounts select t, 'name ' || t % 5, nullif((t * 7) % 13, 0),
    case when t % 4 > 0 then (array['de', 'fr', 'jp'])[t % 4] end, nullif(t % 6, 0)
    from generate_series(1, {tenants}) t;
insert into orders select t, i, nullif((t * i) % 11, 0), case when i % 2 = 0 then 'note ' || t % 3 end,
    (array['red', 'green', 'blue'])[1 + (t + i) % 3]
    from generate_series(1, {tenants}) t, generate_series(1, 4) i where (t + i) % 5 > 0;
insert into items select i, t, n, nullif((t + i * n) % 7, 0), 'sku ' || (t + n) % 4
    from generate_series(1, {tenants}) t, generate_series(1, 4) i, generate_series(1, 2) n
    where (t * i + n) % 3 > 0;
insert into visits select r, i, nullif((ascii(r) + i) % 13, 0), 'page ' || i % 3
    from unnest(array{regions}) r, generate_series(1, 5) i;
insert into docs select d::uuid, nullif(n % 7, 0), 'title ' || n % 4
    from unnest(array{docs}) with ordinality as u (d, n);
insert into tags select l, i, nullif((ascii(l) + i) % 13, 0), (ascii(l) * i) % 9
    from unnest(array{labels}) l, generate_series(1, 3) i;
insert into serials select s, nullif(s % 13, 0), nullif((s * 5) % 8, 0) from generate_series(1, {serials}) s;
insert into countries values ('de', 'Germany', 357), ('fr', 'France', 551), ('jp', 'Japan', null),
    ('eu', 'Union', 4233);
insert into rates select code, kind, length(name) * kind from countries, generate_series(1, 2) kind;
insert into settings values ('theme', 'dark', 5), ('limit', '7', null), ('red', null, 2);
insert into events select t, d, i, case when d % 3 > 0 then 'kind ' || d % 3 end
    from generate_series(1, {tenants}) t, generate_series(5, 14, 3) d, generate_series(1, 2) i
    where (t + d + i) % 3 > 0;
insert into other.accounts select t, 'other ' || t % 3 from generate_series(1, {tenants}) t;
create schema base;
"""

# Each sharded table with its distribution and its key.
SHARDED = {
    "public.accounts": ("tenant", "account_id"), "public.orders": ("tenant", "account_id"),
    "public.items": ("tenant", "account_id"), "public.events": ("tenant", "account_id"),
    "public.visits": ("region", "region"), "public.docs": ("document", "doc"),
    "public.tags": ("label", "label"), "public.serials": ("serial", "serial_no"),
    "other.accounts": ("odd", "account_id"),
}
REPLICATED = {"public.countries": 0, "public.rates": 1}
ON_ONE_SHARD = {"public.settings": 1}


class World:
    """A database of so many shards, and the one that has all rows."""

    def __init__(self, postgres, count, name="oracle"):
        self.postgres, self.count = postgres, count
        self.name = f"{name}{count}"
        self.whole = f"{self.name}_whole"
        self.shards = [f"{self.name}_{number}" for number in range(count)]
        self._own = {}  # connections past Howdah
        self._make()
        # Each distribution's keys by their shard.
        self.keys = self._read_keys()

    # The map

    def entries(self):
        """Entries of Howdah's databases."""
        at = f"host={self.postgres.host} port={self.postgres.port}"
        return {**{shard: at for shard in self.shards}, self.name: f"shards={','.join(self.shards)}"}

    def maps(self):
        """The sections of the map."""
        return {f"distributions:{self.name}": self.distributions(), f"tables:{self.name}": self.tables()}

    def distributions(self):
        """Lines of the section of distributions."""
        shards, last = self.shards, self.shards[-1]

        def slots(count, first=0):
            return " ".join(f"{slot}={shards[(first + slot * self.count // count) % self.count]}"
                            for slot in range(count))
        split = 10 if self.count == 2 else 7
        ranges = [f"{number * split}-{number * split + split - 1}={shard}"
                  for number, shard in enumerate(shards[:-1])]
        ranges.append(f"{(self.count - 1) * split}-={last}")
        return {
            "tenant": f"hash bigint slots=12 {slots(12)}",
            "odd": f"hash bigint slots=6 {slots(6, 1)}",
            "document": f"hash uuid slots=8 {slots(8)}",
            "label": f"hash text slots=8 {slots(8)}",
            "region": f"list text eu,uk={shards[0]} us={shards[1]} asia={last}"
                      + (f" *={last}" if self.count < 5 else ""),
            "serial": "range bigint " + " ".join(ranges),
        }

    def tables(self):
        """Lines of the section of tables."""
        lines = {name: f"replicated({self.shards[home]})" for name, home in REPLICATED.items()}
        lines.update({name: self.shards[shard] for name, shard in ON_ONE_SHARD.items()})
        lines["public.account_view"] = "tenant(account_id)"
        lines.update({name: f"{distribution}({key})" for name, (distribution, key) in SHARDED.items()
                      if distribution != "tenant"})
        lines["public.*"] = "tenant(account_id)"
        return lines

    def _owners(self):
        """SQL functions that say the shard of a key, by PostgreSQL's own hash."""
        found = []
        for name, slots, first, table, kind in (
                ("tenant", 12, 0, "h_tenant", "bigint"), ("odd", 6, 1, "h_tenant", "bigint"),
                ("document", 8, 0, "h_doc", "uuid"), ("label", 8, 0, "h_label", "text")):
            arms = " ".join(
                f"when satisfies_hash_partition('{table}'::regclass, {slots}, {slot}, k) "
                f"then {(first + slot * self.count // slots) % self.count}" for slot in range(slots))
            found.append((name, kind, f"case {arms} end"))
        last = self.count - 1
        beyond = "null" if self.count == 5 else str(last)
        found.append(("region", "text", f"case k when 'eu' then 0 when 'uk' then 0 when 'us' then 1 "
                                        f"when 'asia' then {last} else {beyond} end"))
        found.append(("serial", "bigint", f"case when k < 0 then null else "
                                          f"least(k / {10 if self.count == 2 else 7}, {last})::int end"))
        return "".join(f"create function owner_{name}(k {kind}) returns int stable language sql as "
                       f"$$select {body}$$;" for name, kind, body in found)

    # The databases

    def _make(self):
        sql = self.postgres.sql
        sql(f"create database {self.whole} template template0")
        sql(SCHEMA, self.whole)
        sql(ROWS.format(tenants=TENANTS, serials=SERIALS, regions=list(REGIONS), docs=list(DOCS),
                        labels=list(LABELS)), self.whole)
        sql(self._owners(), self.whole)
        if self.count == 5:
            # No line of the map has it.
            sql("delete from visits where region = 'Mars'", self.whole)
        copies = "".join(f"create table base.{self._base(table)} as table {table};"
                         for table in self.all_tables())
        for number in [None, *range(self.count)]:
            database = self.whole if number is None else self.shards[number]
            if number is not None:
                sql(f"create database {database} template {self.whole}")
                sql(self._foreign_rows(number), database)
        for database in [self.whole, *self.shards]:
            sql(copies + "analyze;", database)

    def sql(self, statement, database):
        """Runs statements in one of the databases, and gives their rows."""
        if database not in self._own:
            self._own[database] = self.connect(database)
        return self._own[database].rows(statement)

    def close(self):
        """Closes the world's own connections."""
        for client in self._own.values():
            client.close()

    def connect(self, database):
        """A raw client of the one database or of a shard, past Howdah."""
        return self.postgres.connect(database=database)

    @staticmethod
    def _base(table):
        return table.replace(".", "_")

    def _foreign_rows(self, number):
        gone = [f"delete from {table} where owner_{distribution}({key}) <> {number};"
                for table, (distribution, key) in SHARDED.items()]
        gone += [f"delete from {table};" for table, shard in ON_ONE_SHARD.items() if shard != number]
        return "".join(gone)

    @staticmethod
    def all_tables():
        """Every table with rows."""
        return [*SHARDED, *REPLICATED, *ON_ONE_SHARD]

    def _read_keys(self):
        ranges = {"tenant": f"generate_series(1::bigint, {LAST_TENANT})",
                  "odd": f"generate_series(1::bigint, {LAST_TENANT})",
                  "serial": f"generate_series(1::bigint, {SERIALS})",
                  "region": f"unnest(array{list(REGIONS)})", "label": f"unnest(array{list(LABELS)})",
                  "document": f"unnest(array{list(DOCS)}::uuid[])"}
        found = {}
        for name, values in ranges.items():
            by_shard = found[name] = [[] for _ in range(self.count)]
            for key, shard in self.sql(
                    f"select k, owner_{name}(k) from {values} k order by 1", self.whole):
                if shard is not None:
                    by_shard[int(shard)].append(int(key) if key.isdigit() else key)
        return found

    def reset(self):
        """All rows as they were at the beginning, everywhere."""
        again = "".join(f"delete from {table}; insert into {table} select * from base.{self._base(table)};"
                        for table in self.all_tables())
        for database in [self.whole, *self.shards]:
            self.sql(again, database)

    def replicate(self):
        """Brings the replicated tables of all shards to what their homes have."""
        for table, home in REPLICATED.items():
            rows = self.sql(f"select r::text from {table} r", self.shards[home])
            values = ", ".join(wire_text(row[0]) for row in rows)
            fill = f"insert into {table} select (r::{table}).* from unnest(array[{values}]::text[]) r"
            for number, shard in enumerate(self.shards):
                if number != home:
                    self.sql(f"delete from {table}; {fill}", shard)

    def state(self, database):
        """Rows of all tables: (table, row as text, shard that it belongs to)."""
        asked = [f"select '{table}', r::text, owner_{distribution}({key})::text from {table} r"
                 for table, (distribution, key) in SHARDED.items()]
        asked += [f"select '{table}', r::text, '{shard}' from {table} r"
                  for table, shard in ON_ONE_SHARD.items()]
        asked += [f"select '{table}', r::text, 'all' from {table} r" for table in REPLICATED]
        return [tuple(row) for row in self.sql(" union all ".join(asked), database)]

    def faults(self):
        """What is not on the shards as in the one database, as lines of text."""
        found, together = [], []
        for number, shard in enumerate(self.shards):
            for table, row, owner in self.state(shard):
                if owner == "all":
                    if REPLICATED[table] != number:
                        continue
                elif owner != str(number):
                    found.append(f"{table} {row} is on shard {number}, and belongs to {owner}")
                together.append((table, row))
        whole = [row[:2] for row in self.state(self.whole)]
        for row in set(whole) | set(together):
            if whole.count(row) != together.count(row):
                found.append(f"{row}: {whole.count(row)} in the one database, "
                             f"{together.count(row)} on the shards")
        return sorted(found)


def wire_text(text):
    """A string constant."""
    return "'" + text.replace("'", "''") + "'"
