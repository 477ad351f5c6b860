"""Every row of the table of starting rules: that it is reached, and what it does."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator, Mapping
from dataclasses import fields
from functools import cache
from itertools import product
from typing import get_type_hints

import pytest

from spark_groups.errors import CheckpointError, ErrorCode, Reaction
from spark_groups.group.ledger import resolution
from spark_groups.group.ledger.events import DataLost
from spark_groups.group.ledger.ledger import Phase
from spark_groups.group.ledger.resolved import Resolved
from spark_groups.group.ledger.starting import StartingOffsets
from spark_groups.group.ledger.starting_rules import RULES, Committed, Facts, Rule, Start
from spark_groups.group.member.messages import OffsetAndMetadata, TopicMetadata
from spark_groups.types import (
    EARLIEST_TIMESTAMP,
    LATEST_TIMESTAMP,
    BatchPlan,
    OffsetRange,
    PlanTopic,
    TopicIdPartition,
    TopicPartition,
)
from tests.answers import fetch_answer
from tests.group.ledger.resolution_setup import (
    BILLS,
    EARLIEST,
    FIRST_BILLS,
    LATEST,
    NONE,
    TOPIC,
    Scene,
    committed,
    key,
    started,
)

Answers = Mapping[TopicIdPartition, OffsetAndMetadata]
NAMED = StartingOffsets(by_partition={TopicPartition("orders", 0): 7})
NOTHING: Answers = {key(each): NONE for each in range(4)}


def all_facts() -> Iterator[Facts]:
    kinds = get_type_hints(Facts)
    return (Facts(*each) for each in product(*(kinds[field.name] for field in fields(Facts))))


@cache
def reached() -> Mapping[Rule, int]:
    """Return how many combinations of facts each rule is the first to fit."""
    found = dict.fromkeys(RULES, 0)
    for facts in all_facts():
        found[next(each for each in RULES if each.fits(facts))] += 1
    return found


def test_each_combination_of_facts_has_a_rule_and_no_two_rules_are_one() -> None:
    assert sum(reached().values()) == len(list(all_facts()))
    assert len(reached()) == len(RULES)


@pytest.mark.parametrize("rule", RULES, ids=range(len(RULES)))
def test_each_rule_is_the_first_to_fit_some_facts(rule: Rule) -> None:
    assert reached()[rule] > 0


def test_no_rule_lists_a_fact_twice() -> None:
    assert all(len(set(rule.facts)) == len(rule.facts) for rule in RULES)


def test_beside_a_committed_offset_or_an_error_no_other_fact_counts() -> None:
    """The resolver does not look at the others then."""
    first = [rule.facts for rule in RULES[:3]]
    assert first == [(Committed.OF_FORMER_GROUP,), (Committed.UNKNOWN,), (Committed.OFFSET,)]


def later(scene: Scene) -> Scene:
    """Let the scene learn its topic."""
    scene.topics.learn(TopicMetadata(TOPIC, "orders", 4))
    return scene


def checkpointed(
    starting: StartingOffsets, *topics: PlanTopic, fails: bool = False, of_this_group: bool = True
) -> Scene:
    """Return a query that continues from a checkpoint."""
    scene = Scene(starting, 0, count=0, fail_on_data_loss=fails)
    scene.topics.remember(topics, of_this_group=of_this_group)
    return later(scene)


def of_another_group(_: bool) -> tuple[Scene, Answers]:
    scene = checkpointed(EARLIEST, PlanTopic(TOPIC, "orders"), of_this_group=False)
    scene.resolver.came_from("old one", ["orders"])
    return scene, NOTHING


def unanswered(_: bool) -> tuple[Scene, Answers]:
    return Scene(LATEST), {}


def with_an_offset(_: bool) -> tuple[Scene, Answers]:
    return Scene(LATEST), {**NOTHING, key(0): committed(17)}


def read_up_to_9(fails: bool) -> tuple[Scene, Answers]:
    scene = Scene(EARLIEST, fail_on_data_loss=fails)
    scene.ledger.finish(BatchPlan("g", "old", 1, (OffsetRange(TOPIC, "orders", 0, 5, 9),)))
    return scene, NOTHING


def read_by_the_query_only(fails: bool) -> tuple[Scene, Answers]:
    return checkpointed(LATEST, PlanTopic(TOPIC, "orders"), fails=fails), NOTHING


def named(_: bool) -> tuple[Scene, Answers]:
    return Scene(NAMED), NOTHING


def lacked_by_the_checkpoint(_: bool) -> tuple[Scene, Answers]:
    return checkpointed(LATEST, PlanTopic(BILLS, "bills")), NOTHING


def read_without_an_offset(_: bool) -> tuple[Scene, Answers]:
    scene = checkpointed(EARLIEST, PlanTopic(TOPIC, "orders", 4))
    return scene, {**NOTHING, key(1): committed(5)}


def with_an_unknown_count(_: bool) -> tuple[Scene, Answers]:
    return Scene(LATEST), {**NOTHING, key(1): committed(5, None)}


def newer_than_the_group(_: bool) -> tuple[Scene, Answers]:
    scene = Scene(LATEST, 0, count=0)
    scene.topics.end_initial_topics()
    return later(scene), NOTHING


def created_again_and_read_by_others(_: bool) -> tuple[Scene, Answers]:
    scene = checkpointed(LATEST, PlanTopic(uuid.UUID(int=5), "orders"))
    return scene, {**NOTHING, key(1): committed(5)}


def left_unread(_: bool) -> tuple[Scene, Answers]:
    return checkpointed(LATEST, PlanTopic(TOPIC, "orders", 4, is_read=False)), NOTHING


def beside_another_topic(_: bool) -> tuple[Scene, Answers]:
    scene = Scene(LATEST)
    scene.topics.learn(TopicMetadata(BILLS, "bills", 1))
    return scene, {**NOTHING, FIRST_BILLS: committed(7)}


def first_of_the_group(_: bool) -> tuple[Scene, Answers]:
    return Scene(LATEST), NOTHING


CASES: tuple[Callable[[bool], tuple[Scene, Answers]], ...] = (
    of_another_group,
    unanswered,
    with_an_offset,
    read_up_to_9,
    read_by_the_query_only,
    named,
    lacked_by_the_checkpoint,
    read_without_an_offset,
    with_an_unknown_count,
    newer_than_the_group,
    created_again_and_read_by_others,
    left_unread,
    beside_another_topic,
    first_of_the_group,
)
"""A query for each rule, in their order."""


def played(
    case: Callable[[bool], tuple[Scene, Answers]], *, fails: bool, patch: pytest.MonkeyPatch
) -> tuple[Scene, Resolved, Rule]:
    """Return a query after the answer to its OffsetFetch, and the rule that was applied."""
    applied: list[Rule] = []
    rule_of = resolution.starting_rule

    def recorded(facts: Facts) -> Rule:
        applied.append(rule_of(facts))
        return applied[-1]

    patch.setattr(resolution, "starting_rule", recorded)
    scene, offsets = case(fails)
    asked = scene.resolver.to_fetch()
    failed = {} if offsets else {key(0): int(ErrorCode.UNSTABLE_OFFSET_COMMIT)}
    answer = fetch_answer(
        offsets={each: offsets[each] for each in asked if each in offsets}, errors=failed
    )
    resolved = scene.resolver.handle_fetch(answer, now=1.0)
    return scene, resolved, applied[-1]


def test_each_rule_has_its_case() -> None:
    assert len(CASES) == len(RULES)


@pytest.mark.parametrize(
    ("rule", "case"), zip(RULES, CASES, strict=True), ids=[case.__name__ for case in CASES]
)
def test_rule_decides_where_its_partition_starts(
    rule: Rule, case: Callable[[bool], tuple[Scene, Answers]], monkeypatch: pytest.MonkeyPatch
) -> None:
    scene, resolved, applied = played(case, fails=False, patch=monkeypatch)
    assert applied is rule
    owned = scene.of(0)
    assert (resolved.refusal is not None) is (rule.start is Start.REFUSED)
    assert resolved.data_loss is None
    assert [type(each) for each in resolved.events if isinstance(each, DataLost)] == [
        DataLost
    ] * rule.is_loss
    match rule.start:
        case Start.REFUSED:
            assert isinstance(resolved.refusal, CheckpointError)
            assert owned.phase is Phase.FETCHING
        case Start.NOT_YET:
            assert (owned.phase, resolved.reaction) == (Phase.FETCHING, Reaction.RETRY)
        case Start.COMMITTED:
            assert (owned.phase, owned.position) == (Phase.READY, 17)
        case Start.CHECKPOINTED:
            assert (owned.phase, owned.lookup.timestamp_ms) == (Phase.LISTING, LATEST_TIMESTAMP)
            assert owned.lookup.wanted_offset == 9
        case Start.BEGINNING | Start.BEGINNING_OF_ALL:
            assert (owned.phase, owned.lookup.timestamp_ms) == (Phase.LISTING, EARLIEST_TIMESTAMP)
            assert owned.lookup.wanted_offset is None
            if rule.start is Start.BEGINNING_OF_ALL:
                assert scene.topics.known_count(TOPIC) == 0
        case Start.OPTION:
            assert (owned.phase, owned.lookup.timestamp_ms) == (Phase.LISTING, LATEST_TIMESTAMP)
            assert owned.lookup.wanted_offset == (7 if case is named else None)
    warnings = [rule.warning] if rule.warning else []
    assert [type(each) for each in started(scene)] == warnings


@pytest.mark.parametrize(
    ("rule", "case"),
    [(rule, case) for rule, case in zip(RULES, CASES, strict=True) if rule.is_loss],
)
def test_rule_of_a_loss_ends_the_query_unless_a_loss_is_accepted(
    rule: Rule, case: Callable[[bool], tuple[Scene, Answers]], monkeypatch: pytest.MonkeyPatch
) -> None:
    scene, resolved, applied = played(case, fails=True, patch=monkeypatch)
    assert applied is rule
    (event,) = resolved.events
    assert isinstance(event, DataLost)
    assert resolved.data_loss == event.message
    assert (scene.of(0).phase, scene.commits.pending()) == (Phase.FETCHING, frozenset())
