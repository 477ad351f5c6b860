"""How many applications a lag in time calls for, without a clock and without Kafka."""

from __future__ import annotations

from dataclasses import replace

import pytest

from workshop.benchmarks.elastic_rule import Recommendation, Rule, decide, recommend

RULE = Rule(target_s=10.0, max_applications=6, per_application_per_s=12_000.0)


@pytest.mark.parametrize(
    ("lag_s", "records_per_s", "applications", "wanted"),
    [
        (25.0, 30_000.0, 1, 3),
        (25.0, 3_000.0, 2, 5),
        (25.0, 30_000.0, 4, 6),
        (10.9, 30_000.0, 3, 3),
        (11.1, 30_000.0, 3, 4),
        (3.0, 30_000.0, 4, 3),
        (3.0, 24_001.0, 4, 3),
        (3.0, 3_000.0, 4, 2),
        (0.0, 0.0, 4, 1),
        (0.0, 90_000.0, 4, 4),
        (0.0, None, 4, 4),
        (None, 30_000.0, 4, 4),
    ],
)
def test_a_reading_calls_for_so_many(
    lag_s: float | None, records_per_s: float | None, applications: int, wanted: int
) -> None:
    found = recommend(RULE, lag_s=lag_s, records_per_s=records_per_s, applications=applications)
    assert found == wanted


def every_second(*wanted: int, until_s: float = 100.0) -> list[Recommendation]:
    first_s = until_s - len(wanted) + 1
    return [Recommendation(first_s + number, each) for number, each in enumerate(wanted)]


def test_applications_are_added_at_once_and_at_most_doubled() -> None:
    assert decide(RULE, every_second(1, 6), 1, changed_at_s=0.0) == 2
    assert decide(RULE, every_second(1, 6), 2, changed_at_s=0.0) == 4
    assert decide(RULE, every_second(3, 3), 2, changed_at_s=0.0) == 3


def test_the_next_addition_waits_until_the_last_one_can_help() -> None:
    assert decide(RULE, every_second(4), 2, changed_at_s=70.1) == 2
    assert decide(RULE, every_second(4), 2, changed_at_s=70.0) == 4


def test_one_application_is_removed_when_none_needed_it_for_the_whole_window() -> None:
    quiet = every_second(*[1] * 41)
    assert decide(RULE, quiet, 4, changed_at_s=0.0) == 3
    assert decide(RULE, [*quiet[:20], Recommendation(80.0, 4), *quiet[21:]], 4, 0.0) == 4
    assert decide(RULE, [Recommendation(59.0, 4), *quiet], 4, changed_at_s=0.0) == 3


def test_no_application_is_removed_before_the_window_is_covered_or_soon_after_a_change() -> None:
    assert decide(RULE, every_second(*[1] * 40), 4, changed_at_s=0.0) == 4
    assert decide(RULE, every_second(*[1] * 41), 4, changed_at_s=80.1) == 4
    assert decide(RULE, every_second(*[1] * 41), 4, changed_at_s=80.0) == 3


def test_nothing_changes_without_a_reading_or_at_the_wanted_number() -> None:
    assert decide(RULE, [], 3, changed_at_s=0.0) == 3
    assert decide(RULE, every_second(*[3] * 60), 3, changed_at_s=0.0) == 3


@pytest.mark.parametrize("wrong", ["target_s", "max_applications", "per_application_per_s"])
def test_settings_that_no_group_can_have_are_refused(wrong: str) -> None:
    with pytest.raises(ValueError, match="must be positive"):
        replace(RULE, **{wrong: 0})
