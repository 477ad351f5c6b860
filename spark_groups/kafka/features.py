"""What a broker says it can do: versions of its APIs and levels of its features."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from spark_groups.kafka.schemas import Message

METADATA_VERSION: Final = "metadata.version"
GROUP_VERSION: Final = "group.version"
RELAXED_COMMIT_METADATA_VERSION: Final = 30
"""The highest `metadata.version` of Kafka 4.3, the first release with KIP-1251."""


@dataclass(frozen=True, slots=True)
class BrokerFeatures:
    """What ApiVersions told.

    Args:
        api_versions: Lowest and highest version by API key.
        supported_features: Lowest and highest level that the broker's software knows, by name.
        finalized_features: The level that the cluster has switched on, by name.
    """

    api_versions: Mapping[int, tuple[int, int]] = field(default_factory=dict)
    supported_features: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    finalized_features: Mapping[str, int] = field(default_factory=dict)

    @classmethod
    def of(cls, values: Mapping[str, Any]) -> BrokerFeatures:
        """Read an ApiVersions response of any version."""
        return cls(
            {e["api_key"]: (e["min_version"], e["max_version"]) for e in values["api_keys"]},
            {
                each["name"]: (each["min_version"], each["max_version"])
                for each in values.get("supported_features", ())
            },
            {
                each["name"]: each["max_version_level"]
                for each in values.get("finalized_features", ())
            },
        )

    def supports(self, message: Message) -> bool:
        """Say whether the broker speaks this version of an API."""
        lowest, highest = self.api_versions.get(message.api_key, (0, -1))
        return lowest <= message.version <= highest

    def versions_text(self, message: Message) -> str:
        """Return which versions of an API the broker has, for people."""
        if message.api_key not in self.api_versions:
            return "none of it"
        lowest, highest = self.api_versions[message.api_key]
        return f"v{lowest} to v{highest}"

    @property
    def relaxed_commit(self) -> bool:
        """Whether a commit at an older member epoch is accepted for partitions kept since."""
        _, highest = self.supported_features.get(METADATA_VERSION, (0, 0))
        return highest >= RELAXED_COMMIT_METADATA_VERSION

    @property
    def group_version(self) -> int:
        """The level of `group.version`; 0 means that the consumer group protocol is off."""
        return self.finalized_features.get(GROUP_VERSION, 0)
