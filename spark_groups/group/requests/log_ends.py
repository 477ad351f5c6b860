"""ListOffsets of the log ends of a plan, on a channel of its own: no commit waits for it."""

from __future__ import annotations

from collections.abc import Mapping
from math import inf
from typing import ClassVar

from spark_groups.errors import ErrorCode, GroupError, Reaction, rule_for
from spark_groups.group.ledger.events import LogEndsMissing
from spark_groups.group.ledger.positions import Positions
from spark_groups.group.member.messages import (
    ListedOffset,
    ListOffsetsRequest,
    ListOffsetsResponse,
    RequestFailed,
    found_and_failed,
)
from spark_groups.group.requests.channels import OneRequest
from spark_groups.group.requests.describe import PendingOffsets
from spark_groups.types import LATEST_TIMESTAMP, Assignment, TopicIdPartition


class LogEnds:
    """Lists the log ends of a plan, once for each trigger.

    They include those of partitions whose committed offset is still being fetched, so that both
    requests run at the same time, and those of pending partitions, which are only shown.

    Args:
        read_committed: True for last stable offsets.
    """

    first_wait_s: ClassVar = inf

    def __init__(
        self, positions: Positions, pending: PendingOffsets, *, read_committed: bool
    ) -> None:
        self.found: Mapping[TopicIdPartition, ListedOffset] = {}
        """The ends that were listed last."""
        self.problem = ""
        """Why some of them are missing; empty if none is."""
        self._positions = positions
        self._pending = pending
        self._read_committed = read_committed
        self._request: OneRequest[ListOffsetsRequest] = OneRequest()
        """That of the current trigger."""
        self._refusal: GroupError | None = None
        self._shown: frozenset[TopicIdPartition] = frozenset()
        """The pending partitions among those that are listed."""
        self._last_tenure = inf
        """The ledger's last tenure when the ends were asked for."""

    def ask(self, pending: Assignment) -> bool:
        """Ask for the ends that the next plan needs, or shows; return whether there are any."""
        assigned, ledger = self._positions.member.assigned, self._positions.ledger
        unready = ledger.unready() & assigned.partitions
        resolving = {key for key in unready if not ledger.owned[key].topic_gone}
        own = resolving.union(ledger.positions(assigned))
        self._shown = self._pending.to_list(pending, is_alone=not own)
        keys = self._shown.union(own)
        self._last_tenure = ledger.last_tenure
        request = ListOffsetsRequest(
            partitions=keys, timestamp_ms=LATEST_TIMESTAMP, read_committed=self._read_committed
        )
        self.found = {}
        self._request.put(request if keys else None)
        return bool(keys)

    def forget(self) -> None:
        """Forget the last ends: a plan uses none that were listed for another."""
        self.found = {}
        self._request.put(None)

    @property
    def is_listed(self) -> bool:
        """Whether the last request was answered, or has failed."""
        return self._request.is_over

    def check(self) -> None:
        """Raise the error of a broker that refuses to list ends.

        Raises:
            GroupError: It will not answer otherwise later.
        """
        if self._refusal is not None:
            raise self._refusal

    def next_request(self, _now: float) -> ListOffsetsRequest | None:
        """Return the request of the current trigger, once."""
        return self._request.take()

    def answered(
        self, request: ListOffsetsRequest, response: ListOffsetsResponse, now: float
    ) -> None:
        """Take the ends; an answer for an earlier trigger is ignored."""
        if not self._request.end(request):
            return
        self.found, failed = found_and_failed(response.answers)
        missing = {key: code for key, code in failed.items() if key not in self._shown}
        codes = sorted(set(missing.values()))
        names = ", ".join(map(ErrorCode.name_of, codes))
        self._note(f"{len(missing)} partitions: {names}" if missing else "", now)
        final = next((code for code in codes if rule_for(code).lookup is Reaction.FAIL), None)
        if final is not None:
            remedy = rule_for(final).remedy
            self._refusal = GroupError(f"log ends cannot be listed: {names}: {remedy}")

    def failed(self, request: ListOffsetsRequest, failure: RequestFailed, now: float) -> None:
        """Let the trigger continue without ends."""
        if self._request.end(request):
            self._note(failure.reason, now)

    def _note(self, problem: str, now: float) -> None:
        if problem and problem != self.problem:
            self._positions.emit(LogEndsMissing(now, problem))
        self.problem = problem

    def take(
        self, ends: Mapping[TopicIdPartition, int], now: float
    ) -> Mapping[TopicIdPartition, int]:
        """Show the ends of pending partitions; return those of owned ones that a plan may use."""
        shown, self._shown = self._shown, frozenset()
        for event in self._pending.handle_ends(shown, ends, now):
            self._positions.emit(event)
        return self.usable(ends)

    def usable(self, ends: Mapping[TopicIdPartition, int]) -> Mapping[TopicIdPartition, int]:
        """Return the ends of owned partitions that were listed in their current tenure.

        While a partition is pending its owner reads on, possibly beyond the end listed then. Ends
        of partitions that are not owned may be returned, too.
        """
        ledger = self._positions.ledger
        if ledger.last_tenure <= self._last_tenure:
            return ends
        owned = ledger.owned
        return {
            key: end
            for key, end in ends.items()
            if key in owned and owned[key].tenure <= self._last_tenure
        }
