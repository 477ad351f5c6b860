"""DescribeConfigs of the group and of brokers: the effective session timeout.

Heartbeat responses carry only the heartbeat interval. The session timeout says how long a silent
member owns its partitions. Without permission to read it, an estimate is used that is never too
long for Kafka's usual proportions.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import ceil
from typing import ClassVar, Final

from spark_groups.group.member.events import (
    Event,
    SessionTimeoutKnown,
    SessionTooShort,
    SettingsUnknown,
)
from spark_groups.group.member.member import Member
from spark_groups.group.member.messages import (
    GroupSettingsRequest,
    GroupSettingsResponse,
    RequestFailed,
)
from spark_groups.group.requests.find_coordinator import Coordinator

READ_AGAIN_S: Final = 60.0
ASK_AGAIN_S: Final = 10.0
MISSED_HEARTBEATS: Final = 2
RESENDING_S: Final = 5.0
RESTART_MARGIN: Final = 2
ROUND_S: Final = 15
"""A recommended session timeout is a multiple of this."""


class SessionTimeout:
    """Decides when to read the settings, and what follows from them.

    Args:
        assumed_session_timeout_ms: The session timeout to assume while it is unknown.
    """

    def __init__(self, assumed_session_timeout_ms: int) -> None:
        self.session_timeout_ms: int | None = None
        """As last read; None: unknown."""
        self.reason = ""
        """Why it is unknown."""
        self._session_timeout_max_ms: int | None = None
        self._assumed_session_timeout_ms = assumed_session_timeout_ms
        self._interval_s: float | None = None
        self._asked_at_interval_s: float | None = None
        self._is_in_doubt = True
        self.due_at: float | None = 0.0

    def follow(self, interval_s: float, now: float) -> None:
        """Note the heartbeat interval; if it changed, the session timeout may have too."""
        if interval_s != self._interval_s:
            self._interval_s = interval_s
            self._is_in_doubt = True
            if self.due_at is not None:
                self.due_at = min(self.due_at, now)

    def asked(self) -> None:
        """Note that the request is in flight."""
        self._asked_at_interval_s = self._interval_s
        self.due_at = None

    def unanswered(self, now: float) -> None:
        """Note that it failed: retry later."""
        self.due_at = now + ASK_AGAIN_S

    def handle_response(self, response: GroupSettingsResponse, now: float) -> bool:
        """Process a response; return True if anything changed."""
        before = (self.session_timeout_ms, self.reason)
        if response.session_timeout_ms is not None:
            self.session_timeout_ms, self.reason = response.session_timeout_ms, ""
            self._session_timeout_max_ms = response.session_timeout_max_ms
        else:
            self.reason = response.reason
        self._is_in_doubt = self._asked_at_interval_s != self._interval_s
        self.due_at = now if self._is_in_doubt else now + READ_AGAIN_S
        return before != (self.session_timeout_ms, self.reason)

    def command_for_restart(self, group_id: str, restart_s: float | None) -> str | None:
        """Return the command that lets a static member restart within its session, if needed."""
        session_ms = self.session_timeout_ms
        if session_ms is None or restart_s is None or session_ms >= restart_s * 1000:
            return None
        wanted_ms = ceil(restart_s * RESTART_MARGIN / ROUND_S) * ROUND_S * 1000
        maximum_ms = self._session_timeout_max_ms
        if maximum_ms is not None and wanted_ms > maximum_ms > restart_s * 1000:
            # It suffices for the same start, and needs no change of the brokers.
            wanted_ms = maximum_ms
        command = f"spark-groups config {group_id} --set consumer.session.timeout.ms={wanted_ms}"
        if maximum_ms is None or wanted_ms <= maximum_ms:
            return command
        return (
            f"{command} (the brokers accept at most {maximum_ms}: raise their"
            " group.consumer.max.session.timeout.ms first)"
        )

    def proven_for_s(self, interval_s: float) -> float:
        """Return how long an accepted heartbeat proves ownership, in seconds."""
        # A broker may have a shorter session timeout than Kafka's default, always with a shorter
        # heartbeat interval: two missed heartbeats and a pause fit into any of them.
        guess_s = MISSED_HEARTBEATS * interval_s + RESENDING_S
        if self.session_timeout_ms is None:
            return min(self._assumed_session_timeout_ms / 1000, guess_s)
        session_s = self.session_timeout_ms / 1000
        return min(session_s, guess_s) if self._is_in_doubt else session_s


@dataclass(slots=True)
class GroupSettings:
    """Reads the group's settings; no other request waits for them."""

    first_wait_s: ClassVar = 2.0

    member: Member
    session: SessionTimeout
    coordinator: Coordinator
    emit: Callable[[Event], None]

    def next_request(self, now: float) -> GroupSettingsRequest | None:
        """Read the settings if they may have changed."""
        due_at = self.session.due_at
        if due_at is None or due_at > now or self.coordinator.node is None:
            return None
        self.session.asked()
        return GroupSettingsRequest(group_id=self.member.config.group_id)

    def answered(
        self, request: GroupSettingsRequest, response: GroupSettingsResponse, now: float
    ) -> None:
        """Report a changed session timeout, and one too short for a restart."""
        session, member = self.session, self.member
        if not session.handle_response(response, now):
            return
        who = (now, member.member_id, member.member_epoch)
        if session.session_timeout_ms is None:
            self.emit(SettingsUnknown(*who, session.reason))
            return
        member.session_timeout_ms = session.session_timeout_ms
        self.emit(SessionTimeoutKnown(*who, session.session_timeout_ms))
        command = session.command_for_restart(
            request.group_id, member.config.restart_s if member.config.instance_id else None
        )
        if command is not None and member.config.restart_s is not None:
            restart_s = member.config.restart_s
            self.emit(SessionTooShort(*who, session.session_timeout_ms, restart_s, command))

    def failed(self, _request: GroupSettingsRequest, _failure: RequestFailed, now: float) -> None:
        """Retry later."""
        self.session.unanswered(now)
