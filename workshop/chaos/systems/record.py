"""What the producer writes: a record that says where it belongs, with a checksum."""

from __future__ import annotations

import zlib
from enum import Enum
from typing import Final

CHECKSUM_BYTES: Final = 8


class Values(str, Enum):
    """What the values of all records are."""

    TEXT = "text"
    AVRO = "avro"


def record_value(topic: str, partition: int, sequence: int, filling: str = "") -> bytes:
    """Return the value of a record.

    Args:
        topic: The topic it is written to.
        partition: The partition it is written to.
        sequence: How many records were written to that partition before it.
        filling: What makes it longer.
    """
    content = f"{topic} {partition} {sequence} {filling} ".encode()
    return content + f"{zlib.crc32(content):0{CHECKSUM_BYTES}x}".encode()


def is_right(value: bytes | None, topic: str, partition: int, offset: int) -> bool:
    """Return whether a value is the one that was written at a place.

    The producer is alone and idempotent, so a record's offset is its sequence number.

    Args:
        value: The value read.
        topic: Where it was read.
        partition: Its index.
        offset: The record's offset.
    """
    if value is None:
        return False
    content, checksum = value[:-CHECKSUM_BYTES], value[-CHECKSUM_BYTES:]
    if checksum != f"{zlib.crc32(content):0{CHECKSUM_BYTES}x}".encode():
        return False
    return content.split(b" ")[:3] == [topic.encode(), str(partition).encode(), b"%d" % offset]
