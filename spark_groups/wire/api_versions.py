"""What a broker says it can do: the versions of its APIs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from spark_groups.wire.schemas.messages import Message


@dataclass(frozen=True, slots=True)
class ApiVersions:
    """What ApiVersions told.

    Args:
        by_key: Lowest and highest version by API key.
    """

    by_key: Mapping[int, tuple[int, int]] = field(default_factory=dict)

    @classmethod
    def of(cls, values: Mapping[str, Any]) -> ApiVersions:
        """Read an ApiVersions response of any version."""
        return cls({e["api_key"]: (e["min_version"], e["max_version"]) for e in values["api_keys"]})

    def supports(self, message: Message) -> bool:
        """Say whether the broker speaks this version of an API."""
        lowest, highest = self.by_key.get(message.api_key, (0, -1))
        return lowest <= message.version <= highest

    def text(self, message: Message) -> str:
        """Return which versions of an API the broker has, for people."""
        if message.api_key not in self.by_key:
            return "none of it"
        lowest, highest = self.by_key[message.api_key]
        return f"v{lowest} to v{highest}"
