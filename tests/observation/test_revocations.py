"""Revocations: when they begin and end, and how much of their time is used."""

from __future__ import annotations

from spark_groups.observation.group_events import EventKind
from spark_groups.observation.revocations import Revocations
from spark_groups.observation.views import view_group
from spark_groups.types import TopicPartition
from tests.observation.groups import ONE, TWO, member, read
from tests.observation.revocations_setup import GIVES_UP, revoking_group

APP_1 = "app-1 11111111"
GAVE_UP = read(member(ONE, [0], [0]), member(TWO, [1], [1]))


def test_a_member_on_this_machine_says_how_much_of_its_time_is_used() -> None:
    revocations = Revocations()
    (began,) = revocations.look(revoking_group(1.0), 10.0)
    assert (began.kind, began.text) == (
        EventKind.REVOCATION_BEGAN,
        f"{APP_1} must revoke flights 1 within 20 s",
    )
    (under_way,) = revocations.under_way()
    assert (under_way.since_s, under_way.age_s, under_way.budget_used) == (9.0, 1.0, 0.05)
    assert revocations.look(revoking_group(3.0), 12.0) == []
    assert revocations.under_way()[0].budget_used == 0.15
    (ended,) = revocations.look(view_group(GAVE_UP), 14.0)
    assert (ended.kind, ended.took_s, ended.budget_used) == (
        EventKind.REVOCATION_ENDED,
        5.0,
        0.25,
    )
    assert ended.text == f"{APP_1} revoked flights 1 after 5.0 s, 25% of its rebalance timeout"
    assert revocations.under_way() == ()


def test_of_a_member_elsewhere_the_time_is_unknown() -> None:
    revocations = Revocations()
    revocations.look(view_group(GIVES_UP), 10.0)
    (under_way,) = revocations.under_way()
    assert (under_way.age_s, under_way.rebalance_timeout_s, under_way.budget_used) == (None,) * 3
    assert under_way.to_json()["partitions"] == {"flights": [1]}
    (ended,) = revocations.look(view_group(GAVE_UP), 12.5)
    assert (ended.text, ended.budget_used) == (f"{APP_1} revoked flights 1 after 2.5 s", None)


def test_a_member_without_a_known_timeout_has_no_budget() -> None:
    revocations = Revocations()
    revocations.look(revoking_group(1.0, timeout_s=None), 10.0)
    assert revocations.under_way()[0].budget_used is None


def test_before_4_3_only_the_member_itself_knows() -> None:
    left_out = read(member(ONE, [0], [0]), member(TWO, [], [1]))
    snapshot = {"group": "flight-readers", "member_id": ONE, "revoking": ["flights-1"]}
    revocations = Revocations()
    revocations.look(view_group(left_out, [snapshot]), 10.0)
    assert revocations.under_way()[0].partitions == (TopicPartition("flights", 1),)


def test_a_member_that_is_gone_did_not_give_up() -> None:
    revocations = Revocations()
    revocations.look(view_group(GIVES_UP), 10.0)
    (ended,) = revocations.look(view_group(read(member(TWO, [0, 1]))), 12.0)
    assert ended.text == f"{APP_1} left the group before it revoked flights 1"
