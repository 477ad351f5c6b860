"""What the interpreter of Avro's bytes understands: instructions, how it ends, its tables."""

from __future__ import annotations

from enum import IntEnum
from typing import Final


class Op(IntEnum):
    """An instruction, followed by a slot (-1: none), `x`, `y`, and its table if it has one."""

    # Values: `y` is the Store of a number.
    INT = 0
    LONG = 1
    FLOAT = 2
    DOUBLE = 3
    BOOLEAN = 4
    # Bytes: of the size `x`, or as many as LENGTH or REST say. `y`: whether they must be UTF-8.
    BYTES = 5
    # `x` as with BYTES; `y` is the precision.
    DECIMAL = 6
    # A table of the places and the sizes of `x` literals; -1: the reader has no such symbol.
    ENUM = 7
    # A struct, which is not null.
    COUNT = 8
    # A table of `x` slots that get a null.
    NULLS = 9
    # A table of `x` places to continue at.
    UNION = 10
    # The branch `x` is null: a table of `y` slots that get one, then the place after the value.
    NULLABLE = 11
    JUMP = 12
    # An array or a map: `x` is its counter. BLOCK: `y` is the place after it; NEXT: that of BLOCK.
    LIST = 13
    BLOCK = 14
    NEXT = 15
    # A default: `x` and `y` are the place and the size of its bytes, which are read until END.
    LITERAL = 16
    LITERAL_END = 17
    REFUSE = 18
    END = 19


class Store(IntEnum):
    """What a number becomes."""

    NOTHING = 0
    INT32 = 1
    INT64 = 2
    FLOAT32 = 3
    FLOAT64 = 4
    MILLIS_TO_MICROS = 5
    """Milliseconds, as microseconds of 64 bits."""


class Status(IntEnum):
    """Why the interpreter stopped."""

    DONE = 0
    # The caller acts.
    SLOT_IS_FULL = 1
    ID_IS_NEW = 2
    # A record is refused.
    FRAME_IS_WRONG = 3
    SCHEMA_IS_REFUSED = 4
    IS_TRUNCATED = 5
    HAS_BYTES_LEFT = 6
    INT_IS_TOO_LARGE = 7
    LENGTH_IS_WRONG = 8
    BOOLEAN_IS_WRONG = 9
    TEXT_IS_NOT_UTF8 = 10
    DECIMAL_IS_TOO_LONG = 11
    SYMBOL_IS_WRONG = 12
    SYMBOL_IS_UNKNOWN = 13
    BRANCH_IS_WRONG = 14
    BRANCH_IS_UNKNOWN = 15
    TOO_MANY_ITEMS = 16
    TIMESTAMP_IS_TOO_LARGE = 17
    IS_TOO_LARGE = 18


REASONS: Final = {
    Status.FRAME_IS_WRONG: "it does not begin with a zero byte and the 4 bytes of a schema id",
    Status.IS_TRUNCATED: "its bytes end within a value, or a number has more than 64 bits",
    Status.HAS_BYTES_LEFT: "there are bytes left after its last value",
    Status.INT_IS_TOO_LARGE: "a number of type int has more than 32 bits",
    Status.LENGTH_IS_WRONG: "a length is negative or reaches beyond its bytes",
    Status.BOOLEAN_IS_WRONG: "a boolean is neither 0 nor 1",
    Status.TEXT_IS_NOT_UTF8: "a text is not UTF-8",
    Status.DECIMAL_IS_TOO_LONG: "a decimal is empty or has more digits than its precision",
    Status.SYMBOL_IS_WRONG: "an enum has no symbol of that number",
    Status.SYMBOL_IS_UNKNOWN: "the reader's enum lacks the symbol, and has no default",
    Status.BRANCH_IS_WRONG: "a union has no branch of that number",
    Status.BRANCH_IS_UNKNOWN: "the reader's schema has no type for the branch of a union",
    Status.TOO_MANY_ITEMS: "an array or a map has more items than its bytes can hold",
    Status.TIMESTAMP_IS_TOO_LARGE: "a time in milliseconds does not fit microseconds of 64 bits",
    Status.IS_TOO_LARGE: "its values need more memory than a column may use",
}

LENGTH: Final = -1
"""A size: a length precedes the bytes."""
REST: Final = -2
"""A size: the bytes are the rest of the record."""
EMPTY_ITEMS_MAX: Final = 1 << 16
"""How many items the arrays and maps of a record may have beside as many as it has bytes."""

# Columns of the table of slots: numbers of values, addresses, sizes in bytes.
USED: Final = 0
CAPACITY: Final = 1
VALUES: Final = 2
HAS: Final = 3
DATA: Final = 4
DATA_BYTES: Final = 5
WIDTH: Final = 6
SLOT_NUMBERS: Final = 7
ENDS: Final = -1
"""The width of values that are the ends of others: texts, bytes, arrays and maps."""
SLACK_BYTES: Final = 16
"""How many bytes may be written behind DATA."""

# Places of the cursor.
ROW: Final = 0
AT_SLOT: Final = 1
NEEDED_BYTES: Final = 2
SCHEMA_ID: Final = 3
# Where in a row to continue, if PLACE is not -1: the next instruction and its bytes, then the bytes
# of the record around a literal.
PLACE: Final = 4
STATE: Final = 5
CURSOR_NUMBERS: Final = 15
