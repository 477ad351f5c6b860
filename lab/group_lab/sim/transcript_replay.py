"""Plays the steps of a transcript on the model of one coordinator, and answers in its format.

A recording has names in place of ids; its notes and answers supply what its requests lack.
"""

from __future__ import annotations

import re
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from math import inf
from typing import Any, Final

from group_lab.assignors.embedded import encode_assignment, encode_subscription
from group_lab.coordinator import messages as c
from group_lab.coordinator.classic import messages as k
from group_lab.coordinator.effects import NEWEST_API_VERSION, CoordinatorErrorCode
from group_lab.coordinator.log import Log
from group_lab.coordinator.profile import Profile
from group_lab.coordinator.settings import BrokerSettings, Settings, alter, describe_config
from group_lab.coordinator.shard import Origin, Shard
from group_lab.coordinator.topic_images import TopicImage, TopicsImage
from group_lab.sim.chance import Bits
from group_lab.sim.transcripts import Step
from spark_groups.errors import ErrorCode
from spark_groups.group.member import messages as p
from spark_groups.group.member.embedded import (
    CONSUMER_PROTOCOL_TYPE,
    NO_GENERATION,
    EmbeddedAssignment,
    Subscription,
    decode_assignment,
)
from spark_groups.types import Assignment, TopicId, TopicIdPartition, TopicPartition

RECORDED: Final = BrokerSettings(
    session_timeout_s=4.0,
    min_session_timeout_s=1.0,
    heartbeat_interval_s=0.5,
    min_heartbeat_interval_s=0.1,
    assignment_interval_s=0.0,
    classic_initial_rebalance_delay_s=0.0,
)
"""The settings of the recorded brokers, except for the largest group size."""

NO_GROUP: Final = ""

_MAX_SIZE: Final = re.compile(r"maximum capacity of (\d+) members|\bof max (\d+)")
_COUNTED: Final = re.compile(r"(\d+) heartbeats")
_UNKNOWN_GROUP: Final = re.compile(r"\bunknown group\b")
_NAMED_GROUP: Final = re.compile(
    r"[Gg]roup (\S+) (?:not found|is not a consumer group)\.|is not a member of group (\S+)\."
)


def broker_of(steps: Iterable[Step]) -> BrokerSettings:
    """Return the settings of a recorded broker; only a full group shows the group size limit."""
    for step in steps:
        if found := _MAX_SIZE.search(_message(step)) or _MAX_SIZE.search(step.note):
            return replace(RECORDED, max_size=int(found[1] or found[2]))
    return RECORDED


def heartbeats(step: Step) -> int | None:
    """Return how often a heartbeat was repeated, if the note has the count."""
    counted = _COUNTED.search(step.note)
    return int(counted[1]) if counted else None


def named_group(step: Step) -> str | None:
    """Return the group named in an answer, or else the note.

    It is `NO_GROUP` for an empty group id, None if there is no name.
    """
    message, codes = _message(step), set(_codes(step))
    has_none = "GroupId can't be empty." in message or "INVALID_GROUP_ID" in codes
    if has_none or (step.response is None and "empty group" in step.note):
        return NO_GROUP
    found = _NAMED_GROUP.search(message)
    return found[1] or found[2] if found else None


def is_about_another_group(step: Step) -> bool:
    """Return whether a request is about a group that did not exist, of any name."""
    not_found = ErrorCode.GROUP_ID_NOT_FOUND.name in _codes(step)
    return not_found or bool(_UNKNOWN_GROUP.search(step.note))


def metadata_of(step: Step, partition: str) -> str:
    """Return commit metadata: too long if the broker refused its length, else empty."""
    too_large = ErrorCode.OFFSET_METADATA_TOO_LARGE.name
    answer = step.response if isinstance(step.response, Mapping) else {}
    is_too_long = answer.get(partition) == too_large
    return " " * (RECORDED.offset_metadata_max_bytes + 1) if is_too_long else ""


def _message(step: Step) -> str:
    answer = step.response if isinstance(step.response, Mapping) else {}
    return str(answer.get("msg") or "")


