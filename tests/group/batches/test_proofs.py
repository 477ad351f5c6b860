"""What Spark's calls and a driver's reports prove: no broker, no thread, no clock."""

from __future__ import annotations

import uuid

import pytest

from spark_groups.errors import CheckpointError
from spark_groups.group.batches.proofs import MAX_RECENT, PlanJson, Proof, Proofs
from spark_groups.group.ledger.checkpoint_refusals import CheckpointOwner
from spark_groups.group.ledger.plan_text import NOTHING_PLANNED, plan_as_json, plan_text
from spark_groups.group.member.subscription import Subscription
from spark_groups.types import BatchPlan, OffsetRange, PlanTopic

TOPIC = uuid.UUID(int=7)
OWNER = CheckpointOwner(
    "flights", Subscription.of_names("departures"), "b1:9092", "--bootstrap-server b1"
)
QUERY = "the query"


def plan(
    until: int,
    topic: str = "departures",
    *,
    group_id: str = "flights",
    cluster_id: str | None = None,
) -> BatchPlan:
    """A plan that reads one offset of a topic."""
    read = (OffsetRange(TOPIC, topic, 0, until - 1, until),)
    known = (PlanTopic(TOPIC, topic, 1),)
    return BatchPlan(group_id, "member", 3, read, known, cluster_id=cluster_id)


def proofs(*, passes_start: bool = True) -> Proofs:
    return Proofs(OWNER, passes_start=passes_start)


def prove(proofs: Proofs, start: PlanJson | None) -> Proof:
    proof = proofs.asked(start)
    proofs.proven(proof)
    return proof


def test_first_call_proves_the_plan_of_the_checkpoint_and_a_new_query_has_none() -> None:
    assert prove(proofs(), NOTHING_PLANNED) == Proof(NOTHING_PLANNED, None, is_new=True)
    before = plan_as_json(plan(1))
    assert prove(proofs(), before) == Proof(before, plan(1), is_new=True)


@pytest.mark.parametrize("passes_start", [True, False])
def test_call_proves_the_last_plan_once(passes_start: bool) -> None:
    run = proofs(passes_start=passes_start)
    prove(run, NOTHING_PLANNED if passes_start else None)
    offset = run.planned(plan(1))
    assert run.unproven == plan(1)
    start = offset if passes_start else None
    assert prove(run, start) == Proof(offset, plan(1), is_new=True)
    assert run.unproven is None
    assert run.asked(start) == Proof(offset, plan(1), is_new=False)


def test_repeated_call_with_the_same_start_proves_nothing_new() -> None:
    run = proofs()
    first = run.planned(plan(1))
    prove(run, first)
    run.planned(plan(2))
    assert run.asked(first) == Proof(first, plan(1), is_new=False)


def test_batch_that_another_run_planned_is_replayed_once() -> None:
    run = proofs()
    own = run.planned(plan(1))
    assert not run.batch_to_run(NOTHING_PLANNED, own).is_replay
    again = plan_as_json(plan(2))
    found = run.batch_to_run(own, again)
    assert (found.plan, found.is_replay) == (plan(2), True)
    assert run.unproven == plan(1), "until the member knows of it"
    run.replayed(again, plan(2))
    assert run.unproven == plan(2)
    assert not run.batch_to_run(own, again).is_replay


def test_batch_that_reads_nothing_is_no_replay_and_has_the_plan_of_the_checkpoint() -> None:
    run, end = proofs(), plan_as_json(plan(1))
    found = run.batch_to_run(end, end)
    assert (found.plan, found.checkpointed, found.is_replay) == (None, plan(1), False)
    assert run.batch_to_run(NOTHING_PLANNED, NOTHING_PLANNED).checkpointed is None
    assert run.unproven is None


def test_report_of_the_last_plan_proves_it() -> None:
    run = proofs()
    run.planned(plan(1))
    reported = run.reported(plan_text(plan(1)), QUERY)
    assert reported == plan(1)
    assert (run.query_id, run.unproven) == (QUERY, plan(1)), "until it is finished"
    run.finished(reported)
    assert run.unproven is None
    assert run.reported(plan_text(plan(1)), QUERY) is None, "it is finished"


