"""Fetch of a few unread records, of which only the size is of interest."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar, Final

from spark_groups.group.ledger.events import RecordsNotSampled
from spark_groups.group.ledger.positions import Positions
from spark_groups.group.member.messages import (
    RecordSample,
    RequestFailed,
    SampleRecordsRequest,
    SampleRecordsResponse,
)
from spark_groups.group.requests.channels import OneRequest
from spark_groups.types import TopicIdPartition

SAMPLING_S: Final = 3.0
"""How long leaders may take to send samples of records."""


class RecordSamples:
    """Fetches a few records at offsets, because brokers list no sizes.

    Args:
        read_committed: Whether records of aborted transactions have no size.
    """

    first_wait_s: ClassVar = SAMPLING_S

    def __init__(self, positions: Positions, *, read_committed: bool) -> None:
        self.found: Mapping[TopicIdPartition, RecordSample] = {}
        self.reached: Mapping[TopicIdPartition, int] = {}
        """By partition, an offset before which there is no record."""
        self._positions = positions
        self._read_committed = read_committed
        self._request: OneRequest[SampleRecordsRequest] = OneRequest()
        self._problem = ""

    def ask(self, offsets: Mapping[TopicIdPartition, int], timeout_s: float, now: float) -> None:
        """Ask for samples; if no time is left, there are none.

        Args:
            timeout_s: How long that may take, in seconds.
        """
        self.found, self.reached = {}, {}
        request = SampleRecordsRequest(
            offsets=offsets, read_committed=self._read_committed, timeout_s=timeout_s
        )
        self._request.put(request if timeout_s > 0 else None)
        if timeout_s <= 0:
            # The reason why there was no response in time is known, unless all were slow.
            self._note(request, self._problem or "their leaders did not answer in time", now)

    @property
    def is_sampled(self) -> bool:
        """Whether the last request was answered, or has failed."""
        return self._request.is_over

    def next_request(self, _now: float) -> SampleRecordsRequest | None:
        """Return the request of the current trigger, once."""
        return self._request.take()

    def answered(
        self, request: SampleRecordsRequest, response: SampleRecordsResponse, now: float
    ) -> None:
        """Take the samples; an answer for an earlier trigger is ignored."""
        if self._request.end(request):
            self.found, self.reached = response.samples, response.reached
            self._note(request, response.problem, now)

    def failed(self, request: SampleRecordsRequest, failure: RequestFailed, now: float) -> None:
        """Let the trigger continue without samples."""
        if self._request.end(request):
            self._note(request, failure.reason, now)

    def _note(self, request: SampleRecordsRequest, problem: str, now: float) -> None:
        if problem and problem != self._problem:
            count = len(request.offsets) - len(self.found)
            self._positions.emit(RecordsNotSampled(now, count, problem))
        self._problem = problem
