"""The dependencies of the laboratory: spark-groups of the same version; for hatchling."""

from __future__ import annotations

from typing import Any

from hatchling.metadata.plugin.interface import MetadataHookInterface


class PackageMetadata(MetadataHookInterface):
    """Fills in the dependencies, which pyproject.toml lists as dynamic."""

    def update(self, metadata: dict[str, Any]) -> None:
        """Add the dependencies, unless an sdist has brought them."""
        metadata.setdefault("dependencies", [f"spark-groups=={metadata['version']}"])
