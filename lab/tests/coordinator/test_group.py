"""A group depends only on its records, not on their order."""

from __future__ import annotations

from itertools import permutations

import pytest

from group_lab.coordinator import records as r
from group_lab.coordinator.group import ConsumerGroup, GroupState
from group_lab.coordinator.member import ReconciliationState
from group_lab.coordinator.records import Record
from lab.tests.coordinator.driving import group_of
from spark_groups.types import Assignment, TopicId, TopicIdPartition

FOO = TopicId(int=1)
KEY = TopicIdPartition(FOO, 0)


def has(
    member_id: str,
    member_epoch: int,
    state: ReconciliationState = ReconciliationState.STABLE,
    assigned: dict[TopicIdPartition, int] | None = None,
    pending: dict[TopicIdPartition, int] | None = None,
) -> Record:
    value = r.CurrentAssignmentValue(
        member_epoch=member_epoch,
        previous_member_epoch=member_epoch - 1,
        state=state,
        assigned=assigned or {},
        pending_revocation=pending or {},
    )
    return Record(r.CurrentAssignmentKey("g", member_id), value)


def metadata(member_id: str, **fields: str) -> Record:
    return Record(r.MemberMetadataKey("g", member_id), r.MemberMetadataValue(**fields))


def epochs(group_epoch: int, assignment_epoch: int) -> tuple[Record, Record]:
    return (
        Record(r.GroupMetadataKey("g"), r.GroupMetadataValue(group_epoch)),
        Record(r.TargetMetadataKey("g"), r.TargetMetadataValue(assignment_epoch)),
    )


def test_records_of_other_keys_come_in_any_order() -> None:
    records = (
        *epochs(3, 2),
        metadata("m", client_id="c"),
        has("m", 2, assigned={KEY: 2}),
        Record(r.TargetMemberKey("g", "m"), r.TargetMemberValue(Assignment(frozenset({KEY})))),
    )
    expected = group_of("g", *records)
    assert expected.members["m"].client_id == "c"
    assert expected.members["m"].assigned == {KEY: 2}
    for order in permutations(records):
        assert group_of("g", *order) == expected


def test_a_compacted_log_gives_the_same_group() -> None:
    group = group_of("g", *epochs(3, 2), metadata("m"), has("m", 1), has("m", 2), *epochs(4, 4))
    assert group_of("g", *group.records()) == group
    assert len(list(group.records())) == 4


def test_tombstones_of_everything_leave_nothing() -> None:
    records = (
        *epochs(3, 2),
        metadata("m"),
        has("m", 2),
        Record(r.TargetMemberKey("g", "m"), r.TargetMemberValue()),
        Record(r.PartitionMetadataKey("g"), r.PartitionMetadataValue({"foo": (FOO, 1)})),
        Record(r.RegularExpressionKey("g", "f.*"), r.RegularExpressionValue(("foo",), 1, 0.0)),
        Record(r.OffsetCommitKey("g", "foo", 0), r.OffsetCommitValue(4)),
    )
    group = group_of("g", *records)
    assert not group.is_empty_of_records
    for each in records:
        assert group.value_of(each.key) == each.value
        group.apply(Record(each.key, None))
    assert group == ConsumerGroup("g")
    assert group.is_empty_of_records


@pytest.mark.parametrize(
    ("records", "state"),
    [
        (epochs(3, 3), GroupState.EMPTY),
        ((*epochs(3, 2), metadata("m"), has("m", 2)), GroupState.ASSIGNING),
        ((*epochs(3, 3), metadata("m"), has("m", 2)), GroupState.RECONCILING),
        (
            (
                *epochs(3, 3),
                metadata("m"),
                has("m", 3),
                metadata("n"),
                has("n", 3, ReconciliationState.UNRELEASED_PARTITIONS),
            ),
            GroupState.RECONCILING,
        ),
        ((*epochs(3, 3), metadata("m"), has("m", 3)), GroupState.STABLE),
        ((*epochs(3, 3), metadata("m")), GroupState.RECONCILING),
    ],
)
def test_the_state_follows_from_the_epochs(records: tuple[Record, ...], state: GroupState) -> None:
    assert group_of("g", *records).state is state


def test_a_partition_is_held_until_its_revocation_is_acknowledged() -> None:
    other = TopicIdPartition(FOO, 1)
    group = group_of("g", metadata("m"), has("m", 5, assigned={KEY: 3}, pending={other: 4}))
    assert group.held_partitions() == {KEY, other}


def test_a_static_member_is_found_by_its_instance_id() -> None:
    group = group_of("g", metadata("m", instance_id="i"), metadata("n"))
    found = group.static_member("i")
    assert found is not None
    assert found.member_id == "m"
    assert group.static_member("j") is None


def test_only_offsets_make_no_consumer_group() -> None:
    offset = Record(r.OffsetCommitKey("g", "foo", 0), r.OffsetCommitValue(4))
    assert not group_of("g", offset).is_consumer_group
    assert group_of("g", offset, *epochs(1, 1)).is_consumer_group
    assert not ConsumerGroup("g").is_consumer_group


def test_a_group_that_is_converted_forgets_former_instance_ids() -> None:
    group = group_of("g", Record(r.GroupMetadataKey("g"), r.GroupMetadataValue(1)))
    for instance_id in ("i1", "i2"):
        group.apply(
            Record(r.MemberMetadataKey("g", "m1"), r.MemberMetadataValue(instance_id=instance_id))
        )
    assert group.instances == {"i1": "m1", "i2": "m1"}
    group.apply(Record(r.MemberMetadataKey("g", "m1"), None))
    group.apply(Record(r.GroupMetadataKey("g"), None))
    assert (group.instances, group.room) == ({}, 0)
