"""What became of groups and offsets that were to be deleted."""

from __future__ import annotations

from spark_groups.errors import ErrorCode
from spark_groups.ops.deletions import (
    DeletedGroup,
    GroupDeletionView,
    OffsetDeletionView,
    said,
    view_deleted,
)
from spark_groups.types import TopicPartition
from spark_groups.wire.group_admin import OffsetDeletion

FIRST, SECOND = TopicPartition("flights", 0), TopicPartition("flights", 1)
GONE = TopicPartition("gone", -1)


def test_each_partition_has_its_answer() -> None:
    answer = OffsetDeletion(errors={FIRST: 0, SECOND: ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC})
    found = view_deleted([FIRST, SECOND], [GONE], answer)
    assert [(each.topic, each.partition, each.error) for each in found] == [
        ("flights", 0, None),
        ("flights", 1, "GROUP_SUBSCRIBED_TO_TOPIC"),
        ("gone", None, "UNKNOWN_TOPIC_OR_PARTITION"),
    ]
    assert found[1].remark == "members of the group subscribe to the topic: stop them first"
    assert not OffsetDeletionView(group_id="g", offsets=found).is_complete
    assert OffsetDeletionView(group_id="g", offsets=found[:1]).is_complete


def test_an_error_of_the_whole_request_is_one_of_each_partition() -> None:
    answer = OffsetDeletion(error_code=ErrorCode.GROUP_ID_NOT_FOUND)
    (only,) = view_deleted([FIRST], [], answer)
    assert (only.error, only.remark) == ("GROUP_ID_NOT_FOUND", "there is no such group")
    # What is not answered is not known to be deleted.
    (unanswered,) = view_deleted([FIRST], [], OffsetDeletion())
    assert unanswered.error == "UNKNOWN_SERVER_ERROR"


def test_a_group_that_is_left_makes_the_deletion_incomplete() -> None:
    gone = DeletedGroup(group_id="g")
    left = DeletedGroup(group_id="h", **said(ErrorCode.NON_EMPTY_GROUP))
    assert GroupDeletionView(groups=(gone,)).is_complete
    view = GroupDeletionView(groups=(gone, left))
    assert not view.is_complete
    assert view.to_json()["groups"][1] == {
        "group_id": "h",
        "error": "NON_EMPTY_GROUP",
        "remark": "the group has members: stop them first",
    }
