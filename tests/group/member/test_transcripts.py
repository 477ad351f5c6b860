"""Members fed with what real brokers answered: they send what the recordings sent.

Each recorded member becomes a `Member`. Before a recorded heartbeat that no longer reports the
revoked partitions, their owner acknowledges; everything else the member has to do by itself.
"""

from __future__ import annotations

import json
import uuid
from pathlib import Path
from typing import Any

import pytest

from spark_groups.errors import ErrorCode, Reaction, rule_for
from spark_groups.group.member.member import Member
from spark_groups.group.member.member_config import MemberConfig
from spark_groups.group.member.member_states import MemberState
from spark_groups.group.member.messages import HeartbeatRequest, HeartbeatResponse
from spark_groups.group.member.subscription import Subscription
from spark_groups.types import NO_PARTITIONS, Assignment

TRANSCRIPTS = sorted((Path(__file__).parent / "transcripts").glob("*.jsonl"))
FOO = uuid.UUID(int=1)
# The answers of these steps never came, as far as the member knows: what follows is sent in full.
LOST = {"duplicates_4.0.0": {6, 9}}


def assignment(recorded: dict[str, list[int]] | None) -> Assignment | None:
    if recorded is None:
        return None
    return Assignment.of({FOO: recorded["foo"]}) if recorded else NO_PARTITIONS


def response(recorded: dict[str, Any]) -> HeartbeatResponse:
    return HeartbeatResponse(
        error_code=ErrorCode[recorded["err"]],
        error_message=recorded.get("msg"),
        member_epoch=recorded["epoch"],
        heartbeat_interval_ms=recorded.get("hb_ms", 0),
        assignment=assignment(recorded.get("asg")),
    )


class Replay:
    """The recorded members of one transcript as `Member`s."""

    def __init__(self, name: str) -> None:
        self.members: dict[str, Member] = {}
        self.now = 0.0
        self._lost = LOST.get(name, set())

    def member(self, wanted: dict[str, Any]) -> Member:
        name = wanted["member"]
        if name not in self.members:
            ids = iter([name, *(f"{name}-{number}" for number in range(2, 9))])
            config = MemberConfig(
                group_id="g",
                subscription=Subscription.of_names("foo"),
                instance_id=wanted.get("inst"),
                rebalance_timeout_ms=wanted["rebal"],
            )
            self.members[name] = Member(config, lambda: next(ids))
        return self.members[name]

    def step(self, line: dict[str, Any]) -> None:
        wanted = line["req"]
        member = self.member(wanted)
        if member.state is MemberState.UNSUBSCRIBED:
            member.join(self.now)
        owned = assignment(wanted.get("owned"))
        if member.revoking and owned == member.assigned:
            member.acknowledge(self.now)
        if wanted.get("epoch", 0) < 0:
            member.leave(self.now, will_return=wanted["epoch"] == -2)
            member.leave_now(self.now)
        due_at = member.next_wakeup()
        assert due_at is not None
        self.now = max(self.now, due_at)
        request = member.poll_heartbeat(self.now)
        assert request is not None
        if line["resp"]["err"] != "FENCED_MEMBER_EPOCH":
            # The recording provoked that answer with an epoch that was wrong on purpose.
            self.compare(request, wanted, owned, member, in_short=line["n"] in self._lost)
        if line["n"] in self._lost:
            member.handle_failure(self.now)
            return
        answer = response(line["resp"])
        member.handle_response(answer, self.now)
        assigned = answer.assignment
        if answer.error_code == ErrorCode.NONE and wanted.get("epoch", 0) >= 0:
            assert member.member_epoch == answer.member_epoch
            assert assigned is None or member.assigned == assigned
        elif rule_for(answer.error_code).heartbeat is not Reaction.AWAIT_INSTANCE:
            assert member.owned == NO_PARTITIONS

    def compare(
        self,
        request: HeartbeatRequest,
        wanted: dict[str, Any],
        owned: Assignment | None,
        member: Member,
        *,
        in_short: bool,
    ) -> None:
        if "epoch" in wanted:
            assert request.instance_id == wanted.get("inst")
            assert request.member_epoch == wanted["epoch"]
        if request.member_epoch < 0:
            assert request.topic_partitions is None
            return
        if "rebal" in wanted and not in_short:
            assert request.rebalance_timeout_ms == member.rebalance_timeout_ms
            assert request.subscribed_topic_names == tuple(wanted["topics"])
        if owned is not None:
            assert request.topic_partitions == owned
        elif request.topic_partitions is not None:
            assert request.topic_partitions == member.owned


@pytest.mark.parametrize("path", TRANSCRIPTS, ids=lambda path: path.stem)
def test_members_send_what_the_recording_sent(path: Path) -> None:
    replay = Replay(path.stem)
    for line in path.read_text(encoding="utf-8").splitlines():
        replay.step(json.loads(line))


def test_recordings_are_here() -> None:
    assert len(TRANSCRIPTS) == 8


def test_fenced_rejoin_differs_by_version() -> None:
    """Kafka 4.0 fences a join of a member it knows: it takes a new id and frees the old."""
    ids = {}
    for version in ("4.0.0", "4.3.1"):
        replay = Replay(version)
        path = next(p for p in TRANSCRIPTS if p.stem == f"fenced_epochs_{version}")
        for line in path.read_text(encoding="utf-8").splitlines():
            replay.step(json.loads(line))
        ids[version] = (replay.members["m1"].member_id, replay.members["m1"].abandoned_ids)
    assert ids == {"4.0.0": ("m1-2", ["m1"]), "4.3.1": ("m1", [])}