def _codes(step: Step) -> Iterator[str]:
    """Yield the error codes of an answer: its own, or those of partitions."""
    if isinstance(step.response, Mapping):
        yield from (each for each in step.response.values() if isinstance(each, str))


GENERATED: Final = "gen"
"""The name of a member whose id the coordinator generated."""
OLD: Final = "(old)"
"""The suffix of a deleted topic's name."""


@dataclass
class TranscriptNames:
    """Members and topics of a transcript, each with an id of its own.

    Args:
        chance: The source of ids, which decide the coordinator's order of members and topics.
    """

    chance: Bits
    _member_ids: dict[str, str] = field(default_factory=dict)
    _members: dict[str, str] = field(default_factory=dict)
    _topic_ids: dict[str, TopicId] = field(default_factory=dict)
    _topics: dict[TopicId, str] = field(default_factory=dict)

    def member_id(self, name: str | None) -> str:
        """Return the id of a member, or ""."""
        if not name:
            return ""
        if name not in self._member_ids:
            self._note_member(name, str(self._new_id()))
        return self._member_ids[name]

    def member(self, member_id: str) -> str:
        """Return the transcript's name of a member."""
        if member_id not in self._members:
            self._note_member(GENERATED, member_id)
        return self._members[member_id]

    def joined(self, name: str, member_id: str) -> None:
        """Record the id that the coordinator gave to a member of the classic protocol."""
        self._note_member(name, member_id)

    def classic_id(self, name: str | None) -> str:
        """Return the id of a member of the classic protocol, "" before it received one."""
        return self._member_ids.get(name or "", "")

    def _new_id(self) -> uuid.UUID:
        return uuid.UUID(int=self.chance.getrandbits(128), version=4)

    def _note_member(self, name: str, member_id: str) -> None:
        self._member_ids[name] = member_id
        self._members[member_id] = name

    def created(self, topic: str) -> TopicId:
        """Return the id of a new topic."""
        topic_id = self._new_id()
        self._topic_ids[topic] = topic_id
        self._topics[topic_id] = topic
        return topic_id

    def deleted(self, topic: str) -> None:
        """Mark a topic as deleted; its id stays known under its old name."""
        topic_id = self.topic_id(topic)
        self._topics[topic_id] = topic + OLD
        self._topic_ids[topic + OLD] = topic_id

    def topic_id(self, topic: str) -> TopicId:
        """Return the id of a topic; a topic that never existed gets a new id."""
        return self._topic_ids[topic] if topic in self._topic_ids else self.created(topic)

    def topic(self, topic_id: TopicId) -> str:
        """Return the transcript's current name of a topic."""
        return self._topics[topic_id]

    def key(self, text: str) -> TopicIdPartition:
        """Read a partition as a transcript writes it: `foo-0`."""
        topic, _, partition = text.rpartition("-")
        return TopicIdPartition(self.topic_id(topic), int(partition))

    def partitions(self, keys: Iterable[TopicIdPartition]) -> dict[str, list[int]]:
        """Write partitions by topic, sorted."""
        by_topic = Assignment(frozenset(keys)).by_topic()
        named = {self.topic(topic_id): list(indexes) for topic_id, indexes in by_topic.items()}
        return dict(sorted(named.items()))

    def text(self, message: str) -> str:
        """Return a message with names in place of ids."""
        for member_id, name in self._members.items():
            message = message.replace(member_id, name)
        return message


GROUP: Final = "g"
"""The name of a transcript's group."""
ORIGIN: Final = Origin("k848", "/127.0.0.1")

KNOWN_AFTER_S: Final = 0.1
"""The recorded coordinators knew every change of topics within this time."""
UNKNOWN_BITS: Final = 2
"""Bits of the number of requests that a coordinator answers before it knows a change: recordings
have 0, 1 and 2."""
AGAIN_S: Final = 0.1
"""The interval of a repeated heartbeat if the transcript has no count."""


@dataclass
class _Coming:
    """A change of topics that the coordinator does not know yet.

    Args:
        requests: How many requests it answers first.
        at: The latest time at which it learns of the change.
    """

    topics: TopicsImage
    requests: int
    at: float


