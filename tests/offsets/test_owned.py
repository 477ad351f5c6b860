"""Positions with what is known of the log below them, and runs that go on or begin anew."""

from __future__ import annotations

import uuid

import pytest

from spark_groups.offsets.owned import FinishedRun, OwnedPartition
from spark_groups.types import OffsetRange


def owned(leader_epoch: int, listed_end: int = -1) -> OwnedPartition:
    each = OwnedPartition(tenure=1, assigned_epoch=3)
    each.stand_at(5, leader_epoch)
    each.listed_end = listed_end
    return each


@pytest.mark.parametrize(
    ("committed_offset", "is_query_commit", "position", "were_lost"),
    [
        (5, True, 5, True),
        (5, False, 5, False),
        (7, True, 7, False),
        (9, True, 9, False),
        (5, True, 7, False),
    ],
)
def test_commits_were_lost_where_a_query_stands_at_the_beginning_of_a_run(
    committed_offset: int, is_query_commit: bool, position: int, were_lost: bool
) -> None:
    each = owned(2)
    each.position, each.committed_offset = position, committed_offset
    each.is_query_commit = is_query_commit
    assert each.is_where_commits_were_lost(run(2)) is were_lost


def run(leader_epoch: int) -> FinishedRun:
    return FinishedRun("orders", [5, 9], leader_epoch)


@pytest.mark.parametrize(
    ("own_epoch", "listed_end", "run_epoch", "can"),
    [(2, -1, -1, False), (2, 30, -1, True), (-1, -1, -1, True), (2, -1, 2, True)],
)
def test_run_is_settled_once_the_leader_of_the_moment_was_heard(
    own_epoch: int, listed_end: int, run_epoch: int, can: bool
) -> None:
    """Where no epoch is known there is nobody to ask; a run with one is confirmed itself."""
    assert owned(own_epoch, listed_end).can_inherit(run(run_epoch)) is can


@pytest.mark.parametrize(
    ("listed_end", "run_epoch", "stands"),
    [(-1, 4, (9, 9, 4)), (9, -1, (9, 9, 2)), (8, -1, (9, 5, 2))],
)
def test_position_after_a_run_has_an_epoch_that_reached_it_or_keeps_the_one_before(
    listed_end: int, run_epoch: int, stands: tuple[int, int, int]
) -> None:
    each = owned(2, listed_end)
    each.inherit(run(run_epoch))
    assert (each.position, each.reached_offset, each.leader_epoch) == stands


def test_run_goes_on_or_begins_anew() -> None:
    each, topic = run(2), uuid.UUID(int=1)
    each.extend(OffsetRange(topic, "orders", 0, 9, 12), 3)
    assert (each.boundaries, each.leader_epoch) == ([5, 9, 12], 3)
    each.extend(OffsetRange(topic, "orders", 0, 20, 21), 4)
    assert (each.boundaries, each.until_offset) == ([20, 21], 21)
