"""The client's five channels, each with connections of its own and one request in flight.

A broker answers one connection in order, so a heartbeat must never share one with a commit
(measured: a heartbeat behind a 2 s request waited 1.9 s), nor FindCoordinator with a request to a
dead leader.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import Enum
from typing import Any, Final, Generic, Protocol, TypeVar, get_args

from spark_groups.group.member.messages import Node, Request, RequestFailed, Response
from spark_groups.group.requests.open_requests import OpenRequests
from spark_groups.values import dataclass

R = TypeVar("R")


class Channel(Enum):
    """The five channels of a client."""

    HEARTBEAT = "to the coordinator: heartbeats, and nothing else"
    OFFSETS = "to the coordinator: commits, fetches, descriptions"
    SEARCH = "to any broker: FindCoordinator, and nothing else"
    CLUSTER = "to any broker: metadata, settings, log offsets"
    TRIGGER = "to leaders: the log ends of a plan, samples of unread records"

    # The hash of the identity costs no call, unlike that of the name.
    __hash__ = object.__hash__

    @property
    def leads_to_coordinator(self) -> bool:
        return self is Channel.HEARTBEAT or self is Channel.OFFSETS


@dataclass(frozen=True, slots=True)
class Outgoing:
    """A request to send now.

    Args:
        node: The coordinator, on the two channels that lead to it.
        timeout_s: How long it may take.
    """

    channel: Channel
    request: Request
    node: Node | None = None
    timeout_s: float = 10.0


class Requester(Protocol):
    """One kind of request: when to send it, and what its answer or failure means.

    Its `first_wait_s` is how long the first attempt may take, if that is less than
    `request.timeout.ms`; each attempt without an answer lets the next one take twice as long.
    """

    @property
    def first_wait_s(self) -> float: ...

    def next_request(self, now: float) -> Request | None:
        """Return the request to send now, None if none is due; it counts as sent."""

    def answered(self, request: Any, response: Any, now: float) -> None:
        """Process the answer to a request of `next_request`."""

    def failed(self, request: Any, failure: RequestFailed, now: float) -> None:
        """Note that a request of `next_request` got no answer."""


Asked = tuple[Requester, Request]
"""A requester and its request."""


def in_order(*requesters: Requester) -> Callable[[float], Asked | None]:
    """Return a function that returns the request of the first requester that has one."""

    def next_request(now: float) -> Asked | None:
        for requester in requesters:
            request = requester.next_request(now)
            if request is not None:
                return requester, request
        return None

    return next_request


class InTurn:
    """Requesters that take turns, so that one without an answer does not block the rest.

    Args:
        questions: Each requester with the method that returns its next request; a requester may
            have several, if their answers mean the same.
    """

    def __init__(self, *questions: tuple[Requester, Callable[[float], Request | None]]) -> None:
        self._questions = questions
        self._turn = 0

    def next(self, now: float) -> Asked | None:
        """Return the next request and its requester; None if none is due."""
        count = len(self._questions)
        for each in range(self._turn, self._turn + count):
            requester, next_request = self._questions[each % count]
            request = next_request(now)
            if request is not None:
                self._turn = (each + 1) % count
                return requester, request
        return None


class OneRequest(Generic[R]):
    """A request that is sent once; a response to an earlier one is ignored."""

    def __init__(self) -> None:
        self._request: R | None = None
        """The last request, until it is answered or has failed."""
        self._is_sent = False

    @property
    def is_over(self) -> bool:
        """Whether the last request was answered, or has failed; or there is none."""
        return self._request is None

    def put(self, request: R | None) -> None:
        """Replace the last request; None: forget it."""
        self._request, self._is_sent = request, False

    def take(self) -> R | None:
        """Return the request to send now, once."""
        if self._is_sent:
            return None
        self._is_sent = True
        return self._request

    def end(self, request: R) -> bool:
        """Note the end of a request; return whether it is the last one."""
        if request is not self._request:
            return False
        self._request = None
        return True


class Channels:
    """Keeps at most one request in flight on each channel.

    Args:
        routes: The function that returns the next request of each channel, in polling order.
        open_requests: Takes each request, its answer or its failure.
    """

    def __init__(
        self,
        routes: Mapping[Channel, Callable[[float], Asked | None]],
        open_requests: OpenRequests,
    ) -> None:
        self._open_requests = open_requests
        self._routes = tuple(
            (channel, channel.leads_to_coordinator, next_request)
            for channel, next_request in routes.items()
        )
        self._under_way: dict[Channel, tuple[Requester, float]] = {}
        """The requester of each request in flight, and when it was sent."""

    def poll(self, now: float, coordinator: Node | None) -> list[Outgoing]:
        """Return the requests to send now, at most one for each free channel.

        Args:
            coordinator: The group's coordinator, None if unknown.
        """
        outgoing = []
        for channel, leads_to_coordinator, next_request in self._routes:
            if channel in self._under_way or (leads_to_coordinator and coordinator is None):
                continue
            asked = next_request(now)
            if asked is None:
                continue
            requester, request = asked
            node = coordinator if leads_to_coordinator else None
            self._under_way[channel] = requester, now
            timeout_s = self._open_requests.asked(
                _name(channel, request), requester.first_wait_s, now, str(node or "")
            )
            outgoing.append(Outgoing(channel, request, node, timeout_s))
        return outgoing

    def free(self, outgoing: Outgoing) -> tuple[Requester, float] | None:
        """Free the channel of a request; return its requester and send time, if in flight."""
        return self._under_way.pop(outgoing.channel, None)

    def ended(self, outgoing: Outgoing, sent_at: float, now: float, problem: str) -> None:
        """Note how a request ended that was in flight.

        Args:
            sent_at: When it was sent, in seconds.
            problem: Why it has no response, or none that is complete; empty: it has one.
        """
        name, took_s = _name(outgoing.channel, outgoing.request), now - sent_at
        if problem:
            self._open_requests.failed(name, problem, took_s, now)
        else:
            self._open_requests.answered(name, took_s)

    def is_under_way(self, channel: Channel) -> bool:
        """Return whether a request is in flight on a channel."""
        return channel in self._under_way


def _name(channel: Channel, request: Request) -> str:
    name = type(request).__name__
    return f"{name} (for a plan)" if channel is Channel.TRIGGER else name


def check_kind(request: Request, response: Response) -> None:
    """Raise if a response does not match its request.

    Raises:
        TypeError: It does not.
    """
    if not isinstance(response, _RESPONSES[type(request)]):
        raise TypeError(f"{type(response).__name__} is no answer to {request}")


_RESPONSES: Final[dict[type, type]] = dict(zip(get_args(Request), get_args(Response), strict=True))
