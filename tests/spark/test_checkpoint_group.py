"""Spark 4.0 and 4.1 show a checkpoint of another group only with the first batch."""

from __future__ import annotations

import uuid

import pytest

from spark_groups.errors import CheckpointError
from spark_groups.group.ledger.plan_text import plan_as_json
from spark_groups.spark.options.source_options import SourceOptions
from spark_groups.spark.source.query_run import QueryRun
from spark_groups.types import BatchPlan, PlanTopic

OPTIONS = {"kafka.bootstrap.servers": "b:1", "kafka.group.id": "g", "subscribe": "orders"}


def plan_of(group_id: str, *names: str) -> dict[str, object]:
    topics = tuple(PlanTopic(uuid.UUID(int=1), each, 4) for each in names)
    return plan_as_json(BatchPlan(group_id, "m", 3, (), topics))


def run_of(*, spark_passes_start: bool, monkeypatch: pytest.MonkeyPatch) -> QueryRun:
    run = QueryRun(SourceOptions.of(OPTIONS), spark_passes_start=spark_passes_start)
    for name in ("start", "replay"):
        monkeypatch.setattr(run.driver, name, lambda *_, **__: None)
    return run


def test_first_batch_on_the_checkpoint_of_another_group_is_refused(monkeypatch) -> None:
    run = run_of(spark_passes_start=False, monkeypatch=monkeypatch)
    with pytest.raises(CheckpointError, match="belongs to the group 'other'") as raised:
        run.batch(plan_of("other", "orders"), plan_of("g", "orders"))
    command = "spark-groups reset-offsets g --from-group other --topic orders --execute"
    assert str(raised.value).endswith(f"{command} --bootstrap-server b:1")


@pytest.mark.parametrize(
    ("spark_passes_start", "before", "after"),
    [
        (False, plan_of("g", "orders"), plan_of("g", "orders")),
        (False, plan_of("other", "orders"), plan_of("other", "orders")),
        (False, plan_of("other"), plan_of("g", "orders")),
        (True, plan_of("other", "orders"), plan_of("g", "orders")),
    ],
)
def test_other_batches_are_not_refused(spark_passes_start, before, after, monkeypatch) -> None:
    run = run_of(spark_passes_start=spark_passes_start, monkeypatch=monkeypatch)
    planned = run.batch(before, after)
    assert planned is None or not planned.ranges


FLIGHTS = {"flights": {"0": 7, "1": 9}, "departures": {"0": 4}}


@pytest.mark.parametrize(
    ("spark_passes_start", "call"),
    [
        (True, lambda run: run.latest_offset(FLIGHTS)),
        (True, lambda run: run.batch(FLIGHTS, FLIGHTS)),
        (False, lambda run: run.batch(FLIGHTS, FLIGHTS)),
        (False, lambda run: run.batch(FLIGHTS, plan_of("g", "orders"))),
    ],
)
def test_checkpoint_of_sparks_own_source_is_refused_with_the_way_on(
    spark_passes_start, call, monkeypatch
) -> None:
    """Spark 4.0 and 4.1 show it with the first batch, or with one to run again."""
    run = run_of(spark_passes_start=spark_passes_start, monkeypatch=monkeypatch)
    said = r"written by Spark's own Kafka source, which has read departures, flights; .*"
    command = "spark-groups reset-offsets g --from-checkpoint CHECKPOINT --execute"
    with pytest.raises(CheckpointError, match=f"{said} {command} --bootstrap-server b:1$"):
        call(run)


@pytest.mark.parametrize("start", [5, {"logOffset": 3}])
def test_checkpoint_of_any_other_source_is_refused(start, monkeypatch) -> None:
    run = run_of(spark_passes_start=False, monkeypatch=monkeypatch)
    with pytest.raises(CheckpointError, match="that the kafka-group source did not write"):
        run.batch(start, plan_of("g", "orders"))


def test_first_batch_on_the_checkpoint_of_another_cluster_is_refused(monkeypatch) -> None:
    run = run_of(spark_passes_start=False, monkeypatch=monkeypatch)
    before, after = (plan_of("g", "orders") | {"version": 4, "cluster": each} for each in "AB")
    with pytest.raises(CheckpointError, match=r"of the Kafka cluster A, but b:1 lead to .* B:"):
        run.batch(before, after)
    run.batch(after, after)
    run.batch(plan_of("g", "orders"), after)
