"""Scenes for tests: a run that is set up and does nothing by itself."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

from group_lab.coordinator.profile import PROFILES
from group_lab.sim.scene import Listeners, Scene
from group_lab.sim.swarm import Swarm
from group_lab.sim.world import World


def world(
    swarm: Swarm | None = None,
    profile: str = "kafka-4.3",
    seed: int = 1,
    *listeners: Callable[[Scene], Listeners],
) -> World:
    return World(Random(seed), PROFILES[profile], swarm or Swarm(), listeners)


def scene(swarm: Swarm | None = None, profile: str = "kafka-4.3", seed: int = 1) -> Scene:
    return world(swarm, profile, seed).scene


class Facts:
    """Keeps the facts of some kinds."""

    def __init__(self, *kinds: type) -> None:
        self.kinds = kinds
        self.seen: list[object] = []

    def __call__(self, _scene: Scene) -> Listeners:
        return dict.fromkeys(self.kinds, self.seen.append)
