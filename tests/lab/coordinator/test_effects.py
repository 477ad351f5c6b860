from __future__ import annotations

import pytest

from spark_groups.errors import ErrorCode
from spark_groups.lab.coordinator.effects import RefusedError, Rule, check_rules

RULES: tuple[Rule[str], ...] = (
    Rule(lambda text: not text, "It can't be empty."),
    Rule(lambda text: "x" in text, "It can't have an x."),
    Rule(lambda text: len(text) > 2, "It can't be long."),
)


def test_a_refusal_has_kafkas_code_and_sentence() -> None:
    refused = RefusedError(ErrorCode.UNKNOWN_MEMBER_ID, "Instance id i is unknown.")
    assert (refused.code, refused.message) == (25, "Instance id i is unknown.")
    assert str(refused) == refused.message


def test_the_first_rule_that_is_broken_counts() -> None:
    with pytest.raises(RefusedError) as refused:
        check_rules("xxx", RULES)
    assert refused.value.code == ErrorCode.INVALID_REQUEST
    assert refused.value.message == "It can't have an x."
    check_rules("ab", RULES)
