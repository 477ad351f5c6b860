"""The check in a table's commit: it refuses a writer whose comparison is out of date."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from spark_groups.fence.entries import Entry, EntryChange, FenceKey


def holds(changes: Iterable[EntryChange], entry_of: Callable[[FenceKey], Entry | None]) -> bool:
    """Return whether a commit finds the entries that it expects; called in its transaction.

    Args:
        changes: The changes of the commit.
        entry_of: Returns the current entry of a key; None: there is none.
    """
    return all(entry_of(each.key) == each.expected for each in changes)
