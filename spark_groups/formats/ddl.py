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
from spark_groups.values import dataclass

TEXT_CHARACTERS_MAX: Final = 1 << 20
DEPTH_MAX: Final = 64
FIELDS_MAX: Final = 10_000

_TIMESTAMP: Final = pa.timestamp("us", "UTC")
_SIMPLE: Final = {
    "boolean": pa.bool_(),
    **dict.fromkeys(("tinyint", "byte"), pa.int8()),
    **dict.fromkeys(("smallint", "short"), pa.int16()),
    **dict.fromkeys(("int", "integer"), pa.int32()),
    **dict.fromkeys(("bigint", "long"), pa.int64()),
    **dict.fromkeys(("float", "real"), pa.float32()),
    "double": pa.float64(),
    "date": pa.date32(),
    **dict.fromkeys(("timestamp", "timestamp_ltz"), _TIMESTAMP),
    "timestamp_ntz": pa.timestamp("us"),
    "string": pa.string(),
    "binary": pa.binary(),
}
_DECIMAL: Final = ("decimal", "dec", "numeric")
_SIZED_TEXT: Final = ("char", "character", "varchar")
_INTERVAL: Final = ("day", "hour", "minute", "second")
_NAMES: Final = {
    pa.bool_(): "boolean",
    pa.int8(): "tinyint",
    pa.int16(): "smallint",
    pa.int32(): "int",
    pa.int64(): "bigint",
    pa.float32(): "float",
    pa.float64(): "double",
    pa.date32(): "date",
    _TIMESTAMP: "timestamp",
    pa.timestamp("us"): "timestamp_ntz",
    pa.string(): "string",
    pa.large_string(): "string",
    pa.binary(): "binary",
    pa.large_binary(): "binary",
    pa.duration("us"): "interval day to second",
}
_TOKEN: Final = re.compile(
    r"\s*(?:(?P<quoted>`(?:[^`]|``)+`)|(?P<word>[A-Za-z0-9_]+)|(?P<text>'(?:[^'\\]|\\.|'')*'"
    r'|"(?:[^"\\]|\\.|"")*")|(?P<mark>[<>(),:])|(?P<end>\Z))',
    re.DOTALL,
)
_PLAIN_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


@dataclass(frozen=True, slots=True)
class _Token:
    kind: str
    text: str
    place: int


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
    """Reads one text; the next token is always known."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._tokens = self._cut()
        self._at = 0
        self._field_count = 0

    def whole(self) -> pa.DataType:
        is_type = self._tokens[1:] and self._tokens[1].text in ("", "<", "(")
        found = self._type(0) if is_type and self._next.kind == "word" else self._columns()
        if self._next.kind != "end":
            self._refuse("the end", self._next)
        return found

    def _cut(self) -> list[_Token]:
        tokens: list[_Token] = []
        place = 0
        while not tokens or tokens[-1].kind != "end":
            match = _TOKEN.match(self._text, place)
            if match is None or match.lastgroup is None:
                rest = self._text[place:]
                place += len(rest) - len(rest.lstrip())
                self._refuse("a name or a type", _Token("", self._text[place], place))
            place = match.end()
            kind = match.lastgroup
            tokens.append(_Token(kind, match[kind], match.start(kind)))
        return tokens

    @property
    def _next(self) -> _Token:
        return self._tokens[self._at]

    def _take(self, wanted: str = "") -> _Token:
        token = self._next
        if wanted and token.text.lower() != wanted:
            self._refuse(repr(wanted), token)
        self._at += token.kind != "end"
        return token

    def _takes(self, *words: str) -> bool:
        """Take words that may stand here."""
        found = [each.text.lower() for each in self._tokens[self._at : self._at + len(words)]]
        self._at += len(words) * (found == list(words))
        return found == list(words)

    def _refuse(self, wanted: str, token: _Token) -> NoReturn:
        found = repr(token.text[:40]) if token.text else "the end"
        raise SchemaError(
            f"the DDL is wrong at character {token.place + 1}: expected {wanted}, found {found}"
        )

    def _columns(self, depth: int = 0) -> pa.DataType:
        fields: dict[str, pa.DataType] = {}
        while True:
            token = self._take()
            if token.kind not in ("word", "quoted") or token.text.isdecimal():
                self._refuse("the name of a field", token)
            quoted = token.kind == "quoted"
            name = token.text[1:-1].replace("``", "`") if quoted else token.text
            if name in fields:
                self._refuse("a name that no other field has", token)
            self._field_count += 1
            if self._field_count > FIELDS_MAX:
                raise SchemaError(f"the DDL has more than {FIELDS_MAX:,} fields")
            # PySpark takes a colon at the top as well.
            self._takes(":")
            fields[name] = self._type(depth)
            self._takes("not", "null")
            if self._takes("comment") and self._take().kind != "text":
                self._at -= 1
                self._refuse("the comment's text", self._next)
            if not self._takes(","):
                return pa.struct(list(fields.items()))

    def _type(self, depth: int) -> pa.DataType:
        if depth > DEPTH_MAX:
            raise SchemaError(f"the DDL has types nested deeper than {DEPTH_MAX}")
        token = self._take()
        name = token.text.lower()
        if token.kind != "word":
            self._refuse("a type", token)
        if name in _SIMPLE:
            return _SIMPLE[name]
        if name in _DECIMAL:
            return self._decimal(token)
        if name in _SIZED_TEXT:
            if not self._numbers(1):
                self._refuse("'(' and a length", self._next)
            return pa.string()
        if name == "interval":
            return self._interval(token)
        if name not in ("array", "map", "struct"):
            self._refuse("a type that rows can have", token)
        self._take("<")
        if name == "struct":
            found = self._columns(depth + 1)
        elif name == "array":
            found = pa.list_(pa.field("element", self._type(depth + 1)))
        else:
            key = self._type(depth + 1)
            self._take(",")
            found = pa.map_(key, self._type(depth + 1))
        self._take(">")
        return found

    def _numbers(self, count_max: int) -> list[int]:
        """Return the numbers in parentheses; without parentheses there are none."""
        found: list[int] = []
        if self._takes("("):
            while not found or (len(found) < count_max and self._takes(",")):
                token = self._take()
                if not re.fullmatch("[0-9]{1,9}", token.text):
                    self._refuse("a number", token)
                found.append(int(token.text))
            self._take(")")
        return found

    def _decimal(self, token: _Token) -> pa.DataType:
        precision, scale = (*(self._numbers(2) or [10]), 0)[:2]
        if not 1 <= precision <= 38 or scale > precision:
            self._refuse("a decimal of at most 38 digits, with a scale that is no larger", token)
        return pa.decimal128(precision, scale)

    def _interval(self, token: _Token) -> pa.DataType:
        begin = self._take().text.lower()
        end = self._take().text.lower() if self._takes("to") else begin
        if begin not in _INTERVAL or end not in _INTERVAL:
            self._refuse("a type that rows can have, like an interval day to second,", token)
        return pa.duration("us")


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
    if kinds.is_list(arrow_type) or kinds.is_large_list(arrow_type):
        return f"array<{ddl_of(arrow_type.value_type)}>"
    if kinds.is_map(arrow_type):
        return f"map<{ddl_of(arrow_type.key_type)},{ddl_of(arrow_type.item_type)}>"
    raise SchemaError(f"rows of Spark cannot have Arrow's type {arrow_type}")


def _name(name: str) -> str:
    return name if _PLAIN_NAME.fullmatch(name) else f"`{name.replace('`', '``')}`"
