"""DeleteGroups: what is left of a group, and who is refused."""

from __future__ import annotations

from spark_groups.errors import ErrorCode
from spark_groups.lab.coordinator import records as r
from spark_groups.lab.coordinator.deletion import delete, tombstones
from spark_groups.lab.coordinator.effects import Surroundings
from spark_groups.lab.coordinator.group import ConsumerGroup
from spark_groups.lab.coordinator.messages import DeleteGroupsRequest
from spark_groups.lab.coordinator.profile import KAFKA_4_3
from spark_groups.lab.coordinator.records import Record
from spark_groups.lab.coordinator.settings import Settings
from spark_groups.lab.coordinator.topic_images import TopicsImage
from tests.lab.coordinator.driving import group_of

AROUND = Surroundings(0.0, TopicsImage(), Settings())
REQUEST = DeleteGroupsRequest(group_id="g")
RECORDS = (
    Record(r.GroupMetadataKey("g"), r.GroupMetadataValue(3)),
    Record(r.OffsetCommitKey("g", "t", 0), r.OffsetCommitValue(7)),
    Record(r.TargetMetadataKey("g"), r.TargetMetadataValue(3)),
    Record(r.RegularExpressionKey("g", "t.*"), r.RegularExpressionValue(("t",), 1, 0.0)),
)


def test_a_deleted_group_leaves_no_record() -> None:
    group = group_of("g", *RECORDS)
    outcome = delete(group, REQUEST, KAFKA_4_3, AROUND)
    for each in outcome.records:
        group.apply(each)
    assert outcome.response.error_code == ErrorCode.NONE
    assert group == ConsumerGroup("g")


def test_offsets_go_first_and_the_group_last() -> None:
    kinds = [type(each.key) for each in tombstones(group_of("g", *RECORDS))]
    assert kinds == [
        r.OffsetCommitKey,
        r.TargetMetadataKey,
        r.RegularExpressionKey,
        r.GroupMetadataKey,
    ]


def test_what_is_not_there_or_not_empty_is_not_deleted() -> None:
    unknown = delete(ConsumerGroup("g"), REQUEST, KAFKA_4_3, AROUND)
    assert unknown.response.error_code == ErrorCode.GROUP_ID_NOT_FOUND
    member = Record(r.MemberMetadataKey("g", "m"), r.MemberMetadataValue())
    refused = delete(group_of("g", *RECORDS, member), REQUEST, KAFKA_4_3, AROUND)
    assert refused.response.error_code == ErrorCode.NON_EMPTY_GROUP
    assert not unknown.records
    assert not refused.records
