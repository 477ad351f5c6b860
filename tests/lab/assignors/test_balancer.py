"""Who gets and who gives, in Kafka's order."""

from __future__ import annotations

from spark_groups.lab.assignors.balancer import Balancer


def test_the_least_loaded_get_level_by_level() -> None:
    balancer = Balancer([0, 2, 1], [0, 1, 2])
    assert balancer.imbalance == 2
    assert [balancer.next_least_loaded() for _ in range(6)] == [0, 0, 2, 0, 2, 1]


def test_the_most_loaded_give_level_by_level() -> None:
    balancer = Balancer([1, 3, 2], [0, 1, 2])
    assert [balancer.next_most_loaded() for _ in range(6)] == [1, 1, 2, 1, 2, 0]


def test_who_has_nothing_to_give_is_left_out() -> None:
    balancer = Balancer([1, 5, 3], [0, 1, 2])
    assert balancer.next_most_loaded() == 1
    balancer.exclude_most_loaded()
    assert balancer.next_most_loaded() == 2
    balancer.exclude_most_loaded()
    assert balancer.next_most_loaded() == 0
    balancer.exclude_most_loaded()
    assert balancer.next_most_loaded() is None


def test_levels_that_differ_by_one_are_balanced() -> None:
    balancer = Balancer([0, 2], [0, 1])
    assert not balancer.is_balanced()
    balancer.next_most_loaded()
    balancer.next_least_loaded()
    assert not balancer.is_balanced()
    balancer.next_most_loaded()
    balancer.next_least_loaded()
    assert balancer.is_balanced()
