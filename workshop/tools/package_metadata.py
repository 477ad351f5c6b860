"""The long description and the addresses of the package: pyproject.toml names this for hatchling.

An index of packages shows README.md without the repository around it. If REPOSITORY_URL holds the
repository's address, as in the release workflow, links point to the files of this version there,
and the package names its addresses. Otherwise links become their text, and pictures are left out.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any, Final

from hatchling.metadata.plugin.interface import MetadataHookInterface

VARIABLE: Final = "REPOSITORY_URL"

_FENCE: Final = re.compile(r"(^```.*?^```$)", re.MULTILINE | re.DOTALL)
_RELATIVE: Final = r"(?![a-z]+:|#)[^)\s]+"
_PICTURE: Final = re.compile(rf"!\[(?P<text>[^\]]*)\]\((?P<path>{_RELATIVE})\)\n*")
_LINK: Final = re.compile(rf"(?<!!)\[(?P<text>[^\]]+)\]\((?P<path>{_RELATIVE})\)")


def long_description(readme: str, repository: str, version: str) -> str:
    """Return README.md without relative links.

    Args:
        readme: Its text in Markdown.
        repository: The repository's address; empty: links become their text.
        version: The version of the package, whose tag is `v` and the version.
    """
    pieces = _FENCE.split(readme)
    for number in range(0, len(pieces), 2):
        if repository:
            raw, blob = (f"{repository}/{view}/v{version}" for view in ("raw", "blob"))
            text = _PICTURE.sub(rf"![\g<text>]({raw}/\g<path>)\n\n", pieces[number])
            pieces[number] = _LINK.sub(rf"[\g<text>]({blob}/\g<path>)", text)
        else:
            pieces[number] = _LINK.sub(r"\g<text>", _PICTURE.sub("", pieces[number]))
    return "".join(pieces)


def urls(repository: str, version: str) -> dict[str, str]:
    """Return the addresses that the package names; none without a repository."""
    if not repository:
        return {}
    blob = f"{repository}/blob/v{version}"
    return {
        "Documentation": f"{blob}/docs/index.md",
        "Repository": repository,
        "Changelog": f"{blob}/CHANGELOG.md",
        "Issues": f"{repository}/issues",
    }


class PackageMetadata(MetadataHookInterface):
    """Fills in the fields that pyproject.toml lists as dynamic."""

    def update(self, metadata: dict[str, Any]) -> None:
        """Add the long description and the addresses, unless an sdist has brought them."""
        if "readme" in metadata:
            return
        repository = os.environ.get(VARIABLE, "").rstrip("/")
        readme = Path(self.root, "README.md").read_text(encoding="utf-8")
        metadata["readme"] = {
            "content-type": "text/markdown",
            "text": long_description(readme, repository, metadata["version"]),
        }
        metadata["urls"] = urls(repository, metadata["version"])
