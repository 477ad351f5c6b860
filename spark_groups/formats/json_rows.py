"""What Python makes of a JSON document for columns of given types: exact, one value at a time.

It takes every document that pyarrow's reader takes, with the same result, and more of those that
Spark's `from_json` takes. A value that does not fit its column refuses the whole record.
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Callable
from datetime import date, datetime, time, timedelta
from decimal import ROUND_HALF_UP, Context, Decimal, InvalidOperation
from typing import Any, Final

import pyarrow as pa
from pyarrow import types as kinds

from spark_groups.errors import SchemaError
from spark_groups.formats.ddl import ddl_of

DEPTH_MAX: Final = 200
"""How deep arrays and objects of a document may be nested; Spark's own limit is 1,000."""

Convert = Callable[[Any], Any]

_SPECIAL: Final = {
    "NaN": float("nan"),
    **dict.fromkeys(("Infinity", "+Infinity", "INF", "+INF"), float("inf")),
    **dict.fromkeys(("-Infinity", "-INF"), float("-inf")),
}
_DECIMAL: Final = re.compile(r"[+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]{1,4})?")
_DATE: Final = r"(\d{4})-(\d\d?)-(\d\d?)"
_DAY: Final = re.compile(rf"{_DATE}(?:[T ].*)?", re.ASCII)
_MOMENT: Final = re.compile(
    rf"{_DATE}(?:[T ](\d\d?)(?::(\d\d?)(?::(\d\d?)(?:\.(\d+))?)?)?"
    r"(?:(Z|UTC)|([+-])(\d\d?)(?::?(\d\d))?)?)?",
    re.ASCII,
)
_EPOCH: Final = datetime(1970, 1, 1)  # noqa: DTZ001
_MICROSECOND: Final = timedelta(microseconds=1)
_AHEAD_MAX: Final = timedelta(hours=18)
_STRINGS: Final = re.compile(r'"(?:[^"\\]|\\(?:.|\Z))*(?:"|\Z)', re.DOTALL)
_DIGITS_MAX: Final = 4_000
_KINDS: Final = {str: "a string", bool: "true or false", dict: "an object", list: "an array"}


class Misfit(ValueError):  # noqa: N818
    """A document that the columns cannot have; the message is the reason."""


class _Number(str):
    """The text of a number with a fraction or an exponent, or of one like NaN."""

    __slots__ = ()


def refuse_deep(document: str) -> None:
    """Refuse a document whose arrays and objects are nested too deep.

    Raises:
        Misfit: It is one.
    """
    if document.count("{") + document.count("[") <= DEPTH_MAX:
        return
    depth = 0
    for mark in re.findall(r"[\[{\]}]", _STRINGS.sub("", document)):
        depth += 1 if mark in "[{" else -1
        if depth > DEPTH_MAX:
            raise Misfit(f"its arrays and objects are nested deeper than {DEPTH_MAX}")


def row_converter(arrow_type: pa.StructType) -> Callable[[bytes], Any]:
    """Return the function that makes a row of the bytes of a document, or gives a `Misfit`.

    Args:
        arrow_type: The columns.

    Raises:
        SchemaError: JSON has no values of a type among them.
    """
    convert = _converter(arrow_type, "$")
    decoder = json.JSONDecoder(parse_float=_Number, parse_constant=_Number)
    slow = json.JSONDecoder(parse_float=_Number, parse_constant=_Number, parse_int=_any_integer)

    def row(value: bytes) -> Any:
        """Return the row; a `Misfit` where there is none."""
        try:
            document = value.decode()
            refuse_deep(document)
            try:
                return convert(decoder.decode(document))
            except (json.JSONDecodeError, Misfit):
                raise
            except ValueError:
                return convert(slow.decode(document))
        except UnicodeDecodeError as error:
            return Misfit(f"it is not UTF-8 at byte {error.start}")
        except json.JSONDecodeError as error:
            return Misfit(f"it is not JSON: {error}")
        except Misfit as misfit:
            return misfit

    return row


def _converter(arrow_type: pa.DataType, path: str) -> Convert:
    """Return the function that makes a value of a parsed one; it raises `Misfit`."""
    made = _nested(arrow_type, path) or _simple(arrow_type)
    if made is None:
        raise SchemaError(f"the column {path} has the type {arrow_type}, which JSON does not have")
    wanted = ddl_of(arrow_type).split("<")[0]
    make = made

    def convert(value: Any) -> Any:
        try:
            return None if value is None else make(value)
        except Misfit:
            raise
        except (ValueError, TypeError, AttributeError, ArithmeticError) as error:
            found = _KINDS.get(type(value), "a number")
            raise Misfit(f"{path} has {found} that does not fit the type {wanted}") from error

    return convert


