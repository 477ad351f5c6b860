"""JoinGroup of the 0.9 design: ids, errors, strategies."""

from __future__ import annotations

import pytest

from group_lab.assignors.classic import RoundRobinAssignor
from group_lab.coordinator.design_0_9.group import CoordinatorState
from group_lab.coordinator.design_0_9.messages import DesignErrorCode
from group_lab.coordinator.settings import BrokerSettings, Settings
from lab.tests.coordinator.design_0_9.driving import (
    GROUP,
    SESSION_S,
    DrivenDesign,
    joined,
    owned,
    partitions,
)


def test_the_first_consumer_gets_its_id_and_all_partitions() -> None:
    driven = DrivenDesign()
    response = joined(driven.join())
    assert response.consumer_id.startswith(f"{GROUP}-")
    assert response.group_generation_id == 1
    assert response.partitions_to_own == partitions("foo", *range(6))
    assert driven.state is CoordinatorState.STEADY


def test_a_new_consumer_waits_for_the_known_ones() -> None:
    driven = DrivenDesign()
    (first,) = driven.steady(1)
    new = driven.join()
    assert new.response is None
    assert driven.state is CoordinatorState.PREPARE_FOR_REBALANCE
    assert driven.beat(first) == DesignErrorCode.ILLEGAL_GENERATION
    known = driven.join(first)
    assert joined(new).group_generation_id == joined(known).group_generation_id == 2
    assert joined(known).consumer_id == first != joined(new).consumer_id
    assert sorted(owned(new) + owned(known)) == list(range(6))


def test_a_known_consumer_without_its_id_costs_a_session_timeout() -> None:
    driven = DrivenDesign()
    first, second = driven.steady(2)
    with_id, without = driven.join(first), driven.join()
    driven.wait(SESSION_S - 1)
    assert with_id.response is without.response is None
    driven.wait(1)
    assert joined(with_id).consumer_id == first
    assert joined(without).consumer_id not in (first, second, "")
    assert driven.beat(second) == DesignErrorCode.UNKNOWN_CONSUMER


@pytest.mark.parametrize("count", [0, 1])
def test_an_unknown_id_is_refused_without_a_rebalance(count: int) -> None:
    driven = DrivenDesign()
    driven.steady(count)
    assert joined(driven.join("other")).error_code == DesignErrorCode.UNKNOWN_CONSUMER
    if count:
        assert driven.state is CoordinatorState.STEADY


def test_a_session_timeout_has_a_maximum() -> None:
    driven = DrivenDesign()
    response = joined(driven.join(session_s=1800.001))
    assert response.error_code == DesignErrorCode.SESSION_TIMEOUT_TOO_HIGH
    assert joined(driven.join(session_s=1800.0)).error_code == DesignErrorCode.NONE


def test_consumers_name_one_strategy_that_the_brokers_know() -> None:
    driven = DrivenDesign()
    (first,) = driven.steady(1)
    response = joined(driven.join(strategy="sticky"))
    assert response.error_code == DesignErrorCode.UNKNOWN_PARTITIONING_STRATEGY
    response = joined(driven.join(strategy="roundrobin"))
    assert response.error_code == DesignErrorCode.INCONSISTENT_PARTITIONING_STRATEGY
    assert driven.state is CoordinatorState.STEADY
    # A lone consumer may change it.
    response = joined(driven.join(first, strategy="roundrobin"))
    assert (response.error_code, response.consumer_id) == (DesignErrorCode.NONE, first)
    new, known = driven.join(strategy="roundrobin"), driven.join(first, strategy="roundrobin")
    assert sorted((owned(new), owned(known))) == [[0, 2, 4], [1, 3, 5]]


