"""A group as text: content, unknown values, and widths."""

from __future__ import annotations

import io
import re
from dataclasses import replace
from typing import Any

import pytest
from rich.console import Console

from spark_groups.cli.render import render_group
from spark_groups.observation.views import GroupView, view_group
from tests.observation.groups import ONE, TWO, member, read
from tests.observation.local_members_setup import PENDING_RANGES, SNAPSHOT

WIDE = 200


def shown(
    view: GroupView, width: int = WIDE, rows: int | None = None, *, colour: bool = False
) -> str:
    file = io.StringIO()
    console = Console(
        file=file,
        width=width,
        force_terminal=colour,
        color_system="standard" if colour else None,
        highlight=False,
        _environ={},
    )
    console.print(render_group(view, width=width, max_partition_rows=rows))
    return file.getvalue()


def row(text: str, *first_cells: str) -> list[str]:
    """Return the cells of the row that begins so."""
    for line in text.splitlines():
        cells = re.split(r" {2,}", line.strip())
        if cells[: len(first_cells)] == list(first_cells):
            return cells
    raise AssertionError(f"no row {first_cells} in\n{text}")


MOVING = view_group(
    read(
        member(ONE, [0, 1, 2], [0, 1], member_epoch=6),
        member(TWO, [], [2]),
        partitions=4,
        committed={0: 1_000, 1: 7},
        starts=dict.fromkeys(range(3), 0),
        ends=dict.fromkeys(range(3), 1_234_567),
        state="Reconciling",
    )
)
THOUSAND = view_group(
    read(
        member(ONE, range(500)),
        member(TWO, range(500, 999)),
        partitions=1_000,
        committed=dict.fromkeys(range(1_000), 10),
        starts=dict.fromkeys(range(1_000), 0),
        ends={each: 10 + each for each in range(999)},
    )
)


def test_the_header_says_the_state_in_a_sentence_and_the_totals() -> None:
    text = shown(MOVING)
    assert text.startswith("group flight-readers  Reconciling  Members are moving from their")
    assert "coordinator 127.0.0.1:9092 (id 1)   assignor uniform   group epoch 7" in text
    assert "assignment epoch 6" in text
    assert "members 2   partitions 4   assigned 3   unassigned 1   moving 1" in text
    assert "total lag 3,702,694 (1 of 4 partitions unknown)" in text


@pytest.mark.parametrize(
    ("operations", "written"),
    [(("READ", "DESCRIBE"), "READ, DESCRIBE"), ((), "none"), (None, "—")],
)
def test_authorized_operations_are_shown_on_request(
    operations: tuple[str, ...] | None, written: str
) -> None:
    view = replace(MOVING, authorized_operations=operations)
    console = Console(file=io.StringIO(), width=WIDE, color_system=None, _environ={})
    with console.capture() as text:
        console.print(render_group(view, width=WIDE, verbose=True))
    assert f"\nauthorized operations {written}\n" in text.get()
    assert "authorized" not in shown(view)


def test_members_are_shown_with_what_they_wait_for_and_give_up() -> None:
    text = shown(MOVING)
    assert row(text, f"app-1 {ONE}") == [
        *(f"app-1 {ONE}", "127.0.0.1", "consumer", "6", "3"),
        *("flights 0-2", "flights 0-1", "flights 2"),
    ]
    assert row(text, f"app-2 {TWO}") == [
        *(f"app-2 {TWO}", "127.0.0.1", "consumer", "7", "0", "flights 2", "flights 2")
    ]
    header = next(line for line in text.splitlines() if line.startswith("MEMBER"))
    to_revoke = next(line for line in text.splitlines() if line.startswith("app-1"))
    pending = next(line for line in text.splitlines() if line.startswith("app-2"))
    assert to_revoke.rindex("flights 2") == header.index("- TO REVOKE")
    assert pending.rindex("flights 2") == header.index("+ PENDING")


def test_partitions_are_shown_with_owner_next_owner_and_lag() -> None:
    text = shown(MOVING)
    one, two = f"app-1 {ONE}", f"app-2 {TWO}"
    assert row(text, "flights", "0") == [
        *("flights", "0", one, "0", "1,000", "1,234,567", "1,233,567")
    ]
    assert row(text, "flights", "2") == [
        *("flights", "2", one, two, "0", "none", "1,234,567", "1,234,567*")
    ]
    assert row(text, "flights", "3") == ["flights", "3", "no member", "—", "none", "—", "—"]
    assert "* no committed offset (2 of 4 partitions): lag counts from the log start" in text


def test_without_moves_there_are_no_columns_for_them() -> None:
    text = shown(view_group(read(member(ONE, [0, 1]))))
    assert "MOVES TO" not in text
    assert "PENDING" not in text
    assert "TO REVOKE" not in text
    assert "INSTANCE" not in text


