"""A store of a user's own behind `own_table`: a REST service, with real Spark and real Kafka."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame

import spark_groups
from spark_groups.errors import OptionsError, TableChangedError, TableError
from spark_groups.fence.compare import Decision
from spark_groups.fence.entries import Entry, FenceKey, TableState
from spark_groups.spark.tables.table import Attempt
from tests.spark.tables.rest_place import RestPlace, service_on, serving
from tests.spark.tables.write_setup import PARTITIONS, ROWS, TableQuery

EACH = ROWS // PARTITIONS
BATCH = 60 // PARTITIONS
TOPIC_ID = uuid.UUID(int=5)
ATTEMPT = Attempt("readers", 0, "a")


def on_spark(test: Callable[..., None]) -> Callable[..., None]:
    return pytest.mark.broker(pytest.mark.spark(test))


class DiedError(Exception):
    """The driver ends here."""


@dataclass
class OwnQuery(TableQuery):
    """A query that writes to the service."""

    place: Any = None
    write: Callable[[DataFrame | None, Decision], Any] | None = None

    @property
    def service(self) -> Any:
        place: RestPlace = self.place
        return service_on(place.port)

    def writer(self) -> Callable[[DataFrame, int], None]:
        write = self.write or self.service.write
        table = spark_groups.own_table("the order service", self.service.read, write)
        return spark_groups.write_table(table, self.transform)

    def entries(self) -> dict[int, tuple[int, int]]:
        return {part: ends for (_, part), ends in self.service.read(self.group_id).items()}

    def check(self) -> None:
        """Check that the service has each record once, and the end of each partition."""
        assert self.place.orders() == list(range(ROWS))
        assert self.entries() == dict.fromkeys(range(PARTITIONS), (0, EACH))
        assert self.committed() == dict.fromkeys(range(PARTITIONS), EACH)


@pytest.fixture
def query(query_of: Callable[..., OwnQuery], tmp_path: Path) -> Iterator[OwnQuery]:
    with serving(tmp_path) as place:
        yield query_of(OwnQuery, "records", place)


@on_spark
def test_every_record_is_in_the_service_once(query: OwnQuery) -> None:
    assert query.run() == ""
    query.check()


@on_spark
def test_driver_that_dies_between_two_partitions_loses_and_doubles_nothing(query: OwnQuery) -> None:
    """The service has one partition of the second batch, and not the others."""

    def put_one_and_die(rows: DataFrame | None, decision: Decision) -> bool:
        if rows is None or not any(each.from_offset for each in decision.write):
            return bool(query.service.write(rows, decision))
        first = Decision(decision.write[:1], decision.changes[:1])
        assert query.service.write(rows, first)
        raise DiedError

    query.write = put_one_and_die
    assert "DiedError" in query.run()
    assert sorted(query.entries().values()) == [(0, BATCH), (0, BATCH), (0, 2 * BATCH)]
    query.write = None
    assert query.run() == ""
    query.check()


@on_spark
def test_batch_is_compared_again_if_another_writer_was_first(query: OwnQuery) -> None:
    """It has put the first two records of a partition since the comparison."""
    answers: list[bool] = []

    def write_late(rows: DataFrame | None, decision: Decision) -> bool:
        if rows is not None and not answers:
            key = decision.changes[0].key
            other = {"entry": [0, 2], "orders": ["0", str(PARTITIONS)]}
            path = f"/groups/{query.group_id}/{key.topic_id}/{key.partition}"
            assert query.service._call("PUT", path, other, {"If-Match": '"0-0"'})[0] == 204
        is_written = bool(query.service.write(rows, decision))
        if rows is not None:
            answers.append(is_written)
        return is_written

    query.write = write_late
    assert query.run() == ""
    assert answers == [False, True, True]
    query.check()


@on_spark
def test_tasks_do_not_write_to_it(query: OwnQuery) -> None:
    query.options["emit"] = "ranges"
    assert "the order service takes rows: load the stream with emit=records" in query.run()
    assert query.place.orders() == []


def own(found: Any = None, answer: Any = True) -> Any:
    return spark_groups.own_table("the shop", lambda _: found or {}, lambda *_: answer)


def test_it_is_refused_through_spark_connect_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPARK_CONNECT_MODE_ENABLED", "1")
    for table in (own(), {"orders": own()}):
        with pytest.raises(OptionsError, match=r"the shop takes rows: .* in a classic session"):
            spark_groups.write_table(table)


def test_entries_are_read_by_uuid_or_text_and_other_topics_are_left_out() -> None:
    table = own({(TOPIC_ID, 0): (1, 4), (str(TOPIC_ID), 1): (0, 0), (uuid.UUID(int=6), 0): (2, 2)})
    wanted = {
        FenceKey("readers", TOPIC_ID, 0): Entry(1, 4),
        FenceKey("readers", TOPIC_ID, 1): Entry(0, 0),
    }
    assert dict(table.read("readers", frozenset({TOPIC_ID})).entries) == wanted
    assert len(table.read("readers").entries) == 3
    assert str(table) == "the shop"


def test_numbers_may_be_texts_or_those_of_a_database() -> None:
    found = {(TOPIC_ID, "0"): ("1", Decimal(4))}
    wanted = {FenceKey("readers", TOPIC_ID, 0): Entry(1, 4)}
    assert own(found).read("readers").entries == wanted


@pytest.mark.parametrize(
    "found",
    [
        {(TOPIC_ID, 0): (4, 1)},
        {("flights", 0): (0, 1)},
        {(TOPIC_ID, 0): 4},
        {(TOPIC_ID, "first"): (0, 1)},
        {(TOPIC_ID, None): (0, 1)},
        {(TOPIC_ID, 0): (0, 1.5)},
        {TOPIC_ID: (0, 1)},
        [(TOPIC_ID, 0, 0, 1)],
    ],
)
def test_entries_of_another_form_are_refused(found: Any) -> None:
    with pytest.raises(TableError, match="the shop: read has to return"):
        own(found).read("readers")


def test_answer_of_write_decides() -> None:
    own(answer=True).commit(ATTEMPT, [], Decision(), TableState())
    with pytest.raises(TableChangedError, match="an entry of the shop"):
        own(answer=False).commit(ATTEMPT, [], Decision(), TableState())
    with pytest.raises(TableError, match="has to return True or False, not None"):
        own(answer=None).commit(ATTEMPT, [], Decision(), TableState())
    with pytest.raises(OptionsError, match="emit=records"):
        own().task_writer(ATTEMPT)