@dataclass
class TranscriptReplay:
    """One coordinator that answers the requests of a transcript.

    Args:
        chance: The source of what the transcript lacks: ids, and delays of topic changes.
    """

    profile: Profile
    chance: Bits
    broker: BrokerSettings = RECORDED
    now: float = 0.0
    group_id: str = GROUP
    _epochs: dict[str, int] = field(default_factory=dict)
    _topics: TopicsImage = field(default_factory=TopicsImage)
    _coming: list[_Coming] = field(default_factory=list)
    names: TranscriptNames = field(init=False)
    _settings: Settings = field(init=False)
    _shard: Shard = field(init=False)

    def __post_init__(self) -> None:
        self.names = TranscriptNames(self.chance)
        self._settings = Settings(self.broker)
        self._shard = Shard(self.profile, self._settings, self._topics, Log(), self.now)

    def play(self, step: Step) -> object:
        """Play a step and return the answer, as a transcript writes it."""
        began = self.now
        lasts_s = _fields(step).get("seconds", 0.0) if step.operation == "sleep" else 0.0
        ends = max(began, began + lasts_s if step.at is None else step.at)
        if step.operation in ("hb", "hb-until") and _is_repeated(step):
            return self._beat_until(step, began, ends)
        self._pass_to(ends)
        return _ANSWERS[step.operation](self, step)

    # Time.

    def _pass_to(self, at: float) -> None:
        """Advance time: fire timers and apply changes of topics, in order."""
        while True:
            fires_at = self._shard.next_wakeup()
            fires_at = inf if fires_at is None else fires_at
            known_at = self._coming[0].at if self._coming else inf
            if min(fires_at, known_at) > at:
                break
            self.now = max(self.now, min(fires_at, known_at))
            if known_at <= fires_at:
                self._learn()
            else:
                self._shard.wake(self.now)
                self._shard.replicate(self.now)
        self.now = at

    def _learn(self) -> None:
        self._shard.set_topics(self._coming.pop(0).topics, self.now)

    def _set_topics(self, topics: TopicsImage) -> None:
        """Change the topics; recordings waited for those created before the first group."""
        self._topics = topics
        requests = self.chance.getrandbits(UNKNOWN_BITS)
        self._coming.append(_Coming(topics, requests, self.now + KNOWN_AFTER_S))
        if not self._shard.groups:
            self._learn()

    # Heartbeats.

    def _beat_until(self, step: Step, began: float, ends: float) -> object:
        """Repeat a heartbeat as the transcript did, until a change near its end.

        An earlier change is not the one recorded, so the heartbeats continue.
        """
        recorded = heartbeats(step)
        count = max(int((ends - began) / AGAIN_S) + 1 if recorded is None else recorded, 1)
        gap_s = (ends - began) / max(count - 1, 1)
        for number in range(1, count + 1):
            self._pass_to(ends - gap_s * (count - number))
            request = self._heartbeat_request(step)
            answer = self._beat(request, step)
            is_new = answer.assignment is not None or answer.member_epoch != request.member_epoch
            if (answer.error_code or is_new) and self.now >= ends - gap_s * 1.5:
                break
        return self._heartbeat_answer(answer)

    def _heartbeat(self, step: Step) -> object:
        return self._heartbeat_answer(self._beat(self._heartbeat_request(step), step))

    def _heartbeat_request(self, step: Step) -> p.HeartbeatRequest:
        said = _fields(step)
        owned = said.get("owned")
        topics = said.get("topics")
        name = said.get("member")
        return p.HeartbeatRequest(
            group_id=self._group_of(step),
            member_id=self.names.member_id(name),
            member_epoch=said.get("epoch", self._epochs.get(name or "", 0)),
            instance_id=said.get("inst"),
            rack_id=said.get("rack"),
            rebalance_timeout_ms=said.get("rebal", -1),
            subscribed_topic_names=None if topics is None else tuple(topics),
            subscribed_topic_regex=said.get("regex"),
            server_assignor=said.get("assignor"),
            topic_partitions=None if owned is None else self._assignment(owned),
        )

    def _beat(self, request: p.HeartbeatRequest, step: Step) -> p.HeartbeatResponse:
        answer: p.HeartbeatResponse = self._ask(request, _fields(step).get("v", 1))
        if answer.error_code == ErrorCode.NONE:
            self._epochs[self.names.member(answer.member_id or "")] = answer.member_epoch
        return answer

    def _heartbeat_answer(self, answer: p.HeartbeatResponse) -> object:
        if answer.error_code:
            return self._refused(answer) | {"epoch": answer.member_epoch}
        assignment = answer.assignment
        return {
            "err": "NONE",
            "member": self.names.member(answer.member_id or ""),
            "epoch": answer.member_epoch,
            "hb_ms": answer.heartbeat_interval_ms,
            "asg": None if assignment is None else self.names.partitions(assignment),
        }

    # Members of the classic protocol.

    def _join(self, step: Step) -> object:
        said = _fields(step)
        name, owned = said["member"], said.get("owned", {})
        subscription = Subscription(
            topics=tuple(said.get("topics", ())),
            owned_partitions=_by_name(owned),
            generation_id=said.get("generation", NO_GENERATION),
        )
        metadata = encode_subscription(subscription)
        answer = self._wait(
            k.JoinGroupRequest(
                group_id=self.group_id,
                session_timeout_ms=said["session"],
                rebalance_timeout_ms=said["rebal"],
                member_id=self.names.classic_id(name),
                group_instance_id=said.get("inst"),
                protocols=tuple(k.ClassicProtocol(each, metadata) for each in said["protocols"]),
            )
        )
        if answer is None:
            return None
        if answer.member_id:
            self.names.joined(name, answer.member_id)
        if answer.error_code:
            return {"err": _code_name(answer.error_code), "member": name}
        return {
            "err": "NONE",
            "member": name,
            "generation": answer.generation_id,
            "protocol": answer.protocol_name,
            "leader": self.names.member(answer.leader) if answer.leader else "",
            "members": sorted(self.names.member(each.member_id) for each in answer.members),
        }

    def _sync(self, step: Step) -> object:
        said = _fields(step)
        assignments = {
            self.names.classic_id(name): encode_assignment(
                EmbeddedAssignment(partitions=_by_name(partitions))
            )
            for name, partitions in said.get("assignments", {}).items()
        }
        answer = self._wait(
            k.SyncGroupRequest(
                group_id=self.group_id,
                generation_id=said["generation"],
                member_id=self.names.classic_id(said["member"]),
                group_instance_id=said.get("inst"),
                protocol_type=CONSUMER_PROTOCOL_TYPE,
                protocol_name=said["protocol"],
                assignments=assignments,
            )
        )
        if answer is None:
            return None
        if answer.error_code:
            return {"err": _code_name(answer.error_code)}
        assigned: dict[str, list[int]] = {}
        for each in sorted(decode_assignment(answer.assignment).partitions):
            assigned.setdefault(each.topic, []).append(each.partition)
        return {"err": "NONE", "protocol": answer.protocol_name, "asg": assigned}

    def _classic_heartbeat(self, step: Step) -> object:
        said = _fields(step)
        answer = self._ask(
            k.ClassicHeartbeatRequest(
                group_id=self.group_id,
                generation_id=said["generation"],
                member_id=self.names.classic_id(said["member"]),
                group_instance_id=said.get("inst"),
            )
        )
        return {"err": _code_name(answer.error_code)}

    def _leave(self, step: Step) -> object:
        names = _fields(step)["members"]
        members = tuple(c.LeavingMember(self.names.classic_id(name)) for name in names)
        answer = self._ask(c.LeaveGroupRequest(group_id=self.group_id, members=members))
        codes = {
            self.names.member(each.member_id): _code_name(each.error_code)
            for each in answer.members
        }
        return {"err": _code_name(answer.error_code), "members": codes}

    def _wait(self, request: k.JoinGroupRequest | k.SyncGroupRequest) -> Any:
        """Ask, and wait for timers that are due; a request may still wait for other members."""
        self._learn_due()
        ticket = self._shard.submit(request, self.now, ORIGIN)
        self._shard.replicate(self.now)
        self._pass_to(self.now)
        return ticket.response

    # Offsets.

    def _commit(self, step: Step) -> object:
        said = _fields(step)
        api_version = said.get("v", 9)
        keys = {self.names.key(each): each for each in said.get("offsets", {})}
        request = p.OffsetCommitRequest(
            group_id=self._group_of(step),
            member_id=self.names.member_id(said.get("member")),
            member_epoch=said.get("epoch", -1),
            instance_id=said.get("inst"),
            offsets={
                key: p.OffsetAndMetadata(said["offsets"][each], metadata_of(step, each))
                for key, each in keys.items()
            },
        )
        answer = self._ask(request, api_version)
        return {
            # An answer by topic id has the current name of that id.
            (f"{self.names.topic(key.topic_id)}-{key.partition}" if api_version >= 10 else each): (
                ErrorCode.name_of(answer.errors[key])
            )
            for key, each in keys.items()
        }

    def _fetch(self, step: Step) -> object:
        said = _fields(step)
        group_id = self._group_of(step)
        parts = said.get("parts", self._committed(group_id))
        keys = {
            self.names.key(f"{topic}-{partition}"): f"{topic}-{partition}"
            for topic, partitions in parts.items()
            for partition in partitions
        }
        request = p.OffsetFetchRequest(
            group_id=group_id,
            member_id=self.names.member_id(said["member"]) if "member" in said else None,
            member_epoch=said.get("epoch", -1),
            partitions=frozenset(keys),
        )
        answer = self._ask(request, said.get("v", 9))
        found = {
            key: ErrorCode.name_of(each.error_code)
            if isinstance(each, p.PartitionError)
            else each.committed_offset
            for key, each in answer.answers.items()
        }
        return {
            "err": ErrorCode.name_of(answer.error_code),
            "offsets": {text: found[key] for key, text in keys.items() if key in found},
        }

    def _committed(self, group_id: str) -> dict[str, list[int]]:
        """Return all partitions with an offset, the meaning of a request without partitions."""
        group = self._shard.groups.get(group_id)
        found: dict[str, list[int]] = {}
        for topic, partition in sorted(group.offsets) if group else ():
            found.setdefault(topic, []).append(partition)
        return found

    # Operators.

    def _describe(self, step: Step) -> object:
        answer = self._ask(p.DescribeGroupRequest(group_id=self._group_of(step)))
        if answer.error_code:
            return self._refused(answer)
        return {
            "err": "NONE",
            "state": answer.group_state,
            "group_epoch": answer.group_epoch,
            "assignment_epoch": answer.assignment_epoch,
            "assignor": answer.assignor_name,
            "members": sorted(map(self._member, answer.members), key=lambda each: each["member"]),
        }

    def _member(self, member: p.DescribedMember) -> dict[str, Any]:
        return {
            "member": self.names.member(member.member_id),
            "inst": member.instance_id,
            "epoch": member.member_epoch,
            "type": member.member_type,
            "names": sorted(member.subscribed_topic_names),
            "regex": member.subscribed_topic_regex or "",
            "asg": self.names.partitions(member.assignment),
            "target": self.names.partitions(member.target_assignment),
            "client_id": member.client_id,
            "host": member.client_host,
        }

    def _list(self, step: Step) -> object:
        said = _fields(step)
        request = c.ListGroupsRequest(
            states_filter=tuple(said.get("states", ())), types_filter=tuple(said.get("types", ()))
        )
        answer = self._ask(request)
        return {
            "err": ErrorCode.name_of(answer.error_code),
            "groups": [
                [GROUP, group.protocol_type, group.group_state, group.group_type]
                for group in answer.groups
                if group.group_id == self.group_id
            ],
        }

    def _alter(self, step: Step) -> object:
        changes = _fields(step)
        request = c.AlterGroupConfigRequest(group_id=self.group_id, changes=changes)
        self._settings, answer = alter(self._settings, request, self.profile)
        self._shard.set_settings(self._settings, self.now)
        return {"err": ErrorCode.name_of(answer.error_code), "msg": answer.error_message}

    def _describe_config(self, _step: Step) -> object:
        request = c.DescribeGroupConfigRequest(group_id=self.group_id)
        answer = describe_config(self._settings, request, self.profile)
        return {
            "err": ErrorCode.name_of(answer.error_code),
            "configs": {name: [each.value, each.source] for name, each in answer.values.items()},
        }

    # Topics.

    def _create(self, step: Step) -> object:
        topics = self._topics
        for name, count in _fields(step).items():
            topics = topics.with_topic(TopicImage(self.names.created(name), name, count))
        self._set_topics(topics)
        return {}

    def _grow(self, step: Step) -> object:
        topics, counts = self._topics, _fields(step)
        for name in counts.keys() & topics.by_name.keys():
            grown = replace(topics.by_name[name], partition_count=counts[name])
            topics = topics.with_topic(grown)
        return self._changed(topics, counts)

    def _delete(self, step: Step) -> object:
        topics = self._topics
        for name in topics.by_name.keys() & set(step.request):
            self.names.deleted(name)
            topics = topics.without(name)
        return self._changed(topics, step.request)

    def _changed(self, topics: TopicsImage, names: Iterable[str]) -> object:
        unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION.name
        answer = {name: "NONE" if name in self._topics.by_name else unknown for name in names}
        self._set_topics(topics)
        return answer

    # What all of them share.

    def _learn_due(self) -> None:
        while self._coming and self._coming[0].requests <= 0:
            self._learn()
        for each in self._coming:
            each.requests -= 1

    def _ask(self, request: c.CoordinatorRequest, api_version: int = NEWEST_API_VERSION) -> Any:
        self._learn_due()
        answer = self._shard.ask(request, self.now, ORIGIN, api_version)
        if self._next_group in self._shard.groups:
            # The following steps are about this new group.
            self.group_id = self._next_group
        return answer

    def _group_of(self, step: Step) -> str:
        """Return the group of a request, which recordings show only in answers.

        A group that did not exist and has no name is the next group.
        """
        if "group" in step.request:
            return str(_fields(step)["group"])
        named = named_group(step)
        if named is None and is_about_another_group(step):
            return self._next_group
        return self.group_id if named in (None, GROUP) else named

    @property
    def _next_group(self) -> str:
        return self.group_id + "'"

    def _refused(self, answer: Any) -> dict[str, object]:
        message = self.names.text(answer.error_message or "")
        return {
            "err": ErrorCode.name_of(answer.error_code),
            "msg": message.replace(self._next_group, GROUP).replace(self.group_id, GROUP),
        }

    def _assignment(self, by_name: Mapping[str, list[int]]) -> Assignment:
        return Assignment.of({self.names.topic_id(name): by_name[name] for name in by_name})


