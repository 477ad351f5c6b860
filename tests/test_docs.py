"""The docs are true: their code compiles, their commands and options exist, the site is whole.

The tutorial runs as a reader would run it; generated pages are compared with the code.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import uuid
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, expect

import spark_groups
from spark_groups.errors import ErrorCode
from spark_groups.group.ledger import events as offset_events
from spark_groups.group.member import events as member_events
from spark_groups.spark.options.checks import REFUSED
from tests.documents import (
    ROOT,
    Block,
    assert_command_exists,
    blocks_of,
    commands_of,
    run_python,
)
from workshop.tools import draw_history
from workshop.tools.docs_options import option_table
from workshop.tools.docs_pictures import PictureError, draw
from workshop.tools.docs_reference import PART, PARTS, command_tree, fill

DOCS = ROOT / "docs"
PAGES = {
    path.relative_to(ROOT).as_posix(): path.read_text(encoding="utf-8")
    for path in sorted(DOCS.rglob("*.md"))
}
TUTORIAL = "docs/tutorial/first_steps.md"
COMMAND_DEADLINE_S = 300
BUILD_DEADLINE_S = 800
SEARCH_DEADLINE_MS = 120_000

OPTIONS = frozenset(re.findall(r"^\| `([^`]+)`", option_table(), re.MULTILINE))
KAFKAS_OWN = frozenset({"kafka.max.poll.records", "kafka.sasl.login.callback.handler.class"})
"""Options of Spark's own Kafka source, which the docs name beside ours."""
WRITERS_OWN = frozenset({"checkpointLocation", "path"})
"""Options of Spark's writers, which the docs' examples set."""


def every_block(*languages: str) -> list[Any]:
    return [
        pytest.param(block, id=f"{page}:{block.line}")
        for page, text in PAGES.items()
        for block in blocks_of(text)
        if block.language in languages
    ]


@pytest.mark.parametrize("block", every_block("python"))
def test_python_block_compiles(block: Block) -> None:
    compile(block.text, str(block), "exec")


def commands_in(text: str) -> Iterator[str]:
    """Commands in fences, in blocks that are indented, and in sentences."""
    for block in blocks_of(text):
        if block.language == "bash":
            yield from commands_of(block)
    prose = re.sub(r"^( *)```.*?^\1```$", "", text, flags=re.MULTILINE | re.DOTALL)
    indented = re.findall(r"^    ((?:spark-groups|make) .*?)(?:  .*)?$", prose, re.MULTILINE)
    for line in re.findall(r"^    spark-groups .*?\\\n.*$", prose, re.MULTILINE):
        yield from commands_of(Block("bash", 0, line))
        indented = [each for each in indented if not each.endswith("\\")]
    yield from indented
    for quoted in re.findall(r"`(spark-groups\s[^`]+|make\s[^`]+)`", prose):
        yield " ".join(quoted.split())


COMMANDS = sorted({command for text in PAGES.values() for command in commands_in(text)})


@pytest.mark.parametrize("command", COMMANDS)
def test_command_is_one_that_exists(command: str) -> None:
    assert_command_exists(command)


def options_in(text: str) -> Iterator[str]:
    """Options that a page names: in tables and examples, and those of Kafka in sentences."""
    for table in re.findall(r"^\| option \|.*\n(?:\|.*\n)+", text, re.MULTILINE):
        yield from re.findall(r"^\| `([\w.]+)`", table, re.MULTILINE)
    for block in blocks_of(text):
        if block.language == "python":
            yield from re.findall(r"\.option\(\s*\"([\w.]+)\"", block.text)
    yield from re.findall(r"`(kafka\.[a-z]+\.[a-z.]*[a-z])`", text)


@pytest.mark.parametrize("page", PAGES)
def test_options_that_a_page_names_exist(page: str) -> None:
    named = set(options_in(PAGES[page]))
    assert named <= OPTIONS | set(REFUSED) | KAFKAS_OWN | WRITERS_OWN


def test_pages_name_options_commands_and_code() -> None:
    named = {each for text in PAGES.values() for each in options_in(text)}
    assert {"maxOffsetsPerTrigger", "kafka.group.instance.id", "startingOffsets"} <= named
    assert any(command.startswith("spark-groups simulate --exhaustive") for command in COMMANDS)
    assert any(command.startswith("spark-groups config") for command in COMMANDS)
    assert every_block("python")