def test_strategies_are_a_setting_of_the_brokers() -> None:
    strategies = {"in turn": RoundRobinAssignor()}
    driven = DrivenDesign(settings=Settings(BrokerSettings(assignment_strategies=strategies)))
    response = joined(driven.join(strategy="range"))
    assert response.error_code == DesignErrorCode.UNKNOWN_PARTITIONING_STRATEGY
    first = joined(driven.join(strategy="in turn")).consumer_id
    new, known = driven.join(strategy="in turn"), driven.join(first, strategy="in turn")
    assert sorted((owned(new), owned(known))) == [[0, 2, 4], [1, 3, 5]]


def test_a_strategy_is_compared_with_joins_that_wait_and_with_the_decision() -> None:
    driven = DrivenDesign()
    driven.replicates = False
    deciding = driven.join()
    assert driven.state is CoordinatorState.REBALANCING
    late = joined(driven.join(strategy="roundrobin"))
    assert late.error_code == DesignErrorCode.INCONSISTENT_PARTITIONING_STRATEGY
    driven.replicate()
    assert joined(deciding).error_code == DesignErrorCode.NONE


def test_consumers_of_different_topics_share_each_topic_among_its_subscribers() -> None:
    driven = DrivenDesign()
    (first,) = driven.steady(1)
    new, known = driven.join("", "bar"), driven.join(first, "foo", "bar")
    shares = joined(new).partitions_to_own, joined(known).partitions_to_own
    assert shares[0] | shares[1] == partitions("foo", *range(6)) | partitions("bar", *range(4))
    assert not shares[0] & shares[1]
    assert not shares[0] & partitions("foo", *range(6))
    assert len(shares[0]) == 2


def test_changed_topics_begin_a_rebalance() -> None:
    driven = DrivenDesign()
    first, second = driven.steady(2)
    changed = driven.join(first, "foo", "bar")
    assert driven.beat(second) == DesignErrorCode.ILLEGAL_GENERATION
    driven.join(second)
    assert partitions("bar", *range(4)) <= joined(changed).partitions_to_own
    assert driven.group.generation_id == 3


def test_a_join_that_is_sent_again_replaces_the_first_one() -> None:
    driven = DrivenDesign()
    first, second = driven.steady(2)
    given_up, again = driven.join(first), driven.join(first, "foo", "bar")
    driven.join(second)
    assert given_up.response is None
    assert partitions("bar", *range(4)) <= joined(again).partitions_to_own


def test_a_join_without_an_id_that_is_sent_again_is_another_consumer() -> None:
    driven = DrivenDesign()
    (first,) = driven.steady(1)
    given_up, again = driven.join(), driven.join()
    driven.join(first)
    assert joined(given_up).consumer_id != joined(again).consumer_id
    assert len(driven.group.consumers) == 3


def test_a_join_sent_again_while_its_generation_is_written_gets_that_generation() -> None:
    driven = DrivenDesign()
    (first,) = driven.steady(1)
    driven.replicates = False
    given_up = driven.join(first)
    again = driven.join(first)
    driven.replicate()
    assert given_up.response is None
    assert joined(again).group_generation_id == 2
    assert driven.state is CoordinatorState.STEADY


def test_topics_changed_while_a_generation_is_written_need_another_round() -> None:
    driven = DrivenDesign()
    (first,) = driven.steady(1)
    driven.replicates = False
    driven.join(first)
    driven.join(first, "foo", "bar")
    changed = driven.join(first, "bar")
    driven.replicate()
    assert changed.response is None
    driven.replicates = True
    driven.wait(0)
    assert joined(changed).group_generation_id == 3
    assert joined(changed).partitions_to_own == partitions("bar", *range(4))


def test_topics_changed_and_changed_back_while_a_generation_is_written_count_as_sent_last() -> None:
    driven = DrivenDesign()
    (first,) = driven.steady(1)
    driven.replicates = False
    driven.join(first)
    driven.join(first, "bar")
    last = driven.join(first)
    driven.replicate()
    driven.replicates = True
    driven.wait(0)
    assert joined(last).partitions_to_own == partitions("foo", *range(6))
