"""A broker and the model, asked the same, in groups with members of the classic protocol.

A join or a sync may wait for other members. Where the model answers, the broker has to answer the
same; where the model does not, the broker must not.
"""

from __future__ import annotations

from dataclasses import dataclass

from group_lab.coordinator.classic import messages as k
from lab.tests.conformance.classic_script import ClassicScript, ClassicView
from lab.tests.conformance.fields import in_short
from lab.tests.conformance.pair import Pair
from lab.tests.conformance.script import Asked, GroupScript
from lab.tests.scenarios.scene import BOUND_S
from lab.tests.scenarios.world import Asked as Sent
from lab.tests.scenarios.world import ClassicRequest, ClassicResponse

POLL_S = 0.005
PATIENCE_SHARE = 0.05
"""How often a timer is waited for that fires soon, such as that of the initial rebalance delay."""
NOT_ANSWERED = "waits for an answer"


@dataclass
class Waiting:
    """A request that both got.

    Args:
        group: The script that asked.
        asked: The request.
        broker: It, at the broker.
        model: It, at the model.
    """

    group: ClassicScript
    asked: Asked
    broker: Sent
    model: Sent


class ClassicPair(Pair):
    """One script about groups with members of the classic protocol."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self._waiting: list[Waiting] = []

    def _script(self, group_id: str, api_versions: tuple[int, ...]) -> GroupScript:
        return ClassicScript(group_id, self.chance, self.topics, api_versions)

    def _ask(self, group: GroupScript, asked: Asked) -> object:
        """Ask both, compare, and return the answer; None if it waits."""
        request = asked.request
        if not isinstance(request, ClassicRequest):
            answer = super()._ask(group, asked)
            self._collect()
            return answer
        assert isinstance(group, ClassicScript)
        if self._is_lost(request):
            group.forget(asked.view)
            return None
        if self.chance.random() < PATIENCE_SHARE:
            self._let_interval_end(group)
        self.steps += 1
        self._pass(group)
        self._collect(is_now=True)
        edges = self._edges(group.group_id)
        sent = self.broker.send(request, asked.client_id)
        self._learn_id(request, sent)
        waiting = Waiting(group, asked, sent, self.model.send(request, asked.client_id))
        if waiting.model.answer() is None:
            self.broker.settle()
        else:
            self._await_answer(waiting)
        # It may have begun a timer that has fired already, at the broker alone.
        if not self._is_sure(group, [*edges, *self._edges(group.group_id)]):
            return None
        self._waiting.append(waiting)
        self._note_lag(group)
        if waiting.model.answer() is None and sent.answer() is not None:
            # Before those that the model ends by it: this is where they differ.
            self._judge(waiting)
        self._collect()
        if waiting in self._waiting:
            self._said.append((group.group_id, f"{asked.why} waits: {in_short(request, {})}"))
        return sent.answer()

    def _is_lost(self, request: ClassicRequest) -> bool:
        """Return whether a join would remove an empty consumer group from the broker's memory.

        The model does not follow that (docs/fidelity.md).
        """
        if not isinstance(request, k.JoinGroupRequest) or not request.member_id:
            return False
        group = self.model.shard.memory.group(request.group_id)
        return group.is_consumer_group and group.is_empty

    def _learn_id(self, request: ClassicRequest, sent: Sent) -> None:
        """Let the model give the same id to a new member as the broker: it decides orders."""
        if not isinstance(request, k.JoinGroupRequest) or request.member_id:
            return
        # While its first members join, a group may have no record.
        classic = self.model.shard.memory.group(request.group_id).classic
        known = set(classic.members) if classic else set()
        deadline = self.broker.now() + BOUND_S
        found = ""
        while not found and (answer := sent.answer()) is None:
            assert self.broker.now() < deadline, f"no answer to {request}; {self.how_to_repeat}"
            if request.group_instance_id is not None:
                found = self._id_of(request, known)
            self.broker.sleep(POLL_S)
        if not found:
            assert isinstance(answer, k.JoinGroupResponse)
            found = answer.member_id
        self.model.shard.make_classic_id = lambda _prefix: found

    def _id_of(self, request: k.JoinGroupRequest, known: set[str]) -> str:
        """Return the new id of a static member whose join waits."""
        described = self._described(request.group_id)
        new = (
            each.member_id
            for each in described.members
            if each.group_instance_id == request.group_instance_id and each.member_id not in known
        )
        return next(new, "")

    def _described(self, group_id: str) -> k.DescribeGroupsResponse:
        sent = self.broker.send(k.DescribeGroupsRequest(group_id=group_id))
        deadline = self.broker.now() + BOUND_S
        while (answer := sent.answer()) is None:
            assert self.broker.now() < deadline, f"no description; {self.how_to_repeat}"
            self.broker.sleep(POLL_S)
        assert isinstance(answer, k.DescribeGroupsResponse)
        return answer

    def _await_answer(self, waiting: Waiting) -> None:
        """Wait for the broker to answer what the model has answered."""
        deadline = self.broker.now() + BOUND_S
        while waiting.broker.answer() is None:
            if self.broker.now() > deadline:
                self._judge(waiting)
            self.broker.sleep(POLL_S)

    def _collect(self, *, is_now: bool = False) -> None:
        """Compare the answers to requests that waited.

        Args:
            is_now: The model's clock is the broker's: an answer of the broker alone is a fault.
        """
        for each in list(self._waiting):
            if each.group.group_id in self.given_up:
                self._waiting.remove(each)
            elif each.model.answer() is not None:
                self._waiting.remove(each)
                self._await_answer(each)
                self._judge(each)
            elif is_now and each.broker.answer() is not None:
                self._judge(each)

    def _judge(self, waiting: Waiting) -> None:
        answers: list[ClassicResponse | None] = [waiting.broker.answer(), waiting.model.answer()]
        broker, model = (NOT_ANSWERED if each is None else each for each in answers)
        group, asked = waiting.group, waiting.asked
        self._compare(group.group_id, asked.why, asked.request, broker, model)
        self.compared += 1
        if isinstance(asked.view, ClassicView) and answers[0] is not None:
            group.note_classic(asked.view, asked.request, answers[0])

    def _members(self) -> dict[str, set[str]]:
        members = super()._members()
        for group_id, found in members.items():
            classic = self.model.shard.memory.group(group_id).classic
            found.update(classic.members if classic else ())
        return members

    def _restart(self) -> None:
        super()._restart()
        self._waiting.clear()
        for each in self.groups:
            assert isinstance(each, ClassicScript)
            each.forget_waiting()

    def _member_ids(self, group_id: str) -> set[str]:
        """Return the members that the broker has, of either protocol."""
        classic = {each.member_id for each in self._described(group_id).members}
        return classic | super()._member_ids(group_id)
