"""A trigger, its client and a cluster that answers at once; time passes only while it waits."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from spark_groups.errors import ErrorCode
from spark_groups.group.batches.plan_limit import PlanLimit
from spark_groups.group.ledger.ledger import Phase
from spark_groups.group.member import messages as m
from spark_groups.group.requests.channels import Channel
from spark_groups.group.trigger import (
    End,
    NothingToRead,
    Over,
    Patience,
    Planned,
    Trigger,
    WaitUntil,
)
from spark_groups.types import TopicIdPartition
from tests.group.harness import ClientHarness, ends, key

KB = 1024


@dataclass
class Cluster:
    """Log ends, and records of 1 KiB each."""

    ends: dict[int, int] = field(default_factory=dict)
    leader_epoch: int = 0
    sampled: list[Mapping[TopicIdPartition, int]] = field(default_factory=list)
    listings: int = 0
    during: Callable[[], None] = lambda: None
    """What happens while it samples."""
    is_throttled: bool = False
    reached: Mapping[TopicIdPartition, int] = field(default_factory=dict)


class Carried:
    """A trigger of a member that owns two partitions; or of one that has not joined yet."""

    def __init__(
        self, *, available_now: bool = False, owns: bool = True, patience: Patience | None = None
    ) -> None:
        self.harness = ClientHarness()
        self.client = self.harness.client
        self.cluster = Cluster()
        self.trigger = Trigger(self.client, patience or Patience(), ("localhost:1",))
        if available_now:
            self.trigger.prepare_available_now()
        self.waits: list[float] = []
        """The times at which it asked to be polled again."""
        self._to_come: list[tuple[float, Callable[[], None]]] = []
        if owns:
            self.harness.own(0, 1, offsets={0: 0, 1: 0})
            first = self.client.plan(PlanLimit(), {}, self.now)
            assert first is not None
            self.client.finish(first, self.now)

    def after(self, delay_s: float, act: Callable[[], None]) -> None:
        """Let something happen after a delay, if the trigger still waits then."""
        self._to_come.append((self.now + delay_s, act))

    @property
    def now(self) -> float:
        return self.harness.now

    def run(self, limit: PlanLimit | None = None) -> End:
        """Carry one trigger to its end."""
        self.trigger.begin(limit or PlanLimit(), self.now)
        self.harness.pump()
        try:
            while True:
                step = self.trigger.poll(self.now)
                self.harness.pump()
                match step:
                    case WaitUntil(at=at):
                        if not self._serve():
                            self._wait(at)
                    case Planned() | NothingToRead() | Over():
                        return step
        finally:
            self.trigger.ended(self.now)

    def read(self, log_ends: dict[int, int], limit: PlanLimit | None = None) -> dict[int, int]:
        """Plan and finish a batch; the ends of its ranges."""
        self.cluster.ends = log_ends
        end = self.run(limit)
        if not isinstance(end, Planned):
            return {}
        self.trigger.finish(end.plan, self.now)
        self.harness.pump()
        return {each.partition: each.until_offset for each in end.plan.ranges}

    def hide(self, partition: int) -> Callable[[], None]:
        """Let a partition wait for its leader; return what makes it ready again."""
        owned = self.client.parts.ledger.owned[key(partition)]
        owned.phase = Phase.VALIDATING

        def make_ready() -> None:
            owned.phase = Phase.READY

        return make_ready

    def _wait(self, at: float) -> None:
        assert at > self.now, "it waits for a time that is over"
        self.waits.append(at)
        if not self._to_come or self._to_come[0][0] > at:
            self.harness.wait(at - self.now)
            return
        due_at, act = self._to_come.pop(0)
        self.harness.wait(max(0.0, due_at - self.now))
        act()
        self.harness.pump()

    def _serve(self) -> bool:
        """Answer the trigger's request, if there is one."""
        match self.harness.request(Channel.TRIGGER):
            case m.ListOffsetsRequest(partitions=keys):
                self.harness.answer(Channel.TRIGGER, self._listed(keys))
            case m.SampleRecordsRequest(offsets=offsets):
                self.harness.answer(Channel.TRIGGER, self._sampled(offsets))
            case _:
                return False
        return True

    def _listed(self, keys: frozenset[TopicIdPartition]) -> m.ListOffsetsResponse:
        self.cluster.listings += 1
        offsets, missing = ends(self.cluster.ends), int(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        return m.ListOffsetsResponse(
            answers={
                each: m.ListedOffset(offsets[each], self.cluster.leader_epoch)
                if each in offsets
                else m.PartitionError(missing)
                for each in keys
            }
        )

    def _sampled(self, offsets: Mapping[TopicIdPartition, int]) -> m.SampleRecordsResponse:
        self.cluster.sampled.append(offsets)
        self.cluster.during()
        if self.cluster.is_throttled:
            return m.SampleRecordsResponse(reached=self.cluster.reached, problem="throttled")
        samples = dict.fromkeys(offsets, m.RecordSample(KB, 1))
        return m.SampleRecordsResponse(samples=samples, reached=self.cluster.reached)
