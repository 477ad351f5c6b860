"""What a format makes of the bytes of keys and values: Arrow columns, and refused records."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import field
from typing import Protocol

import pyarrow as pa

from spark_groups.values import dataclass


@dataclass(frozen=True, slots=True)
class Undecodable:
    """Why the bytes of a record cannot be decoded.

    Args:
        reason: In words, without the record's place.
        schema_id: The schema id in its frame; None: it has none.
    """

    reason: str
    schema_id: int | None = None


@dataclass(frozen=True, slots=True)
class DecodedColumn:
    """The decoded values of the first records of a batch.

    Args:
        values: One for each record; null where it had none, or one that cannot be decoded. It may
            be shorter than the batch where the decoder's memory is full: the rest is for the next
            call. It has at least one row if the batch has one.
        refused: By row number, ascending: the records that cannot be decoded.
    """

    values: pa.Array
    refused: Mapping[int, Undecodable] = field(default_factory=dict)


class ColumnDecoder(Protocol):
    """Decodes the `key` or `value` column of record batches; one for each task."""

    @property
    def arrow_type(self) -> pa.DataType:
        """The type of the decoded column."""

    def decode(self, column: pa.Array) -> DecodedColumn:
        """Decode the first records of a batch, or all.

        Args:
            column: The bytes (`pa.binary()`), null where a record has none.

        Raises:
            SchemaLookupError: A schema cannot be looked up now.
        """


SchemaOfId = Callable[[int], str]
"""Returns the text of a writer's schema by the id in a frame.

It raises `UnknownSchemaIdError` where the registry says that there is none, which refuses the
record, and `SchemaLookupError` where the registry cannot be asked, which fails the task.
"""