def test_a_static_member_that_may_return_is_marked() -> None:
    text = shown(view_group(read(member(ONE, [0], instance_id="gate-1", member_epoch=-2))))
    assert "-2 (left, may return)" in text
    assert "gate-1" in text


def test_a_group_without_members_partitions_or_offsets_shows_a_sentence() -> None:
    text = shown(view_group(read(state="Empty")))
    assert "Empty  The group has no members; its committed offsets are kept." in text
    assert "no partitions: no assignment and no committed offsets" in text
    assert "MEMBER" not in text
    assert "total lag 0" in text


def test_remarks_are_listed_up_to_a_limit() -> None:
    reading = read(
        partitions=12,
        committed=dict.fromkeys(range(12), 9),
        starts=dict.fromkeys(range(12), 10),
        ends=dict.fromkeys(range(12), 10),
        state="Empty",
    )
    text = shown(view_group(reading))
    assert "flights-0: offsets deleted before they were read: 1" in text
    assert text.count("deleted before") == 10
    assert "and remarks on 2 more partitions" in text


def test_what_a_member_on_this_machine_says_is_added() -> None:
    text = shown(view_group(read(member(ONE, [0])), [SNAPSHOT]))
    assert (
        f"app-1 {ONE}, on this machine: RECONCILING, batch running for 12.3 s (partitions:"
        " 2, offsets: 20), must revoke flights 1; old-flights 10 (since 2.0 s), last"
        " heartbeat 0.3 s ago (session: 45 s), 2 commits refused"
    ) in " ".join(text.split())


def test_partitions_that_a_member_on_this_machine_waits_for_are_listed() -> None:
    waiting = SNAPSHOT | {"pending_ranges": PENDING_RANGES, "in_flight": None, "revoking": []}
    text = shown(view_group(read(member(ONE, [0])), [waiting]))
    assert "on this machine: RECONCILING, waiting for flights 1; orders 7, last heartbeat" in text


def test_partitions_that_a_member_on_this_machine_cannot_read_are_listed_with_the_cure() -> None:
    stuck = [
        {"topic": "flights", "partition": index, "waits_for": reason}
        for index, reason in enumerate(("OffsetFetch answers E (do this)", None) * 2)
    ]
    waiting = SNAPSHOT | {"in_flight": None, "revoking": [], "partitions": stuck}
    text = " ".join(shown(view_group(read(member(ONE, [0])), [waiting])).split())
    assert "RECONCILING, cannot read flights 0, 2 yet: OffsetFetch answers E (do this), " in text


@pytest.mark.parametrize(("idle_s", "is_said"), [(None, False), (120.0, False), (400.0, True)])
def test_the_silence_of_a_query_is_shown_once_it_is_long(
    idle_s: float | None, is_said: bool
) -> None:
    idle = SNAPSHOT | {"in_flight": None, "batch_age_s": None, "idle_s": idle_s}
    text = " ".join(shown(view_group(read(member(ONE, [0])), [idle])).split())
    assert ("no call from Spark for 400 s (leaves after 600 s)" in text) is is_said
    assert ("no call from Spark" in text) is is_said


@pytest.mark.parametrize(
    ("snapshot", "why"),
    [
        ({"instance_wait_left_s": 31.4}, "waiting for its instance id (at most 31 s more)"),
        ({"left_because_idle": True, "idle_s": 900.0}, "left the group until Spark calls"),
    ],
)
def test_a_query_outside_the_group_is_shown_with_the_reason(
    snapshot: dict[str, object], why: str
) -> None:
    waiting = {"group": "flight-readers", "member_id": TWO, "state": "JOINING"} | snapshot
    view = view_group(read(member(ONE, [0])), [waiting])
    text = " ".join(shown(view).split())
    assert f"{TWO}, on this machine, not a member: JOINING, {why}" in text
    assert view.to_json()["outside"][TWO]["revoking"] == {}
    unborn = {"group": "flight-readers", "member_id": TWO, "state": "JOINING"}
    assert not view_group(read(member(ONE, [0])), [unborn]).outside


@pytest.mark.parametrize("width", [40, 60, 79])
def test_nothing_is_wider_than_a_very_narrow_terminal(width: int) -> None:
    text = shown(MOVING, width)
    assert max(len(line) for line in text.splitlines()) <= width


@pytest.mark.parametrize("width", [80, 99, 100, 120, 149, 150, 250])
def test_nothing_is_wider_than_the_terminal_nor_lost(width: int) -> None:
    text = shown(MOVING, width)
    assert max(len(line) for line in text.splitlines()) <= width
    for cell in ("1,233,567", "no member", "app-1", "app-2", "1,234,567*"):
        assert cell in text, text


def test_the_narrower_the_terminal_the_shorter_the_names() -> None:
    assert row(shown(MOVING, WIDE), "flights", "0")[2] == f"app-1 {ONE}"
    assert row(shown(MOVING, 120), "flights", "0")[2] == "app-1 11111111"
    assert row(shown(MOVING, 80), "flights", "0")[2] == "app-1"


