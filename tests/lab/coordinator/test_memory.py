"""Groups in memory: what is replicated, what is not, and what is put back."""

from __future__ import annotations

from spark_groups.lab.coordinator import records as r
from spark_groups.lab.coordinator.group import ConsumerGroup
from spark_groups.lab.coordinator.memory import Memory
from spark_groups.lab.coordinator.records import Record


def epoch(group_epoch: int | None, group_id: str = "g") -> Record:
    value = None if group_epoch is None else r.GroupMetadataValue(group_epoch)
    return Record(r.GroupMetadataKey(group_id), value)


def epochs(memory: Memory) -> dict[str, int]:
    return {each.group_id: each.group_epoch for each in memory.all_replicated()}


def test_a_reader_sees_what_is_replicated_and_a_writer_what_is_there() -> None:
    memory = Memory()
    memory.load(epoch(1))
    memory.write((epoch(2), epoch(3)))
    memory.write((epoch(1, "new"),))
    assert memory.group("g").group_epoch == 3
    assert memory.replicated("g").group_epoch == 1
    assert epochs(memory) == {"g": 1}
    memory.keep()
    assert epochs(memory) == {"g": 3, "new": 1}


def test_a_group_that_only_had_offsets_is_there_until_it_is_deleted() -> None:
    offset = r.OffsetCommitKey("g", "t", 0)
    memory = Memory()
    memory.load(Record(offset, r.OffsetCommitValue(1)))
    memory.write((Record(offset, None),))
    assert memory.groups == {}
    assert memory.group("g").exists
    assert memory.replicated("g").offsets
    memory.take_back()
    assert memory.group("g").offsets
    memory.write((Record(offset, None),))
    memory.keep()
    assert [(each.group_id, each.exists) for each in memory.all_replicated()] == [("g", True)]
    memory.write((epoch(None),))
    assert not memory.group("g").exists
    assert memory.replicated("g").exists
    memory.take_back()
    assert memory.group("g").exists
    memory.write((epoch(None),))
    memory.keep()
    assert not list(memory.all_replicated())


def test_a_group_that_was_made_without_a_record_is_read_after_the_next_write() -> None:
    memory = Memory()
    memory.make("g")
    assert memory.group("g").exists
    assert not memory.replicated("g").exists
    memory.write((epoch(1, "other"),))
    memory.keep()
    assert memory.replicated("g").exists
    memory.make("lost")
    memory.take_back()
    assert not memory.group("lost").exists


def test_a_group_without_a_record_of_them_has_its_coordinators_first_epochs() -> None:
    memory = Memory(1)
    regex = Record(r.RegularExpressionKey("g", "f.*"), r.RegularExpressionValue((), 1, 0.0))
    memory.write((regex,))
    for group in (memory.group("g"), memory.group("other")):
        assert (group.group_epoch, group.assignment_epoch) == (1, 1)
    memory.write((epoch(2),))
    assert (memory.group("g").group_epoch, memory.group("g").assignment_epoch) == (2, 1)
    assert memory.replicated("g").group_epoch == 1


def test_a_group_that_is_deleted_is_read_until_that_is_replicated() -> None:
    memory = Memory()
    memory.load(epoch(1))
    memory.write((epoch(None),))
    assert memory.groups == {}
    assert epochs(memory) == {"g": 1}
    memory.keep()
    assert epochs(memory) == {}


def test_what_is_taken_back_was_never_there() -> None:
    memory, twin = Memory(), Memory()
    for each in (memory, twin):
        each.load(epoch(1))
    memory.write((epoch(2), epoch(5, "new")))
    memory.write((epoch(None), epoch(None, "new"), epoch(7, "new")))
    memory.take_back()
    assert memory == twin


def test_a_group_that_was_taken_back_is_compared_with_the_topics_again() -> None:
    memory = Memory()
    memory.load(epoch(1))
    memory.groups["g"].topics_version = 4
    memory.write((epoch(2),))
    memory.take_back()
    assert memory.groups["g"].topics_version == -1


def test_a_group_without_records_is_an_empty_one() -> None:
    assert Memory().group("g") == ConsumerGroup("g")
    assert Memory().replicated("g") == ConsumerGroup("g")
