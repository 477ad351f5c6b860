"""Views: owners, moves, lag, totals, and JSON."""

from __future__ import annotations

import json
import uuid
from dataclasses import replace

import pytest

from spark_groups.errors import ErrorCode, printable
from spark_groups.group.member.messages import UNKNOWN_AUTHORIZED_OPERATIONS, OffsetAndMetadata
from spark_groups.observation.plain_values import by_topic, json_value, partition_ranges
from spark_groups.observation.reading import GroupType
from spark_groups.observation.views import (
    OPERATIONS,
    STATE_MEANINGS,
    UNKNOWN_STATE_MEANING,
    GroupView,
    LagOrigin,
    PartitionView,
    authorized_operations,
    group_totals,
    view_group,
)
from spark_groups.types import Assignment, TopicPartition, topic_id_text
from tests.answers import fetch_answer
from tests.observation.groups import FLIGHTS, ONE, TWO, key, member, read
from tests.observation.local_members_setup import SNAPSHOT

UNSTABLE = ErrorCode.UNSTABLE_OFFSET_COMMIT.value
NO_LEADER = ErrorCode.LEADER_NOT_AVAILABLE.value


def partition_of(view: GroupView, partition: int) -> PartitionView:
    return next(each for each in view.partitions if each.partition == partition)


def named(*partitions: int) -> tuple[TopicPartition, ...]:
    return tuple(TopicPartition("flights", each) for each in partitions)


def test_the_group_is_described_in_the_coordinators_words() -> None:
    view = view_group(read(member(ONE, [0, 1])))
    assert (view.group_id, view.group_state) == ("flight-readers", "Stable")
    assert (view.group_epoch, view.assignment_epoch) == (7, 6)
    assert (view.assignor_name, view.coordinator) == ("uniform", "127.0.0.1:9092 (id 1)")


@pytest.mark.parametrize("state", [*STATE_MEANINGS, "Sleeping"])
def test_every_state_is_a_word_and_one_sentence(state: str) -> None:
    view = view_group(read(state=state))
    assert view.group_state == state
    assert view.state_meaning == STATE_MEANINGS.get(state, UNKNOWN_STATE_MEANING)
    assert view.state_meaning.endswith(".")


def test_a_member_is_shown_with_what_it_is() -> None:
    static = member(ONE, [0], instance_id="gate-1", rack_id="a", member_type=0, member_epoch=5)
    (shown,) = view_group(read(static)).members
    assert (shown.member_id, shown.instance_id, shown.rack_id) == (ONE, "gate-1", "a")
    assert (shown.client_id, shown.client_host) == ("app-1", "127.0.0.1")
    assert (shown.member_epoch, shown.member_type) == (5, "classic")
    assert shown.subscribed_topic_names == ("flights",)
    assert shown.subscribed_topic_regex is None


@pytest.mark.parametrize(("number", "kind"), [(-1, "unknown"), (1, "consumer"), (9, "unknown")])
def test_member_types_have_names(number: int, kind: str) -> None:
    (shown,) = view_group(read(member(ONE, member_type=number))).members
    assert shown.member_type == kind


def test_members_are_sorted_by_client_id_then_member_id() -> None:
    reading = read(
        member(TWO, client_id="a"), member("9", client_id="b"), member(ONE, client_id="b")
    )
    assert [each.member_id for each in view_group(reading).members] == [TWO, ONE, "9"]


def test_a_partition_on_its_way_belongs_to_one_member_and_moves_to_another() -> None:
    view = view_group(
        read(
            member(ONE, [0, 1], [0], member_epoch=6),
            member(TWO, [], [1]),
            state="Reconciling",
        )
    )
    one, two = view.members
    assert (one.current, one.target, one.pending, one.revoking) == (
        named(0, 1),
        named(0),
        (),
        named(1),
    )
    assert (two.current, two.target, two.pending, two.revoking) == ((), named(1), named(1), ())
    kept, moving = view.partitions
    assert (kept.owner, kept.moves_to) == (ONE, None)
    assert (moving.owner, moving.moves_to) == (ONE, TWO)
    assert view.totals.moving_partitions == 1
    assert view.totals.assigned_partitions == 2


def test_before_kafka_4_3_a_revoking_owner_is_known_only_from_its_own_snapshot() -> None:
    reading = read(member(ONE, [0]), member(TWO, [], [1]), state="Reconciling")
    unknown = partition_of(view_group(reading), 1)
    assert (unknown.owner, unknown.moves_to) == (None, TWO)
    known = partition_of(view_group(reading, [SNAPSHOT]), 1)
    assert (known.owner, known.moves_to) == (ONE, TWO)


def test_the_coordinators_word_about_an_owner_is_above_a_snapshots() -> None:
    reading = read(member(ONE, [0]), member(TWO, [1]))
    assert partition_of(view_group(reading, [SNAPSHOT]), 1).owner == TWO


def test_a_member_on_this_machine_is_shown_with_what_it_says_about_itself() -> None:
    one, two = view_group(read(member(ONE, [0]), member(TWO)), [SNAPSHOT]).members
    assert one.local is not None
    assert one.local.state == "RECONCILING"
    assert two.local is None


