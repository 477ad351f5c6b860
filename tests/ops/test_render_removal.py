"""What became of members, as text."""

from __future__ import annotations

from rich.console import Console

from spark_groups.ops.removal import RemovalView, check_ids
from spark_groups.ops.render_removal import render_removals
from tests.observation.groups import member

MEMBERS = (member("m1", instance_id="gate-1"), member("m2"))


def text(view: RemovalView) -> list[str]:
    console = Console(width=200, color_system=None)
    with console.capture() as capture:
        console.print(render_removals(view))
    return capture.get().splitlines()


def test_each_id_has_a_line() -> None:
    checked = check_ids(MEMBERS, ["gate-1", "gate-\x1b"], ["m1", "m2"])
    assert text(RemovalView(group_id="g", removals=checked)) == [
        "instance id gate-1: removed (member id m1)",
        "instance id gate-?: unknown (no member of the group has this instance id)",
        "member id m1: removed (instance id gate-1)",
        "member id m2: removed",
    ]


def test_an_id_that_is_somebody_elses_says_whose() -> None:
    lines = text(RemovalView(group_id="g", removals=check_ids(MEMBERS, ["gate-2"], ["m1"])))
    said = "member id m1: fenced (member id m1 belongs to instance id gate-1, not gate-2)"
    assert lines[1] == said
