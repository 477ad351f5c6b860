"""The states of a group of the 0.9 design, and its commits."""

from __future__ import annotations

import itertools
import re
from pathlib import Path

import pytest

from group_lab.coordinator import records as r
from group_lab.coordinator.design_0_9.group import (
    SUCCESSORS,
    CoordinatorState,
    DesignGroup,
    generation_record,
    loaded_design,
)
from group_lab.coordinator.design_0_9.messages import DesignErrorCode
from group_lab.coordinator.log import batch_bytes
from group_lab.coordinator.profile import PROFILES, profile_named
from lab.tests.coordinator.design_0_9.driving import (
    GROUP,
    SESSION_S,
    DrivenDesign,
    joined,
    partitions,
)
from spark_groups.group.member.messages import OffsetCommitResponse

PAGE = Path(__file__).parents[4] / "docs" / "explanation" / "design_0_9.md"


def test_every_state_has_its_successors() -> None:
    assert set(SUCCESSORS) == set(CoordinatorState)
    assert all(
        CoordinatorState.DOWN in SUCCESSORS[each]
        for each in CoordinatorState
        if each is not CoordinatorState.DOWN
    )


@pytest.mark.parametrize(("before", "after"), itertools.product(CoordinatorState, CoordinatorState))
def test_a_group_moves_to_successors_only(
    before: CoordinatorState, after: CoordinatorState
) -> None:
    group = DesignGroup(group_id=GROUP, state=before)
    if after in SUCCESSORS[before]:
        assert group.moved(after).state is after
    else:
        with pytest.raises(ValueError, match=f"{after.value} may not follow {before.value}"):
            group.moved(after)


def test_a_generation_is_one_record_which_a_coordinator_loads() -> None:
    driven = DrivenDesign()
    first, second = driven.steady(2)
    (batch,) = driven.log.batches[-1:]
    (record,) = batch.records
    assert isinstance(record.value, r.DesignGenerationValue)
    assert record == generation_record(GROUP, driven.group.written)
    assert batch_bytes(batch.records) > 100
    loaded = loaded_design(GROUP, record.value)
    assert (loaded.state, loaded.generation_id) == (CoordinatorState.CATCH_UP, 2)
    assert set(loaded.consumers) == {first, second}
    assert record.value.partition_counts == {"foo": 6}
    assert {each.partitions for each in record.value.consumers} == {
        partitions("foo", 0, 1, 2),
        partitions("foo", 3, 4, 5),
    }


def test_the_profile_has_no_name_on_the_command_line() -> None:
    assert "design-0.9" not in PROFILES
    with pytest.raises(KeyError):
        profile_named("design-0.9")


@pytest.mark.parametrize("difference", [-1, 1])
def test_a_commit_of_another_generation_is_refused(difference: int) -> None:
    driven = DrivenDesign()
    first, _ = driven.steady(2)
    assert driven.commit(first, 2 + difference) == DesignErrorCode.ILLEGAL_GENERATION
    assert driven.commit(first, 2) == DesignErrorCode.NONE
    assert driven.commit("other", 2) == DesignErrorCode.UNKNOWN_CONSUMER


def test_commits_are_accepted_until_the_generation_is_decided() -> None:
    driven = DrivenDesign()
    first, second = driven.steady(2)
    driven.join()
    assert driven.commit(second) == DesignErrorCode.NONE
    driven.join(first)
    driven.replicates = False
    driven.join(second)
    assert driven.state is CoordinatorState.REBALANCING
    late = driven.send(driven.commit_request(second, 2))
    driven.replicate()
    assert isinstance(late.response, OffsetCommitResponse)
    assert set(late.response.errors.values()) == {DesignErrorCode.ILLEGAL_GENERATION}


def test_a_commit_is_no_sign_of_life() -> None:
    driven = DrivenDesign()
    first, second = driven.steady(2)
    driven.wait(SESSION_S - 1)
    assert driven.commit(first) == DesignErrorCode.NONE
    assert driven.beat(second) == DesignErrorCode.NONE
    driven.wait(1)
    assert driven.group.dead == {first}


def test_an_operator_commits_only_to_a_group_without_consumers() -> None:
    driven = DrivenDesign()
    assert driven.commit("", -1) == DesignErrorCode.NONE
    driven.steady(1)
    assert driven.commit("", -1) == DesignErrorCode.UNKNOWN_CONSUMER


def test_offsets_of_subscribed_topics_and_the_group_are_kept() -> None:
    driven = DrivenDesign()
    driven.commit("", -1)
    consumer_id = joined(driven.join(session_s=1800.0)).consumer_id
    for _ in range(8 * 24 * 2):
        driven.wait(1799)
        assert driven.beat(consumer_id) == DesignErrorCode.NONE
    assert driven.shard.memory.group(GROUP).offsets
    driven.wait(8 * 24 * 3600)
    assert driven.state is CoordinatorState.READY
    assert not driven.shard.memory.group(GROUP).offsets
    driven.fail_over()
    assert (driven.group.generation_id, driven.state) == (2, CoordinatorState.READY)


def test_the_page_has_the_states_of_the_table() -> None:
    rows = re.findall(r"^\| ([^|]+) \| [^|]+ \| ([^|]+) \|$", PAGE.read_text("utf-8"), re.M)
    written = dict(rows)
    for state, successors in SUCCESSORS.items():
        assert written[state.value] == ", ".join(sorted(each.value for each in successors))
