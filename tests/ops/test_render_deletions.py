"""What became of groups and offsets that were to be deleted, as text."""

from __future__ import annotations

from spark_groups.errors import ErrorCode
from spark_groups.ops.deletions import (
    DeletedGroup,
    DeletedOffset,
    GroupDeletionView,
    OffsetDeletionView,
    said,
)
from spark_groups.ops.render_deletions import render_deleted_groups, render_deleted_offsets
from tests.ops.rendered import cells, lines


def test_each_group_has_a_line() -> None:
    left = DeletedGroup(group_id="h\x1b", **said(ErrorCode.NON_EMPTY_GROUP))
    view = GroupDeletionView(groups=(DeletedGroup(group_id="g"), left))
    assert lines(render_deleted_groups(view)) == [
        "group 'g': deleted",
        "group 'h?': could not be deleted due to: NON_EMPTY_GROUP, the group has members: stop them"
        " first",
    ]


def test_each_offset_has_a_row_with_the_words_of_kafkas_tool() -> None:
    unknown = said(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    offsets = (
        DeletedOffset(topic="flights", partition=0),
        DeletedOffset(topic="gone", partition=None, **unknown),
    )
    assert cells(render_deleted_offsets(OffsetDeletionView(group_id="g", offsets=offsets))) == [
        ["TOPIC", "PARTITION", "STATUS"],
        ["flights", "0", "Successful"],
        ["gone", "—", "Error: UNKNOWN_TOPIC_OR_PARTITION, create the topic, or correct its name"],
    ]
