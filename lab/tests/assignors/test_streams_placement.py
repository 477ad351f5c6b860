"""Where tasks run: even loads, state before movement, and the bounds of warm-ups and standbys."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from random import Random
from uuid import UUID

import pytest

from group_lab.assignors.streams_metadata import TaskId
from group_lab.assignors.streams_placement import StreamsConfig, StreamsMember, Tasks, place

LIMIT = 100
CONFIG = StreamsConfig(acceptable_recovery_lag=LIMIT, max_warmup_replicas=1)
ROUNDS_MAX = 40


def tasks(*numbers: int) -> frozenset[TaskId]:
    return frozenset(TaskId(0, each) for each in numbers)


ALL = tasks(0, 1, 2, 3)


def member(
    process: int,
    *active: int,
    lags: Mapping[int, int] | None = None,
    gave_up: bool = False,
) -> StreamsMember:
    found = {TaskId(0, each): lag for each, lag in (lags or {}).items()}
    return StreamsMember(UUID(int=process), tasks(*active), found, gave_up)


def placed(
    members: Mapping[str, StreamsMember],
    config: StreamsConfig = CONFIG,
    stateful: frozenset[TaskId] = ALL,
) -> dict[str, Tasks]:
    return place(ALL, stateful, members, config)


def active(found: Mapping[str, Tasks]) -> dict[str, set[TaskId]]:
    return {member_id: each.active for member_id, each in found.items()}


def warmups(found: Mapping[str, Tasks]) -> dict[str, set[TaskId]]:
    return {member_id: each.warmup for member_id, each in found.items() if each.warmup}


def standbys(found: Mapping[str, Tasks]) -> dict[str, set[TaskId]]:
    return {member_id: each.standby for member_id, each in found.items() if each.standby}


def test_without_any_state_tasks_are_spread_at_once() -> None:
    found = placed({"a": member(1), "b": member(2)})
    assert active(found) == {"a": tasks(0, 2), "b": tasks(1, 3)}
    assert warmups(found) == {}


def test_a_new_member_warms_up_while_the_tasks_stay() -> None:
    found = placed({"a": member(1, 0, 1, 2, 3), "b": member(2)})
    assert active(found) == {"a": ALL, "b": set()}
    assert warmups(found) == {"b": tasks(0)}


def test_a_task_moves_when_its_warm_up_has_caught_up_and_the_next_one_begins() -> None:
    found = placed({"a": member(1, 0, 1, 2, 3), "b": member(2, lags={0: LIMIT})})
    assert active(found) == {"a": tasks(1, 2, 3), "b": tasks(0)}
    assert warmups(found) == {"b": tasks(1)}


def test_a_lag_above_the_limit_does_not_move_a_task() -> None:
    found = placed({"a": member(1, 0, 1, 2, 3), "b": member(2, lags={2: LIMIT + 1})})
    assert active(found) == {"a": ALL, "b": set()}
    assert warmups(found) == {"b": tasks(2)}, "that warm-up is nearest to its end"


def test_tasks_without_state_move_at_once_and_before_others() -> None:
    members = {"a": member(1, 0, 1, 2, 3), "b": member(2)}
    assert active(placed(members, stateful=frozenset())) == {"a": tasks(2, 3), "b": tasks(0, 1)}
    found = placed(members, stateful=tasks(0, 1, 2))
    assert active(found) == {"a": tasks(0, 1, 2), "b": tasks(3)}
    assert warmups(found) == {"b": tasks(0)}


def test_a_member_of_the_same_instance_has_the_state() -> None:
    found = placed({"a": member(1, 0, 1, 2, 3), "b": member(1)})
    assert active(found) == {"a": tasks(2, 3), "b": tasks(0, 1)}
    assert warmups(found) == {}


def test_no_more_warm_ups_than_configured() -> None:
    members = {"a": member(1, 0, 1, 2, 3), "b": member(2), "c": member(3)}
    for most, expected in ((1, 1), (2, 2), (5, 2)):
        found = placed(members, replace(CONFIG, max_warmup_replicas=most))
        assert sum(map(len, warmups(found).values())) == expected


def test_the_standby_becomes_active_when_the_owner_is_gone() -> None:
    config = replace(CONFIG, num_standby_replicas=1)
    found = placed({"a": member(1), "b": member(2, 0, 1), "c": member(3)}, config)
    assert standbys(found).keys() == {"a", "b", "c"}
    left = {"b": member(2, 0, 1), "c": member(3, lags={2: 0, 3: 0})}
    assert active(placed(left, config)) == {"b": tasks(0, 1), "c": tasks(2, 3)}


def test_a_standby_without_room_is_active_until_another_member_has_caught_up() -> None:
    found = placed({"b": member(2, 0, 1, lags={2: 0, 3: 0}), "c": member(3)})
    assert active(found) == {"b": ALL, "c": set()}
    assert sum(map(len, warmups(found).values())) == 1


def test_the_nearest_standby_gets_the_task_of_an_owner_that_is_gone() -> None:
    found = placed({"b": member(1, 0, 1), "c": member(2), "d": member(3, lags={2: 9, 3: 9})})
    assert active(found) == {"b": tasks(0, 1), "c": set(), "d": tasks(2, 3)}
    assert warmups(found) == {"c": tasks(3)}


def test_a_task_that_waits_stays_with_its_owner_though_others_have_its_state() -> None:
    found = placed({"b": member(1, 0, 1, 2), "a": member(2, 3, lags={0: 0}), "c": member(3)})
    assert active(found) == {"b": tasks(0, 1, 2), "a": tasks(3), "c": set()}
    assert warmups(found) == {"c": tasks(0)}


def test_the_lag_of_an_instance_is_the_least_of_its_members() -> None:
    for lags in ((0, 500), (500, 0)):
        members = {"a": member(1, 0, 1, 2, 3)}
        members |= {f"b{at}": member(2, lags={0: lag}) for at, lag in enumerate(lags)}
        assert TaskId(0, 0) not in active(placed(members))["a"]


def test_standbys_are_on_other_instances_and_as_many_as_there_are() -> None:
    config = replace(CONFIG, num_standby_replicas=2)
    found = placed({"a": member(1, 0, 1), "b": member(1, 2, 3), "c": member(2)}, config)
    # c warms up one task, and the instance of a and b has the only other state of each.
    (warmed,) = warmups(found)["c"]
    assert standbys(found) == {"c": ALL - {warmed}}


def test_a_standby_stays_where_its_state_is() -> None:
    config = replace(CONFIG, num_standby_replicas=1)
    found = placed(
        {"a": member(1, 0, 1), "b": member(2, 2, 3, lags={0: 5}), "c": member(3, lags={1: 500})},
        config,
    )
    assert TaskId(0, 0) in found["b"].standby | found["b"].active


def test_a_warm_up_that_fell_back_is_given_to_another_task() -> None:
    members = {"a": member(1, 0, 1, 2, 3), "b": member(2, lags={0: LIMIT + 1})}
    assert warmups(placed(members)) == {"b": tasks(0)}
    members["b"] = replace(members["b"], gave_up=True)
    assert warmups(placed(members)) == {"b": tasks(1)}


@pytest.mark.parametrize(
    "wrong",
    [{"max_warmup_replicas": 0}, {"num_standby_replicas": -1}, {"acceptable_recovery_lag": -1}],
)
def test_a_configuration_that_cannot_be_is_refused(wrong: Mapping[str, int]) -> None:
    with pytest.raises(ValueError, match="at least one warm-up replica"):
        StreamsConfig(**wrong)


@dataclass
class Application:
    """Instances whose state grows while they restore it, and the group's assignment.

    Args:
        disks: The lag of each task's state, by instance.
    """

    tasks: frozenset[TaskId]
    stateful: frozenset[TaskId]
    config: StreamsConfig
    chance: Random
    members: dict[str, StreamsMember] = field(default_factory=dict)
    disks: dict[UUID, dict[TaskId, int]] = field(default_factory=dict)
    joined: int = 0

    def join(self) -> None:
        self.joined += 1
        process = UUID(int=self.chance.randint(1, 4))
        lags = dict(self.disks.get(process, {}))
        self.members[f"m{self.joined}"] = StreamsMember(process, frozenset(), lags)

    def leave(self) -> None:
        del self.members[self.chance.choice(sorted(self.members))]

    def compute(self) -> dict[str, Tasks]:
        """Return the new tasks, checked; the members take them over."""
        found = place(self.tasks, self.stateful, self.members, self.config)
        check(found, self)
        for member_id, own in found.items():
            each = self.members[member_id]
            self.members[member_id] = replace(each, active=frozenset(own.active))
            disk = self.disks.setdefault(each.process_id, {})
            disk |= dict.fromkeys(own.active & self.stateful, 0)
        return found

    def restore(self, found: Mapping[str, Tasks]) -> None:
        """Bring every replica up to date and report it."""
        for member_id, own in found.items():
            each = self.members[member_id]
            restored = dict.fromkeys(own.standby | own.warmup, 0)
            self.disks.setdefault(each.process_id, {}).update(restored)
            self.members[member_id] = replace(each, lags={**each.lags, **restored})


def check(found: Mapping[str, Tasks], application: Application) -> None:
    """Check what holds for every placement."""
    config, members = application.config, application.members
    everywhere = [task for own in found.values() for task in own.active]
    assert sorted(everywhere) == sorted(application.tasks), "each task is active once"
    assert sum(len(own.warmup) for own in found.values()) <= config.max_warmup_replicas
    for task in application.tasks:
        replicas = processes(found, members, task, "standby", "warmup")
        (owner,) = processes(found, members, task, "active")
        assert owner not in replicas, "an instance has a task once"
        assert len(replicas) == len(set(replicas))
        standby = processes(found, members, task, "standby")
        free = {each.process_id for each in members.values()} - {owner}
        free -= set(processes(found, members, task, "warmup"))
        expected = (
            min(config.num_standby_replicas, len(free)) if task in application.stateful else 0
        )
        assert len(standby) == expected


def processes(
    found: Mapping[str, Tasks], members: Mapping[str, StreamsMember], task: TaskId, *kinds: str
) -> list[UUID]:
    return [
        members[member_id].process_id
        for member_id, own in found.items()
        for kind in kinds
        if task in getattr(own, kind)
    ]


@pytest.mark.parametrize("seed", range(60))
def test_drawn_histories_become_even_and_then_stay_as_they_are(seed: int) -> None:
    chance = Random(seed)
    every = frozenset(
        TaskId(part, each) for part in range(chance.randint(1, 3)) for each in range(4)
    )
    config = StreamsConfig(LIMIT, chance.randint(1, 3), chance.randint(0, 2))
    stateful = frozenset(each for each in every if each.subtopology or chance.random() < 0.8)
    application = Application(every, stateful, config, chance)
    for _ in range(8):
        if len(application.members) > 1 and chance.random() < 0.4:
            application.leave()
        else:
            application.join()
        if chance.random() < 0.5:
            application.restore(application.compute())
    for _ in range(ROUNDS_MAX):
        found = application.compute()
        if not warmups(found):
            break
        application.restore(found)
    assert warmups(found) == {}
    loads = [len(each.active) for each in found.values()]
    assert max(loads) - min(loads) <= 1
    application.restore(found)
    assert active(application.compute()) == active(found)
