"""E. Koutanov, Effective Kafka, chapter 15, "Partition assignment strategy": its tables.

One topic with eight partitions, and a group that grows from one consumer to four.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pytest

from group_lab.assignors.classic import ClassicAssignor, ClassicRangeAssignor, RoundRobinAssignor
from group_lab.assignors.sticky import CooperativeStickyAssignor, StickyAssignor
from lab.tests.assignors.groups import Partitions, assigned, claiming, classic_member, partitions

RANGE = ClassicRangeAssignor()
ROUND_ROBIN = RoundRobinAssignor()
STICKY = StickyAssignor()
COOPERATIVE = CooperativeStickyAssignor()
Table = Sequence[Sequence[int]]
"""The partitions of C0, C1 and so on."""

BY_RANGE: dict[int, Table] = {
    1: [[0, 1, 2, 3, 4, 5, 6, 7]],
    2: [[0, 1, 2, 3], [4, 5, 6, 7]],
    3: [[0, 1, 2], [3, 4, 5], [6, 7]],
    4: [[0, 1], [2, 3], [4, 5], [6, 7]],
}
BY_ROUND_ROBIN: dict[int, Table] = {
    1: [[0, 1, 2, 3, 4, 5, 6, 7]],
    2: [[0, 2, 4, 6], [1, 3, 5, 7]],
    3: [[0, 3, 6], [1, 4, 7], [2, 5]],
    4: [[0, 4], [1, 5], [2, 6], [3, 7]],
}
OPTIMUM_AFTER_RANGE: dict[int, Table] = {
    2: [[0, 1, 2, 3], [4, 5, 6, 7]],
    3: [[0, 1, 2], [4, 5, 6], [3, 7]],
    4: [[0, 1], [3, 4], [6, 7], [2, 5]],
}
"""The optimal strategy after the range table of one consumer less."""


def consumers(table: Table) -> dict[str, Partitions]:
    return {f"C{each}": partitions(t=own) for each, own in enumerate(table)}


def fresh(assignor: ClassicAssignor, count: int) -> dict[str, Partitions]:
    return assigned(assignor, {f"C{each}": classic_member("t") for each in range(count)}, t=8)


def after(assignor: ClassicAssignor, table: Table) -> dict[str, Partitions]:
    """Return the assignment of a group with these partitions when one consumer joins."""
    members = {
        each: claiming(assignor, "t", had=own, generation_id=1)
        for each, own in consumers(table).items()
    }
    return assigned(assignor, members | {f"C{len(table)}": classic_member("t")}, t=8)


Delta = dict[str, tuple[Sequence[int], Sequence[int]]]
"""By consumer: assigned partitions, and revoked ones."""


def delta(before: Mapping[str, Partitions], now: Mapping[str, Partitions]) -> Delta:
    changes: Delta = {}
    for each, own in now.items():
        had = before.get(each, frozenset())
        added, revoked = sorted(own - had), sorted(had - own)
        if added or revoked:
            changes[each] = ([key.partition for key in added], [key.partition for key in revoked])
    return changes


def swaps(changes: Delta) -> int:
    return sum(len(added) for added, _ in changes.values())


@pytest.mark.parametrize("count", BY_RANGE)
def test_range_assignor_its_tables(count: int) -> None:
    assert fresh(RANGE, count) == consumers(BY_RANGE[count])


@pytest.mark.parametrize("count", BY_ROUND_ROBIN)
def test_round_robin_assignor_its_tables(count: int) -> None:
    assert fresh(ROUND_ROBIN, count) == consumers(BY_ROUND_ROBIN[count])


def test_range_assignor_from_one_consumer_to_two_is_optimal_with_four_swaps() -> None:
    changes = delta(fresh(RANGE, 1), fresh(RANGE, 2))
    assert changes == {"C0": ([], [4, 5, 6, 7]), "C1": ([4, 5, 6, 7], [])}
    assert swaps(changes) == swaps(delta(fresh(RANGE, 1), after(STICKY, BY_RANGE[1]))) == 4


def test_range_assignor_from_two_consumers_to_three_takes_three_swaps() -> None:
    changes = delta(fresh(RANGE, 2), fresh(RANGE, 3))
    assert changes == {"C0": ([], [3]), "C1": ([3], [6, 7]), "C2": ([6, 7], [])}
    assert swaps(changes) == 3


def test_range_assignor_from_three_consumers_to_four_takes_five_swaps() -> None:
    changes = delta(fresh(RANGE, 3), fresh(RANGE, 4))
    assert changes == {
        "C0": ([], [2]),
        "C1": ([2], [4, 5]),
        "C2": ([4, 5], [6, 7]),
        "C3": ([6, 7], []),
    }
    assert swaps(changes) == 5


def test_round_robin_assignor_from_two_consumers_to_three_takes_four_swaps() -> None:
    changes = delta(fresh(ROUND_ROBIN, 2), fresh(ROUND_ROBIN, 3))
    assert changes == {"C0": ([3], [2, 4]), "C1": ([4], [3, 5]), "C2": ([2, 5], [])}
    assert swaps(changes) == 4


def test_round_robin_assignor_from_three_consumers_to_four_takes_five_swaps() -> None:
    changes = delta(fresh(ROUND_ROBIN, 3), fresh(ROUND_ROBIN, 4))
    assert changes == {
        "C0": ([4], [3, 6]),
        "C1": ([5], [4, 7]),
        "C2": ([6], [5]),
        "C3": ([3, 7], []),
    }
    assert swaps(changes) == 5


def test_optimum_from_two_consumers_to_three_takes_two_swaps() -> None:
    found = after(STICKY, BY_RANGE[2])
    assert found == consumers(OPTIMUM_AFTER_RANGE[3])
    changes = delta(fresh(RANGE, 2), found)
    assert changes == {"C0": ([], [3]), "C1": ([], [7]), "C2": ([3, 7], [])}
    assert swaps(changes) == 2


def test_optimum_from_three_consumers_to_four_takes_two_swaps() -> None:
    """Erratum: the table of changes says P6 for C1 and C3; by the table of partitions it is P5."""
    found = after(STICKY, BY_RANGE[3])
    assert found == consumers(OPTIMUM_AFTER_RANGE[4])
    changes = delta(fresh(RANGE, 3), found)
    assert changes == {"C0": ([], [2]), "C1": ([], [5]), "C3": ([2, 5], [])}
    assert swaps(changes) == 2


@pytest.mark.parametrize("count", OPTIMUM_AFTER_RANGE)
def test_cooperative_sticky_assignor_has_the_result_of_sticky_after_two_rebalances(
    count: int,
) -> None:
    table = BY_RANGE[count - 1]
    first = after(COOPERATIVE, table)
    revoked = delta(consumers(table), first)
    assert all(not added for added, _ in revoked.values())
    members = {
        each: claiming(COOPERATIVE, "t", had=own, generation_id=2) for each, own in first.items()
    }
    assert assigned(COOPERATIVE, members, t=8) == after(STICKY, table)


FOUR_TOPICS = {"T0": 8, "T1": 2, "T2": 2, "T3": 2}
"""The text gives the counts of T0 and T1 only, and says that C2 gets nothing of T2 and T3."""


def loads(assignor: ClassicAssignor, count: int) -> list[int]:
    members = {f"C{each}": classic_member(*FOUR_TOPICS) for each in range(count)}
    return [len(own) for own in assigned(assignor, members, **FOUR_TOPICS).values()]


def test_range_assignor_t0_to_t3_prefers_the_first_consumers() -> None:
    members = {f"C{each}": classic_member(*FOUR_TOPICS) for each in range(3)}
    assert assigned(RANGE, members, **FOUR_TOPICS) == {
        "C0": partitions(T0=[0, 1, 2], T1=[0], T2=[0], T3=[0]),
        "C1": partitions(T0=[3, 4, 5], T1=[1], T2=[1], T3=[1]),
        "C2": partitions(T0=[6, 7]),
    }


@pytest.mark.parametrize("assignor", [ROUND_ROBIN, STICKY, COOPERATIVE], ids=lambda each: each.name)
def test_t0_to_t3_are_even_with_the_other_assignors(assignor: ClassicAssignor) -> None:
    assert loads(assignor, 3) == [5, 5, 4]


def test_range_assignor_t0_to_t3_leaves_new_consumers_idle() -> None:
    assert loads(RANGE, 9)[8:] == [0]
    assert min(loads(ROUND_ROBIN, 9)) == 1