def _nested(arrow_type: pa.DataType, path: str) -> Convert | None:
    if kinds.is_struct(arrow_type):
        fields = {each.name: _converter(each.type, f"{path}.{each.name}") for each in arrow_type}
        return lambda value: {name: convert(value.get(name)) for name, convert in fields.items()}
    if kinds.is_list(arrow_type):
        item = _converter(arrow_type.value_type, f"{path}[]")
        return lambda value: [item(each) for each in _checked(value, list)]
    if kinds.is_map(arrow_type):
        if not kinds.is_string(arrow_type.key_type):
            raise SchemaError(f"the keys of the map {path} must be strings: JSON has no others")
        item = _converter(arrow_type.item_type, f"{path}.*")
        return lambda value: [(_text(key), item(each)) for key, each in value.items()]
    return None


def _simple(arrow_type: pa.DataType) -> Convert | None:
    if kinds.is_integer(arrow_type):
        limit = 1 << (arrow_type.bit_width - 1)
        return lambda value: _integer(value, limit)
    if kinds.is_decimal(arrow_type):
        context = Context(
            prec=arrow_type.precision, rounding=ROUND_HALF_UP, traps=[InvalidOperation]
        )
        unit = Decimal(1).scaleb(-arrow_type.scale)
        return lambda value: _decimal(value).quantize(unit, context=context)
    if kinds.is_timestamp(arrow_type):
        return lambda value: _moment(value, has_zone=arrow_type.tz is not None)
    by_kind: dict[Callable[[pa.DataType], bool], Convert] = {
        kinds.is_string: _text,
        kinds.is_floating: _float,
        kinds.is_boolean: lambda value: _checked(value, bool),
        kinds.is_binary: lambda value: base64.b64decode(_checked(value, str), validate=True),
        kinds.is_date: _day,
    }
    return next((make for is_kind, make in by_kind.items() if is_kind(arrow_type)), None)


def _any_integer(text: str) -> int | _Number:
    """Return an integer; Python makes none of thousands of digits."""
    return int(text) if len(text) < _DIGITS_MAX else _Number(text)


def _checked(value: Any, kind: type) -> Any:
    """Return a value of exactly one kind: a number is not a text, nor is true a number."""
    if type(value) is not kind:
        raise ValueError
    return value


def _text(value: Any) -> str:
    text = value if type(value) is str else _as_json(value)
    if not text.isascii():
        # A half of a surrogate pair has no UTF-8.
        text.encode()
    return text


def _as_json(value: Any) -> str:
    """Return the JSON of a value: numbers as they were written, and no white space."""
    if isinstance(value, _Number):
        return str(value)
    if isinstance(value, dict):
        return "{" + ",".join([f"{_quoted(k)}:{_as_json(v)}" for k, v in value.items()]) + "}"
    if isinstance(value, list):
        return "[" + ",".join(map(_as_json, value)) + "]"
    return _quoted(value)


def _quoted(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


def _integer(value: Any, limit: int) -> int:
    number: int = _checked(value, int)
    if not -limit <= number < limit:
        raise ValueError
    return number


def _float(value: Any) -> float:
    if type(value) is str:
        return _SPECIAL[value] if value in _SPECIAL else _checked(value, float)
    if type(value) is bool:
        raise ValueError
    try:
        return float(value)
    except OverflowError:
        return float("inf") if value > 0 else float("-inf")


def _decimal(value: Any) -> Decimal:
    if type(value) is not int and (
        len(value.lstrip("+-0")) > _DIGITS_MAX or not _DECIMAL.fullmatch(value)
    ):
        raise ValueError
    return Decimal(value)


def _day(value: Any) -> int:
    """Return days since 1970."""
    match = _DAY.fullmatch(_checked(value, str))
    if match is None:
        raise ValueError
    return (_date(*match.groups()) - _EPOCH.date()).days


def _date(year: str, month: str, day: str) -> date:
    return date(int(year), int(month), int(day))


def _time(hour: str | None, minute: str | None, second: str | None) -> time:
    return time(int(hour or 0), int(minute or 0), int(second or 0))


def _moment(value: Any, *, has_zone: bool) -> int:
    """Return microseconds since 1970: in UTC, or without a time zone."""
    if type(value) is int and has_zone:
        return (_EPOCH + timedelta(seconds=value) - _EPOCH) // _MICROSECOND
    match = _MOMENT.fullmatch(_checked(value, str))
    if match is None:
        raise ValueError
    day = datetime.combine(_date(*match.groups()[:3]), _time(*match.groups()[3:6]))
    fraction, utc, sign, hours, minutes = match.groups()[6:]
    ahead = timedelta(hours=int(hours or 0), minutes=int(minutes or 0))
    if ahead > _AHEAD_MAX or ((utc or sign) and not has_zone):
        raise ValueError
    micros = int((fraction or "")[:6].ljust(6, "0"))
    moment = day.replace(microsecond=micros) - _EPOCH + (ahead if sign == "-" else -ahead)
    return moment // _MICROSECOND
