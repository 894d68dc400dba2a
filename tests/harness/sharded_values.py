"""Values in generated statements: constants in many spellings, and parameters of many types."""

import re
import struct
import uuid
from typing import NamedTuple

OIDS = {"smallint": 21, "int": 23, "bigint": 20, "text": 25, "varchar": 1043, "uuid": 2950}
ARRAYS = {"smallint": 1005, "int": 1007, "bigint": 1016, "text": 1009, "varchar": 1015, "uuid": 2951}
INTEGERS = {"smallint": "!h", "int": "!i", "bigint": "!q"}

# A parameter in a text that is not finished.
MARK = "\x01{}\x02"


class Parameter(NamedTuple):
    """A parameter as it is bound."""

    oid: int  # what Parse declares, 0 for nothing
    binary: bool
    value: bytes
    kind: str = ""  # of integers

    def other(self, rng):
        """The same with another value, if it is an integer."""
        if self.kind not in INTEGERS:
            return self
        value = rng.randrange(1, 21)
        return self._replace(value=binary(value, self.kind) if self.binary else str(value).encode())


def binary(value, kind):
    """A value as PostgreSQL sends it in its binary form."""
    if kind in INTEGERS:
        return struct.pack(INTEGERS[kind], value)
    if kind == "uuid":
        return uuid.UUID(value).bytes
    return str(value).encode()


def binary_array(values, kind):
    """An array of one dimension in its binary form."""
    body = struct.pack("!iiI", 1 if values else 0, 0, OIDS[kind])
    if values:
        body += struct.pack("!ii", len(values), 1)
    for value in values:
        raw = binary(value, kind)
        body += struct.pack("!i", len(raw)) + raw
    return body


def array_text(values):
    """An array as text."""
    return "{" + ",".join(f'"{value}"' if " " in str(value) else str(value) for value in values) + "}"


def quoted(text):
    """A string constant."""
    return "'" + str(text).replace("'", "''") + "'"


def family(kind):
    """Kinds that compare with each other by the same operators."""
    return "int" if kind in INTEGERS else "text" if kind in ("text", "varchar") else kind


