"""When a group has come to rest."""

from __future__ import annotations

from spark_groups.lab.sim.rest import restless
from spark_groups.lab.sim.swarm import Swarm
from tests.lab.sim.scenes import world


def test_everything_that_is_still_to_come_is_named() -> None:
    found = world(Swarm(queries=1, partitions=1, starts_s=0.0))
    key, log = next(iter(found.scene.storage.logs.items()))
    assert list(restless(found.scene)) == [
        "q1 is down",
        f"{key} is committed at None of {log.end_offset}",
    ]
    found.queries[0].start()
    assert [each.split(" (")[0] for each in restless(found.scene)][:2] == [
        "the group is Empty",
        "q1 is not settled",
    ]
    found.scene.schedule.run_until(10.0)
    assert list(restless(found.scene)) == []
    log.append(1)
    assert len(list(restless(found.scene))) == 1
    found.queries[0].stop(None)
    found.scene.schedule.run_until(20.0)
    assert len(list(restless(found.scene))) == 1, "an empty group is at rest but for what is unread"


def test_a_leader_nobody_has_heard_of_is_no_rest() -> None:
    found = world(Swarm(queries=1, partitions=1, starts_s=0.0))
    found.queries[0].start()
    found.scene.schedule.run_until(10.0)
    key, log = next(iter(found.scene.storage.logs.items()))
    log.elect(0, 10.0)
    assert list(restless(found.scene)) == [f"q1 has not heard of the leader of {key}"]


def test_a_topic_nobody_has_heard_of_is_no_rest() -> None:
    found = world(Swarm(queries=1, partitions=1, starts_s=0.0))
    found.queries[0].start()
    found.scene.schedule.run_until(10.0)
    (key,) = found.scene.storage.logs
    found.scene.storage.delete("orders1")
    assert list(restless(found.scene)) == [f"{key} is held, but gone"]