def test_members_with_one_client_id_stay_apart_in_narrow_tables() -> None:
    view = view_group(read(member(ONE, [0], client_id="app"), member(TWO, [1], client_id="app")))
    text = shown(view, 90)
    assert row(text, "flights", "0")[2] == "app 11111111"
    assert row(text, "flights", "1")[2] == "app 22222222"


def test_ids_that_begin_alike_are_written_in_full() -> None:
    view = view_group(read(member("12345678-a", [0]), member("12345678-b", [1])))
    text = shown(view, 120)
    assert row(text, "flights", "0")[2] == "app-1 12345678-a"


def test_a_thousand_partitions_share_rows_by_owner() -> None:
    text = shown(THOUSAND, 120, rows=60)
    assert len(text.splitlines()) < 20
    assert row(text, "flights 0-499") == [
        *("flights 0-499", "500", "app-1 11111111", "124,750", "0", "499 in 499")
    ]
    assert row(text, "flights 500-998") == [
        *("flights 500-998", "499", "app-2 22222222", "373,751", "0", "998 in 998")
    ]
    assert row(text, "flights 999") == ["flights 999", "1", "no member", "—", "1", "—"]


def test_a_thousand_partitions_have_a_row_each_if_that_is_wanted() -> None:
    text = shown(THOUSAND, 120)
    assert len(re.findall(r"^flights +\d+ ", text, re.MULTILINE)) == 1_000


def test_colour_is_only_written_where_there_is_a_terminal() -> None:
    assert "\x1b[" not in shown(MOVING)
    coloured = shown(MOVING, colour=True)
    assert "\x1b[" in coloured
    assert re.sub(r"\x1b\[[0-9;]*m", "", coloured) == shown(MOVING)


def test_names_from_strangers_cannot_write_escapes_or_markup() -> None:
    hostile = member(ONE, [0], client_id="[red]\x1b[2Jx", instance_id="\x1b]0;t\x07")
    text = shown(view_group(read(hostile)))
    assert "\x1b" not in text
    assert "[red]?[2Jx" in text


def waiting_for(*ranges: tuple[int, int | None, int | None]) -> dict[str, Any]:
    """Return the snapshot of a member that waits for ranges: partition, committed, end."""
    pending_ranges = [
        {
            "topic": "flights",
            "partition": partition,
            "committed_offset": committed_offset,
            "log_end_offset": log_end_offset,
        }
        for partition, committed_offset, log_end_offset in ranges
    ]
    return SNAPSHOT | {"member_id": TWO, "revoking": [], "pending_ranges": pending_ranges}


def moving(count: int, *ranges: tuple[int, int | None, int | None]) -> GroupView:
    """Return a group in which all partitions but the first are on their way to TWO."""
    reading = read(
        member(ONE, range(count), [0]), member(TWO, [], range(1, count)), partitions=count
    )
    return view_group(reading, [waiting_for(*ranges)])


def test_a_pending_partition_shows_its_withheld_range() -> None:
    text = shown(moving(3, (1, 1_000, 2_500), (2, None, 7)))
    assert row(text, "flights", "1")[-1] == "withheld [1,000, 2,500)"
    assert row(text, "flights", "2")[-1] == "withheld [—, 7)"
    assert text.count("withheld") == 2


@pytest.mark.parametrize("width", [80, 120])
def test_in_few_columns_it_stands_below_the_table(width: int) -> None:
    text = shown(moving(3, (1, 1_000, 2_500)), width)
    assert "flights-1: withheld [1,000, 2,500)" in text.splitlines()
    assert max(len(line) for line in text.splitlines()) <= width


def test_below_rows_that_are_shared_it_is_listed_up_to_a_limit() -> None:
    text = shown(moving(13, *((each, 0, each) for each in range(1, 13))), rows=5)
    assert "flights-1: withheld [0, 1)" in text
    assert text.count("withheld [") == 10
    assert "and withheld ranges of 2 more partitions" in text


def test_without_anything_withheld_there_is_no_column_for_it() -> None:
    assert "withheld" not in shown(moving(3))


def test_what_a_member_has_by_now_is_not_withheld_from_it() -> None:
    view = view_group(read(member(TWO, [0, 1])), [waiting_for((1, 5, 9))])
    assert "withheld" not in shown(view)
    assert view.partitions[1].withheld is None


def test_json_has_the_range_at_the_partition_and_at_the_member() -> None:
    plain = moving(3, (1, 1_000, 2_500)).to_json()
    withheld = {
        "topic": "flights",
        "partition": 1,
        "committed_offset": 1_000,
        "log_end_offset": 2_500,
    }
    assert [each["withheld"] for each in plain["partitions"]] == [None, withheld, None]
    (local,) = (each["local"] for each in plain["members"] if each["local"])
    assert local["withheld"] == [withheld]