class Values:
    """Writes values into one statement, and keeps its parameters."""

    def __init__(self, rng, parameters):
        """parameters: whether the statement may have any."""
        self.rng, self.allowed = rng, parameters
        self.parameters = []
        self._seen = {}

    def settle(self, text):
        """A text with its parameters as PostgreSQL writes them: $1 is the first that is in the text."""
        used, numbers = [], {}

        def name(found):
            mark = int(found[1])
            if mark not in numbers:
                used.append(self.parameters[mark - 1])
                numbers[mark] = len(used)
            return f"${numbers[mark]}"
        text = re.sub(MARK.format(r"(\d+)"), name, text)
        self.parameters = used
        return text

    def plain(self, value, kind):
        """A constant of which nothing is odd."""
        if value is None:
            return "null"
        return str(value) if kind in INTEGERS else quoted(value)

    def value(self, value, kind):
        """A constant or parameter that PostgreSQL reads as this value of this kind of column."""
        if value is None:
            return "null"
        if self.allowed and self.rng.random() < 0.6:
            return self.parameter(value, kind)
        return self.rng.choice(self._spellings(value, kind))

    def _spellings(self, value, kind):
        plain = self.plain(value, kind)
        found = [plain] * 6 + [quoted(value), f"({plain})", f"cast({plain} as {kind})", f"{plain}::{kind}"]
        if kind in INTEGERS:
            return found + [f"{quoted(value)}::bigint", f"bigint {quoted(value)}", f"$${value}$$",
                            f"cast({quoted(value)} as int)", f"{value}::smallint"]
        if family(kind) == "text":
            return found + [f"$q${value}$q$", f"{quoted(value)}::text", f"text {quoted(value)}",
                            f"E{quoted(value)}", f"'{value[:1]}'\n '{value[1:]}'", f"{quoted(value)}::varchar"]
        return found + [quoted(value.upper()), f"uuid {quoted(value)}", quoted("{" + value + "}"),
                        quoted(value.replace("-", ""))]

    def odd(self, value, kind):
        """What looks like the value, and may be another, or be of another type, or be read later."""
        plain, rng = self.plain(value, kind), self.rng
        if kind in INTEGERS:
            return rng.choice([f"{value}.0", f"{value}e0", f"{plain}::numeric", f"{quoted(value)}::text::int",
                               f"' {value}'", f"'{value} '", f"'+{value}'", f"'0{value}'", f"+{value}",
                               f"- -{value}", f"{value - 1} + 1", f"abs({value})", f"0x{value:x}", f"{value}_0",
                               f"'{value}.0'", f"'0x{value:x}'", f"coalesce(null, {value})", f"{value}::float8",
                               f"(select {value})", f"pure({value - 1})", f"{value}::oid", f"'{value}'::name",
                               f"case when true then {value} end", f"greatest({value}, {value})",
                               f"-{value}", f"{value + 2 ** 32}", f"{value + 2 ** 64}", f"'{value}'::\"char\"",
                               f"(array[{value}, 3])[1]", "null", f"{value}::bigint::int", f"- ({-value})"])
        if family(kind) == "text":
            return rng.choice([f"{quoted(value)}::char(3)", f"{quoted(value)}::varchar(1)", quoted(value.upper()),
                               quoted(value + " "), f"{quoted(value)}::name", f"N{quoted(value)}",
                               f"{quoted(value)} collate \"C\"", f"U&{quoted(value)}", f"lower({quoted(value)})",
                               f"{quoted(value[:1])} || {quoted(value[1:])}", f"trim({quoted(value)})",
                               f"E'\\x{ord(value[0]) % 128:x}{value[1:]}'", f"(select {quoted(value)})",
                               f"{quoted(value)}::bpchar", "null", f"concat({quoted(value)})",
                               f"{quoted(value)}::text::varchar(2)::text", f"E'{value[:1]}\\\n{value[1:]}'"])
        return rng.choice([f"{plain}::text::uuid", quoted(value[:-1]), f"lower({plain})::uuid",
                           f"(select {plain}::uuid)", "null", f"{plain}::text", quoted(value + " ")])

    def parameter(self, value, kind):
        """A parameter with this value, perhaps one that is there."""
        rng = self.rng
        again = self._seen.get((value, kind))
        if again and rng.random() < 0.3:
            return again
        of = rng.choice([*INTEGERS, kind]) if kind in INTEGERS else rng.choice(["text", "varchar", kind]) \
            if family(kind) == "text" else kind
        cast, oid = "", 0
        style = rng.random()
        if style < 0.35:
            oid = OIDS[of]
        elif style < 0.6:
            cast = f"::{of}"
        else:
            of = kind
        raw = rng.random() < 0.5
        self.parameters.append(Parameter(oid, raw, binary(value, of) if raw else str(value).encode(), of))
        name = MARK.format(len(self.parameters))
        if not cast:
            self._seen[value, kind] = name
        return name + cast

    def array(self, values, kind):
        """An array of these values."""
        rng = self.rng
        if self.allowed and rng.random() < 0.5:
            declared, raw = rng.random() < 0.5, rng.random() < 0.5
            of = rng.choice(list(INTEGERS)) if declared and kind in INTEGERS else kind
            self.parameters.append(Parameter(
                ARRAYS[of] if declared else 0, raw,
                binary_array(values, of) if raw else array_text(values).encode()))
            return MARK.format(len(self.parameters)) + ("" if declared else f"::{kind}[]")
        items = ", ".join(self.plain(value, kind) for value in values)
        literal = quoted(array_text(values))
        return rng.choice([f"array[{items}]::{kind}[]", literal, f"{literal}::{kind}[]"])
