"""The cluster's topics at one time."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from spark_groups.types import TopicId


@dataclass(frozen=True, slots=True)
class TopicImage:
    """A topic.

    Args:
        racks: The racks of the replicas of each partition; empty without racks.
    """

    topic_id: TopicId
    name: str
    partition_count: int
    racks: tuple[frozenset[str], ...] = ()


@dataclass(frozen=True, slots=True)
class TopicsImage:
    """All topics at one metadata version; a change makes another image.

    Args:
        created_version: The version of the newest topic, for which patterns are resolved again.
    """

    by_name: dict[str, TopicImage] = field(default_factory=dict)
    version: int = 0
    created_version: int = 0

    @classmethod
    def of(cls, topics: Iterable[TopicImage], version: int = 0) -> TopicsImage:
        """Make an image of topics that are all as new as its version."""
        return cls({topic.name: topic for topic in topics}, version, version)

    def by_id(self, topic_id: TopicId) -> TopicImage | None:
        """Return the topic with an id, if it exists."""
        return next((each for each in self.by_name.values() if each.topic_id == topic_id), None)

    def with_topic(self, topic: TopicImage) -> TopicsImage:
        """Return the image after a topic was created or grew."""
        before = self.by_name.get(topic.name)
        version = self.version + 1
        is_created = before is None or before.topic_id != topic.topic_id
        created_version = version if is_created else self.created_version
        return TopicsImage({**self.by_name, topic.name: topic}, version, created_version)

    def without(self, name: str) -> TopicsImage:
        """Return the image after a topic was deleted."""
        kept = {each: topic for each, topic in self.by_name.items() if each != name}
        return TopicsImage(kept, self.version + 1, self.created_version)

    def deleted_since(self, before: TopicsImage) -> frozenset[str]:
        """Return the names of topics that were deleted since an earlier image."""
        return frozenset(
            name
            for name, topic in before.by_name.items()
            if name not in self.by_name or self.by_name[name].topic_id != topic.topic_id
        )
