"""The tables of `sharded_world` as generated statements see them, and choices among tables and keys."""

from typing import NamedTuple

from .sharded_values import Values, family


class Column(NamedTuple):
    """A column that a query can name."""

    ref: str
    kind: str
    key: str | None = None  # the distribution whose key it is


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
DEEPEST = 3  # how many queries lie in each other


class Choices:
    """Tables, keys and names for one statement, by a random source."""

    def __init__(self, rng, keys, parameters, near=0.2):
        """keys: of each distribution, by shard. near: how often a proof is only almost one."""
        self.rng, self.keys, self.near = rng, keys, near
        self.values = Values(rng, parameters)
        self.shard = rng.randrange(len(keys["tenant"]))
        self.focus = {}
        self.aliases = 0
        self.ctes = []
        self.written = set()

    def chance(self, share):
        """True so often."""
        return self.rng.random() < share

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

    def columns(self, table, alias):
        """A table's columns under an alias."""
        distribution, columns = TABLES[table]
        return [Column(f"{alias}.{name}", kind, distribution if at == 0 else None)
                for at, (name, kind) in enumerate(columns.items())]