def test_lag_counts_from_the_committed_offset() -> None:
    view = view_group(
        read(
            member(ONE, [0, 1]),
            committed={0: 40, 1: 100},
            starts={0: 0, 1: 0},
            ends={0: 100, 1: 100},
        )
    )
    first, second = view.partitions
    assert (first.committed_offset, first.log_end_offset, first.lag) == (40, 100, 60)
    assert first.lag_origin is LagOrigin.COMMITTED_OFFSET
    assert (second.lag, second.remark) == (0, "")
    assert (view.totals.lag, view.totals.unknown_lag_partitions) == (60, 0)


@pytest.mark.parametrize("committed", [None, {0: -1}])
def test_without_a_committed_offset_lag_counts_from_the_log_start(
    committed: dict[int, int] | None,
) -> None:
    reading = read(
        member(ONE, [0]), partitions=1, committed=committed, starts={0: 30}, ends={0: 100}
    )
    (shown,) = view_group(reading).partitions
    assert (shown.committed_offset, shown.lag) == (None, 70)
    assert shown.lag_origin is LagOrigin.LOG_START_OFFSET


def test_an_error_is_never_taken_for_no_committed_offset() -> None:
    reading = read(
        member(ONE, [0]),
        partitions=1,
        committed_errors={0: UNSTABLE},
        starts={0: 0},
        ends={0: 100},
    )
    (shown,) = view_group(reading).partitions
    assert (shown.committed_offset, shown.lag, shown.lag_origin) == (None, None, None)
    assert shown.remark == "committed offset: UNSTABLE_OFFSET_COMMIT"


def test_an_unknown_figure_is_not_zero_and_counted_apart() -> None:
    view = view_group(
        read(
            member(ONE, [0, 1]),
            committed={0: 5, 1: 5},
            starts={0: 0},
            ends={0: 9},
            start_errors={1: NO_LEADER},
            end_errors={1: NO_LEADER},
        )
    )
    unknown = partition_of(view, 1)
    assert (unknown.log_start_offset, unknown.log_end_offset, unknown.lag) == (None, None, None)
    assert "log end offset: LEADER_NOT_AVAILABLE" in unknown.remark
    assert (view.totals.lag, view.totals.unknown_lag_partitions) == (4, 1)


def test_total_lag_is_unknown_if_no_lag_is_known() -> None:
    assert view_group(read(member(ONE, [0, 1]))).totals.lag is None


def test_a_committed_offset_beyond_the_end_is_remarked_and_no_lag() -> None:
    reading = read(partitions=1, committed={0: 200}, starts={0: 0}, ends={0: 100}, state="Empty")
    (shown,) = view_group(reading).partitions
    assert shown.lag is None
    assert shown.remark == "offset 200 is committed, but the log ends at 100"


def test_offsets_that_retention_took_before_they_were_read_are_remarked() -> None:
    reading = read(partitions=1, committed={0: 5}, starts={0: 50}, ends={0: 100}, state="Empty")
    (shown,) = view_group(reading).partitions
    assert shown.lag == 95
    assert shown.remark == "offsets deleted before they were read: 45"


def test_an_empty_group_keeps_its_partitions_without_owners() -> None:
    view = view_group(read(committed={0: 1, 1: 1}, state="Empty"))
    assert [each.owner for each in view.partitions] == [None, None]
    assert (view.totals.members, view.totals.partitions) == (0, 2)
    assert (view.totals.assigned_partitions, view.totals.unassigned_partitions) == (0, 2)


def test_a_group_without_partitions_has_no_lag() -> None:
    view = view_group(read(state="Empty"))
    assert view.partitions == ()
    assert view.totals.lag == 0


def test_a_deleted_topic_is_shown_by_its_id() -> None:
    gone = uuid.UUID(int=99)
    left = replace(member(ONE), assignment=Assignment.of({gone: [3]}))
    view = view_group(read(left, partitions=0))
    assert view.members[0].revoking == (TopicPartition(topic_id_text(gone), 3),)
    (shown,) = view.partitions
    assert (shown.topic, shown.topic_id) == (topic_id_text(gone), topic_id_text(gone))