def test_each_generated_part_has_its_place_in_the_docs() -> None:
    places = [found["name"] for text in PAGES.values() for found in PART.finditer(text)]
    assert sorted(places) == sorted(PARTS)


@pytest.mark.parametrize("page", [page for page, text in PAGES.items() if PART.search(text)])
def test_generated_parts_are_those_of_the_code(page: str) -> None:
    assert PAGES[page] == fill(PAGES[page]), "run `make reference`"


def test_reference_has_every_command_error_and_event() -> None:
    shown = PARTS["commands"]()
    for name, command in command_tree():
        assert f"## spark-groups {name}\n" in shown
        for each in command.params:
            assert each.name == "help" or each.opts[0] in shown or each.metavar in shown
    codes = PARTS["error_codes"]()
    assert "`FENCED_MEMBER_EPOCH`" in codes
    assert set(re.findall(r"`(\w+)`", codes)) <= {code.name for code in ErrorCode}
    logged = set(re.findall(r"`(\w+)`", PARTS["events"]()))
    known = {*vars(member_events), *vars(offset_events)}
    assert {"PartitionsLost", "RevocationBudgetUsed", "TopicsMissing"} <= logged <= known


def test_python_reference_has_each_public_name_and_begins_with_those_of_a_table() -> None:
    shown = re.findall(r"^### (\w+)$", PARTS["python"](), re.MULTILINE)
    assert shown[:3] == ["write_table", "delta_table", "listen"]
    assert set(spark_groups.__all__) < set(shown)
    assert len(set(shown)) == len(shown)


def test_home_page_has_the_install_and_the_programs_of_the_readme() -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    programs = {each.text for each in blocks_of(readme) if each.language == "python"}
    home = list(blocks_of(PAGES["docs/index.md"]))
    assert programs <= {each.text for each in home}
    assert any("pip install" in each.text for each in home)


def test_history_is_what_the_simulation_plays() -> None:
    """Its first table and its picture; `python -m workshop.tools.draw_history` makes them again."""
    length_s = draw_history.BATCH_LENGTHS_S[0]
    played = draw_history.play(length_s)
    page = draw_history.PAGE.read_text(encoding="utf-8")
    shown = draw_history.tables({length_s: played})
    table = shown.removeprefix(draw_history.BEGIN).removesuffix(draw_history.END)
    assert table.strip() in page
    assert draw_history.PICTURE.read_text(encoding="utf-8") == draw_history.picture(played)


@pytest.mark.long
def test_every_table_of_history_is_what_the_simulation_plays() -> None:
    """A change of the simulation changes the first table, too."""
    every = {each: draw_history.play(each) for each in draw_history.BATCH_LENGTHS_S}
    page = draw_history.PAGE.read_text(encoding="utf-8")
    assert page == draw_history.with_tables(page, draw_history.tables(every))


def test_history_has_the_epochs_that_the_simulation_counts() -> None:
    page = draw_history.PAGE.read_text(encoding="utf-8")
    assert page == draw_history.with_tables(page, draw_history.epochs_table())


def test_navigation_names_a_page_once() -> None:
    text = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    named = re.findall(r"^ +- (?:[\w-]+: )?\"?([\w/*-]+\.md)\"?$", text, re.MULTILINE)
    assert {"index.md", "operation.md", "decisions/*.md", "*.md"} <= set(named)
    assert len(set(named)) == len(named)


@pytest.mark.parametrize("block", every_block("mermaid"))
def test_diagram_is_drawn(block: Block) -> None:
    parser = Balance()
    parser.feed(draw(block.text))
    assert not parser.open
    assert len(parser.texts) > 3


