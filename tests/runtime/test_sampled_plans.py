"""Plans under a limit in bytes, without a broker: what changes while the driver samples."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import pytest

from spark_groups.group.batches.batch_bytes import UNKNOWN_RECORD_BYTES, Sample
from spark_groups.group.batches.planning import PlanLimit
from spark_groups.group.client import GroupClient
from spark_groups.group.ledger.ledger import Phase
from spark_groups.group.member.messages import ListedOffset
from spark_groups.runtime import driver as driver_module
from spark_groups.runtime.driver import GroupDriver, LogEnds
from spark_groups.types import BatchPlan, TopicIdPartition
from spark_groups.wire.fetch.first_records import FirstRecords
from spark_groups.wire.security.security import Security
from tests.group.harness import ClientHarness, ends, key

KB = 1024
LIMIT = PlanLimit(max_bytes=10 * KB)


@dataclass
class SampledCluster:
    """A cluster whose records have 1 KiB each."""

    asked: list[Mapping[TopicIdPartition, int]] = field(default_factory=list)
    during: Callable[[], None] = lambda: None
    """What happens while it answers."""
    is_throttled: bool = False
    reached: Mapping[TopicIdPartition, int] = field(default_factory=dict)

    def sample_records(
        self, offsets: Mapping[TopicIdPartition, int], *, read_committed: bool, timeout_s: float
    ) -> FirstRecords:
        self.asked.append(offsets)
        self.during()
        if self.is_throttled:
            return FirstRecords(unknown=dict.fromkeys(offsets, "the response lacks it"))
        return FirstRecords(samples=dict.fromkeys(offsets, Sample(KB, 1)), reached=self.reached)


class Planned:
    """A member of two partitions and its driver."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *, available_now: bool = False) -> None:
        self.harness = ClientHarness(available_now=available_now)
        self.client = self.harness.client
        self.harness.own(0, 1, offsets={0: 0, 1: 0})
        self.cluster = SampledCluster()
        self.driver = GroupDriver(
            self.client.config,
            bootstrap_servers=("localhost:1",),
            client_id="t",
            security=Security(),
        )
        self.driver._engine.client = self.client
        self.driver._ends = LogEnds(self.cluster, read_committed=False)  # type: ignore[arg-type]
        monkeypatch.setattr(self.driver._engine, "pump", lambda: None)
        monkeypatch.setattr(self.driver._engine, "wait_for", lambda condition, _: condition())
        monkeypatch.setattr(driver_module, "suspension_clock", lambda: self.harness.now)
        first = self.client.plan(PlanLimit(), {}, self.harness.now)
        assert first is not None
        self.client.finish(first, self.harness.now)

    def hide(self, partition: int) -> Callable[[], None]:
        """Let a partition wait for its leader; return what makes it ready again."""
        owned = self.client.ledger.owned[key(partition)]
        owned.phase = Phase.VALIDATING

        def make_ready() -> None:
            owned.phase = Phase.READY

        return make_ready

    def plan(self, log_ends: dict[int, int], limit: PlanLimit = LIMIT) -> dict[int, int]:
        """Plan and finish a batch; the ends of its ranges."""
        listed = listed_ends(log_ends)
        fitting = self.driver._in_offsets(self.client, limit, listed)
        plan = self.driver._plan_from(self.client, fitting, listed)
        if plan is None:
            return {}
        self.client.finish(plan, self.harness.now)
        return {each.partition: each.until_offset for each in plan.ranges}


def listed_ends(log_ends: dict[int, int]) -> dict[TopicIdPartition, ListedOffset]:
    return {each: ListedOffset(end) for each, end in ends(log_ends).items()}


def test_a_partition_that_becomes_ready_while_others_are_sampled_is_for_the_next_plan(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    planned = Planned(monkeypatch)
    planned.cluster.during = planned.hide(1)
    assert planned.plan({0: 100, 1: 90}) == {0: 10}
    assert planned.plan({0: 100, 1: 90}) == {0: 15, 1: 5}


def test_available_now_does_not_end_before_a_partition_that_became_ready_is_read(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    planned = Planned(monkeypatch, available_now=True)
    driver, plan_from, make_ready = planned.driver, planned.driver._plan_from, planned.hide(1)

    def plan_after(
        client: GroupClient, limit: PlanLimit, listed: Mapping[TopicIdPartition, ListedOffset]
    ) -> BatchPlan | None:
        make_ready()
        return plan_from(client, limit, listed)

    monkeypatch.setattr(driver, "_plan_from", plan_after)
    monkeypatch.setattr(driver, "_ends_to_plan", lambda _: listed_ends({0: 0, 1: 3}))
    plan = driver._plan_available_now(planned.client, LIMIT, planned.harness.now)
    assert plan is not None
    assert [(each.partition, each.until_offset) for each in plan.ranges] == [(1, 3)]


def test_under_available_now_the_limit_is_divided_among_what_is_left_to_read(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    planned = Planned(monkeypatch, available_now=True)
    assert planned.plan({0: 20, 1: 20}) == {0: 5, 1: 5}
    # All that was written since is for another query.
    assert planned.plan({0: 1_000_000, 1: 20}) == {0: 10, 1: 10}


def test_a_backlog_that_is_held_back_is_not_sampled(monkeypatch: pytest.MonkeyPatch) -> None:
    planned = Planned(monkeypatch)
    limit = PlanLimit(max_bytes=10 * KB, min_offsets=50, max_trigger_delay_s=3_600.0)
    assert planned.plan({0: 8, 1: 0}, limit) == {0: 8}
    asked = len(planned.cluster.asked)
    assert planned.plan({0: 57, 1: 0}, limit) == {}
    assert len(planned.cluster.asked) == asked
    assert planned.plan({0: 58, 1: 0}, limit) == {0: 18}


def test_deleted_offsets_are_planned_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    planned = Planned(monkeypatch)
    planned.cluster.reached = {key(0): 1_000_000}
    assert planned.plan({0: 1_000_090, 1: 10}) == {0: 1_000_009, 1: 1}
    assert planned.driver.sizes is not None
    assert planned.driver.sizes.is_limiting


def test_a_throttled_plan_uses_the_last_known_sizes(monkeypatch: pytest.MonkeyPatch) -> None:
    planned = Planned(monkeypatch)
    planned.cluster.is_throttled = True
    limit = PlanLimit(max_bytes=10 * UNKNOWN_RECORD_BYTES)
    assert planned.plan({0: 20_000, 1: 0}, limit) == {0: 10}
    planned.cluster.is_throttled = False
    assert planned.plan({0: 20_000, 1: 0}, limit) == {0: 10 + 10 * KB}
    planned.cluster.is_throttled = True
    assert planned.plan({0: 40_000, 1: 0}, limit) == {0: 10 + 20 * KB}
