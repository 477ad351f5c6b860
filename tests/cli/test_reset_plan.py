"""New offsets for each kind of target."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from spark_groups.cli.reset_plan import (
    CheckpointBatch,
    KnownOffsets,
    ResetKind,
    ResetRow,
    ResetTarget,
    ResetView,
    parse_datetime,
    parse_duration,
    parse_offsets,
    plan_offset,
    refusal_of,
)
from spark_groups.errors import OptionsError
from tests.cli.printed import printed

KNOWN = KnownOffsets(
    committed_offset=50,
    log_start_offset=10,
    log_end_offset=100,
    at_timestamp=70,
    other_committed_offset=60,
    file_offset=20,
)
HIGHER = "is higher than latest offset for topic partition flights-0. Value will be set to 100"
LOWER = "is lower than earliest offset for topic partition flights-0. Value will be set to 10"


@pytest.mark.parametrize(
    ("kind", "number", "known", "expected", "remark"),
    [
        (ResetKind.TO_EARLIEST, 0, KNOWN, 10, ""),
        (ResetKind.TO_LATEST, 0, KNOWN, 100, ""),
        (ResetKind.TO_OFFSET, 42, KNOWN, 42, ""),
        (ResetKind.TO_OFFSET, 100, KNOWN, 100, ""),
        (ResetKind.TO_OFFSET, 500, KNOWN, 100, f"New offset (500) {HIGHER}"),
        (ResetKind.TO_OFFSET, 0, KNOWN, 10, f"New offset (0) {LOWER}"),
        (ResetKind.SHIFT_BY, -5, KNOWN, 45, ""),
        (ResetKind.SHIFT_BY, 51, KNOWN, 100, f"New offset (101) {HIGHER}"),
        (ResetKind.SHIFT_BY, -60, KNOWN, 10, f"New offset (-10) {LOWER}"),
        (ResetKind.TO_DATETIME, 0, KNOWN, 70, ""),
        (ResetKind.FROM_GROUP, 0, KNOWN, 60, ""),
        (ResetKind.FROM_FILE, 0, KNOWN, 20, ""),
        (ResetKind.TO_CURRENT, 0, KNOWN, 50, ""),
        (ResetKind.BY_DURATION, 0, KNOWN, 70, ""),
        (ResetKind.FROM_CHECKPOINT, 0, KNOWN, 60, ""),
        (ResetKind.FROM_CHECKPOINT, 0, replace(KNOWN, other_committed_offset=100), 100, ""),
        (
            ResetKind.FROM_CHECKPOINT,
            0,
            replace(KNOWN, other_committed_offset=4),
            10,
            "the query has not read 6 offsets from 4 on, which retention has deleted: using the"
            " start of the log",
        ),
    ],
)
def test_offsets_stay_within_the_log(kind, number, known, expected, remark) -> None:
    assert plan_offset(ResetTarget(kind, number, "h"), "flights-0", known) == (expected, remark)


def test_a_time_after_the_last_record_is_the_end_of_the_log() -> None:
    late = KnownOffsets(log_start_offset=10, log_end_offset=100, at_timestamp=-1)
    assert plan_offset(ResetTarget(ResetKind.TO_DATETIME), "flights-0", late) == (
        100,
        "no record at or after that time: using the end of the log",
    )


@pytest.mark.parametrize(
    ("kind", "known", "remark"),
    [
        *(
            (kind, KnownOffsets(log_end_offset=9), "log start and end offsets")
            for kind in ResetKind
        ),
        (
            ResetKind.SHIFT_BY,
            KnownOffsets(log_start_offset=0, log_end_offset=9),
            "since there is no current committed offset",
        ),
        (
            ResetKind.TO_DATETIME,
            KnownOffsets(log_start_offset=0, log_end_offset=9),
            "the offset at that time is unknown",
        ),
        (
            ResetKind.FROM_GROUP,
            KnownOffsets(log_start_offset=0, log_end_offset=9),
            "group 'h' has no committed offset here",
        ),
        (
            ResetKind.FROM_CHECKPOINT,
            replace(KNOWN, other_committed_offset=101),
            "offset (101) is beyond the end of the log (100): the topic was created again",
        ),
        (
            ResetKind.FROM_CHECKPOINT,
            replace(KNOWN, other_committed_offset=None),
            "no offset here: the committed offset stays",
        ),
        (
            ResetKind.FROM_CHECKPOINT,
            KnownOffsets(log_start_offset=0, log_end_offset=9),
            "no offset here: it is read from its beginning",
        ),
    ],
)
def test_a_target_that_needs_an_unknown_offset_plans_none(kind, known, remark) -> None:
    planned, message = plan_offset(ResetTarget(kind, 3, "h"), "flights-0", known)
    assert planned is None
    assert remark in message


GOOD = ResetRow(topic="flights", partition=0, new_offset=5)
BAD = ResetRow(topic="flights", partition=1)


@pytest.mark.parametrize("state", ["Empty", "Dead"])
def test_a_group_without_members_is_reset_in_all_partitions_or_none(state: str) -> None:
    assert refusal_of("g", state, (), (GOOD,)) == ""
    assert refusal_of("g", state, (), (GOOD, BAD)).startswith(
        "1 of 2 partitions have no new offset"
    )
    assert refusal_of("g", state, (), ()) == "There are no partitions to reset."


def test_what_the_other_group_never_committed_is_passed_over() -> None:
    over = replace(BAD, is_passed_over=True)
    assert refusal_of("g", "Empty", (), (GOOD, over)) == ""
    assert refusal_of("g", "Empty", (), (over,)) == "There are no partitions to reset."
    assert refusal_of("g", "Empty", (), (GOOD, BAD, over)).startswith("1 of 3 partitions")


def test_a_group_with_members_says_whom_to_stop() -> None:
    assert refusal_of("g", "Stable", ("app m1",), (GOOD,)) == (
        "Assignments can only be reset if the group 'g' is inactive, but the current state is"
        " Stable. Stop its members: app m1."
    )


def test_only_a_reset_executed_without_an_error_is_complete() -> None:
    refused = ResetRow(topic="flights", partition=1, new_offset=5, error="UNKNOWN_MEMBER_ID")
    for rows, executed, complete in (
        ((GOOD,), False, False),
        ((GOOD,), True, True),
        ((GOOD, refused), True, False),
    ):
        view = ResetView(group_id="g", group_state="Empty", rows=rows, is_executed=executed)
        assert view.is_complete is complete
        assert json.loads(json.dumps(view.to_json())) == view.to_json()


def test_the_next_start_is_described() -> None:
    rows = (
        ResetRow(topic="flights", partition=0, committed_offset=9, new_offset=4),
        ResetRow(topic="flights", partition=1, committed_offset=9, new_offset=12),
        ResetRow(topic="flights", partition=2, new_offset=5),
        ResetRow(topic="flights", partition=3, committed_offset=9, new_offset=0, error="NO"),
    )
    view = ResetView(group_id="g", group_state="Empty", rows=rows)
    assert view.next_start.startswith(
        "With --execute the next start of a query continues from NEW-"
    )
    command = "table set-offsets g --table TABLE --to-current --topic"
    assert printed(view.next_start) == [
        f"{command} flights:0 --backwards --execute",
        f"{command} flights:1 --execute",
    ]
    for sentence in (
        " 5 offsets are read again; a table of write_table skips those that it has. To write them"
        " again, delete all rows of these partitions from NEW-OFFSET on, run `",
        " 3 offsets are skipped; a table of write_table that lacks them refuses the next batch.",
        ", and start the query with a new checkpointLocation. 3 offsets",
    ):
        assert sentence in view.next_start
    copied = replace(view, rows=(GOOD,), copied_group_id="other readers")
    assert copied.next_start.endswith(
        " run `spark-groups table set-offsets g --table TABLE --from-group 'other readers'"
        " --execute`. Without them, the table may get records twice."
    )
    assert view.to_json()["next_start"] == view.next_start
    done = replace(view, rows=(GOOD,), is_executed=True)
    assert done.next_start.startswith("The next start of a query continues from NEW-OFFSET, not")
    assert "offsets are" not in done.next_start
    assert replace(view, refusal="no").next_start == ""


@pytest.mark.parametrize(
    "text",
    [
        "2026-01-02T03:04:05.678",
        "2026-01-02T03:04:05.678Z",
        "2026-01-02T03:04:05.678+00:00",
        "2026-01-02T05:04:05.678+02:00",
        "2026-01-02T05:04:05.678+0200",
        "2026-01-02 05:04:05.678+02",
        "2026-01-02T00:34:05.678400900-02:30",
    ],
)
def test_a_time_is_in_utc_unless_it_says_otherwise(text: str) -> None:
    assert parse_datetime(text) == 1_767_323_045_678


@pytest.mark.parametrize(
    "text", ["2026-01-02", "2026-01-02T00:00", "2026-01-02 00:00:00", "2026-01-02T02:00:00.0+02"]
)
def test_time_of_day_its_seconds_and_their_fraction_may_be_left_out(text: str) -> None:
    assert parse_datetime(text) == 1_767_312_000_000


@pytest.mark.parametrize(
    "text",
    [
        *("", "Z", "yesterday", "2026-13-01T00:00:00.000", "2026-01-02T24:00:00.000"),
        # Forms that Python takes from 3.11 on.
        *("20260102T030405", "2026-W01-5", "2026-01-02T03", "2026-01-02T03:04:05,6", "2026-01-02Z"),
    ],
)
def test_a_malformed_time_is_refused(text: str) -> None:
    with pytest.raises(OptionsError, match=r"is not YYYY-MM-DDThh:mm:ss\.sss"):
        parse_datetime(text)


@pytest.mark.parametrize(
    ("text", "expected_ms"),
    [("PT90S", 90_000), ("P1D", 86_400_000), ("PT2H30M", 9_000_000), ("P1DT0.5S", 86_400_500)],
)
def test_durations_are_those_of_kafkas_tool(text: str, expected_ms: int) -> None:
    assert parse_duration(text) == expected_ms


@pytest.mark.parametrize("text", ["", "P", "PT", "90", "1D", "P1H", "PT-5S", f"P{'9' * 400}D"])
def test_other_durations_are_refused(text: str) -> None:
    with pytest.raises(OptionsError, match="is not PnDTnHnMnS"):
        parse_duration(text)


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        (["flights,0"], "line 1 is neither"),
        (["flights,0,x"], "line 1 is neither"),
        ([f"flights,0,{'9' * 5000}"], "line 1 is neither"),
        (["x" * 200_000], "is not CSV"),
        (["flights,0,1", "g,flights,0,2"], "line 2 repeats flights-0"),
        (["other,flights,0,2"], "no line has an offset for group 'g'"),
        ([], "no line has an offset"),
    ],
)
def test_a_file_of_offsets_that_is_malformed_is_refused(lines: list[str], message: str) -> None:
    with pytest.raises(OptionsError, match=message):
        parse_offsets(lines, "g")


def test_current_offsets_are_the_end_where_nothing_is_committed() -> None:
    known = KnownOffsets(log_start_offset=0, log_end_offset=9)
    offset, remark = plan_offset(ResetTarget(ResetKind.TO_CURRENT), "flights-0", known)
    assert (offset, "no current committed offset" in remark) == (9, True)


def test_a_time_before_1970_is_refused() -> None:
    with pytest.raises(OptionsError, match="is before 1970"):
        parse_datetime("1969-12-31T23:59:59.999")


def test_a_planned_batch_is_announced_with_the_cure() -> None:
    clean = CheckpointBatch(place="cp", batch_id=41)
    assert clean.origin == "NEW-OFFSET is the end of batch 41, the last committed in cp."
    assert clean.warning == ""
    assert (
        "No batch of cp is committed: NEW-OFFSET is where" in replace(clean, batch_id=None).origin
    )
    planned = replace(clean, planned_batch_id=42, planned_offsets=1_200)
    assert planned.warning.startswith("Batch 42 is planned, but not committed: its 1,200 offsets")
    assert "start the old query once more with trigger(availableNow=True)" in planned.warning
    view = ResetView(group_id="g", group_state="Dead", rows=(GOOD,), checkpoint=planned)
    assert f"{planned.origin} With --execute the next start of a query with a" in view.next_start
    assert view.to_json()["checkpoint"]["planned_batch_id"] == 42
