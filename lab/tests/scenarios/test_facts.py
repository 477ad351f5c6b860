"""The README lists every fact, and where it is proven; the error table has its transcripts."""

from __future__ import annotations

import os

import pytest

from lab.tests.scenarios.facts import facts, list_facts, listed, listing
from lab.tests.scenarios.injection import KINDS
from lab.tests.scenarios.scenarios_setup import FOLDER, README, SCENARIOS
from lab.tests.scenarios.transcript import Transcript
from spark_groups.errors import ERROR_RULES, ErrorCode


def test_readme_lists_the_facts() -> None:
    if os.environ.get("REWRITE") == "1":
        list_facts(README, SCENARIOS)
    readme = README.read_text(encoding="utf-8")
    assert listed(readme) == listing(facts(SCENARIOS)), "run the tests again with REWRITE=1"


def test_facts_are_numbered_without_a_gap() -> None:
    numbers = [fact.number for fact in facts(SCENARIOS)]
    assert numbers == list(range(1, len(numbers) + 1))


@pytest.mark.parametrize("kind", KINDS)
def test_each_error_is_injected_at_each_request(kind: str) -> None:
    path = FOLDER / "errors" / f"{kind.replace('-', '_')}.txt"
    commands = [
        command.split() for block in Transcript.read(path).blocks for command in block.commands
    ]
    injected = {words[3] for words in commands if words[:3] == ["answer", kind, "with"]}
    known = {code.name for code in ERROR_RULES if code != ErrorCode.NONE}
    assert injected >= {*known, "nothing"}, sorted(known - injected)
    assert any(each.isdecimal() for each in injected), "an unknown code"
    assert injected <= {*ErrorCode.__members__, "nothing", "999"}
