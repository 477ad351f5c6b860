"""Who of a topic's subscribers gets a partition next, and who gives one up.

Subscribers are sorted by load. Those with the least are a range at one end that grows as its level
rises, those with the most a range at the other end that grows as its level sinks
(UniformHeterogeneousAssignmentBuilder.MemberAssignmentBalancer).
"""

from __future__ import annotations

from collections.abc import Sequence


class Balancer:
    """The two ranges; it assumes that what it names is given, or taken away.

    Args:
        loads: How many partitions each member has, by its number; it may change meanwhile.
        members: The numbers of the subscribers, at least one.
    """

    def __init__(self, loads: Sequence[int], members: Sequence[int]) -> None:
        self._loads = loads
        self._members = sorted(members, key=lambda member: (loads[member], member))
        self._least_end = 0
        self._least_level = loads[self._members[0]] - 1
        self._least_next = 0
        self._most_start = len(self._members)
        self._most_end = len(self._members)
        self._most_level = loads[self._members[-1]] + 1
        self._most_next = len(self._members) - 1
        self.imbalance = loads[self._members[-1]] - loads[self._members[0]]

    def is_balanced(self) -> bool:
        """True if the levels of the two ranges differ by one at most."""
        return self._most_level - self._least_level <= 1

    def next_least_loaded(self) -> int:
        """Return who gets the next partition."""
        if self._least_next >= self._least_end:
            self._least_level += 1
            while (
                self._least_end < len(self._members)
                and self._loads[self._members[self._least_end]] == self._least_level
            ):
                self._least_end += 1
            self._least_next = 0
        self._least_next += 1
        return self._members[self._least_next - 1]

    def next_most_loaded(self) -> int | None:
        """Return who gives up a partition next; None if nobody has one to give."""
        if self._most_next < self._most_start:
            if self._most_end <= self._most_start and self._most_start > 0:
                # Everybody in the range was excluded: go on with whoever is beside it.
                self._most_level = self._loads[self._members[self._most_start - 1]]
            else:
                self._most_level -= 1
            while (
                self._most_start > 0
                and self._loads[self._members[self._most_start - 1]] == self._most_level
            ):
                self._most_start -= 1
            self._most_next = self._most_end - 1
        if self._most_next < 0:
            return None
        self._most_next -= 1
        return self._members[self._most_next + 1]

    def exclude_most_loaded(self) -> None:
        """Take whom `next_most_loaded` returned last out of the range: it has nothing to give."""
        last = self._most_end - 1
        members = self._members
        members[self._most_next + 1], members[last] = members[last], members[self._most_next + 1]
        self._most_end = last
