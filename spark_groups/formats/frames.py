"""The frame that serializers of a schema registry put before a value: a zero, and a schema id."""

from __future__ import annotations

from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from spark_groups.formats.decoding import Undecodable

FRAME_BYTES: Final = 5
_END: Final = (1 << 31) - 1


def schema_id_of(value: bytes) -> int:
    """Return the schema id of a framed value."""
    return int.from_bytes(value[1:FRAME_BYTES], "big")


def unframed(column: pa.Array) -> tuple[pa.Array, dict[int, Undecodable]]:
    """Return the bytes behind the frames, and the rows that have no frame; those become null.

    Args:
        column: The framed values.
    """
    is_framed = pc.and_(
        pc.greater_equal(pc.binary_length(column), FRAME_BYTES), pc.starts_with(column, b"\0")
    )
    bodies = behind(column, is_framed, FRAME_BYTES)
    refused = {}
    for row in pc.indices_nonzero(pc.invert(is_framed)).to_pylist():
        value = column[row].as_py()
        fault = f"begins with byte {value[0]}" if value[:1].strip(b"\0") else "is too short"
        refused[row] = Undecodable(
            f"the value has no frame of a schema registry (a zero, then a schema id): it {fault}"
        )
    return bodies, refused


def behind(column: pa.Array, is_wanted: pa.Array, octets: int) -> pa.Array:
    """Return the bytes behind the first ones in some rows, and null in the others.

    Args:
        column: The values.
        is_wanted: For each row, whether it is one of them.
        octets: How many bytes are cut off.
    """
    # Without an end, pyarrow's function reckons with numbers that overflow.
    return pc.if_else(is_wanted, pc.binary_slice(column, octets, _END), None)
