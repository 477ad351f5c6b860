"""Spark's DDL text and Arrow types, each made of the other without Spark.

The types are those that rows can have: Spark's simple types, decimals, structs, arrays and maps.
A timestamp has microseconds; all fields may be null, so `NOT NULL` is read and not kept.
"""

from __future__ import annotations

import re
from typing import Final, NoReturn

import pyarrow as pa
from pyarrow import types as kinds

from spark_groups.errors import SchemaError

TEXT_CHARACTERS_MAX: Final = 1 << 20
DEPTH_MAX: Final = 64
FIELDS_MAX: Final = 10_000

_SIMPLE: Final = {
    "boolean": pa.bool_(),
    **dict.fromkeys(("tinyint", "byte"), pa.int8()),
    **dict.fromkeys(("smallint", "short"), pa.int16()),
    **dict.fromkeys(("int", "integer"), pa.int32()),
    **dict.fromkeys(("bigint", "long"), pa.int64()),
    **dict.fromkeys(("float", "real"), pa.float32()),
    "double": pa.float64(),
    "date": pa.date32(),
    **dict.fromkeys(("timestamp", "timestamp_ltz"), pa.timestamp("us", "UTC")),
    "timestamp_ntz": pa.timestamp("us"),
    "string": pa.string(),
    "binary": pa.binary(),
}
_NAMES: Final[dict[pa.DataType, str]] = {kind: name for name, kind in reversed(_SIMPLE.items())} | {
    pa.duration("us"): "interval day to second"
}
"""The first name of each type; durations come from Protobuf only."""
_TOKEN: Final = re.compile(
    r"""\s*(`(?:[^`]|``)+`|\w+|'(?:[^'\\]|\\.|'')*'|"(?:[^"\\]|\\.|"")*"|\S|\Z)""",
    re.DOTALL | re.ASCII,
)
_NAME: Final = r"(?!\d+$)\w+|`.{2,}"
_PLAIN_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


def parse_ddl(text: str) -> pa.DataType:
    """Return the Arrow type of a DDL text: one type, or columns with their types as a struct.

    Args:
        text: Like `id BIGINT, tags ARRAY<STRING>`, or `struct<id: bigint>`.

    Raises:
        SchemaError: It is not DDL, too large, or has a type that rows cannot have; the message
            names the place.
    """
    if len(text) > TEXT_CHARACTERS_MAX:
        raise SchemaError(
            f"the DDL has {len(text):,} characters, of at most {TEXT_CHARACTERS_MAX:,}"
        )
    return _Parser(text).whole()


class _Parser:
    """Reads one text; its last token is empty, and is never taken."""

    def __init__(self, text: str) -> None:
        self._tokens = [*_TOKEN.finditer(text)]
        self._at = 0
        self._field_count = 0

    def whole(self) -> pa.DataType:
        first, second = (*(each[1] for each in self._tokens[:2]), "")[:2]
        is_type = second in ("", "<", "(") and re.fullmatch(r"\w+", first)
        found = self._type(0) if is_type else self._columns(0)
        if self._tokens[self._at][1]:
            self._refuse("the end")
        return found

    def _take(self, pattern: str, wanted: str) -> str:
        """Return the next token, which has to be of a pattern."""
        text: str = self._tokens[self._at][1]
        if not re.fullmatch(pattern, text, re.DOTALL | re.ASCII):
            self._refuse(wanted)
        self._at += 1
        return text

    def _takes(self, *words: str) -> bool:
        """Take words that may stand here."""
        found = [each[1].lower() for each in self._tokens[self._at : self._at + len(words)]]
        self._at += len(words) * (found == list(words))
        return found == list(words)

    def _refuse(self, wanted: str) -> NoReturn:
        token = self._tokens[self._at]
        found = repr(token[1][:40]) if token[1] else "the end"
        raise SchemaError(
            f"the DDL is wrong at character {token.start(1) + 1}: expected {wanted}, found {found}"
        )

    def _columns(self, depth: int) -> pa.DataType:
        fields: dict[str, pa.DataType] = {}
        while True:
            name = self._take(_NAME, "the name of a field")
            if name[0] == "`":
                name = name[1:-1].replace("``", "`")
            if name in fields:
                self._at -= 1
                self._refuse("a name that no other field has")
            self._field_count += 1
            if self._field_count > FIELDS_MAX:
                raise SchemaError(f"the DDL has more than {FIELDS_MAX:,} fields")
            # PySpark takes a colon at the top as well.
            self._takes(":")
            fields[name] = self._type(depth)
            self._takes("not", "null")
            if self._takes("comment"):
                self._take("['\"].+", "the comment's text")
            if not self._takes(","):
                return pa.struct(list(fields.items()))

    def _type(self, depth: int) -> pa.DataType:
        if depth > DEPTH_MAX:
            raise SchemaError(f"the DDL has types nested deeper than {DEPTH_MAX}")
        begin = self._at
        name = self._take(r"\w+", "a type").lower()
        found = _SIMPLE.get(name)
        if name in ("decimal", "dec", "numeric"):
            precision, scale = (*(self._numbers(2) or [10]), 0)[:2]
            if 1 <= precision <= 38 and scale <= precision:
                return pa.decimal128(precision, scale)
            self._at = begin
            self._refuse("a decimal of at most 38 digits, with a scale that is no larger")
        if name in ("char", "character", "varchar") and self._numbers(1):
            return pa.string()
        if name in ("array", "map", "struct"):
            self._take("<", "'<'")
            if name == "struct":
                found = self._columns(depth + 1)
            elif name == "array":
                found = pa.list_(pa.field("element", self._type(depth + 1)))
            else:
                key = self._type(depth + 1)
                self._take(",", "','")
                found = pa.map_(key, self._type(depth + 1))
            self._take(">", "'>'")
        if found is None:
            self._at = begin
            self._refuse("a type that rows can have")
        return found

    def _numbers(self, count_max: int) -> list[int]:
        """Return the numbers in parentheses; without parentheses there are none."""
        found: list[int] = []
        if self._takes("("):
            while not found or (len(found) < count_max and self._takes(",")):
                found.append(int(self._take("[0-9]{1,9}", "a number")))
            self._take("[)]", "')'")
        return found


def ddl_of(arrow_type: pa.DataType) -> str:
    """Return the DDL text of an Arrow type.

    Args:
        arrow_type: The type.

    Raises:
        SchemaError: Spark's rows cannot have it.
    """
    if arrow_type in _NAMES:
        return _NAMES[arrow_type]
    if kinds.is_decimal(arrow_type) and 0 <= arrow_type.scale <= arrow_type.precision <= 38:
        return f"decimal({arrow_type.precision},{arrow_type.scale})"
    if kinds.is_struct(arrow_type):
        fields = (f"{_name(each.name)}:{ddl_of(each.type)}" for each in arrow_type)
        return f"struct<{','.join(fields)}>"
    if kinds.is_list(arrow_type):
        return f"array<{ddl_of(arrow_type.value_type)}>"
    if kinds.is_map(arrow_type):
        return f"map<{ddl_of(arrow_type.key_type)},{ddl_of(arrow_type.item_type)}>"
    raise SchemaError(f"rows of Spark cannot have Arrow's type {arrow_type}")


def _name(name: str) -> str:
    return name if _PLAIN_NAME.fullmatch(name) else f"`{name.replace('`', '``')}`"
