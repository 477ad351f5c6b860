"""A runner's part in the talk with the driver: real members, and a driver in the test's hands."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from spark_groups.broker.embedded import EmbeddedKafka
from spark_groups.errors import GroupError
from spark_groups.group.batches.proofs import Proofs
from spark_groups.group.ledger.checkpoint_refusals import CheckpointOwner
from spark_groups.group.ledger.plan_text import plan_as_json
from spark_groups.group.member.subscription import Subscription
from spark_groups.spark.control.control_messages import Drain, Draining, Message
from spark_groups.spark.control.runner_control import RunnerControl
from spark_groups.spark.options.option_values import MoveWithState
from spark_groups.types import BatchPlan
from tests.runtime.members import QueryLike, evict, fill, queries
from tests.spark.control.listening import QUERY_ID, Driver
from workshop.parts.brokers import create_topic
from workshop.parts.waiting import LONG_S, SOON_S, wait_until

pytestmark = [pytest.mark.broker, pytest.mark.long]


class Group:
    """A group on a topic of two partitions, whose members may talk to a driver."""

    def __init__(self, kafka: EmbeddedKafka, topic: str, group_id: str, start: object) -> None:
        self.kafka = kafka
        self.topic = topic
        self.group_id = group_id
        self.start = start
        self.controls: list[RunnerControl] = []

    def member(self) -> QueryLike:
        """Start a member without a control channel."""
        query = self.start()  # type: ignore[operator]
        assert isinstance(query, QueryLike)
        return query

    def talking(
        self,
        driver: Driver | None,
        directory: Path,
        move_with_state: MoveWithState = MoveWithState.WARN,
    ) -> tuple[QueryLike, RunnerControl]:
        """Start a member that talks to a driver."""
        query = self.member()
        control = RunnerControl(
            query.driver,
            Proofs(CheckpointOwner(self.group_id, Subscription.of_names("orders"), "")),
            group_id=self.group_id,
            move_with_state=move_with_state,
            jvm_pid=driver.jvm_pid if driver is not None else 1,
            directories=[directory],
        )
        self.controls.append(control)
        control.start()
        return query, control


def expect(control: RunnerControl, plan: BatchPlan) -> None:
    """Have Spark receive a plan."""
    with control.changing() as proofs:
        proofs.planned(plan)


@pytest.fixture
def group(kafka: EmbeddedKafka, topic_name: str, group_id: str) -> Iterator[Group]:
    create_topic(kafka.bootstrap_servers, topic_name, 2)
    with queries(kafka.bootstrap_servers, group_id, topic_name) as start:
        group = Group(kafka, topic_name, group_id, start)
        yield group
        for control in group.controls:
            control.close()


def test_assigned_and_revoked_partitions_are_reported_and_a_revocation_waits(
    group: Group, tmp_path: Path
) -> None:
    with Driver(tmp_path, group_id=group.group_id, holds_revocations=True) as driver:
        first, _ = group.talking(driver, tmp_path)
        came = driver.changed("assigned")
        assert came.partitions == ((group.topic, 0), (group.topic, 1))
        assert (came.group_id, came.member_id) == (group.group_id, first.member_id)
        assert came.member_epoch > 0
        second = group.member()
        going = driver.changed("revoked")
        assert len(going.partitions) == 1
        assert 200 < going.deadline_s < 300
        wait_until(lambda: second.driver.snapshot().pending, what="the second to wait")
        assert not second.assigned
        driver.release(going.number + 1)
        driver.release(going.number)
        wait_until(lambda: second.assigned, what="the hand-over")
        evict(group.kafka.bootstrap_servers, group.group_id, first.member_id)
        gone = driver.changed("lost")
        assert set(gone.partitions) | set(going.partitions) == set(came.partitions)
        assert "UNKNOWN_MEMBER_ID" in gone.reason


def test_driver_that_reports_more_groups_does_not_get_its_partitions_again(
    group: Group, tmp_path: Path
) -> None:
    with Driver(tmp_path) as driver:
        _, control = group.talking(driver, tmp_path)
        driver.changed("assigned")
        greeting = replace(driver.server.listening, reported_groups=(group.group_id,))
        driver.server.broadcast(greeting)
        wait_until(lambda: control.is_reported_to, what="the greeting")
        driver.server.broadcast(Drain())
        assert isinstance(driver.next(Message), Draining), "nothing else came before"


def test_a_driver_that_dies_holds_nothing_any_more(group: Group, tmp_path: Path) -> None:
    with Driver(tmp_path, group_id=group.group_id, holds_revocations=True) as driver:
        group.talking(driver, tmp_path)
        driver.changed("assigned")
        second = group.member()
        driver.changed("revoked")
    wait_until(lambda: second.assigned, what="the hand-over")


def test_without_a_callback_for_revocations_nothing_waits(group: Group, tmp_path: Path) -> None:
    with Driver(tmp_path, group_id=group.group_id) as driver:
        group.talking(driver, tmp_path)
        driver.changed("assigned")
        second = group.member()
        assert driver.changed("revoked").number == 0
        wait_until(lambda: second.assigned, what="the hand-over")


def test_the_spark_ui_is_known_by_the_word_of_a_driver(group: Group, tmp_path: Path) -> None:
    with Driver(tmp_path, group_id=group.group_id, spark_ui="http://driver-1:4040") as driver:
        _, control = group.talking(driver, tmp_path)
        assert control.spark_ui == "http://driver-1:4040"
    wait_until(lambda: control.spark_ui is None, what="the end of the link")


def test_a_late_listener_receives_the_owned_partitions(group: Group, tmp_path: Path) -> None:
    with Driver(tmp_path, group_id=group.group_id) as first:
        member, control = group.talking(first, tmp_path)
        first.changed("assigned")
        with Driver(tmp_path, group_id=group.group_id) as second:
            # The runner looks for sockets of its own JVM only.
            control._client._jvm_pid = second.jvm_pid
            owned = second.changed("assigned")
            assert len(owned.partitions) == 2
            assert owned.member_id == member.member_id


@pytest.mark.parametrize("policy", MoveWithState)
def test_partitions_that_move_away_from_state(
    policy: MoveWithState, group: Group, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with (
        Driver(tmp_path, group_id=group.group_id) as driver,
        caplog.at_level(logging.WARNING, "spark_groups.spark"),
    ):
        first, control = group.talking(driver, tmp_path, policy)
        driver.changed("assigned")
        fill(group.kafka.bootstrap_servers, group.topic, 2, 5)
        plan = first.plan_rows()
        expect(control, plan)
        driver.report(plan_as_json(plan), is_stateful=True)
        assert control.await_report(300)
        group.member()
        (moved,) = driver.changed("revoked").partitions
        named = f"{moved[0]}-{moved[1]} moved to other members"
        wait_until(lambda: len(first.assigned) == 1, what="the hand-over")
        if policy is MoveWithState.FAIL:
            with pytest.raises(GroupError, match=r"stateful.*partitionMoveWithState is fail"):
                control.check()
            return
        control.check()
        assert caplog.text.count(named) == (1 if policy is MoveWithState.WARN else 0)


@pytest.mark.parametrize("is_stateful", [True, False])
def test_partitions_that_move_before_the_first_report_are_judged_by_it(
    is_stateful: bool, group: Group, tmp_path: Path
) -> None:
    with Driver(tmp_path, group_id=group.group_id) as driver:
        first, control = group.talking(driver, tmp_path, MoveWithState.FAIL)
        driver.changed("assigned")
        fill(group.kafka.bootstrap_servers, group.topic, 2, 5)
        plan = first.plan_rows()
        expect(control, plan)
        first.driver.finish(plan)
        group.member()
        wait_until(lambda: len(first.assigned) == 1, what="the hand-over")
        control.check()
        driver.report(plan_as_json(plan), is_stateful=is_stateful)
        wait_until(lambda: control.query_id is not None, what="the report")
        if is_stateful:
            with pytest.raises(GroupError, match=r"stateful.*partitionMoveWithState is fail"):
                control.check()
        else:
            control.check()


def test_partitions_of_a_query_without_state_may_move(
    group: Group, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with (
        Driver(tmp_path, group_id=group.group_id) as driver,
        caplog.at_level(logging.WARNING, "spark_groups.spark"),
    ):
        first, control = group.talking(driver, tmp_path, MoveWithState.FAIL)
        group.member()
        wait_until(lambda: len(first.assigned) == 1, what="the hand-over")
        control.check()
    assert "stateful" not in caplog.text


def test_an_option_that_needs_a_listener_is_reported_without_one(
    group: Group, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    group.talking(None, tmp_path, MoveWithState.FAIL)
    assert caplog.text.count("partitionMoveWithState=fail has no effect") == 1


def seconds_of_waiting(control: RunnerControl, timeout_s: float) -> float:
    began_at = time.monotonic()
    assert not control.await_report(timeout_s)
    return time.monotonic() - began_at


def test_the_last_report_is_waited_for_only_while_it_may_come(group: Group, tmp_path: Path) -> None:
    fill(group.kafka.bootstrap_servers, group.topic, 2, 5)
    with Driver(tmp_path, group_id=group.group_id) as driver:
        first, control = group.talking(driver, tmp_path)
        plan = first.plan_rows()
        expect(control, plan)
        driver.end_query("another query")
        assert seconds_of_waiting(control, 0.5) >= 0.5
        driver.report({**plan_as_json(plan), "member_epoch": 99})
        assert seconds_of_waiting(control, 0.5) >= 0.5
        driver.end_query("a query that ended before its first report", had_reports=False)
        assert seconds_of_waiting(control, LONG_S) < SOON_S
    assert seconds_of_waiting(control, LONG_S) < SOON_S


def test_the_end_of_a_query_ends_the_waiting_for_its_report(group: Group, tmp_path: Path) -> None:
    fill(group.kafka.bootstrap_servers, group.topic, 2, 5)
    with Driver(tmp_path, group_id=group.group_id) as driver:
        first, control = group.talking(driver, tmp_path)
        plan = first.plan_rows()
        expect(control, plan)
        driver.report(plan_as_json(plan))
        assert control.await_report(300)
        fill(group.kafka.bootstrap_servers, group.topic, 2, 5)
        first.running = None
        expect(control, first.plan_rows())
        driver.end_query("another query", had_reports=False)
        driver.end_query(QUERY_ID)
        assert seconds_of_waiting(control, LONG_S) < SOON_S
