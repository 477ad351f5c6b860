"""Dataclasses that only type checkers see as frozen are compared and hashed as values."""

from __future__ import annotations

import dataclasses
import pickle

from spark_groups.values import dataclass


@dataclass(frozen=True, slots=True)
class Place:
    topic: str
    offset: int = 0


@dataclasses.dataclass(frozen=True, slots=True)
class Frozen:
    topic: str
    offset: int = 0


@dataclass(slots=True)
class Counter:
    count: int = 0


def test_it_is_compared_and_hashed_as_one_that_is_frozen() -> None:
    place = Place("flights", 3)
    assert place == Place("flights", 3) != Place("flights", 4)
    assert hash(place) == hash(Frozen("flights", 3))
    assert {place: 1}[Place("flights", 3)] == 1
    assert repr(place) == repr(Frozen("flights", 3)).replace("Frozen", "Place")


def test_it_can_be_copied_with_changes_and_sent_to_another_process() -> None:
    place = dataclasses.replace(Place("flights"), offset=5)
    assert place == Place("flights", 5)
    assert pickle.loads(pickle.dumps(place)) == place


def test_it_has_no_more_than_its_fields() -> None:
    assert not hasattr(Place("flights"), "__dict__")


def test_what_may_change_has_no_hash() -> None:
    counter = Counter()
    counter.count += 1
    assert counter == Counter(1)
    assert Counter.__hash__ is None
