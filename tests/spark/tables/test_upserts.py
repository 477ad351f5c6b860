"""Rows that replace or delete those with the same key: which is the last, and what is stored."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import deltalake
import pyarrow as pa
import pytest

from spark_groups.errors import OptionsError, TableChangedError, TableError
from spark_groups.fence.compare import compare
from spark_groups.spark.tables.delta import delta_table
from spark_groups.spark.tables.expanded import Expanded
from spark_groups.spark.tables.table import Attempt
from spark_groups.spark.tables.tasks import changed
from spark_groups.spark.tables.upserts import PLACE, Upsert
from spark_groups.types import OffsetRange
from tests.spark.tables.batches_setup import GROUP, TOPIC, reads

BY_ID = Upsert(("id",))
SCHEMA = pa.schema(
    [
        *(pa.field(name, of) for name, of in PLACE.items()),
        ("id", pa.string()),
        ("count", pa.int64()),
        ("tags", pa.list_(pa.struct([("x", pa.int64())]))),
        ("_deleted", pa.bool_()),
    ]
)


def row(offset: int, key: str, count: int, *, partition: int = 0, deleted: Any = None) -> Any:
    return {
        "topic": "departures",
        "partition": partition,
        "offset": offset,
        "id": key,
        "count": count,
        "tags": [{"x": count}, None],
        "_deleted": deleted,
    }


def batch(*rows: Any, schema: pa.Schema = SCHEMA) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist([*rows], schema=schema)


class Driver:
    """Writes batches of given rows to a table, one task for each record batch."""

    def __init__(self, table: Any) -> None:
        self.table = table
        self._batch = 0

    def look(self, *ranges: OffsetRange) -> None:
        self.state = self.table.read(GROUP, frozenset({TOPIC}))
        self.decision = compare(GROUP, ranges, self.state, table=str(self.table))

    def commit(self, *tasks: pa.RecordBatch) -> None:
        attempt = Attempt(GROUP, self._batch, f"{random.random():.9f}"[2:])
        self._batch += 1
        writer = self.table.task_writer(attempt)
        staged = [piece for n, each in enumerate(tasks) for piece in writer.write([each], f"{n}")]
        self.table.commit(attempt, staged, self.decision, self.state)

    def write(self, *tasks: pa.RecordBatch) -> None:
        """Write the rows of tasks, whose offsets are without a gap."""
        found: dict[int, list[int]] = {}
        for each in tasks:
            for partition, offset in zip(
                *(each[n].to_pylist() for n in ("partition", "offset")), strict=True
            ):
                found.setdefault(partition, []).append(offset)
        self.look(*(reads(min(each), max(each) + 1, at) for at, each in found.items()))
        self.commit(*tasks)


def rows_of(path: Path, *names: str) -> list[Any]:
    found = deltalake.DeltaTable(path).to_pyarrow_table().to_pylist()
    return sorted(tuple(each[name] for name in names or ("id", "count")) for each in found)


def by_id(path: Path, **more: Any) -> Driver:
    return Driver(delta_table(path, merge_on="id", **more))


def test_last_row_of_a_key_is_that_with_the_greatest_offset_or_the_last_of_its_record() -> None:
    given = [row(5, "a", 1), row(3, "a", 2), row(4, "b", 3), row(4, "b", 4), row(1, "a", 5)]
    found = BY_ID.last(pa.table(batch(*given)))
    assert sorted(zip(*(found[n].to_pylist() for n in ("id", "count")), strict=True)) == [
        ("a", 1),
        ("b", 4),
    ]


def test_greatest_value_of_order_by_wins_over_offsets_and_partitions() -> None:
    by_count = Upsert(("id",), order_by="count")
    given = [row(9, "a", 1), row(3, "a", 2, partition=1), row(4, "a", 2, partition=0)]
    found = by_count.changes([pa.table(batch(each)) for each in given], "t")
    assert found is not None
    assert found.select(["partition", "offset"]).to_pylist() == [{"partition": 1, "offset": 3}]


def test_key_of_several_partitions_is_refused_by_the_names_of_its_records() -> None:
    pieces = [batch(row(3, "a", 1), row(4, "b", 1)), batch(row(8, "b", 1, partition=2))]
    with pytest.raises(TableError, match=r"departures-0 offset 4 and departures-2 offset 8, and"):
        BY_ID.changes([pa.table(each) for each in pieces], "t")


@pytest.mark.parametrize(
    ("names", "of", "problem"),
    [
        ("count", pa.float64(), "count of merge_on is double"),
        ("tags", None, "tags of merge_on is list"),
    ],
)
def test_types_without_equal_values_are_no_keys(names: str, of: Any, problem: str) -> None:
    schema = SCHEMA if of is None else SCHEMA.set(4, pa.field("count", of))
    with pytest.raises(TableError, match=problem):
        Upsert((names,)).last(pa.table(batch(row(1, "a", 1), schema=schema)))


@pytest.mark.parametrize(
    "given",
    [
        {"order_by": "at"},
        {"merge_on": ("id", "id")},
        {"merge_on": "id", "delete_when": "id"},
        {"merge_on": "id", "delete_when": "offset"},
        {"merge_on": ("",)},
    ],
)
def test_options_that_do_not_fit_each_other_are_refused(tmp_path: Path, given: Any) -> None:
    with pytest.raises(OptionsError, match="merge_on"):
        delta_table(tmp_path, **given)


def test_batches_insert_update_and_delete_in_the_commit_of_their_fence(tmp_path: Path) -> None:
    driver = by_id(tmp_path)
    driver.write(
        batch(row(0, "a", 1), row(1, "b", 1), row(2, "c", 1), row(3, "c", 2, deleted=True))
    )
    assert rows_of(tmp_path) == [("a", 1), ("b", 1)]
    driver.write(batch(row(4, "a", 2), row(5, "b", 0, deleted=True), row(6, "d", 1)))
    assert rows_of(tmp_path, "id", "count", "tags") == [
        ("a", 2, [{"x": 2}, None]),
        ("d", 1, [{"x": 1}, None]),
    ]
    # Nothing changes but the fence.
    driver.write(batch(row(7, "nobody", 0, deleted=True)))
    table = deltalake.DeltaTable(tmp_path)
    assert table.version() == 2
    assert table.schema().to_arrow().names == ["id", "count", "tags"]
    driver.look(reads(0, 8))
    assert driver.decision.write == ()
    assert delta_table(tmp_path).orphans(0) == []


def test_batch_that_only_deletes_creates_the_table_with_its_columns(tmp_path: Path) -> None:
    by_id(tmp_path).write(batch(row(0, "a", 1, deleted=True)))
    assert rows_of(tmp_path) == []
    by_id(tmp_path).write(batch(row(1, "a", 2)))
    assert rows_of(tmp_path) == [("a", 2)]


def test_zombie_merges_nothing(tmp_path: Path) -> None:
    zombie, owner = by_id(tmp_path), by_id(tmp_path)
    zombie.write(batch(row(0, "a", 0)))
    zombie.look(reads(1, 2))
    owner.write(batch(row(1, "a", 1)))
    owner.write(batch(row(2, "a", 2)))
    with pytest.raises(TableChangedError, match="another writer has committed"):
        zombie.commit(batch(row(1, "a", 1)))
    assert rows_of(tmp_path) == [("a", 2)]
    zombie.look(reads(1, 2))
    assert zombie.decision.write == ()


def test_older_row_from_another_partition_changes_nothing_with_order_by(tmp_path: Path) -> None:
    driver = by_id(tmp_path, order_by="count")
    driver.write(batch(row(0, "a", 5), row(1, "b", 5)))
    older = (row(0, "a", 4, partition=1), row(1, "b", 3, partition=1, deleted=True))
    driver.write(batch(*older, row(2, "c", 1, partition=1)))
    assert rows_of(tmp_path) == [("a", 5), ("b", 5), ("c", 1)]
    driver.write(batch(row(3, "a", 6, partition=1), row(4, "b", 5, partition=1, deleted=True)))
    assert rows_of(tmp_path) == [("a", 6), ("c", 1)]


@pytest.mark.parametrize("is_there", [False, True])
@pytest.mark.parametrize(
    ("without", "given", "problem"),
    [
        ("offset", {}, "it lacks offset: with merge_on, rows have the key"),
        ("id", {}, "it lacks id"),
        ("", {"id": None}, r"id is null, which.*row 0|id is null"),
        ("", {"offset": None}, "offset is null"),
    ],
)
def test_rows_without_key_or_place_are_refused(
    tmp_path: Path, is_there: bool, without: str, given: Any, problem: str
) -> None:
    driver = by_id(tmp_path)
    if is_there:
        driver.write(batch(row(0, "a", 1)))
    driver.look(reads(1, 2))
    names = [each for each in SCHEMA.names if each != without]
    with pytest.raises(TableError, match=problem):
        driver.commit(batch({**row(1, "a", 2), **given}).select(names))


def test_existing_table_keeps_columns_that_rows_lack_and_stores_places_that_it_has(
    tmp_path: Path,
) -> None:
    schema = pa.schema([("id", pa.string()), ("offset", pa.int64()), ("note", pa.string())])
    first = pa.table({"id": ["a", "z"], "offset": [0, 0], "note": ["mine", "too"]}, schema=schema)
    deltalake.write_deltalake(tmp_path, first)
    driver = by_id(tmp_path)
    given = batch(row(7, "a", 1), row(8, "b", 1)).select([*PLACE, "id"])
    driver.write(given)
    found = rows_of(tmp_path, "id", "offset", "note")
    assert sorted(found, key=str) == [("a", 7, "mine"), ("b", 8, None), ("z", 0, "too")]
    with pytest.raises(TableError, match="has no key, which merge_on"):
        delta_table(tmp_path, merge_on="key").check()


def test_table_with_deletion_vectors_is_refused(tmp_path: Path) -> None:
    deltalake.DeltaTable.create(
        tmp_path,
        deltalake.Schema.from_arrow(pa.schema([("id", pa.string())])),
        configuration={"delta.enableDeletionVectors": "true"},
    )
    delta_table(tmp_path).check()
    with pytest.raises(TableError, match=r"deletionVectors.*DROP FEATURE"):
        delta_table(tmp_path, merge_on="id").check()


@pytest.mark.parametrize("partition_by", [(), ("shard",)])
@pytest.mark.parametrize("seed", range(3))
def test_table_equals_a_replay_of_the_log(
    tmp_path: Path, seed: int, partition_by: tuple[str, ...]
) -> None:
    chance = random.Random(seed)
    schema = SCHEMA.set(5, pa.field("shard", pa.string()))
    expected: dict[str, tuple[Any, ...]] = {}
    ends = [0, 0, 0]

    def change(partition: int) -> Any:
        # Each key has its partition; long texts have no least value in the log.
        number = chance.randrange(12) * 3 + partition
        key = "k" * 40 * (number % 2) + f"{number}"
        deleted = chance.random() < 0.3
        made = {
            **row(ends[partition], key, chance.randrange(9), partition=partition, deleted=deleted),
            "shard": chance.choice(["x", "y/z", None]),
        }
        ends[partition] += 1
        expected.pop(key, None)
        if not deleted:
            expected[key] = (key, made["count"], made["shard"])
        return made

    driver = Driver(
        delta_table(tmp_path, merge_on=("id",), partition_by=partition_by, target_file_bytes=1)
    )
    for _ in range(8):
        tasks = [
            batch(*(change(at) for _ in range(chance.randint(1, 9))), schema=schema)
            for at in chance.sample(range(3), chance.randint(1, 3))
        ]
        driver.write(*chance.sample(tasks, len(tasks)))
        found = rows_of(tmp_path, "id", "count", "shard")
        assert sorted(found, key=str) == sorted(expected.values(), key=str)


# Columns of fields.

VALUE = pa.struct([("id", pa.int64()), ("name", pa.string())])
KEY = pa.struct([("id", pa.int64())])


def records(*values: Any, value: pa.DataType = VALUE, keys: Any = None) -> pa.RecordBatch:
    columns = {
        "key": pa.array(keys or [{"id": n} for n in range(len(values))], KEY),
        "value": pa.array([*values], value),
        "topic": pa.repeat("departures", len(values)),
        "partition": pa.repeat(pa.scalar(0, pa.int32()), len(values)),
        "offset": pa.array(range(len(values)), pa.int64()),
        "timestamp": pa.array([*range(len(values))], pa.timestamp("us", "UTC")),
    }
    return pa.RecordBatch.from_pydict(columns)


def test_record_without_a_value_deletes_the_row_of_its_key() -> None:
    transform = Expanded(("key", "value"), BY_ID)
    rows = changed(transform, records({"id": 0, "name": "x"}, None))
    assert rows.schema.names == ["id", "name", *PLACE, "_deleted"]
    assert [(each["id"], each["_deleted"]) for each in rows.to_pylist()] == [(0, False), (1, True)]


def test_record_whose_own_mark_is_true_deletes_too() -> None:
    value = pa.struct([("id", pa.int64()), ("gone", pa.bool_())])
    transform = Expanded(("key", "value"), Upsert(("id",), "gone", order_by="timestamp"))
    given = [{"id": 0, "gone": True}, {"id": 1, "gone": None}, None]
    rows = changed(transform, records(*given, value=value))
    assert rows.schema.names == ["id", *PLACE, "timestamp", "gone"]
    assert rows.column("gone").to_pylist() == [True, False, True]


def test_field_with_the_name_of_a_place_is_refused() -> None:
    value = pa.struct([("offset", pa.int64())])
    with pytest.raises(TableError, match="the field offset has the name"):
        changed(Expanded(("value",), BY_ID), records({"offset": 3}, value=value))


DEBEZIUM = pa.struct([("before", VALUE), ("after", VALUE), ("op", pa.string())])


def test_changes_of_debezium_become_rows() -> None:
    one, two = {"id": 1, "name": "x"}, {"id": 1, "name": "y"}
    given = [
        {"op": "c", "after": one},
        {"op": "u", "before": one, "after": two},
        {"op": "d", "before": {"id": 1}},
        None,
    ]
    rows = changed(Expanded(("value",), BY_ID, is_envelope=True), records(*given, value=DEBEZIUM))
    assert rows.select(["id", "name", "_deleted", "offset"]).to_pylist() == [
        {**one, "_deleted": False, "offset": 0},
        {**two, "_deleted": False, "offset": 1},
        {"id": 1, "name": None, "_deleted": True, "offset": 2},
    ]


def test_operation_of_debezium_about_no_row_is_refused() -> None:
    with pytest.raises(ValueError, match="'t'"):
        changed(Expanded(("value",), BY_ID, is_envelope=True), records({"op": "t"}, value=DEBEZIUM))