class Balance(HTMLParser):
    """Sees that elements are closed in order."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.texts: list[str] = []

    def handle_starttag(self, tag: str, attrs: object) -> None:
        if tag != "br":
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: object) -> None:
        """An element without an end is not open."""

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, text: str) -> None:
        self.texts.append(text)


@pytest.mark.parametrize(
    "source", ["pie", "sequenceDiagram\n  A->>B", "gantt\n  a :x", "stateDiagram-v2\n  A -> B"]
)
def test_diagram_that_is_not_understood_is_an_error(source: str) -> None:
    with pytest.raises(PictureError):
        draw(source)


def test_picture_has_participants_and_messages_where_they_belong() -> None:
    drawn = draw("sequenceDiagram\n participant A as <Ann>\n participant B\n A->>B: hi & ho")
    assert "&lt;Ann&gt;" in drawn
    assert "hi &amp; ho" in drawn
    assert drawn.count('class="life"') == 2


@pytest.mark.broker
@pytest.mark.long
@pytest.mark.spark
def test_tutorial_runs(
    kafka: Any, spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    unique = uuid.uuid4().hex[:8]
    names = {'"tickets"': f'"tickets-{unique}"', "tutorial": f"tutorial-{unique}"}
    replaced = {
        **names,
        '"localhost:9092"': repr(kafka.bootstrap_servers),
        "spark.stop()": "",
    }
    namespace: dict[str, Any] = {"__name__": "tutorial"}
    shown = []
    blocks = [each for each in blocks_of(PAGES[TUTORIAL]) if each.language in ("python", "bash")]
    try:
        for block in blocks:
            if block.language == "python":
                run_python([block], replaced, namespace, TUTORIAL)
            else:
                shown += list(run_commands(block, names, kafka.bootstrap_servers))
    finally:
        for query in spark.streams.active:
            query.stop()
    assert len(shown) == 3
    assert "Stable" in shown[0]
    assert f"tickets-{unique}" in shown[1]
    assert all(name in shown[1] for name in ("first", "second"))


def run_commands(block: Block, names: dict[str, str], bootstrap_servers: str) -> Iterator[str]:
    """Run what looks at the group, and yield what it shows; the broker is the tests' own."""
    for command in commands_of(block):
        program, *words = command.split()
        if program != "spark-groups" or words[0] == "broker":
            continue
        done = subprocess.run(
            [Path(sys.executable).parent / program, *(names.get(word, word) for word in words)],
            env={**os.environ, "SPARK_GROUPS_BOOTSTRAP_SERVERS": bootstrap_servers},
            capture_output=True,
            text=True,
            timeout=COMMAND_DEADLINE_S,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        yield done.stdout


LOADED = re.compile(r"<(?:script|link|img|iframe)\b[^>]*?\b(?:src|href)=\"?(https?:)?//", re.I)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site as `make docs` builds it."""
    built = tmp_path_factory.mktemp("docs") / "site"
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(built)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=BUILD_DEADLINE_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return built


def test_site_is_whole_and_loads_nothing_from_elsewhere(site: Path) -> None:
    pages = {path: path.read_text(encoding="utf-8") for path in site.rglob("*.html")}
    assert len(pages) > len(PAGES)
    assert [path.name for path, text in pages.items() if LOADED.search(text)] == []
    assert not any("language-mermaid" in text for text in pages.values())
    options = (site / "reference" / "options.html").read_text(encoding="utf-8")
    assert all(name in options for name in OPTIONS)
    python = (site / "reference" / "python.html").read_text(encoding="utf-8")
    assert all(f'id="{name.lower()}"' in python for name in spark_groups.__all__)
    for notebook in (ROOT / "notebooks").glob("*.ipynb"):
        page = (site / "notebooks" / f"{notebook.stem}.html").read_text(encoding="utf-8")
        pictures = notebook.read_text(encoding="utf-8").count('"image/png"')
        assert page.count('src="data:image/png;base64,') == pictures


@pytest.mark.long
def test_site_is_searched_and_changes_its_theme_from_the_disk(site: Path, browser: Browser) -> None:
    page = browser.new_page(color_scheme="light")
    loaded: list[str] = []
    page.on("request", lambda each: loaded.append(each.url))
    page.goto((site / "index.html").as_uri())
    page.locator("input.md-search__input").press_sequentially("availableNowSettleTimeout")
    found = page.locator('a.md-search-result__link[href*="/reference/options.html"]')
    expect(found.first).to_be_visible(timeout=SEARCH_DEADLINE_MS)
    page.keyboard.press("Escape")
    page.get_by_title("Switch to dark mode").click()
    expect(page.locator("body")).to_have_attribute("data-md-color-scheme", "slate")
    assert all(each.startswith(("file:", "data:", "about:")) for each in loaded), loaded
    page.close()