def test_json_is_the_same_view_in_plain_values() -> None:
    view = view_group(
        read(
            member(ONE, [0, 1], [0]),
            member(TWO, [], [1], instance_id="gate-2"),
            committed={0: 40},
            starts={0: 0, 1: 7},
            ends={0: 100, 1: 9},
            state="Reconciling",
        ),
        [SNAPSHOT],
    )
    plain = view.to_json()
    assert json.loads(json.dumps(plain)) == plain
    assert (plain["group_id"], plain["group_type"]) == ("flight-readers", "consumer")
    assert plain["totals"] == {
        "members": 2,
        "partitions": 2,
        "assigned_partitions": 2,
        "unassigned_partitions": 0,
        "moving_partitions": 1,
        "lag": 62,
        "unknown_lag_partitions": 0,
        "seconds_behind": None,
        "unknown_time_partitions": 2,
        "deletion_in_s": None,
    }
    assert plain["outside"] == {}
    one, two = plain["members"]
    assert one["local"]["batch_age_s"] == 12.3
    assert one["current"] == {"flights": [0, 1]}
    assert one["revoking"] == {"flights": [1]}
    assert one["local"]["revoking"] == {"flights": [1], "old-flights": [10]}
    assert (two["instance_id"], two["pending"], two["local"]) == ("gate-2", {"flights": [1]}, None)
    assert plain["partitions"][1] == {
        "topic": "flights",
        "topic_id": topic_id_text(FLIGHTS),
        "partition": 1,
        "owner": ONE,
        "moves_to": TWO,
        "log_start_offset": 7,
        "committed_offset": None,
        "committed_leader_epoch": None,
        "log_end_offset": 9,
        "lag": 2,
        "lag_origin": "log start offset",
        "time": {
            "seconds_behind": None,
            "first_unread_offset": None,
            "first_unread_ms": None,
            "deletion": "unknown",
            "retention_ms": None,
            "deletion_in_s": None,
            "lost_offsets": 0,
            "remark": "",
        },
        "remark": "",
        "withheld": None,
    }


def test_a_classic_group_has_no_epochs() -> None:
    reading = replace(read(member(ONE, [0])), group_type=GroupType.CLASSIC)
    view = view_group(reading)
    assert (view.group_type, view.group_epoch, view.assignment_epoch) == ("classic", None, None)
    assert (view.members[0].member_epoch, view.members[0].current) == (
        None,
        (TopicPartition("flights", 0),),
    )


def test_a_leader_epoch_is_known_only_if_it_was_committed() -> None:
    committed = fetch_answer(
        offsets={key(0): OffsetAndMetadata(5, leader_epoch=3), key(1): OffsetAndMetadata(5)}
    ).answers
    view = view_group(replace(read(), committed=committed))
    assert [each.committed_leader_epoch for each in view.partitions] == [3, None]


@pytest.mark.parametrize(
    ("bits", "names"),
    [
        (UNKNOWN_AUTHORIZED_OPERATIONS, None),
        (0, ()),
        (1 << 3 | 1 << 6 | 1 << 8, ("READ", "DELETE", "DESCRIBE")),
        # A bit of a newer Kafka, and the bits of UNKNOWN, ANY and ALL, which are no operations.
        (1 << 30 | 0b111 | 1 << 8, ("DESCRIBE",)),
        (sum(1 << bit for bit in OPERATIONS), tuple(OPERATIONS.values())),
    ],
)
def test_bits_are_kafkas_names(bits: int, names: tuple[str, ...] | None) -> None:
    assert authorized_operations(bits) == names


VIEW = view_group(
    read(
        member(ONE, [0, 1], [0]),
        member(TWO, [], [1]),
        partitions=4,
        committed={0: 1, 1: 5},
        ends={0: 10, 1: 5},
    )
)


def test_known_figures_are_summed_and_unknown_ones_counted() -> None:
    totals = group_totals(VIEW.members, VIEW.partitions)
    assert totals == VIEW.totals
    assert (totals.members, totals.partitions) == (2, 4)
    assert (totals.assigned_partitions, totals.unassigned_partitions) == (2, 2)
    assert (totals.moving_partitions, totals.lag, totals.unknown_lag_partitions) == (1, 9, 2)


def test_without_any_known_lag_the_sum_is_unknown() -> None:
    unknown = tuple(each for each in VIEW.partitions if each.lag is None)
    assert group_totals((), unknown).lag is None
    assert group_totals((), ()).lag == 0


def test_partitions_are_grouped_by_topic_in_their_order() -> None:
    flights = [TopicPartition("flights", each) for each in (2, 0)]
    grouped = by_topic([*flights, TopicPartition("orders", 1)])
    assert grouped == {"flights": [2, 0], "orders": [1]}


def test_plain_values_are_those_that_json_reads_back() -> None:
    value = {"a": ({"b": (1, 2)}, None), "c": "text"}
    assert json_value(value) == json.loads(json.dumps(value))


def partitions(*indexes: int, topic: str = "flights") -> list[TopicPartition]:
    return [TopicPartition(topic, each) for each in indexes]


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ([], ""),
        (partitions(3), "flights 3"),
        (partitions(2, 0, 1), "flights 0-2"),
        (partitions(0, 1, 2, 5, 7, 8), "flights 0-2, 5, 7-8"),
        (partitions(0, 1) + partitions(2, topic="orders"), "flights 0-1; orders 2"),
        (partitions(*range(0, 24, 2)), "flights 0, 2, 4, 6, 8, 10, 12, 14 and 4 more"),
        (partitions(*range(10_000)), "flights 0-9999"),
    ],
)
def test_partitions_are_written_as_ranges(given: list[TopicPartition], text: str) -> None:
    assert partition_ranges(given) == text


def test_what_could_move_the_cursor_is_replaced() -> None:
    assert printable("a\x1b[2Jb\r\nc\u202ed") == "a?[2Jb??c?d"
