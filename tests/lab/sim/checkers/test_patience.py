"""Nobody is waited for longer than the time-outs say."""

from __future__ import annotations

import pytest

from spark_groups.lab.sim import facts
from spark_groups.lab.sim.checkers.checker import BrokenInvariantError
from spark_groups.lab.sim.checkers.patience import SLACK_S, Patience
from spark_groups.lab.sim.history import History
from spark_groups.lab.sim.swarm import Swarm
from tests.lab.sim.scenes import world


def test_a_member_may_be_silent_for_its_session_and_no_longer() -> None:
    scene = world(Swarm(queries=1, starts_s=0.0, replication_s=0.0)).scene
    scene.participants[0].start()
    scene.schedule.run_until(60.0)
    look = Patience(scene, History()).listeners()[facts.Quiet]
    look(facts.Quiet())
    (member_id,) = scene.coordination.group.members
    longest_s = scene.swarm.session_s + SLACK_S
    scene.coordination.heard_at[member_id] = scene.now - longest_s
    look(facts.Quiet())
    scene.coordination.heard_at[member_id] = scene.now - longest_s - 0.1
    with pytest.raises(BrokenInvariantError, match="is silent"):
        look(facts.Quiet())
    scene.coordination.failing_until = scene.now
    look(facts.Quiet())
