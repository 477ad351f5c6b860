"""Bytes of Kafka's wire protocol from values, and values from bytes, as the tables say.

A structure is a dictionary by field name, an array a tuple, a string a `str`, a topic id a
`uuid.UUID`. Each table is compiled once into closures; runs of fixed-width fields go through one
`struct.Struct`, which is where the speed comes from.

Whatever is read was sent by a peer that may be broken or hostile: every length is checked against
the bytes that are left before anything is allocated, and all that can go wrong is a ProtocolError.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from typing import Any

from spark_groups.errors import ProtocolError
from spark_groups.wire.schemas.messages import Struct
from spark_groups.wire.schemas.readers import Frame, Values, struct_reader
from spark_groups.wire.schemas.writers import struct_writer

__all__ = ["Frame", "Values", "decode", "decode_start", "encode"]


def encode(schema: Struct, values: Mapping[str, Any]) -> bytes:
    """Write a structure.

    Args:
        schema: Its table.
        values: Every field of it but the tagged ones, by name.

    Raises:
        ProtocolError: A field is missing, or its value does not fit the wire.
    """
    out = bytearray()
    try:
        struct_writer(schema)(out, values)
    except (KeyError, TypeError, AttributeError, ValueError, struct.error) as error:
        raise ProtocolError(f"{schema.name} cannot be written: {error!r}") from error
    return bytes(out)


def decode(schema: Struct, frame: Frame, start: int = 0) -> Values:
    """Read a structure that fills the frame.

    Args:
        schema: Its table.
        frame: Bytes of the frame.
        start: Where in the frame the structure begins.

    Raises:
        ProtocolError: The bytes are not such a structure, or more follow it.
    """
    values, end = decode_start(schema, frame, start)
    if end != len(frame):
        raise ProtocolError(f"{len(frame) - end} bytes follow the end of {schema.name}")
    return values


def decode_start(schema: Struct, frame: Frame, start: int = 0) -> tuple[Values, int]:
    """Read a structure that others may follow, and return the place behind it.

    Args:
        schema: Its table.
        frame: Bytes of the frame.
        start: Where in the frame the structure begins.

    Raises:
        ProtocolError: The bytes are not such a structure.
    """
    try:
        return struct_reader(schema)(frame, start)
    except (struct.error, IndexError, UnicodeDecodeError) as error:
        raise ProtocolError(f"{schema.name} cannot be read: {error}") from error
    except ProtocolError as error:
        raise ProtocolError(f"{schema.name} cannot be read: {error}") from None
