"""Records in Avro whose writers change their schema, and the row that each must become.

The readers keep one schema, the first version of its subject. The writers begin with another one,
and change it while a run lasts: a field with a default is added, an int becomes a long, a field is
removed, a field is added that the readers do not know. A record says its place and the version of
its writer; all its other values follow from the place, so the row that a reader must get is known.
"""

from __future__ import annotations

import hashlib
import io
import random
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from enum import Enum
from pathlib import Path
from typing import Any, Final

import fastavro
import pyarrow as pa

from workshop.chaos.results.account import SinkRow
from workshop.chaos.results.facts import Partition
from workshop.chaos.systems.upserted import DELETED, KEY

SUBJECT: Final = "readings"
READERS_VERSION: Final = 1
BEHIND: Final = 0.3
"""The share of records whose writer has not got the newest schema yet."""
CYCLES: Final = 3
"""How often there is a change of each kind."""
KEYS: Final = 80
"""How many keys a partition has: 2,000 in the 25 that a run with 20 topics begins with."""
_AUTHOR: Final = "its writer, which the rows do not name"


class Change(Enum):
    """A change of the writers' schema; the value says it in a log."""

    ADDED = "a field with a default is added"
    PROMOTED = "an int becomes a long"
    REMOVED = "a field is removed"
    UNKNOWN = "a field is added that readers do not know"


CHANGES: Final = tuple(Change) * CYCLES
VERSIONS: Final = len(CHANGES) + 1
"""How many schemas the writers have, one after the other."""
_ALWAYS: Final[tuple[dict[str, Any], ...]] = (
    {"name": "topic", "type": "string"},
    {"name": "partition", "type": "int"},
    {"name": "offset", "type": "long"},
    {"name": "version", "type": "int"},
    {"name": KEY, "type": "string"},
    {"name": DELETED, "type": "boolean"},
    {"name": "text", "type": ["null", "string"], "default": None},
    {"name": "numbers", "type": {"type": "array", "items": "long"}},
)


def readers_schema() -> dict[str, Any]:
    """Return the schema of the rows."""
    fields = [*_ALWAYS]
    for cycle in range(CYCLES):
        fields += [_added(cycle), _number(cycle, "long"), _removed(cycle)]
    return _record(fields)


def writers_schema(version: int) -> dict[str, Any]:
    """Return a schema of the writers.

    Args:
        version: How many changes there were, of `CHANGES`.
    """
    fields = [*_ALWAYS]
    for cycle in range(CYCLES):
        done = CHANGES[cycle * len(Change) : max(version, cycle * len(Change))]
        fields += [_added(cycle)] if Change.ADDED in done else []
        fields.append(_number(cycle, "long" if Change.PROMOTED in done else "int"))
        fields += [] if Change.REMOVED in done else [_removed(cycle)]
        fields += [_unknown(cycle)] if Change.UNKNOWN in done else []
    return _record(fields)


def _record(fields: list[dict[str, Any]]) -> dict[str, Any]:
    return {"type": "record", "name": "Reading", "namespace": "chaos", "fields": fields}


def _added(cycle: int) -> dict[str, Any]:
    return {"name": f"added{cycle}", "type": "double", "default": -1.5 - cycle}


def _number(cycle: int, kind: str) -> dict[str, Any]:
    return {"name": f"number{cycle}", "type": kind}


def _removed(cycle: int) -> dict[str, Any]:
    return {"name": f"removed{cycle}", "type": "string", "default": f"is not there: {cycle}"}


def _unknown(cycle: int) -> dict[str, Any]:
    return {"name": f"unknown{cycle}", "type": "string", "default": ""}


def written(topic: str, partition: int, offset: int, version: int) -> dict[str, Any]:
    """Return the fields of a record, as its writer gives them.

    Args:
        topic: The topic it is written to.
        partition: The partition it is written to.
        offset: Its offset there.
        version: The version of its writer.
    """
    drawn = hashlib.sha256(f"{topic} {partition} {offset}".encode()).digest()
    values: dict[str, Any] = {
        "topic": topic,
        "partition": partition,
        "offset": offset,
        "version": version,
        KEY: f"{topic}-{partition}-{int.from_bytes(drawn[16:20], 'big') % KEYS}",
        DELETED: drawn[5] % 8 == 0,
        "text": drawn.hex()[: drawn[1] % 64] if drawn[0] % 4 else None,
        "numbers": [_signed(drawn[at : at + 8]) for at in range(drawn[2] % 4)],
    }
    for field in writers_schema(version)["fields"][len(_ALWAYS) :]:
        name = field["name"]
        if field["type"] == "double":
            values[name] = drawn[3] + 0.5
        elif field["type"] == "string":
            values[name] = f"{name} of {drawn[4]}"
        else:
            values[name] = _signed(drawn[8 : 16 if field["type"] == "long" else 12])
    return values


def _signed(octets: bytes) -> int:
    return int.from_bytes(octets, "big", signed=True)


def row_of(topic: str, partition: int, offset: int, version: int) -> dict[str, Any]:
    """Return the row that a record must become: with the readers' defaults, and their fields.

    Args:
        topic: The topic it was written to.
        partition: The partition it was written to.
        offset: Its offset there.
        version: The version of its writer.
    """
    values = written(topic, partition, offset, version)
    fields = readers_schema()["fields"]
    return {each["name"]: values.get(each["name"], each.get("default")) for each in fields}


