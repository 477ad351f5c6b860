"""Five strategies: what becomes of a record that fails, as a table; and their topics' names."""

from __future__ import annotations

import pytest

from spark_groups.errors import OptionsError
from spark_groups.spark.processing.strategies import (
    RETRY_TOPIC,
    AtLast,
    Fate,
    Recirculate,
    Relinquish,
    SkipOrDeadLetter,
    Strategy,
    fate_of_failed,
    first_topic,
    named_topic,
)

NOW_MS = 1_000_000
TWICE = Recirculate(max_retries=2)
TWICE_THEN_SKIP = Recirculate(max_retries=2, at_last=AtLast.SKIP)


@pytest.mark.parametrize(
    ("strategy", "retries", "expires_ms", "fate"),
    [
        (TWICE, 0, None, Fate.RECIRCULATED),
        (TWICE, 1, NOW_MS + 1, Fate.RECIRCULATED),
        (TWICE, 2, None, Fate.DEAD_LETTERED),
        (TWICE, 1, NOW_MS, Fate.DEAD_LETTERED),
        (TWICE, 1, 0, Fate.DEAD_LETTERED),
        (TWICE, None, None, Fate.DEAD_LETTERED),
        (TWICE_THEN_SKIP, 1, None, Fate.RECIRCULATED),
        (TWICE_THEN_SKIP, 2, None, Fate.SKIPPED),
        (SkipOrDeadLetter(), 0, None, Fate.DEAD_LETTERED),
        (SkipOrDeadLetter(), 7, 0, Fate.DEAD_LETTERED),
        (SkipOrDeadLetter(at_last=AtLast.SKIP), 0, None, Fate.SKIPPED),
        (Relinquish(), 0, None, Fate.RELINQUISHED),
    ],
)
def test_fates(strategy: Strategy, retries: int | None, expires_ms: int | None, fate: Fate) -> None:
    found = fate_of_failed(strategy, retries=retries, expires_ms=expires_ms, now_ms=NOW_MS)
    assert found is fate


def test_topic_of_a_group_is_named_after_both_and_leads_back() -> None:
    name = named_topic(RETRY_TOPIC, "flights", "readers")
    assert name == "flights.readers.retry"
    assert first_topic(RETRY_TOPIC, name, "readers") == "flights"
    for other in ("flights", "flights.others.retry"):
        assert first_topic(RETRY_TOPIC, other, "readers") == other


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("max_retries", 0),
        ("record_deadline_s", 0.0),
        ("expire_after_s", -1.0),
        ("retry_topic", "{topic}"),
        ("dead_letter_topic", "letters"),
        ("retry_topic", "{topic}.{topic}"),
    ],
)
def test_what_cannot_be_is_refused(name: str, value: object) -> None:
    with pytest.raises(OptionsError):
        Recirculate(**{name: value})  # type: ignore[arg-type]
    with pytest.raises(OptionsError, match="positive"):
        Relinquish(batch_deadline_s=-1)
