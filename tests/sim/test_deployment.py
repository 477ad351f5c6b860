"""How applications are deployed anew."""

from __future__ import annotations

import pytest

from spark_groups.sim.deployment import steps_of
from spark_groups.sim.swarm import Deploy, Swarm
from tests.sim.scenes import world


@pytest.mark.parametrize(
    ("deploy", "instants"),
    [
        (Deploy.NONE, []),
        (Deploy.ROLLING, [30.0, 40.0, 50.0, 60.0]),
        (Deploy.ALL_AT_ONCE, [30.0] * 4),
        (Deploy.AUTOSCALE, [30.0, 35.0, 70.0, 75.0]),
    ],
)
def test_steps_come_when_they_should(deploy: Deploy, instants: list[float]) -> None:
    swarm = Swarm(queries=4, chaos_s=90.0, deploy=deploy, deploy_every_s=10.0)
    found = [when for when, _ in steps_of(swarm, world(swarm).queries)]
    assert sorted(found) == instants


@pytest.mark.parametrize("deploy", Deploy)
def test_a_deployment_without_faults_reads_everything_once(deploy: Deploy) -> None:
    swarm = Swarm(queries=4, chaos_s=90.0, deploy=deploy, deploy_every_s=10.0)
    found = world(swarm)
    found.run()
    away = [query for query in found.queries if query.current is None]
    assert len(away) == (2 if deploy is Deploy.AUTOSCALE else 0)
    restarted = [query.current.name for query in found.queries if query.current]
    assert any(name.endswith(".2") for name in restarted) == (
        deploy in (Deploy.ROLLING, Deploy.ALL_AT_ONCE)
    )
