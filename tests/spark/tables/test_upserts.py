"""Rows that replace or delete those with the same key: which is the last, and what tables store."""

from __future__ import annotations

import json
import random
from decimal import Decimal
from pathlib import Path
from typing import Any

import deltalake
import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from spark_groups.errors import OptionsError, TableChangedError, TableError
from spark_groups.spark.tables import upserts
from spark_groups.spark.tables.column_values import PLACE
from spark_groups.spark.tables.delta import delta_table
from spark_groups.spark.tables.expanded import Expanded
from spark_groups.spark.tables.halving import is_of_all_records
from spark_groups.spark.tables.table import Attempt
from spark_groups.spark.tables.tasks import changed
from spark_groups.spark.tables.upserts import Upsert
from tests.spark.tables.batches_setup import GROUP, reads
from tests.spark.tables.upsert_setup import (
    SCHEMA,
    DeltaById,
    Driver,
    PostgresById,
    batch,
    in_order,
    row,
)

BY_ID = Upsert(("id",))
ById = DeltaById | PostgresById


@pytest.fixture(params=["delta", "postgres"])
def by_id(request: pytest.FixtureRequest, tmp_path: Path) -> DeltaById | PostgresById:
    if request.param == "postgres":
        return PostgresById(request.getfixturevalue("postgres"))
    return DeltaById(tmp_path)


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


