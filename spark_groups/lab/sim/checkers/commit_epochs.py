"""What a batch finished is committed with the member epoch that planned it."""

from __future__ import annotations

from collections import defaultdict

from spark_groups.errors import ErrorCode
from spark_groups.lab.sim import facts
from spark_groups.lab.sim.checkers.checker import Checker
from spark_groups.lab.sim.history import History
from spark_groups.lab.sim.scene import Listeners, Scene
from spark_groups.protocol.messages import OffsetCommitRequest, OffsetCommitResponse
from spark_groups.types import TopicIdPartition

Place = tuple[str, TopicIdPartition, int]
"""A member, a partition, and the offset that it commits."""


class CommitEpochs(Checker):
    """Looks at the requests themselves, before any coordinator has judged them.

    The ledger's own account of tenures and the coordinator's fence are two locks on one door: a
    commit that always has the epoch of the moment is never stale, and nobody would notice that one
    of them is open. A newer epoch is right once the coordinator has refused that of the plan.
    What an earlier run finished, and where a log was cut, is committed under the epoch of the
    moment.
    """

    def __init__(self, scene: Scene, history: History) -> None:
        super().__init__(scene, history)
        self._planned: defaultdict[Place, set[int]] = defaultdict(set)
        self._refused: set[Place] = set()
        self._cuts: set[tuple[TopicIdPartition, int]] = set()
        self._doubtful: list[tuple[Place, str]] = []
        """What was sent just now: only then its sender says what it has inherited."""

    def listeners(self) -> Listeners:
        """Return what to call for each kind of fact."""
        return {
            facts.Triggered: self._triggered,
            facts.Sent: self._sent,
            facts.Answered: self._answered,
            facts.Cut: lambda fact: self._cuts.add((fact.key, fact.end_offset)),
            facts.Quiet: lambda _: self._judge(),
        }

    def _triggered(self, fact: facts.Triggered) -> None:
        plan = fact.plan
        for each in plan.ranges if plan else ():
            assert plan is not None
            self._planned[plan.member_id, each.key, each.until_offset].add(plan.member_epoch)

    def _sent(self, fact: facts.Sent) -> None:
        self._judge()
        request = fact.outgoing.request
        if not isinstance(request, OffsetCommitRequest):
            return
        for key, offset in request.offsets.items():
            place = (request.member_id, key, offset.committed_offset)
            epochs = self._planned.get(place)
            if epochs and request.member_epoch not in epochs and place not in self._refused:
                text = (
                    f"{fact.who} commits {key} at {offset.committed_offset} with epoch"
                    f" {request.member_epoch}, planned at {sorted(epochs)}"
                )
                self._doubtful.append((place, text))

    def _judge(self) -> None:
        doubtful, self._doubtful = self._doubtful, []
        for (_, key, committed_offset), text in doubtful:
            if not self._is_inherited(key, committed_offset):
                self.fail(text)

    def _answered(self, fact: facts.Answered) -> None:
        self._judge()
        request, response = fact.request, fact.response
        if not isinstance(request, OffsetCommitRequest):
            return
        assert isinstance(response, OffsetCommitResponse)
        for key, code in response.errors.items():
            if code == ErrorCode.STALE_MEMBER_EPOCH:
                committed_offset = request.offsets[key].committed_offset
                self._refused.add((request.member_id, key, committed_offset))

    def _is_inherited(self, key: TopicIdPartition, committed_offset: int) -> bool:
        if (key, committed_offset) in self._cuts:
            return True
        taken = self.history.inherited.get(key, ())
        return any(until_offset == committed_offset for _, until_offset in taken)
