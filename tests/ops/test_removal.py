"""Who is meant to be removed, and what became of them; test_remove_cli asks real brokers."""

from __future__ import annotations

import pytest

from spark_groups.errors import ErrorCode
from spark_groups.ops.removal import (
    IdKind,
    Outcome,
    Removal,
    RemovalView,
    check_ids,
    with_answers,
)
from tests.observation.groups import member

MEMBERS = (
    member("m1", instance_id="gate-1"),
    member("m2", instance_id="gate-2"),
    member("m3"),
)


def outcomes(checked: tuple[Removal, ...]) -> dict[str, str]:
    return {each.given: each.outcome.value for each in checked}


@pytest.mark.parametrize(
    ("instance_ids", "member_ids", "expected"),
    [
        (["gate-1", "gate-9"], [], {"gate-1": "removed", "gate-9": "unknown"}),
        ([], ["m3", "m1", "m9"], {"m3": "removed", "m1": "removed", "m9": "unknown"}),
        (["gate-1"], ["m1"], {"gate-1": "removed", "m1": "removed"}),
        (
            ["gate-1", "gate-2"],
            ["m2", "m3"],
            dict.fromkeys(["gate-1", "gate-2", "m2", "m3"], "removed"),
        ),
        (["gate-1"], ["m9"], {"gate-1": "removed", "m9": "unknown"}),
        (["gate-1"], ["m2"], {"gate-1": "fenced", "m2": "fenced"}),
        # The pair that fits is not doubted for the one that does not.
        (["gate-1"], ["m1", "m2"], {"gate-1": "removed", "m1": "removed", "m2": "fenced"}),
        (["gate-9"], ["m2"], {"gate-9": "unknown", "m2": "fenced"}),
    ],
)
def test_each_id_is_judged(instance_ids, member_ids, expected) -> None:
    assert outcomes(check_ids(MEMBERS, instance_ids, member_ids)) == expected


def test_whom_an_id_belongs_to_is_said() -> None:
    instance, one = check_ids(MEMBERS, ["gate-1"], ["m2"])
    assert one.remark == "member id m2 belongs to instance id gate-2, not gate-1"
    assert instance.remark == "instance id gate-1 belongs to member id m1, not m2"


def test_an_id_of_the_other_kind_is_hinted_at() -> None:
    instance, one = check_ids(MEMBERS, ["m1"], ["gate-1"])
    assert instance.remark.endswith("it is a member id")
    assert one.remark.endswith("it is an instance id")


@pytest.mark.parametrize(
    ("code", "outcome", "remark"),
    [
        (ErrorCode.NONE, Outcome.REMOVED, ""),
        (ErrorCode.UNKNOWN_MEMBER_ID, Outcome.REMOVED, "it had just left"),
        (ErrorCode.FENCED_INSTANCE_ID, Outcome.FENCED, "another member has just taken its"),
        (ErrorCode.GROUP_AUTHORIZATION_FAILED, Outcome.REFUSED, "GROUP_AUTHORIZATION_FAILED: the"),
    ],
)
def test_the_coordinator_has_the_last_word(code: ErrorCode, outcome: Outcome, remark: str) -> None:
    checked = check_ids(MEMBERS, ["gate-9"], ["m3"])
    unknown, one = with_answers(checked, {"m3": code.value})
    assert unknown == checked[0]
    assert one.outcome is outcome
    assert one.remark.startswith(remark)


def test_a_member_that_is_not_answered_for_is_not_removed() -> None:
    (one,) = with_answers(check_ids(MEMBERS, [], ["m1"]), {})
    assert one.outcome is Outcome.REFUSED
    assert "UNKNOWN_SERVER_ERROR" in one.remark


def test_a_view_has_plain_values_and_is_complete_only_if_all_are_gone() -> None:
    view = RemovalView(group_id="g", removals=check_ids(MEMBERS, ["gate-1"], []))
    assert view.is_complete
    assert view.to_json() == {
        "group_id": "g",
        "removals": [
            {
                "id_kind": "instance id",
                "given": "gate-1",
                "outcome": "removed",
                "member_id": "m1",
                "instance_id": "gate-1",
                "remark": "",
            }
        ],
        "is_dry_run": False,
    }
    lost = Removal(id_kind=IdKind.MEMBER_ID, given="m", outcome=Outcome.UNKNOWN)
    assert not RemovalView(group_id="g", removals=(*view.removals, lost)).is_complete
