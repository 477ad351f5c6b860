"""The hooks of mkdocs: add documents of the root and notebooks, fill in generated parts, draw.

mkdocs.yml names this file; run mkdocs in the root of the repository.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

from workshop.tools.docs_notebooks import markdown_of
from workshop.tools.docs_pictures import draw

ROOT: Final = Path(__file__).resolve().parents[2]
BESIDE: Final = {
    "README.md": "project/readme.md",
    "ARCHITECTURE.md": "project/architecture.md",
    "CONTRIBUTING.md": "project/contributing.md",
    "SECURITY.md": "project/security.md",
    "CHANGELOG.md": "project/changelog.md",
    "lab/tests/scenarios/README.md": "project/scenarios.md",
    "lab/tests/transcripts/README.md": "project/transcripts.md",
    **{
        path.relative_to(ROOT).as_posix(): f"examples/{path.parent.name}.md"
        for path in sorted((ROOT / "examples").glob("*/README.md"))
    },
    **{
        path.relative_to(ROOT).as_posix(): f"notebooks/{path.stem}.md"
        for path in sorted((ROOT / "notebooks").glob("*.ipynb"))
    },
}
"""Documents outside docs/ that the site has too, with their places in it."""

_FENCE: Final = re.compile(r"(^```.*?^```$)", re.MULTILINE | re.DOTALL)
_LINK: Final = re.compile(r"\[(?P<text>[^\]]+)\]\((?P<path>[^)\s#:]+)(?P<anchor>#[^)\s]*)?\)")


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Draw diagrams, and replace each pattern in the navigation by the pages it matches."""
    fence = {"name": "mermaid", "class": "mermaid", "format": draw}
    config.mdx_configs["pymdownx.superfences"] = {"custom_fences": [fence]}
    config.nav = _expanded(config.nav, Path(config.docs_dir), frozenset(_named(config.nav)))
    return config


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the documents outside docs/."""
    for path, place in BESIDE.items():
        files.append(File.generated(config, place, abs_src_path=str(ROOT / path)))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, **_: object) -> str:
    """Point links at the site's own pages."""
    if str(page.file.abs_src_path).endswith(".ipynb"):
        markdown = markdown_of(markdown)
    pieces = _FENCE.split(markdown)
    pieces[::2] = [
        _LINK.sub(lambda found: _relinked(found, page, config), piece) for piece in pieces[::2]
    ]
    return "".join(pieces)


def _named(nav: Any) -> Iterator[str]:
    """Yield every page and pattern in the navigation."""
    if isinstance(nav, str):
        yield nav
    else:
        for each in nav.values() if isinstance(nav, dict) else nav:
            yield from _named(each)


def _expanded(nav: Any, docs: Path, named: frozenset[str]) -> Any:
    """Replace a pattern by the pages it matches, without those named elsewhere; README first."""
    if isinstance(nav, dict):
        return {title: _expanded(under, docs, named) for title, under in nav.items()}
    if isinstance(nav, list):
        return [each for entry in nav for each in _entries(entry, docs, named)]
    return nav


def _entries(entry: Any, docs: Path, named: frozenset[str]) -> list[Any]:
    if not isinstance(entry, str) or "*" not in entry:
        return [_expanded(entry, docs, named)]
    found = sorted(docs.glob(entry), key=lambda path: (path.name != "README.md", path.name))
    places = [path.relative_to(docs).as_posix() for path in found]
    return [place for place in places if place not in named]


def _relinked(found: re.Match[str], page: Page, config: MkDocsConfig) -> str:
    """Return the link to the same document in the site, or its text where the site has none."""
    source = Path(page.file.abs_src_path).parent / found["path"]
    path = Path(posixpath.normpath(source))
    docs = Path(config.docs_dir)
    if not path.exists():
        return found[0]
    if path.is_relative_to(docs):
        place = path.relative_to(docs).as_posix()
    else:
        place = BESIDE.get(path.relative_to(ROOT).as_posix(), "")
    if not place:
        return found["text"]
    relative = posixpath.relpath(place, posixpath.dirname(page.file.src_uri))
    return f"[{found['text']}]({relative}{found['anchor'] or ''})"
