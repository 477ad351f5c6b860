"""Shared by test_backlog.py and other tests."""

from __future__ import annotations

from tests.runtime.members import QueryLike, committed
from workshop.parts.waiting import wait_until


def read_all(query: QueryLike, servers: str, group_id: str, offsets: dict[int, int]) -> None:
    """Have a query read and commit up to these offsets, by partition."""

    def are_committed() -> bool:
        query.run()
        found = committed(servers, group_id)
        return {partition: offset for (_, partition), offset in found.items()} == offsets

    wait_until(are_committed, what=f"{offsets} to be committed")
