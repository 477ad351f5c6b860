"""Topics that are subscribed by name and that no broker knows: whether to believe it.

A topic that was created a moment ago is not known to every broker. AvailableNow asks again for a
while; a query that stays is given such a topic by the group once it exists.
"""

from __future__ import annotations

from typing import Final

from spark_groups.protocol.messages import MetadataRequest, MetadataResponse

ASK_AGAIN_S: Final = 0.5
BELIEVED_S: Final = 3.0
"""How long brokers have to say that a topic does not exist until that is believed, and how long
the group has to plan the partitions of one that was found."""


class AbsentTopics:
    """Names that brokers did not know, and since when."""

    def __init__(self) -> None:
        self.is_wanted = False
        """Whether it matters: under AvailableNow."""
        self.missing: tuple[str, ...] = ()
        """Those that do not exist, sorted."""
        self._since: dict[str, float] = {}
        """When brokers first said that a topic does not exist, until one of them knows it."""
        self._found_at: dict[str, float] = {}
        """When names that had been absent were found, until the group must have planned them."""
        self._ask_at = 0.0

    @property
    def in_doubt(self) -> frozenset[str]:
        """Names that matter and may not exist, or were found a moment ago."""
        if not self.is_wanted or self.missing:
            return frozenset()
        return frozenset(self._since) | frozenset(self._found_at)

    def due_at(self) -> float | None:
        """Return when to ask again, None if nothing is in doubt."""
        return self._ask_at if self.in_doubt else None

    def to_ask(self, now: float) -> MetadataRequest | None:
        """Return the request for what is in doubt, None if none is due."""
        in_doubt = self.in_doubt
        return MetadataRequest(topic_names=in_doubt) if in_doubt and now >= self._ask_at else None

    def handle_metadata(
        self, request: MetadataRequest, response: MetadataResponse, now: float
    ) -> None:
        """Take what exists."""
        # An error such as LEADER_NOT_AVAILABLE is not told of a topic that does not exist.
        there = {topic.name for topic in response.topics} | response.errors.keys()
        for name in request.topic_names | (self._since.keys() & there):
            if name not in there:
                self._since.setdefault(name, now)
                self._found_at.pop(name, None)
            elif self._since.pop(name, None) is not None:
                self._found_at[name] = now
            elif now - self._found_at.get(name, now) >= BELIEVED_S:
                del self._found_at[name]
        self._ask_at = now + ASK_AGAIN_S
        # Only an answer that names a topic absent counts, not the time that went by without one.
        absent = request.topic_names & self._since.keys()
        believed = {name for name in absent if now - self._since[name] >= BELIEVED_S}
        kept = self._since.keys() & frozenset(self.missing)
        self.missing = tuple(sorted(believed | kept))