def _code_name(code: int) -> str:
    """Return the name of an error code, also of one that only classic members receive."""
    known = CoordinatorErrorCode.__members__.values()
    return next((each.name for each in known if each == code), ErrorCode.name_of(code))


def _by_name(partitions: Mapping[str, list[int]]) -> frozenset[TopicPartition]:
    """Return partitions by name, as members of the classic protocol embed them."""
    return frozenset(
        TopicPartition(topic, index) for topic, indexes in partitions.items() for index in indexes
    )


def _is_repeated(step: Step) -> bool:
    """Return whether a heartbeat is repeated; without an epoch it uses the last one received."""
    return step.operation == "hb-until" or "epoch" not in step.request


def _fields(step: Step) -> dict[str, Any]:
    """Return the fields of a request; null stands for an absent one."""
    assert isinstance(step.request, dict)
    return step.request


_ANSWERS: Final[Mapping[str, Callable[[TranscriptReplay, Step], object]]] = {
    "create-topics": TranscriptReplay._create,
    "create-partitions": TranscriptReplay._grow,
    "delete-topics": TranscriptReplay._delete,
    "hb": TranscriptReplay._heartbeat,
    "commit": TranscriptReplay._commit,
    "fetch": TranscriptReplay._fetch,
    "describe": TranscriptReplay._describe,
    "list": TranscriptReplay._list,
    "alter-group-config": TranscriptReplay._alter,
    "describe-group-config": TranscriptReplay._describe_config,
    "join-group": TranscriptReplay._join,
    "sync-group": TranscriptReplay._sync,
    "heartbeat": TranscriptReplay._classic_heartbeat,
    "leave-group": TranscriptReplay._leave,
    "sleep": lambda _replay, _step: None,
    "note": lambda _replay, _step: None,
}
