"""A member's records say all of it: a group that takes them has the same member."""

from __future__ import annotations

from spark_groups.lab.coordinator import records as r
from spark_groups.lab.coordinator.group import ConsumerGroup
from spark_groups.lab.coordinator.member import ClientAssignor, GroupMember, ReconciliationState
from tests.lab.coordinator.driving import foo, given_at

MEMBER = GroupMember(
    member_id="m1",
    member_epoch=7,
    previous_member_epoch=5,
    state=ReconciliationState.UNREVOKED_PARTITIONS,
    instance_id="i",
    rack_id="r",
    client_id="c",
    client_host="h",
    rebalance_timeout_ms=9,
    subscribed_topic_names=frozenset({"foo", "bar"}),
    subscribed_topic_regex="b.*",
    server_assignor="range",
    client_assignors=(ClientAssignor("own"),),
    assigned=given_at({foo(1): 4}),
    pending_revocation=given_at({foo(2): 3}),
)


def test_a_group_that_takes_the_records_has_the_member() -> None:
    group = ConsumerGroup("g")
    told, current = r.member_metadata("g", MEMBER), r.current_assignment("g", MEMBER)
    assert isinstance(told.value, r.MemberMetadataValue)
    assert told.value.subscribed_topic_names == ("bar", "foo")
    for record in (told, current):
        group.apply(record)
    assert group.members == {"m1": MEMBER}


def test_who_is_gone_leaves_nothing() -> None:
    group = ConsumerGroup("g")
    group.apply(r.member_metadata("g", MEMBER))
    group.apply(r.Record(r.TargetMemberKey("g", "m1"), r.TargetMemberValue(foo(1))))
    group.apply(r.current_assignment("g", MEMBER))
    gone = r.member_tombstones("g", "m1")
    assert [each.key.record_type for each in gone] == [8, 7, 5]
    for record in gone:
        group.apply(record)
    assert group.is_empty_of_records
    assert group == ConsumerGroup("g")