def is_right_row(row: Mapping[str, Any] | None, topic: str, partition: int, offset: int) -> bool:
    """Return whether a decoded value is the one that was written at a place.

    Args:
        row: The value; None: it was null.
        topic: Where it was read.
        partition: Its index.
        offset: The record's offset.
    """
    version = None if row is None else row.get("version")
    if not isinstance(version, int) or not 0 <= version < VERSIONS:
        return False
    return row == row_of(topic, partition, offset, version)


def version_at(since_s: float, interval_s: float, drawn: float) -> int:
    """Return the version of a writer.

    Args:
        since_s: For how many seconds there have been writers.
        interval_s: How many seconds pass between two changes.
        drawn: A number from 0 to 1: below `BEHIND`, it has not got the newest change yet.
    """
    newest = min(int(since_s / interval_s), VERSIONS - 1)
    return max(0, newest - (drawn < BEHIND))


class Writers:
    """Returns the values that writers write, each with the schema that it has by then.

    Args:
        register: Registers a schema and returns its id: the readers' one at once, a writer's before
            its first record.
        interval_s: How many seconds pass between two changes.
        seed: What those are drawn from that are behind.
        say: Shows a line.
    """

    def __init__(
        self,
        register: Callable[[Mapping[str, Any]], int],
        interval_s: float,
        seed: int,
        say: Callable[[str], None],
    ) -> None:
        register(readers_schema())
        self.versions = 0
        """How many versions there have been records of."""
        self._register = register
        self._interval_s = interval_s
        self._chance = random.Random(f"writers {seed}")
        self._say = say
        self._began_s: float | None = None
        self._schemas: dict[int, tuple[int, Any]] = {}
        self._written: dict[Partition, bytearray] = defaultdict(bytearray)
        """The version of each record, in the order of offsets."""

    def __call__(self, topic: str, partition: int, offset: int, _: str) -> bytes:
        """Return the value of a record, in the frame of Confluent's serializers."""
        now_s = time.monotonic()
        if self._began_s is None:
            self._began_s = now_s
        version = version_at(now_s - self._began_s, self._interval_s, self._chance.random())
        schema_id, schema = self._schema(version)
        versions = self._written[topic, partition]
        # A record that was not taken at the end of a run has none after it.
        versions[offset:] = bytes([version])
        out = io.BytesIO()
        out.write(b"\0" + schema_id.to_bytes(4, "big"))
        fastavro.schemaless_writer(out, schema, written(topic, partition, offset, version))
        return out.getvalue()

    def log(self, ends: Mapping[Partition, int]) -> Iterator[dict[str, Any]]:
        """Return the row of each record.

        Args:
            ends: The next offset to be written of each partition.
        """
        for (topic, partition), end in ends.items():
            for offset, version in enumerate(self._written[topic, partition][:end]):
                yield row_of(topic, partition, offset, version)

    def _schema(self, version: int) -> tuple[int, Any]:
        if version not in self._schemas:
            schema = writers_schema(version)
            schema_id = self._register(schema)
            self._schemas[version] = schema_id, fastavro.parse_schema(schema)
            self.versions = len(self._schemas)
            why = CHANGES[version - 1].value if version else "the first one"
            self._say(f"the writers' schema {version}, id {schema_id}: {why}")
        return self._schemas[version]


def source_options(registry_url: str) -> dict[str, str]:
    """Return the options of a source that decodes these values.

    Args:
        registry_url: The registry.
    """
    return {
        "valueFormat": "avro",
        "schemaRegistryUrl": registry_url,
        "valueSubject": SUBJECT,
        "valueSchemaVersion": str(READERS_VERSION),
    }


def fields_of_values(rows: Any) -> Any:
    """Return the fields of values as columns: of a record batch, or of a DataFrame.

    `expand` would refuse them for a table with one row for each key, as fields have the names of
    the columns that order records.

    Args:
        rows: The rows of a batch.
    """
    if not isinstance(rows, pa.RecordBatch):
        return rows.select("value.*")
    column = rows.column("value")
    return pa.RecordBatch.from_arrays(column.flatten(), schema=pa.schema([*column.type]))


def delta_rows(path: Path) -> Iterator[SinkRow]:
    """Return the rows of a Delta table whose columns are those of the readers.

    Args:
        path: Its directory.
    """
    for row in table_rows(path):
        place = (row["topic"], row["partition"], row["offset"])
        yield SinkRow(_AUTHOR, *place, is_right_row(row, *place))


def unread_versions(path: Path, written_versions: int) -> list[str]:
    """Return which changes a run has not tried, in words; empty: it has read records of each.

    Args:
        path: The directory of a Delta table with rows.
        written_versions: How many versions of schemas there are records of.
    """
    read = len(set(_dataset(path).to_table(columns=["version"])["version"].to_pylist()))
    if read == written_versions == VERSIONS:
        return []
    return [f"of {VERSIONS} schemas, writers had {written_versions}, and rows have {read}"]


def table_rows(path: Path) -> Iterator[dict[str, Any]]:
    """Return the rows of a Delta table as they are, by a client that is not this package.

    Args:
        path: Its directory.
    """
    for batch in _dataset(path).to_batches():
        yield from batch.to_pylist()


def _dataset(path: Path) -> Any:
    # Members are forked by a process without this library's threads.
    import deltalake  # noqa: PLC0415

    return deltalake.DeltaTable(path).to_pyarrow_dataset()
