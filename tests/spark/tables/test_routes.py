"""A batch of several topics, each of which a route gives to a table."""

from __future__ import annotations

import logging
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame
from pyspark.sql.functions import col

import spark_groups
from spark_groups import AtLast, SkipOrDeadLetter
from spark_groups.errors import OptionsError, TableError, TableGapError
from spark_groups.fence.beginnings import LOOK_AGAIN_S, Batch
from spark_groups.fence.compare import Decision
from spark_groups.fence.entries import TableState
from spark_groups.group.member.subscription import Subscription
from spark_groups.spark.tables.routes import Asked, Target, Targets, write_together
from spark_groups.spark.tables.table import Attempt, FencedTable, Piece
from spark_groups.spark.tables.write import GroupLogs, Notices, write_steps
from spark_groups.types import OffsetRange, PlanTopic
from tests.spark.tables.batches_setup import GROUP, rows
from tests.spark.tables.delta_setup import DeltaPlace
from tests.spark.tables.every_table_setup import KINDS, place_of
from tests.spark.tables.places import Place, PostgresPlace, SqlitePlace
from tests.spark.tables.write_setup import WAYS, CutLogs, TableQuery
from workshop.parts.brokers import Row, create_topic, produce

ANY = Subscription.of_pattern("[a-z]+")
DIES = "the driver dies here"


def of_topic(name: str, from_offset: int, until_offset: int, partition: int = 0) -> OffsetRange:
    topic_id = uuid.uuid5(uuid.NAMESPACE_DNS, name)
    return OffsetRange(topic_id, name, partition, from_offset, until_offset)


def batch_of(*ranges: OffsetRange, batch_id: int = 0, **more: Any) -> Batch:
    return Batch(GROUP, batch_id, ranges, **more)


def staged(asked: Mapping[Target, Asked]) -> dict[Target, Sequence[Piece]]:
    """Stage rows as a task does that has the ranges of all tables."""
    return {
        target: [*target.table.task_writer(each.attempt).write([rows(r) for r in each.ranges], "0")]
        for target, each in asked.items()
    }


class Driver:
    """Writes batches to the tables of a route.

    Args:
        route: The route.
        logs: The group's logs.
    """

    def __init__(self, route: Any, logs: Any = None) -> None:
        self.targets = Targets(route, None)
        self.logs: GroupLogs | None = logs
        self.asked: list[set[str]] = []

    def write(self, batch: Batch) -> None:
        def stage(asked: Mapping[Target, Asked]) -> dict[Target, Sequence[Piece]]:
            self.asked.append({str(each.table) for each in asked})
            return staged(asked)

        notices = Notices()
        write_together(
            {
                target: write_steps(target.table, part, notices, self.logs, target.unsaved)
                for target, part in self.targets.parts(batch, 0.0, ANY).items()
            },
            stage,
        )


def dying(table: FencedTable, *, after: bool, batch_id: int | None = None) -> FencedTable:
    """Return a table whose driver dies before, or after, a commit with rows of a batch."""
    commit = table.commit

    def dies(
        attempt: Attempt, pieces: Sequence[Piece], decision: Decision, state: TableState
    ) -> None:
        is_last = bool(pieces) and batch_id in {None, attempt.batch_id}
        if after or not is_last:
            commit(attempt, pieces, decision, state)
        if is_last:
            raise RuntimeError(DIES)

    table.commit = dies  # type: ignore[method-assign]
    return table


