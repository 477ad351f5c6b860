"""How long records and batches may take, and which options a strategy refuses."""

from __future__ import annotations

from math import inf

import pytest

from spark_groups.errors import OptionsError
from spark_groups.spark.options.source_options import SourceOptions
from spark_groups.spark.processing.budget import Budget, addresses_of, budget_of
from spark_groups.spark.processing.letters import Addresses
from spark_groups.spark.processing.strategies import (
    AtLast,
    NoDeadline,
    ProgressDeadline,
    Recirculate,
    Relinquish,
    RetryTo,
    SkipOrDeadLetter,
    Strategy,
)

HEADERS = {"includeHeaders": "true"}
LIMITED = {**HEADERS, "maxOffsetsPerTrigger": "1000"}
A_MINUTE = {"kafka.max.poll.interval.ms": "60000"}


def options(**given: str) -> SourceOptions:
    needed = {"kafka.bootstrap.servers": "b:1", "kafka.group.id": "readers", "subscribe": "flights"}
    return SourceOptions.of({**needed, **given})


def matching(pattern: str) -> SourceOptions:
    given = {"kafka.group.id": "readers", "subscribePattern": pattern}
    return SourceOptions.of({"kafka.bootstrap.servers": "b:1", **given})


@pytest.mark.parametrize(
    ("strategy", "given", "budget"),
    [
        (NoDeadline(), {"kafka.max.poll.interval.ms": "2147483647"}, Budget(inf, inf)),
        (ProgressDeadline(), {"maxBatchTime": "5m"}, Budget(inf, inf)),
        (Relinquish(), {}, Budget(inf, 240.0)),
        (Relinquish(), A_MINUTE, Budget(inf, 48.0)),
        (Relinquish(batch_deadline_s=7.0), {}, Budget(inf, 7.0)),
        (Relinquish(), {"kafka.group.instance.id": "a", "leaveOnStop": "true"}, Budget(inf, 240.0)),
        (Recirculate(), LIMITED, Budget(0.24, inf)),
        (SkipOrDeadLetter(), {**LIMITED, **A_MINUTE}, Budget(0.048, inf)),
        (SkipOrDeadLetter(record_deadline_s=2.0), HEADERS, Budget(2.0, inf)),
    ],
)
def test_budgets(strategy: Strategy, given: dict[str, str], budget: Budget) -> None:
    found = budget_of(strategy, options(**given))
    assert found.record_s == pytest.approx(budget.record_s)
    assert found.batch_s == pytest.approx(budget.batch_s)


@pytest.mark.parametrize(
    ("strategy", "given", "reason"),
    [
        (NoDeadline(), {}, "kafka.max.poll.interval.ms must be at least a day"),
        (NoDeadline(), {"maxBatchTime": "5m"}, "maxBatchTime is a deadline"),
        (ProgressDeadline(), {}, "maxBatchTime must be set"),
        (Relinquish(), {"kafka.group.instance.id": "a"}, "leaveOnStop must be true"),
        (Recirculate(), {"maxOffsetsPerTrigger": "10"}, "includeHeaders must be true"),
        (SkipOrDeadLetter(), HEADERS, "too little for any number of records"),
        (SkipOrDeadLetter(), {**HEADERS, "maxOffsetsPerTrigger": "100000"}, "at most 24000"),
    ],
)
def test_options_that_a_strategy_cannot_do_with(
    strategy: Strategy, given: dict[str, str], reason: str
) -> None:
    with pytest.raises(OptionsError, match=f"the strategy {type(strategy).__name__}") as caught:
        budget_of(strategy, options(**given))
    assert reason in str(caught.value)


OWN = Recirculate(to=RetryTo.GROUP_TOPIC)
BOTH = {"subscribe": "flights,flights.readers.retry"}


@pytest.mark.parametrize(
    ("strategy", "topic", "retry", "dead_letter"),
    [
        (NoDeadline(), "flights", None, None),
        (Recirculate(), "flights", "flights", "flights.readers.dead-letter"),
        (OWN, "flights", "flights.readers.retry", "flights.readers.dead-letter"),
        (OWN, "flights.readers.retry", "flights.readers.retry", "flights.readers.dead-letter"),
        (SkipOrDeadLetter(), "flights", None, "flights.readers.dead-letter"),
        (SkipOrDeadLetter(at_last=AtLast.SKIP), "flights", None, None),
        (SkipOrDeadLetter(dead_letter_topic="{topic}-bad"), "flights", None, "flights-bad"),
    ],
)
def test_addresses(
    strategy: Strategy, topic: str, retry: str | None, dead_letter: str | None
) -> None:
    found = addresses_of(strategy, topic, options(**BOTH))
    assert found == Addresses("flights", retry, dead_letter)


def test_retries_without_a_reader_are_refused() -> None:
    with pytest.raises(OptionsError, match=r"also subscribe to flights\.readers\.retry,"):
        addresses_of(OWN, "flights", options())
    given = matching(r"flights(\.readers\.retry)?")
    assert addresses_of(OWN, "flights", given).retry == "flights.readers.retry"


@pytest.mark.parametrize("strategy", [OWN, SkipOrDeadLetter()])
def test_dead_letters_that_would_come_back_are_refused(strategy: Strategy) -> None:
    with pytest.raises(OptionsError, match=r"subscribe to flights\.readers\.dead-letter,"):
        addresses_of(strategy, "flights", matching("flights.*"))
    assert addresses_of(SkipOrDeadLetter(at_last=AtLast.SKIP), "flights", matching("flights.*"))


def test_group_whose_name_no_topic_can_have() -> None:
    given = options(**{"kafka.group.id": "all readers"})
    with pytest.raises(OptionsError, match="the strategy's retry_topic or dead_letter_topic"):
        addresses_of(SkipOrDeadLetter(), "flights", given)
