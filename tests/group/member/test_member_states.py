"""The one table of legal moves: every state with every input, and the picture of it in the docs."""

from __future__ import annotations

from itertools import product

import pytest

from spark_groups.group.member.member import Member
from spark_groups.group.member.member_config import MemberConfig
from spark_groups.group.member.member_states import (
    TRANSITIONS,
    IllegalTransitionError,
    MemberInput,
    MemberState,
    next_state,
)
from spark_groups.group.member.subscription import Subscription
from workshop.tools.draw_member_states import PAGE, draw

PAIRS = list(product(MemberState, MemberInput))
LEGAL = [(state, each) for state, each in PAIRS if each in TRANSITIONS[state]]
ILLEGAL = [(state, each) for state, each in PAIRS if each not in TRANSITIONS[state]]
S = MemberState


def names(value: object) -> str:
    return str(getattr(value, "name", value))


@pytest.mark.parametrize(("state", "member_input"), LEGAL, ids=names)
def test_legal_input_leads_where_the_table_says(
    state: MemberState, member_input: MemberInput
) -> None:
    assert next_state(state, member_input) is TRANSITIONS[state][member_input]


@pytest.mark.parametrize(("state", "member_input"), ILLEGAL, ids=names)
def test_illegal_input_raises_and_changes_nothing(
    state: MemberState, member_input: MemberInput
) -> None:
    member = Member(
        MemberConfig(group_id="g", subscription=Subscription.of_names("t")), lambda: "m"
    )
    member.state = state
    with pytest.raises(IllegalTransitionError, match=f"{state.name}.*{member_input.name}"):
        member._move(member_input)
    assert member.state is state


def test_table_has_a_row_for_every_state_and_uses_every_input() -> None:
    assert set(TRANSITIONS) == set(MemberState)
    assert {each for row in TRANSITIONS.values() for each in row} == set(MemberInput)


def test_every_state_can_be_reached_and_left() -> None:
    reached = {S.UNSUBSCRIBED}
    while True:
        more = {then for state in reached for then in TRANSITIONS[state].values()} - reached
        if not more:
            break
        reached |= more
    assert reached == set(MemberState)
    assert all(set(row.values()) != {state} for state, row in TRANSITIONS.items())


@pytest.mark.parametrize("state", MemberState, ids=names)
def test_leaving_is_possible_from_everywhere(state: MemberState) -> None:
    assert next_state(state, MemberInput.LEAVE) in (state, S.PREPARE_LEAVING)


@pytest.mark.parametrize(
    "state", [S.JOINING, S.RECONCILING, S.ACKNOWLEDGING, S.STABLE, S.FENCED], ids=names
)
def test_members_can_be_lost_and_fail(state: MemberState) -> None:
    assert next_state(state, MemberInput.LOST) is S.FENCED
    assert next_state(state, MemberInput.FAILED) is S.FATAL


def test_picture_in_the_docs_is_the_table() -> None:
    assert PAGE.read_text(encoding="utf-8") == draw(), (
        "docs/member_states.md is older than the table: workshop/tools/draw_member_states.py"
    )