def test_crash_between_two_commits_repeats_nothing_in_tables_of_any_kind(
    request: pytest.FixtureRequest, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Some tables have their part of the batch, one without the driver's knowledge; others not."""
    places = {kind: place_of(kind, request, tmp_path / kind) for kind in KINDS}
    places["more"] = DeltaPlace(tmp_path / "more")
    (tmp_path / "sqlite").mkdir()
    Driver({name: each.fenced() for name, each in places.items()}).write(
        batch_of(*(of_topic(name, 0, 10, index % 2) for name in places for index in range(2)))
    )
    second = batch_of(*(of_topic(name, 10, 20) for name in places), batch_id=1)
    tables = {name: each.fenced() for name, each in places.items()}
    for name, after in (("sqlite", False), ("postgres", True), ("more", False)):
        tables[name] = dying(tables[name], after=after)
    with pytest.raises(RuntimeError, match=DIES):
        Driver(tables).write(second)
    has = {name: len(each.offsets()) for name, each in places.items()}
    assert has == {"sqlite": 10, "postgres": 20, "delta": 20, "iceberg": 20, "more": 10}
    again = Driver({name: each.fenced() for name, each in places.items()})
    with caplog.at_level(logging.WARNING):
        again.write(second)
    assert again.asked == [{str(tables["sqlite"]), str(tables["more"])}]
    assert sum("are skipped" in each for each in caplog.messages) == 3
    for name, place in places.items():
        assert place.offsets() == list(range(20)), name
        assert place.offsets(1) == list(range(10)), name
        assert {topic for (topic,) in place.values("topic")} == {name}


def test_tables_that_refuse_the_comparison_are_named_with_their_topics_before_any_commit(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    good, gap, other = (DeltaPlace(tmp_path / name) for name in ("good", "gap", "other"))
    route = {"a": good.fenced(), "b": gap.fenced(), "d": other.fenced()}
    route["c"] = route["b"]
    Driver(route).write(batch_of(*(of_topic(name, 0, 10) for name in "abcd")))
    ranges = [of_topic("a", 10, 20), of_topic("b", 15, 20), of_topic("d", 15, 20)]
    with (
        caplog.at_level(logging.ERROR),
        pytest.raises(TableGapError, match="5 offsets would be missing") as refused,
    ):
        Driver(route).write(batch_of(*ranges))
    assert str(gap.path) in str(refused.value)
    assert str(refused.value).endswith("(the table gets b, c)")
    (second,) = caplog.messages
    assert str(other.path) in second
    assert second.endswith("(the table gets d)")
    assert good.offsets() == list(range(10))
    assert sorted(gap.values("topic", "offset")) == [(t, o) for t in "bc" for o in range(10)]


def test_table_whose_store_cannot_be_reached_is_named_with_its_topic(tmp_path: Path) -> None:
    route = {
        "a": DeltaPlace(tmp_path / "a").fenced(),
        "b": spark_groups.postgres_table("host=127.0.0.1 port=1 user=flights", "rows"),
    }
    with pytest.raises(TableError, match=r"PostgreSQL .*cannot be reached.*\(the table gets b\)"):
        Driver(route).write(batch_of(of_topic("a", 0, 10), of_topic("b", 0, 10)))
    assert not (tmp_path / "a").exists()
    with pytest.raises(TableError, match=r"PostgreSQL .*cannot be reached.*\(the table gets b\)"):
        Driver(route).write(batch_of(of_topic("b", 0, 10)))


def test_rows_of_all_tables_are_staged_together_and_again_for_those_that_refuse(
    tmp_path: Path,
) -> None:
    places = {name: SqlitePlace(tmp_path / f"{name}.db") for name in "abc"}
    driver = Driver(lambda topic: places[topic].fenced())
    driver.write(batch_of(*(of_topic(name, 0, 10) for name in places)))
    zombie = Driver(lambda topic: places[topic].fenced())
    parts = zombie.targets.parts(batch_of(*(of_topic(name, 10, 20) for name in places)), 0.0, ANY)
    asked: list[int] = []

    def stage(of: Mapping[Target, Asked]) -> dict[Target, Sequence[Piece]]:
        asked.append(len(of))
        if len(asked) == 1:
            # The owner writes a part of what the zombie has staged.
            driver.write(batch_of(of_topic("b", 10, 15)))
        return staged(of)

    writings = {t: write_steps(t.table, part, Notices()) for t, part in parts.items()}
    write_together(writings, stage)
    assert asked == [3, 1]
    assert all(each.offsets() == list(range(20)) for each in places.values())


# Which table gets which topic.


def test_function_is_asked_once_for_each_topic_and_topics_may_share_a_table(
    tmp_path: Path,
) -> None:
    asked: list[str] = []
    shared, own = DeltaPlace(tmp_path / "shared").fenced(), DeltaPlace(tmp_path / "own").fenced()

    def route(topic: str) -> FencedTable:
        asked.append(topic)
        return own if topic == "own" else shared

    targets = Targets(route, None)
    batch = batch_of(*(of_topic(name, 0, 10) for name in ("a", "b", "own")))
    for _ in range(2):
        found = {str(each.table): part for each, part in targets.parts(batch, 0.0, ANY).items()}
        assert [each.topic for each in found[str(shared)].ranges] == ["a", "b"]
        assert [each.topic for each in found[str(own)].ranges] == ["own"]
    assert asked == ["a", "b", "own"]


def test_two_objects_for_one_table_are_refused_because_they_refuse_each_other(
    tmp_path: Path,
) -> None:
    place = DeltaPlace(tmp_path / "shared")
    with pytest.raises(OptionsError, match=r"the topic b .*shared.*pass the same object"):
        Targets({"a": place.fenced(), "b": place.fenced()}, None)
    by_name = Targets(lambda _topic: place.fenced(), None)
    with pytest.raises(OptionsError, match=r"the topic b .*shared.*pass the same object"):
        by_name.parts(batch_of(of_topic("a", 0, 10), of_topic("b", 0, 10)), 0.0, ANY)


@pytest.mark.parametrize("route", [{"a": "lake/a"}, lambda topic: None, {}])
def test_topic_without_a_table_is_named_before_anything_is_written(route: Any) -> None:
    with pytest.raises(OptionsError, match="the route has no table for the topic a, but"):
        Targets(route, None).parts(batch_of(of_topic("a", 0, 10)), 0.0, ANY)


def test_part_has_the_topics_and_the_previous_ranges_of_its_table_alone(tmp_path: Path) -> None:
    tables = {name: DeltaPlace(tmp_path / name).fenced() for name in "ab"}
    topics = tuple(PlanTopic(of_topic(name, 0, 0).topic_id, name, 1) for name in "ab")
    before = tuple(of_topic(name, 0, 10) for name in ("a", "b", "deleted"))
    ranges = tuple(of_topic(name, 10, 20) for name in "ab")
    batch = batch_of(*ranges, topics=topics, before=before)
    parts = {
        str(each.table): part for each, part in Targets(tables, None).parts(batch, 0, ANY).items()
    }
    for index, table in enumerate(tables.values()):
        part = parts[str(table)]
        found = (part.ranges, part.topics, part.before)
        assert found == ((ranges[index],), (topics[index],), (before[index],))
    (whole,) = Targets(tables["a"], None).parts(batch, 0, ANY).values()
    assert whole is batch


@pytest.mark.parametrize("subscribed", [Subscription.of_names("a"), Subscription.of_pattern("a")])
def test_topics_of_earlier_runs_need_no_table(tmp_path: Path, subscribed: Subscription) -> None:
    def route(topic: str) -> FencedTable:
        return {"a": DeltaPlace(tmp_path / "a").fenced()}[topic]

    topics = tuple(PlanTopic(of_topic(name, 0, 0).topic_id, name, 1) for name in ("a", "old"))
    batch = batch_of(of_topic("a", 0, 10), of_topic("old", 5, 5), topics=topics)
    (part,) = Targets(route, None).parts(batch, 0.0, subscribed).values()
    assert (part.ranges, part.topics) == (batch.ranges[:1], topics[:1])


def test_idle_tables_are_compared_every_ten_seconds_so_that_their_entries_begin(
    tmp_path: Path,
) -> None:
    places = {name: DeltaPlace(tmp_path / name) for name in "ab"}
    topics = tuple(PlanTopic(of_topic(name, 0, 0).topic_id, name, 1) for name in "ab")
    targets = Targets({name: each.fenced() for name, each in places.items()}, None)

    def compared(now_s: float, *names: str) -> int:
        batch = batch_of(*(of_topic(name, 0, 10) for name in names), topics=topics)
        return len(targets.parts(batch, now_s, ANY))

    assert compared(0.0, "a") == 2
    assert compared(1.0, "a") == 1
    assert compared(1.0, "a", "b") == 2
    assert compared(LOOK_AGAIN_S, "a") == 1
    assert compared(LOOK_AGAIN_S + 1, "a") == 2


def test_first_batch_of_a_run_compares_idle_tables_with_the_batch_before(tmp_path: Path) -> None:
    targets = Targets({name: DeltaPlace(tmp_path / name).fenced() for name in "ab"}, None)
    topics = tuple(PlanTopic(of_topic(name, 0, 0).topic_id, name, 1) for name in "ab")

    def compared(run_id: str) -> int:
        batch = batch_of(of_topic("a", 0, 10), topics=topics, run_id=run_id)
        return len(targets.parts(batch, 1.0, ANY))

    assert [compared(run_id) for run_id in ("first", "first", "second", "second")] == [2, 1, 2, 1]


def test_topic_that_gets_another_table_is_refused_until_a_new_checkpoint(tmp_path: Path) -> None:
    old, new = DeltaPlace(tmp_path / "old"), DeltaPlace(tmp_path / "new")
    Driver({"a": old.fenced()}).write(batch_of(of_topic("a", 0, 10)))
    moved = batch_of(of_topic("a", 10, 20), batch_id=1, before=(of_topic("a", 0, 10),))
    with pytest.raises(TableError, match="a-0"):
        Driver({"a": new.fenced()}, CutLogs()).write(moved)
    assert not new.path.exists()


def test_tables_of_a_mapping_are_checked_at_once(tmp_path: Path) -> None:
    good = DeltaPlace(tmp_path / "good")
    missing = spark_groups.sqlite_table(tmp_path / "none" / "rows.db", "rows")
    with pytest.raises(TableError, match=f"there is no directory {tmp_path / 'none'}"):
        spark_groups.write_table({"a": good.fenced(), "b": missing})
    with pytest.raises(OptionsError, match="no table for the topic b"):
        spark_groups.write_table({"a": good.fenced(), "b": None})  # type: ignore[dict-item]


# On Spark.


@dataclass
class RoutedQuery(TableQuery):
    """A query on several topics, each of which has a place of its own."""

    places: dict[str, Place] = field(default_factory=dict)

    def routed(self, *, dies_in: Mapping[str, bool] | None = None) -> Any:
        """Return a writer whose driver dies in the second batch, before or after some commits."""

        def route(topic: str) -> FencedTable:
            table = self.places[topic].fenced()
            after = (dies_in or {}).get(topic)
            return table if after is None else dying(table, after=after, batch_id=1)

        return spark_groups.write_table(route, self.transform, on_error=self.on_error)

    def check(self) -> None:
        """Compare each table with the records of its topic."""
        for topic, place in self.places.items():
            found = sorted(place.values("topic", "partition", "value"))
            records = ((topic, number % 2, b"%d" % number) for number in range(EACH))
            assert found == sorted(records), topic


EACH = 40
"""The records of each topic."""


@pytest.fixture
def routed_query(
    spark: Any, kafka: Any, group_id: str, topic_name: str, tmp_path: Path
) -> Callable[..., RoutedQuery]:
    def made(places: Mapping[str, Place], **options: str) -> RoutedQuery:
        named = {f"{topic_name}-{each}": place for each, place in places.items()}
        for topic in named:
            create_topic(kafka.bootstrap_servers, topic, 2)
            values = [Row(b"%d" % number, partition=number % 2) for number in range(EACH)]
            produce(kafka.bootstrap_servers, topic, values)
        subscribed = {"subscribe": ",".join(named)}
        half = str(EACH * len(named) // 2)
        return RoutedQuery(
            *(spark, kafka, group_id, topic_name, tmp_path),
            options={"maxOffsetsPerTrigger": half, **options},
            chosen=subscribed,
            places=named,
        )

    return made


def of_one_topic(records: pa.RecordBatch) -> pa.RecordBatch:
    """Refuse records of two tables."""
    assert len(set(records["topic"].to_pylist())) <= 1
    return records.select(["topic", "partition", "value"])


@pytest.mark.broker
@pytest.mark.spark
def test_crash_between_commits_to_twenty_tables_repeats_nothing_and_a_batch_is_one_job(
    routed_query: Callable[..., RoutedQuery], tmp_path: Path
) -> None:
    places = {f"{number}": DeltaPlace(tmp_path / f"lake-{number}") for number in range(20)}
    query = routed_query(places, emit="ranges")
    query.transform = of_one_topic
    topics = [*query.places]
    dies_in = {topics[3]: False, topics[7]: True, topics[19]: False}
    assert DIES in query.run(query.routed(dies_in=dies_in))
    rows = {topic: len(place.values("value")) for topic, place in query.places.items()}
    most = max(rows.values())
    assert [topic for topic, count in rows.items() if count < most] == [topics[3], topics[19]]
    context, jobs = query.spark.sparkContext, list[int]()
    writer = query.routed()

    def counted(batch: DataFrame, batch_id: int) -> None:
        group = context.getLocalProperty("spark.jobGroup.id")
        before = len(context.statusTracker().getJobIdsForGroup(group))
        writer(batch, batch_id)
        jobs.append(len(context.statusTracker().getJobIdsForGroup(group)) - before)

    assert query.run(counted) == ""
    assert jobs[0] == 1
    assert max(jobs) == 1
    query.check()


def numbers_by_spark(rows: DataFrame) -> DataFrame:
    number = col("value").cast("string").cast("int")
    return rows.select("topic", "partition", "value", number.alias("number"))


def numbers_by_arrow(records: pa.RecordBatch) -> pa.RecordBatch:
    numbers = pa.array([int(each) for each in records["value"].to_pylist()], pa.int32())
    return of_one_topic(records).append_column("number", numbers)


@pytest.mark.broker
@pytest.mark.spark
@pytest.mark.parametrize("way", WAYS)
def test_tables_of_several_kinds_get_their_topics_and_leave_out_what_they_cannot_have(
    routed_query: Callable[..., RoutedQuery],
    on_postgres: PostgresPlace,
    tmp_path: Path,
    way: str,
) -> None:
    places = {
        "delta": DeltaPlace(tmp_path / "delta"),
        "sqlite": SqlitePlace(tmp_path / "rows.db"),
        "postgres": on_postgres,
    }
    query = routed_query(places, emit=way, includeHeaders="true")
    query.transform = numbers_by_arrow if way == "ranges" else numbers_by_spark
    query.on_error = SkipOrDeadLetter(at_last=AtLast.SKIP)
    bad = next(topic for topic in query.places if topic.endswith("sqlite"))
    produce(query.kafka.bootstrap_servers, bad, [Row(b"none", partition=1)])
    dies_in = {bad: True, next(iter(query.places)): False}
    assert DIES in query.run(query.routed(dies_in=dies_in))
    writer = query.routed()
    assert query.run(writer) == ""
    query.check()
    assert sum(writer.totals.values()) <= 1


@pytest.mark.broker
@pytest.mark.spark
def test_check_refuses_topics_without_a_table_and_columns_that_do_not_fit(
    routed_query: Callable[..., RoutedQuery], tmp_path: Path
) -> None:
    places = {name: SqlitePlace(tmp_path / f"{name}.db") for name in ("good", "bad")}
    places["bad"].run("CREATE TABLE rows (value BLOB)")
    query = routed_query(places, emit="ranges")
    with pytest.raises(TableError, match=r"does not fit the SQLite table rows.*topic is not a col"):
        query.routed().check(query.source())
    (good, bad) = query.places
    half = spark_groups.write_table({good: query.places[good].fenced()})
    with pytest.raises(OptionsError, match=f"no table for the topic {bad}"):
        half.check(query.source())
    assert f"the route has no table for the topic {bad}" in query.run(half)
    assert not places["good"].path.exists()
