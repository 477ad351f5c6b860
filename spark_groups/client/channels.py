"""What a client wants to send, and over which of its connections.

A broker answers one connection strictly in order, so a heartbeat must never share one with a commit
(measured: a heartbeat behind a 2 s request waited 1.9 s), nor the search for a coordinator with a
question to a leader that is dead. Each channel carries one request at a time.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import Enum
from typing import Any, Final, Protocol, get_args

from spark_groups.protocol.messages import Node, Request, RequestFailed, Response
from spark_groups.values import dataclass


class Channel(Enum):
    """The four ways out of a client."""

    HEARTBEAT = "to the coordinator: heartbeats, and nothing else"
    OFFSETS = "to the coordinator: commits, fetches, descriptions"
    SEARCH = "to any broker: who the coordinator is, and nothing else"
    CLUSTER = "to any broker: metadata, settings, where partitions start"

    # Each channel is one object: its identity is a hash that costs no call, unlike its name's.
    __hash__ = object.__hash__

    @property
    def leads_to_coordinator(self) -> bool:
        return self is Channel.HEARTBEAT or self is Channel.OFFSETS


@dataclass(frozen=True, slots=True)
class Outgoing:
    """A request to send now.

    Args:
        channel: The connection to use; nothing else is under way on it.
        request: What to send.
        node: The coordinator, on the two channels that lead to it.
        timeout_s: How long it may take.
    """

    channel: Channel
    request: Request
    node: Node | None = None
    timeout_s: float = 10.0


class Requester(Protocol):
    """One kind of request: what to send next, and what its answer or failure means.

    `channel` says which connection carries it, `timeout_s` how long it may take; a broker's own
    limit for a commit is 5 s.
    """

    @property
    def channel(self) -> Channel: ...

    @property
    def timeout_s(self) -> float: ...

    def next_request(self, now: float) -> Request | None:
        """Return the request to send now, None if none is due; it is taken as sent."""

    def answered(self, request: Any, response: Any, now: float) -> None:
        """Take the answer to a request of `next_request`."""

    def failed(self, request: Any, failure: RequestFailed, now: float) -> None:
        """Take it that a request of `next_request` got no answer."""


Asked = tuple[Requester, Request]
"""Who asks, and what."""


def in_order(*requesters: Requester) -> Callable[[float], Asked | None]:
    """Return what finds the next request: that of the first requester that has one.

    Args:
        requesters: The most urgent first.
    """

    def next_request(now: float) -> Asked | None:
        for requester in requesters:
            request = requester.next_request(now)
            if request is not None:
                return requester, request
        return None

    return next_request


class InTurn:
    """Questions that take turns: what cannot be answered must not keep the rest from being asked.

    Args:
        questions: In the order of their first turns: who asks, and what finds the next request. A
            requester may have several, if their answers mean the same.
    """

    def __init__(self, *questions: tuple[Requester, Callable[[float], Request | None]]) -> None:
        self._questions = questions
        self._turn = 0

    def next(self, now: float) -> Asked | None:
        """Return the next request, and who asks; None if none is due."""
        count = len(self._questions)
        for each in range(self._turn, self._turn + count):
            requester, next_request = self._questions[each % count]
            request = next_request(now)
            if request is not None:
                self._turn = (each + 1) % count
                return requester, request
        return None


class Channels:
    """Keeps at most one request under way on each channel.

    Args:
        routes: What finds the next request of each channel, in the order of polling.
    """

    def __init__(self, routes: Mapping[Channel, Callable[[float], Asked | None]]) -> None:
        self._routes = tuple(
            (channel, channel.leads_to_coordinator, next_request)
            for channel, next_request in routes.items()
        )
        self._under_way: dict[Channel, tuple[Requester, float]] = {}
        """Who asked what is under way on a channel, and when."""

    def poll(self, now: float, coordinator: Node | None) -> list[Outgoing]:
        """Return the requests to send now, at most one for each channel that is free.

        Args:
            now: Seconds.
            coordinator: The group's coordinator, None while it is looked for.
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
            outgoing.append(Outgoing(requester.channel, request, node, requester.timeout_s))
        return outgoing

    def ended(self, outgoing: Outgoing) -> tuple[Requester, float] | None:
        """Take a request as answered or failed: its channel is free.

        Returns:
            Who asked, and when; None if nothing was under way.
        """
        return self._under_way.pop(outgoing.channel, None)

    def is_under_way(self, channel: Channel) -> bool:
        """Tell whether a request is under way on a channel."""
        return channel in self._under_way


def check_kind(request: Request, response: Response) -> None:
    """Raise if a response is not of the request's kind.

    Raises:
        TypeError: It is not.
    """
    if not isinstance(response, _RESPONSES[type(request)]):
        raise TypeError(f"{type(response).__name__} is no answer to {request}")


_RESPONSES: Final[dict[type, type]] = dict(zip(get_args(Request), get_args(Response), strict=True))
