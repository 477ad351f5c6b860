"""Every scenario, played on every version of Kafka it is about, and on the model of each.

`REWRITE=1` writes what the brokers answer into the transcripts instead of comparing: read the
difference as prose before it is committed.
"""

from __future__ import annotations

import uuid
from pathlib import Path

import pytest

from group_lab.coordinator.profile import PROFILES
from group_lab.coordinator.settings import MigrationPolicy
from lab.tests.scenarios.broker_world import StartWorld
from lab.tests.scenarios.injection import Injections
from lab.tests.scenarios.model_world import ModelWorld
from lab.tests.scenarios.scenarios_setup import FOLDER, SCENARIOS, SHOWN, compare, run
from lab.tests.scenarios.scene import Scene
from lab.tests.scenarios.stage import Stage
from lab.tests.scenarios.transcript import VERSIONS
from lab.tests.scenarios.world import World

ERRORS = sorted((FOLDER / "errors").glob("*.txt"))
IN_EVERY_RUN = ("4.0.0", "4.3.1", "4.4.0")
"""The oldest, the first with relaxed commits and batching, the newest."""
ON_REQUEST = ("4.1.2", "4.2.1")
ON_THE_NEWEST = ("regex_new_topic",)
"""Scenarios that wait for long: on the other versions they are played on request only."""
PERMISSIONS, CLASSIC = "permissions", "real consumers"
NOT_IN_THE_MODEL = {
    "clients_undescribed": PERMISSIONS,
    "feature_off": "features of a cluster",
    "kip_migration": CLASSIC,
    "migration_classic_joins": CLASSIC,
    "migration_cooperative": CLASSIC,
    "permissions": PERMISSIONS,
}
"""Scenarios that need what the model of the coordinator does not have, and what that is."""
POLICIES = {f"migration_policy_{each}": each for each in ("upgrade", "downgrade", "disabled")}
"""Scenarios on brokers with another migration policy."""
DRAWS_OF_IDS = 5
"""A broker draws the ids of topics and classic members; no transcript may depend on the draw."""


def minor(version: str) -> str:
    return ".".join(version.split(".")[:2])


def played() -> list[object]:
    """Every scenario on every version; those on one version run in one worker, on one broker."""
    return [
        pytest.param(path, version, marks=_marks(path, version), id=f"{path.stem}-{version}")
        for version in (*IN_EVERY_RUN, *ON_REQUEST)
        for path in SCENARIOS
    ]


def _marks(path: Path, version: str) -> list[pytest.MarkDecorator]:
    marks = [pytest.mark.broker, pytest.mark.xdist_group(f"scenarios on Kafka {version}")]
    is_left_out = path.stem in ON_THE_NEWEST and version != IN_EVERY_RUN[-1]
    if version in ON_REQUEST or is_left_out:
        marks += [pytest.mark.all_versions, pytest.mark.slow]
    return marks


@pytest.mark.parametrize(("path", "version"), played())
def test_brokers_answer_as_written(path: Path, version: str, broker_world: StartWorld) -> None:
    world = broker_world(version, POLICIES.get(path.stem))
    try:
        play(path, minor(version), world)
    finally:
        world.end()


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize(
    "path", [each for each in SCENARIOS if each.stem not in NOT_IN_THE_MODEL], ids=lambda p: p.stem
)
def test_model_answers_as_written(path: Path, version: str) -> None:
    """What brokers answer is written; the model never rewrites it."""
    policy = MigrationPolicy(POLICIES.get(path.stem, MigrationPolicy.BIDIRECTIONAL))
    for ids in range(DRAWS_OF_IDS):
        world = ModelWorld(PROFILES[f"kafka-{version}"], policy, ids)
        scene = Scene(world, path.stem, shown_as=path.stem)
        _, wrong = run(path, version, Stage(scene).play)
        assert not wrong, f"ids {ids}\n" + "\n\n".join(wrong[:SHOWN])


@pytest.mark.parametrize("name", NOT_IN_THE_MODEL)
def test_what_the_model_cannot_play_it_refuses(name: str) -> None:
    world = ModelWorld(PROFILES["kafka-4.3"])
    with pytest.raises(AssertionError, match=NOT_IN_THE_MODEL[name]):
        run(FOLDER / f"{name}.txt", "4.3", Stage(Scene(world, name, shown_as=name)).play)


@pytest.mark.parametrize("path", ERRORS, ids=lambda path: path.stem)
def test_clients_take_errors_as_written(path: Path) -> None:
    compare(path, None, Injections().play)


def play(path: Path, version: str, world: World) -> None:
    """Play a scenario in a world."""
    scene = Scene(world, f"{path.stem}-{uuid.uuid4().hex[:8]}", shown_as=path.stem)
    compare(path, version, Stage(scene).play)
