"""Members that run on this machine, from the snapshots that they write."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from spark_groups.group.ledger.events import WithheldRange
from spark_groups.types import TopicPartition

_PLAIN_ADDRESS: Final = re.compile(
    r"https?://(?:[A-Za-z0-9](?:[A-Za-z0-9_.-]{0,253})|\[[0-9A-Fa-f:.]{2,45}\])(?::[0-9]{1,5})?"
)


@dataclass(frozen=True, slots=True)
class WaitingPartition:
    """A partition that its owner cannot read yet, and which request fails with which error."""

    topic: str
    partition: int
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalMember:
    """The state of a member that only the member itself knows.

    Args:
        state: Name of its state (`group.member.membership.MemberState`).
        failure: Why it failed; None: it did not.
        last_heartbeat_age_s: Seconds since the last accepted heartbeat was sent.
        revocation_age_s: Seconds since the revocation under way began; None: no revocation.
        revoking: The partitions still to revoke.
        in_flight_partitions: The number of partitions in the running batch; 0: no batch.
        withheld: Ranges of pending partitions that another member still owns.
        waits_for: The partitions that it owns and cannot read, because requests fail.
        awaited_answers: The requests without an answer that it waits for, each as a phrase.
        session_timeout_ms: The group's session timeout; None: the member could not read it.
        instance_wait_left_s: Seconds that it will still wait for its instance id, which another
            member holds; None: it does not wait.
        idle_s: Seconds without a call from Spark or a running batch; None: it is busy.
        idle_limit_s: The limit of `idle_s`, after which it leaves; None: never.
        left_because_idle: Whether it left because Spark did not call or a batch ran too long; until
            Spark calls.
        spark_ui: The URL of its Spark UI: scheme, host and port only; None: unknown.
    """

    state: str
    failure: str | None = None
    last_heartbeat_age_s: float | None = None
    last_call_age_s: float | None = None
    revocation_age_s: float | None = None
    revoking: tuple[TopicPartition, ...] = ()
    in_flight_partitions: int = 0
    in_flight_offsets: int = 0
    commits_refused: int = 0
    withheld: tuple[WithheldRange, ...] = ()
    waits_for: tuple[WaitingPartition, ...] = ()
    awaited_answers: tuple[str, ...] = ()
    session_timeout_ms: int | None = None
    revocation_timeout_s: float | None = None
    instance_wait_left_s: float | None = None
    batch_age_s: float | None = None
    idle_s: float | None = None
    idle_limit_s: float | None = None
    left_because_idle: bool = False
    spark_ui: str | None = None

    @property
    def says_why_it_is_outside(self) -> bool:
        """Whether it is deliberately outside the group."""
        return self.instance_wait_left_s is not None or self.left_because_idle


def parse_local_members(
    snapshots: Iterable[Mapping[str, Any]], group_id: str
) -> dict[str, LocalMember]:
    """Return the members of one group by member id.

    Args:
        snapshots: As `MemberSnapshot.as_plain` writes them; those without a member id, or
            unreadable ones of other versions, are ignored.
    """
    found = {}
    for snapshot in snapshots:
        if snapshot.get("group") == group_id and snapshot.get("member_id"):
            with contextlib.suppress(KeyError, TypeError, ValueError):
                found[str(snapshot["member_id"])] = _local_member(snapshot)
    return found


_COPIED: Final = (
    *("failure", "last_heartbeat_age_s", "last_call_age_s", "revocation_age_s"),
    *("session_timeout_ms", "revocation_timeout_s", "instance_wait_left_s", "batch_age_s"),
    *("idle_s", "idle_limit_s"),
)
"""Fields with the same name in a snapshot."""


def _local_member(snapshot: Mapping[str, Any]) -> LocalMember:
    in_flight = snapshot.get("in_flight") or ()
    return LocalMember(
        state=str(snapshot.get("state", "")),
        revoking=tuple(sorted(_topic_partition(each) for each in snapshot.get("revoking", ()))),
        in_flight_partitions=len(in_flight),
        in_flight_offsets=sum(each["until_offset"] - each["from_offset"] for each in in_flight),
        commits_refused=snapshot.get("commits_refused", 0),
        withheld=tuple(
            WithheldRange(
                str(each["topic"]),
                int(each["partition"]),
                each["committed_offset"],
                each["log_end_offset"],
            )
            for each in snapshot.get("pending_ranges") or ()
        ),
        waits_for=tuple(
            WaitingPartition(str(each["topic"]), int(each["partition"]), str(each["waits_for"]))
            for each in snapshot.get("partitions") or ()
            if each.get("waits_for")
        ),
        awaited_answers=tuple(map(_awaited, snapshot.get("awaited_answers") or ())),
        left_because_idle=bool(snapshot.get("left_because_idle")),
        spark_ui=_plain_address(snapshot.get("spark_ui")),
        **{name: snapshot.get(name) for name in _COPIED},
    )


def _awaited(each: Mapping[str, Any]) -> str:
    to = f" of {each['to']}" if each.get("to") else ""
    reason = f"; the last attempt: {each['reason']}" if each.get("reason") else ""
    return f"the answer{to} to {each['request']} for {each['age_s']:.0f} s{reason}"


def _plain_address(url: object) -> str | None:
    """Return a URL that is safe as a link: scheme, host and port only; else None."""
    return url if isinstance(url, str) and _PLAIN_ADDRESS.fullmatch(url) else None


def _topic_partition(text: str) -> TopicPartition:
    topic, _, partition = text.rpartition("-")
    return TopicPartition(topic, int(partition))
