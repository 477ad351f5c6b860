"""What is said about names and texts that the source does not take."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic.dataclasses import dataclass

from spark_groups.errors import OptionsError
from spark_groups.spark.options.checks import (
    describe_problem,
    read_subscription,
    refuse_load,
    unknown_or_refused,
    validated,
)

KNOWN = {"startingoffsets": "startingOffsets", "kafka.group.id": "kafka.group.id"}


def said(*names: str) -> list[str]:
    return list(unknown_or_refused(dict.fromkeys(names, "x"), KNOWN))


def test_known_names_are_not_spoken_of() -> None:
    assert said("startingoffsets", "kafka.group.id") == []


def test_names_that_are_nearly_right_are_guessed() -> None:
    assert said("startingofsets") == [
        "startingofsets is not an option of this source; did you mean startingOffsets?"
    ]
    assert said("group.id") == ["group.id is not an option of this source: write kafka.group.id"]
    assert said("something") == ["something is not an option of this source"]


def test_refused_names_come_with_the_reason_also_without_their_prefix() -> None:
    for name in ("kafka.session.timeout.ms", "session.timeout.ms"):
        (reason,) = said(name)
        assert reason.startswith(f"{name} is refused: the coordinator decides it")
        assert "spark-groups config GROUP --set consumer.session.timeout.ms=..." in reason
    assert "use subscribe or subscribePattern" in said("assign")[0]


def test_subscription_is_read_once_or_complained_of() -> None:
    values: dict[str, Any] = {}
    assert not list(read_subscription({"subscribepattern": "orders.*"}, values))
    assert values["subscribePattern"].topic_regex == "orders.*"
    assert not list(read_subscription({}, {})), "only a stream needs one"
    assert "both set" in next(read_subscription({"subscribe": "a", "subscribepattern": "b"}, {}))


def test_problem_is_told_by_the_name_of_the_option() -> None:
    error = {"loc": ("maxOffsetsPerTrigger", "int"), "type": "int_parsing", "input": "many"}
    told = describe_problem({**error, "msg": "no number"}, ["maxOffsetsPerTrigger"])
    assert told == "maxOffsetsPerTrigger: 'many' is wrong: no number"


@dataclass
class Sizes:
    large: int


def test_options_are_values_or_problems() -> None:
    problems: list[str] = []
    assert validated(Sizes, {"large": "3"}, ["large"], problems) == Sizes(large=3)
    assert problems == []
    assert validated(Sizes, {"large": "x"}, ["large"], problems) is None
    assert validated(Sizes, {}, ["large"], problems) is None
    assert problems[0].startswith("large: 'x' is wrong")
    assert problems[1] == "large is missing"
    with pytest.raises(OptionsError, match=r"the sizes source cannot be loaded:\n  - large: 'x'"):
        refuse_load("sizes", problems)
