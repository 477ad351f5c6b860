"""A table of the simulation, and queries that write to it."""

from __future__ import annotations

import uuid

import pytest

from group_lab.sim import facts
from group_lab.sim.facts import Fact
from group_lab.sim.swarm import Swarm
from group_lab.sim.tables import Table
from lab.tests.sim.scenes import Facts, world
from spark_groups.errors import TableChangedError
from spark_groups.fence.entries import Entry, EntryChange, FenceKey
from spark_groups.types import TopicIdPartition

TOPIC = uuid.UUID(int=1)
KEY, OF = FenceKey("g", TOPIC, 0), TopicIdPartition(TOPIC, 0)
FIRST = EntryChange(KEY, None, Entry(5, 7))


def table(*, has_versions: bool = False, is_there: bool = True) -> tuple[Table, list[Fact]]:
    published: list[Fact] = []
    return Table(published.append, has_versions=has_versions, is_there=is_there), published


def test_commit_changes_rows_and_entries_at_once_or_nothing() -> None:
    found, published = table()
    state = found.read(frozenset({TOPIC}))
    found.commit({OF: {5: 105, 6: 106}}, [FIRST], state)
    assert (found.entries, found.rows) == ({KEY: Entry(5, 7)}, {OF: [(5, 105), (6, 106)]})
    with pytest.raises(TableChangedError):
        found.commit({OF: {5: 105, 6: 106}}, [FIRST], state)
    assert len(found.rows[OF]) == 2
    assert [type(each) for each in published] == [facts.Stored]


@pytest.mark.parametrize(("has_versions", "is_there"), [(True, True), (False, False)])
def test_commit_is_refused_after_another_version_and_after_a_creation(
    has_versions: bool, is_there: bool
) -> None:
    found, _ = table(has_versions=has_versions, is_there=is_there)
    state = found.read(frozenset({TOPIC}))
    found.commit({}, [FIRST], state)
    other = EntryChange(KEY._replace(partition=1), None, Entry(0, 0))
    with pytest.raises(TableChangedError):
        found.commit({}, [other], state)


def test_operator_accepts_a_gap_and_sets_an_entry_back() -> None:
    found, published = table()
    found.commit({OF: {5: 105, 6: 106}}, [FIRST], found.read(frozenset({TOPIC})))
    found.accept(KEY, 9)
    assert (found.entries[KEY], len(found.rows[OF])) == (Entry(9, 9), 2)
    found.accept(KEY, 6)
    assert (found.entries[KEY], found.rows[OF]) == (Entry(6, 6), [(5, 105)])
    assert published[1:] == [facts.GapAccepted(OF, 7, 9), facts.SetBack(OF, 6)]


@pytest.mark.parametrize("kind", [1, 2])
def test_queries_write_each_record_once(kind: int) -> None:
    seen = Facts(facts.Stored)
    swarm = Swarm(queries=3, from_latest=0, table=kind, crashes=4, pauses=2)
    found = world(swarm, "kafka-4.3", 1, seen)
    found.run()
    written = found.scene.table
    assert written is not None
    for key, log in found.scene.storage.logs.items():
        assert sorted(written.rows[key]) == list(enumerate(log.read(0, log.end_offset)))
    assert len(seen.seen) > 4
