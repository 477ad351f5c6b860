"""The formats of keys and values, as options give them and as executors use them.

Executors unpickle these values, so this module imports little.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import Final

TOPIC: Final = "{topic}"
"""Stands for the topic in the name of a subject."""
UNDECODABLE: Final = "undecodable"
"""The column of records that could not be decoded, and the observation that counts them."""


class Format(Enum):
    """The options `keyFormat` and `valueFormat`."""

    BINARY = "binary"
    STRING = "string"
    AVRO = "avro"
    JSON = "json"
    PROTOBUF = "protobuf"


class OnUndecodable(Enum):
    """The option `onUndecodable`."""

    FAIL = "fail"
    NULL = "null"
    DEAD_LETTERS = "deadLetters"


@dataclass(frozen=True, slots=True)
class SchemaVersion:
    """Which schema of a registry rows have; without a number, the latest one of the subject.

    Args:
        version: The number of a version of the subject.
        schema_id: The registry's id of a schema; the subject has no meaning then.
    """

    version: int | None = None
    schema_id: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ColumnFormat:
    """How the bytes of one column are decoded.

    Args:
        schema: The schema that rows have: Avro's JSON, Spark's DDL for JSON, a descriptor set in
            base64 for Protobuf. Empty: a registry has it, or the format needs none.
        message: The name of the Protobuf message.
        subject: The registry's subject with the schema; empty: no registry has it.
        version: Its version in the registry.
    """

    format: Format = Format.BINARY
    schema: str = ""
    message: str = ""
    subject: str = ""
    version: SchemaVersion = SchemaVersion()

    @property
    def needs_lookup(self) -> bool:
        """Whether a registry has the schema that rows get."""
        return self.format is Format.AVRO and not self.schema


@dataclass(frozen=True, slots=True, kw_only=True)
class RegistryAccess:
    """How a schema registry is reached.

    Args:
        urls: Its addresses; the next one is asked if one does not answer.
        settings: Settings under the names of confluent-kafka's client, with secrets; excluded from
            the repr.
        look_up_id: An id of the load, or of the run of a query, that has looked schemas up. Another
            one may meet another registry at these addresses, so it shares no cache with it.
    """

    urls: tuple[str, ...]
    settings: tuple[tuple[str, str], ...] = field(default=(), repr=False)
    look_up_id: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class RowFormats:
    """How keys and values are decoded; hashable, as a part of the settings of reading.

    Args:
        registry: The registry with the schemas of writers; None: records have no schema ids.
    """

    key: ColumnFormat = ColumnFormat()
    value: ColumnFormat = ColumnFormat()
    registry: RegistryAccess | None = None
    on_undecodable: OnUndecodable = OnUndecodable.FAIL

    @property
    def by_column(self) -> dict[str, ColumnFormat]:
        """The formats of the columns that are decoded."""
        both = {"key": self.key, "value": self.value}
        return {name: each for name, each in both.items() if each.format is not Format.BINARY}