def test_batch_that_changes_too_much_has_a_cure_for_a_batch_that_is_planned(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(upserts, "CHANGES_BYTES_MAX", 1)
    with pytest.raises(TableError, match="new checkpointLocation and a lower maxOffsetsPerTrigger"):
        BY_ID.changes([pa.table(batch(row(1, "a", 1)))], "t")


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


def test_batches_insert_update_and_delete_in_the_commit_of_their_fence(by_id: ById) -> None:
    driver = by_id.driver()
    first = [row(0, "a", 1), row(1, "b", 1), row(2, "c", 1), row(3, "c", 2, deleted=True)]
    driver.write(batch(*first))
    assert by_id.rows() == [("a", 1), ("b", 1)]
    driver.write(
        batch(row(4, "a", 2), row(5, "b", 0, deleted=True)),
        batch(row(0, "d", 1, partition=1), row(1, "d", 3, partition=1)),
    )
    assert by_id.rows("id", "count", "tags") == [("a", 2, ["2", None]), ("d", 3, ["3", None])]
    # Nothing changes but the fence.
    driver.write(batch(row(6, "not there", 0, deleted=True)))
    driver.look(reads(0, 7))
    assert driver.decision.write == ()
    assert driver.table.orphans(0) == []


def test_batch_that_only_deletes_creates_the_table_with_its_columns(by_id: ById) -> None:
    by_id.driver().write(batch(row(0, "a", 1, deleted=True)))
    assert by_id.rows("id", "count", "tags") == []
    by_id.driver().write(batch(row(1, "a", 2)))
    assert by_id.rows() == [("a", 2)]


def test_zombie_merges_nothing(by_id: ById) -> None:
    zombie, owner = by_id.driver(), by_id.driver()
    zombie.write(batch(row(0, "a", 0)))
    zombie.look(reads(1, 2))
    owner.write(batch(row(1, "a", 1)))
    owner.write(batch(row(2, "a", 2)))
    with pytest.raises(TableChangedError, match="another writer has committed"):
        zombie.commit(batch(row(1, "a", 1)))
    assert by_id.rows() == [("a", 2)]
    zombie.look(reads(1, 2))
    assert zombie.decision.write == ()


def test_older_row_from_another_partition_changes_nothing_with_order_by(by_id: ById) -> None:
    driver = by_id.driver(order_by="count")
    driver.write(batch(row(0, "a", 5), row(1, "b", 5)))
    older = (row(0, "a", 4, partition=1), row(1, "b", 3, partition=1, deleted=True))
    driver.write(batch(row(2, "c", 2), row(3, "c", 1)), batch(*older, row(2, "c", 1, partition=1)))
    assert by_id.rows() == [("a", 5), ("b", 5), ("c", 2)]
    driver.write(batch(row(3, "a", 6, partition=1), row(4, "b", 5, partition=1, deleted=True)))
    assert by_id.rows() == [("a", 6), ("c", 2)]


def test_key_of_several_partitions_leaves_the_table_unchanged(by_id: ById) -> None:
    driver = by_id.driver()
    driver.write(batch(row(0, "a", 1)))
    with pytest.raises(TableError, match=r"departures-0 offset 1 and departures-1 offset 0, and"):
        driver.write(batch(row(1, "a", 2)), batch(row(0, "a", 3, partition=1)))
    assert by_id.rows() == [("a", 1)]


@pytest.mark.parametrize("is_there", [False, True])
@pytest.mark.parametrize(
    ("without", "given", "problem"),
    [
        ("offset", {}, "it lacks offset: with merge_on, rows have the key"),
        ("id", {}, "it lacks id"),
        ("", {"id": None}, "id is null"),
        ("", {"offset": None}, "offset is null"),
    ],
)
def test_rows_without_key_or_place_are_refused(
    by_id: ById, is_there: bool, without: str, given: Any, problem: str
) -> None:
    driver = by_id.driver()
    if is_there:
        driver.write(batch(row(0, "a", 1)))
    driver.look(reads(1, 2))
    names = [each for each in SCHEMA.names if each != without]
    with pytest.raises(TableError, match=problem):
        driver.commit(batch({**row(1, "a", 2), **given}).select(names))


def test_row_that_deletes_may_lack_values_that_others_must_have(by_id: ById) -> None:
    by_id.create(not_null="count")
    driver = by_id.driver()
    driver.write(batch(row(0, "a", 1), row(1, "b", 1)))
    gone = {**row(2, "a", 0, deleted=True), "count": None, "tags": None}
    driver.write(batch(gone))
    assert by_id.rows() == [("b", 1)]
    with pytest.raises(TableError, match="count"):
        driver.write(batch({**row(3, "b", 0), "count": None}))
    assert by_id.rows() == [("b", 1)]


def test_column_that_rows_lack_keeps_its_value(by_id: ById) -> None:
    driver = by_id.driver()
    driver.write(batch(row(0, "a", 1)))
    lacking = batch(row(1, "a", 2), row(2, "b", 3)).drop_columns(["tags"])
    driver.write(lacking)
    assert by_id.rows("id", "count", "tags") == [("a", 2, ["1", None]), ("b", 3, None)]


def test_column_that_only_the_first_rows_of_a_task_have_is_refused(by_id: ById) -> None:
    writer = by_id.driver().table.task_writer(Attempt("g", 0, "a"))
    lacking = batch(row(1, "b", 1)).drop_columns(["tags"])
    with pytest.raises(TableError, match="later rows lack tags"):
        [*writer.write([batch(row(0, "a", 1)), lacking], "0")]


def test_names_of_columns_are_quoted(tmp_path: Path) -> None:
    driver = DeltaById(tmp_path).driver(merge_on="a`key`", order_by="o`")
    schema = SCHEMA.append(pa.field("a`key`", pa.string())).append(pa.field("o`", pa.int64()))
    for offset in range(2):
        named = {**row(offset, "a", offset), "a`key`": "k", "o`": offset}
        driver.write(batch(named, schema=schema))
    found = deltalake.DeltaTable(tmp_path).to_pyarrow_table().to_pylist()
    assert [(each["a`key`"], each["o`"]) for each in found] == [("k", 1)]


STRUCT = pa.struct([("id", pa.int64()), ("_deleted", pa.int64())])


@pytest.mark.parametrize("of", [pa.int64(), STRUCT])
@pytest.mark.parametrize(
    "name",
    [
        *("count_all", "row", "0", "row_max", "changes", "stored", "_is_delete"),
        *(".x", "a.b", "Gr\u00f6\u00dfe", "'\""),
    ],
)
def test_column_may_have_any_name_that_a_merge_uses(
    tmp_path: Path, name: str, of: pa.DataType
) -> None:
    is_key = of == pa.int64()
    key, other = (name, "id") if is_key else ("id", "count")
    schema = SCHEMA.append(pa.field(name, of))

    def rows(*given: Any) -> pa.RecordBatch:
        named = [
            {**each, name: each["count"] if is_key else {"id": 7, "_deleted": 7}} for each in given
        ]
        return batch(*named, schema=schema)

    for number, order_by in enumerate((None, other)):
        by_id = DeltaById(tmp_path / f"{number}")
        driver = by_id.driver(merge_on=key, order_by=order_by)
        for at in (0, 3):
            given = [row(at, "a", 1), row(at + 1, "b", 2), row(at + 2, "b", 2, deleted=True)]
            driver.write(rows(*given))
            assert by_id.rows("id", "count") == [("a", 1)]
    doubled = rows(row(6, "a", 1), row(0, "a", 1, partition=1))
    driver = DeltaById(tmp_path / "0").driver(merge_on=key)
    with pytest.raises(TableError, match="departures-0 offset 6 and departures-1 offset 0, and"):
        driver.write(doubled)


def test_places_of_records_may_be_the_key(tmp_path: Path) -> None:
    by_id = DeltaById(tmp_path)
    driver = by_id.driver(merge_on=("topic", "offset", "partition"))
    driver.write(batch(row(0, "a", 1), row(0, "b", 2, partition=1)))
    driver.write(batch(row(1, "c", 3)))
    assert by_id.rows("partition", "offset", "id") == [(0, 0, "a"), (0, 1, "c"), (1, 0, "b")]


def test_table_is_not_partitioned_by_a_time_whose_zone_a_merge_drops(tmp_path: Path) -> None:
    schema = SCHEMA.append(pa.field("at", pa.timestamp("us", "UTC")))
    driver = DeltaById(tmp_path, partition_by="at").driver()
    with pytest.raises(TableError, match=r"at of partition_by is a time with a zone, .*a date"):
        driver.write(batch({**row(0, "a", 1), "at": 0}, schema=schema))


def test_empty_text_of_a_partition_is_null_however_it_is_merged(tmp_path: Path) -> None:
    by_id = DeltaById(tmp_path, partition_by="city")
    schema = SCHEMA.append(pa.field("city", pa.string()))
    for at in range(2):
        by_id.driver().write(batch({**row(at, "a", at), "city": ""}, schema=schema))
        assert by_id.rows("count", "city") == [(at, None)]


def test_empty_text_of_a_partition_is_no_part_of_a_key(tmp_path: Path) -> None:
    by_id = DeltaById(tmp_path, merge_on=("id", "city"), partition_by="city")
    schema = SCHEMA.append(pa.field("city", pa.string()))
    by_id.driver().write(batch({**row(0, "a", 0), "city": "b"}, schema=schema))
    with pytest.raises(TableError, match="city is an empty text, which a partition column"):
        by_id.driver().write(batch({**row(1, "a", 1), "city": ""}, schema=schema))
    assert by_id.rows("count", "city") == [(0, "b")]


def test_empty_text_of_a_partition_that_must_not_be_null_is_refused(tmp_path: Path) -> None:
    by_id = DeltaById(tmp_path, partition_by="city")
    stored = (each for each in SCHEMA if each.name not in {*PLACE, "_deleted"})
    schema = pa.schema([*stored, pa.field("city", pa.string(), nullable=False)])
    deltalake.DeltaTable.create(
        tmp_path, deltalake.Schema.from_arrow(schema), partition_by=["city"]
    )
    given = SCHEMA.append(pa.field("city", pa.string()))
    with pytest.raises(TableError, match="city is an empty text, which a partition column"):
        by_id.driver().write(batch({**row(0, "a", 0), "city": ""}, schema=given))
    by_id.driver().write(batch({**row(0, "a", 0), "city": "b"}, schema=given))
    assert by_id.rows("count", "city") == [(0, "b")]


def test_file_of_spark_that_a_merge_would_leave_is_refused(tmp_path: Path) -> None:
    """Spark writes the name of a partition into the log as it is."""
    by_id = DeltaById(tmp_path, partition_by="city")
    schema = SCHEMA.append(pa.field("city", pa.string()))
    by_id.driver().write(batch({**row(0, "a", 0), "city": "é"}, schema=schema))
    by_id.driver().write(batch({**row(1, "a", 1), "city": "é"}, schema=schema))
    assert by_id.rows("count", "city") == [(1, "é")], "a name of the library itself"
    log = max((tmp_path / "_delta_log").glob("*.json"))
    (added,) = (json.loads(each)["add"] for each in log.open() if '"add"' in each)
    (file,) = (each for each in tmp_path.glob("city=*/*") if each.name in added["path"])
    (tmp_path / "city=é").mkdir()
    file.rename(tmp_path / "city=é" / file.name)
    log.write_text(log.read_text("utf-8").replace(added["path"], f"city=é/{file.name}"), "utf-8")
    with pytest.raises(TableError, match="whose partition is not ASCII"):
        by_id.driver().write(batch({**row(2, "a", 2), "city": "é"}, schema=schema))
    assert by_id.rows("count", "city") == [(1, "é")]


def test_tasks_with_different_columns_are_refused(by_id: ById) -> None:
    driver = by_id.driver()
    driver.write(batch(row(0, "a", 1)))
    less = batch(row(0, "b", 1, partition=1)).select([*PLACE, "id"])
    with pytest.raises(TableError, match="tasks staged different columns"):
        driver.write(batch(row(1, "c", 1)), less)


def test_existing_delta_table_keeps_columns_that_rows_lack_and_stores_places_that_it_has(
    tmp_path: Path,
) -> None:
    schema = pa.schema([("id", pa.string()), ("offset", pa.int64()), ("note", pa.string())])
    first = pa.table({"id": ["a", "z"], "offset": [0, 0], "note": ["mine", "too"]}, schema=schema)
    deltalake.write_deltalake(tmp_path, first)
    by_id = DeltaById(tmp_path)
    by_id.driver().write(batch(row(7, "a", 1), row(8, "b", 1)).select([*PLACE, "id"]))
    found = by_id.rows("id", "offset", "note")
    assert found == [("a", 7, "mine"), ("b", 8, None), ("z", 0, "too")]
    with pytest.raises(TableError, match="has no key, which merge_on"):
        by_id.driver(merge_on="key").table.check()


def test_staged_rows_that_cannot_be_read_are_an_error_of_the_table_without_secrets(
    tmp_path: Path,
) -> None:
    # A text of the store's that has the secret.
    options = {"aws_secret_access_key": "Couldn't deserialize thrift"}
    driver = Driver(delta_table(tmp_path, options, merge_on="id"))
    driver.look(reads(0, 1))
    attempt = Attempt(GROUP, 0, "a")
    (piece,) = driver.table.task_writer(attempt).write([batch(row(0, "a", 1))], "0")
    with (tmp_path / piece.name).open("r+b") as file:
        file.seek(4)
        file.write(b"\xff" * 200)
    with pytest.raises(TableError, match=r"staged rows .*cannot be read") as refused:
        driver.table.commit(attempt, [piece], driver.decision, driver.state)
    assert "thrift" not in str(refused.value)


def test_table_with_deletion_vectors_is_refused(tmp_path: Path) -> None:
    deltalake.DeltaTable.create(
        tmp_path,
        deltalake.Schema.from_arrow(pa.schema([("id", pa.string())])),
        configuration={"delta.enableDeletionVectors": "true"},
    )
    delta_table(tmp_path).check()
    with pytest.raises(TableError, match=r"deletionVectors.*DROP FEATURE"):
        delta_table(tmp_path, merge_on="id").check()


def test_postgresql_needs_a_unique_index_of_the_key_and_keeps_columns_that_rows_lack(
    postgres: str,
) -> None:
    by_id = PostgresById(postgres)
    by_id.place.run("CREATE TABLE rows (id text, part int, note text, partition bigint)")
    by_id.place.run("CREATE UNIQUE INDEX ON rows (id, part)")
    by_id.place.run("CREATE UNIQUE INDEX ON rows (id) WHERE part IS NULL")
    with pytest.raises(TableError, match="no primary key or unique index of exactly id"):
        by_id.driver().table.check()
    by_id.driver(merge_on=("part", "id")).table.check()
    by_id.place.run("CREATE UNIQUE INDEX ON rows (id) INCLUDE (note)")
    by_id.place.run("INSERT INTO rows VALUES ('a', 1, 'mine', 9)")
    by_id.driver().write(batch(row(7, "a", 1), row(8, "b", 1)).select([*PLACE, "id"]))
    assert by_id.rows("id", "part", "note", "partition") == [
        ("a", 1, "mine", 0),
        ("b", None, None, 0),
    ]


def test_key_that_the_server_compares_in_its_own_way_is_one_row(postgres: str) -> None:
    by_id = PostgresById(postgres)
    by_id.place.run("CREATE TABLE rows (id numeric(10, 2) PRIMARY KEY, count bigint)")
    schema = pa.schema([*PLACE.items(), ("id", pa.decimal128(10, 1)), ("count", pa.int64())])
    given = [{**row(n, "", n), "id": Decimal("1.5")} for n in range(3)]
    by_id.driver().write(pa.RecordBatch.from_pylist(given, schema=schema))
    assert by_id.rows() == [(Decimal("1.50"), 2)]


def test_value_that_the_server_refuses_is_named_by_its_record(postgres: str) -> None:
    by_id = PostgresById(postgres)
    by_id.place.run("CREATE TABLE rows (id text PRIMARY KEY, note json)")
    schema = pa.schema([*PLACE.items(), ("id", pa.string()), ("note", pa.string())])
    given = [{**row(n, f"{n}", n), "note": note} for n, note in enumerate(["[]", "{"])]
    with pytest.raises(TableError, match=r"note is refused.*departures-0 offset 1"):
        by_id.driver().write(pa.RecordBatch.from_pylist(given, schema=schema))


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("kind", ["delta", "partitioned delta", "postgres"])
def test_table_equals_a_replay_of_the_log(
    request: pytest.FixtureRequest, tmp_path: Path, kind: str, seed: int
) -> None:
    by_id: ById = DeltaById(tmp_path, target_file_bytes=1)
    if kind == "partitioned delta":
        by_id = DeltaById(tmp_path, partition_by="shard")
    elif kind == "postgres":
        by_id = PostgresById(request.getfixturevalue("postgres"))
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

    driver = by_id.driver()
    for _ in range(8):
        tasks = [
            batch(*(change(at) for _ in range(chance.randint(1, 9))), schema=schema)
            for at in chance.sample(range(3), chance.randint(1, 3))
        ]
        driver.write(*chance.sample(tasks, len(tasks)))
        assert by_id.rows("id", "count", "shard") == in_order([*expected.values()])


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
ODD = pa.struct([("_is_delete", pa.int64()), ("a.b`c", pa.int64())])


def test_changes_of_debezium_become_rows() -> None:
    one, two = {"id": 1, "name": "x"}, {"id": 1, "name": "y"}
    given = [
        {"op": "c", "after": one},
        {"op": "u", "before": one, "after": two},
        {"op": "d", "before": {"id": 1}},
    ]
    rows = changed(Expanded(("value",), BY_ID, is_envelope=True), records(*given, value=DEBEZIUM))
    assert rows.select(["id", "name", "_deleted", "offset"]).to_pylist() == [
        {**one, "_deleted": False, "offset": 0},
        {**two, "_deleted": False, "offset": 1},
        {"id": 1, "name": None, "_deleted": True, "offset": 2},
    ]


def test_record_of_debezium_without_a_value_deletes_the_row_of_its_key() -> None:
    """Compaction may have kept only that one, without the delete before it."""
    rows = records({"op": "c", "after": {"id": 0, "name": "x"}}, None, value=DEBEZIUM)
    found = changed(Expanded(("key", "value"), BY_ID, is_envelope=True), rows)
    assert found.select(["id", "name", "_deleted"]).to_pylist() == [
        {"id": 0, "name": "x", "_deleted": False},
        {"id": 1, "name": None, "_deleted": True},
    ]
    with pytest.raises(ValueError, match=r"keyFormat, and expand to \('key', 'value'\)"):
        changed(Expanded(("value",), BY_ID, is_envelope=True), rows)


@pytest.mark.parametrize(
    ("value", "problem"),
    [
        (pa.struct([("schema", VALUE), ("payload", DEBEZIUM)]), "these lack op, before, after"),
        (pa.struct([("before", KEY), ("after", VALUE), ("op", pa.string())]), "rows of one table"),
    ],
)
def test_value_that_is_no_envelope_of_debezium_refuses_all_records(
    value: pa.DataType, problem: str
) -> None:
    with pytest.raises(TableError, match=problem) as raised:
        changed(Expanded(("value",), BY_ID, is_envelope=True), records({}, value=value))
    assert is_of_all_records(raised.value)


def test_operation_of_debezium_about_no_row_is_refused() -> None:
    with pytest.raises(ValueError, match="op of Debezium: t"):
        changed(Expanded(("value",), BY_ID, is_envelope=True), records({"op": "t"}, value=DEBEZIUM))


@pytest.mark.spark
@pytest.mark.parametrize(
    ("transform", "value", "given"),
    [
        (Expanded((), Upsert(("key",))), VALUE, [{"id": 0, "name": "x"}, None]),
        (Expanded(("key", "value"), BY_ID), VALUE, [{"id": 0, "name": "x"}, None]),
        (
            Expanded(("value",), Upsert(("id",), "gone", order_by="timestamp")),
            pa.struct([("id", pa.int64()), ("gone", pa.bool_())]),
            [{"id": 0, "gone": True}, {"id": 1, "gone": None}, None],
        ),
        (
            Expanded(("key", "value"), BY_ID, is_envelope=True),
            DEBEZIUM,
            [{"op": "u", "after": {"id": 1}}, {"op": "d", "before": {"id": 1}}, None],
        ),
        (
            Expanded(("key", "value"), Upsert(("_is_delete", "a.b`c")), is_envelope=True),
            pa.struct([("before", ODD), ("after", ODD), ("op", pa.string())]),
            [{"op": "u", "after": {"_is_delete": 1, "a.b`c": 2}}, {"op": "d", "before": {}}],
        ),
    ],
)
def test_frames_get_the_same_columns_and_marks_as_record_batches(
    spark: SparkSession, transform: Expanded, value: pa.DataType, given: list[Any]
) -> None:
    rows = records(*given, value=value)
    found = transform(spark.createDataFrame(pa.table(rows))).toArrow()
    wanted = changed(transform, rows)
    assert found.schema.names == wanted.schema.names
    assert found.to_pylist() == wanted.to_pylist()
