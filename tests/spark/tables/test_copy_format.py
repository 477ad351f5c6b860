"""Record batches in the format of COPY, which a real PostgreSQL reads."""

from __future__ import annotations

import datetime
import uuid
from decimal import Decimal

import psycopg
import pyarrow as pa
import pytest

from spark_groups.spark.tables.copy_format import HEADER, TRAILER, columns_of, copied

UTC = datetime.timezone.utc
AT = datetime.datetime.fromisoformat("1969-07-20 20:17:40.123456")
COLUMNS = {
    "boolean": (pa.bool_(), [True, False]),
    "short": (pa.int16(), [-32768, 32767]),
    "integer": (pa.int32(), [-(2**31), 2**31 - 1]),
    "long": (pa.int64(), [-(2**63), 2**63 - 1]),
    "float": (pa.float32(), [0.5, float("inf")]),
    "double": (pa.float64(), [-0.1, 1e300]),
    "date": (pa.date32(), [AT.date(), datetime.date(9999, 12, 31)]),
    "time": (pa.time64("us"), [AT.time(), datetime.time(0)]),
    "local": (pa.timestamp("us"), [AT, datetime.datetime.fromisoformat("2000-01-01")]),
    "instant": (
        pa.timestamp("us", "UTC"),
        [AT.replace(tzinfo=UTC), datetime.datetime(2026, 11, 22, tzinfo=UTC)],
    ),
    "text": (pa.string(), ["", "süß, 'quoted' \\ \n"]),
    "bytes": (pa.binary(), [b"", bytes(range(256))]),
    "uuid": (pa.uuid(), [uuid.UUID(int=0), uuid.UUID(int=2**128 - 1)]),
    "counts": (pa.list_(pa.int32()), [[], [1, None, -(2**31)]]),
    "tags": (pa.list_(pa.string()), [["", None, "NULL", 'a"b\\c', "{,}", "süß"], ["x"]]),
    "rates": (pa.list_(pa.float64()), [[-0.1, 1e300], [float("inf")]]),
    "decimal": (pa.decimal128(10, 2), [Decimal("-12345678.90"), Decimal("0.01")]),
}
SCHEMA = pa.schema([pa.field(name, kind) for name, (kind, _) in COLUMNS.items()])
ROWS = [
    *([values[index] for _, values in COLUMNS.values()] for index in (0, 1)),
    [None] * len(COLUMNS),
]


def batch() -> pa.RecordBatch:
    columns = [[row[index] for row in ROWS] for index in range(len(COLUMNS))]
    arrays = [pa.array(column, field.type) for column, field in zip(columns, SCHEMA, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=SCHEMA)


@pytest.mark.parametrize("rows", [batch(), batch().slice(1), batch().slice(0, 2), batch()[2:]])
@pytest.mark.parametrize("chunk_bytes", [1, 1 << 20])
def test_postgresql_returns_the_same_values_of_each_type(
    rows: pa.RecordBatch, chunk_bytes: int, postgres: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("spark_groups.spark.tables.copy_format._CHUNK_BYTES", chunk_bytes)
    fields = ", ".join(f'"{each.name}" {each.staged_type}' for each in columns_of(SCHEMA))
    with psycopg.connect(postgres) as connection:
        connection.execute("SET timezone TO 'UTC'")
        connection.execute(f"CREATE TEMPORARY TABLE r ({fields})")
        with connection.cursor().copy("COPY r FROM STDIN (FORMAT binary)") as copy:
            for part in (HEADER, *copied(rows), TRAILER):
                copy.write(part)
        names = [f'"{each.name}"::{each.table_type}' for each in columns_of(SCHEMA)]
        found = connection.execute(f"SELECT {', '.join(names)} FROM r").fetchall()
    assert [list(each) for each in found] == [list(each.values()) for each in rows.to_pylist()]


def test_batch_without_rows_has_no_bytes() -> None:
    assert list(copied(batch().slice(0, 0))) == []