def test_function_that_is_done_proves_the_last_plan_and_does_not_know_the_query() -> None:
    run = proofs()
    run.planned(plan(1))
    assert run.reported(plan_text(plan(1)), None) == plan(1)
    assert run.query_id is None
    run.reported(plan_text(plan(1)), QUERY)
    run.reported(plan_text(plan(1)), None)
    assert run.query_id == QUERY
    prove(run, run.planned(plan(2)))
    assert run.reported(plan_text(plan(2)), None) is None, "Spark's next call has proven it"
    assert run.reported(plan_text(plan(1)), None) is None, "it is of an earlier batch"


def test_late_report_names_the_query_and_proves_nothing() -> None:
    run = proofs()
    first = run.planned(plan(1))
    prove(run, first)
    run.planned(plan(2))
    assert run.reported(plan_text(plan(1)), QUERY) is None
    assert (run.query_id, run.unproven) == (QUERY, plan(2))


def test_report_of_a_replayed_batch_proves_it() -> None:
    run = proofs()
    run.replayed(plan_as_json(plan(1)), plan(1))
    assert run.reported(plan_text(plan(1)), QUERY) == plan(1)


@pytest.mark.parametrize("text", [plan_text(plan(9)), "", plan_text(None)])
def test_report_of_another_query_is_not_its_own(text: str) -> None:
    run = proofs()
    run.planned(plan(1))
    assert run.reported(text, "another query") is None
    assert (run.query_id, run.unproven) == (None, plan(1))


def test_plan_that_follows_while_a_report_is_acted_on_stays_unproven() -> None:
    run = proofs()
    run.planned(plan(1))
    reported = run.reported(plan_text(plan(1)), QUERY)
    assert reported is not None
    run.planned(plan(2))
    run.finished(reported)
    assert run.unproven == plan(2)


def test_reports_of_the_last_16_plans_are_recognised() -> None:
    run = proofs()
    assert not run.has_planned
    for until in range(1, MAX_RECENT + 2):
        run.planned(plan(until))
    assert run.has_planned
    assert not run.is_own(plan_text(plan(1)))
    assert run.is_own(plan_text(plan(2)))


@pytest.mark.parametrize(
    ("known", "ended", "had_reports", "is_over"),
    [
        (QUERY, QUERY, True, True),
        (QUERY, "another query", True, False),
        (QUERY, "another query", False, False),
        (QUERY, "", True, True),
        (None, "another query", True, False),
        (None, "another query", False, True),
    ],
)
def test_end_of_a_query_ends_the_wait_for_its_reports(
    known: str | None, ended: str, had_reports: bool, is_over: bool
) -> None:
    run = proofs()
    run.planned(plan(1))
    run.query_id = known
    run.query_ended(ended, had_reports=had_reports)
    assert run.is_query_over is is_over
    run.planned(plan(2))
    assert not run.is_query_over, "the query that has ended is another one: this one continues"


def test_replayed_batch_of_no_subscribed_topic_is_refused_and_others_are_named() -> None:
    run = proofs()
    with pytest.raises(CheckpointError, match="reads arrivals, but this stream subscribes to dep"):
        run.batch_to_run(NOTHING_PLANNED, plan_as_json(plan(1, "arrivals")))
    assert run.unproven is None
    other = OffsetRange(uuid.UUID(int=8), "arrivals", 0, 0, 1)
    known = (*plan(1).topics, PlanTopic(other.topic_id, "arrivals", 1))
    both = BatchPlan("flights", "member", 3, (*plan(1).ranges, other), known)
    assert run.batch_to_run(NOTHING_PLANNED, plan_as_json(both)).unsubscribed == ("arrivals",)


@pytest.mark.parametrize(
    ("before", "reason"),
    [
        (plan(1, group_id="audit"), "--from-group audit --topic departures"),
        (plan(1, cluster_id="A"), "the checkpoint is of the Kafka cluster A, but b1:9092 lead to"),
    ],
)
def test_without_a_start_the_checkpoint_of_another_group_or_cluster_is_refused_in_its_batch(
    before: BatchPlan, reason: str
) -> None:
    end = plan_as_json(plan(2, cluster_id="B"))
    with pytest.raises(CheckpointError, match=reason):
        proofs(passes_start=False).batch_to_run(plan_as_json(before), end)
    assert proofs().batch_to_run(plan_as_json(before), end).is_replay


def test_checkpoint_of_sparks_own_source_is_refused_with_the_command_that_continues() -> None:
    with pytest.raises(CheckpointError, match="--from-checkpoint CHECKPOINT"):
        proofs().asked({"departures": {"0": 5}})
