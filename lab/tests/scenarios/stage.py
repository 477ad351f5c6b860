"""Plays the lines of a transcript in a world."""

from __future__ import annotations

import re

from lab.tests.scenarios.classic_members import ClassicMembers
from lab.tests.scenarios.clients import Clients
from lab.tests.scenarios.members import RawMembers
from lab.tests.scenarios.operators import Operators
from lab.tests.scenarios.scene import AGAIN_S, BOUND_S, Command, Scene

UNTIL = re.compile(r'until (?:"(?P<quoted>[^"]+)"|(?P<word>\S+)) (?P<rest>.+)')


class Stage:
    """One scenario.

    Args:
        scene: What its commands share.
    """

    def __init__(self, scene: Scene) -> None:
        self.scene = scene
        members = RawMembers(scene)
        self._classic = ClassicMembers(scene)
        self.commands = {
            **members.commands,
            **self._classic.commands,
            **Operators(scene, members).commands,
            **Clients(scene).commands,
        }

    def play(self, line: str) -> list[str]:
        """Run one command and return what it prints."""
        repeated = UNTIL.fullmatch(line)
        if repeated:
            return self._until(repeated["quoted"] or repeated["word"], repeated["rest"])
        command = Command.parse(line)
        if command.name not in self.commands:
            raise ValueError(f"no command {command.name!r}: {', '.join(sorted(self.commands))}")
        said = self.commands[command.name](command)
        return [*said, *self._classic.arrived()]

    def _until(self, wanted: str, line: str) -> list[str]:
        deadline = self.scene.world.now() + BOUND_S
        while True:
            said = self.play(line)
            if any(wanted in each for each in said):
                return said
            if self.scene.world.now() > deadline:
                raise AssertionError(f"not within {BOUND_S:g} s: {wanted!r}, but {said}")
            self.scene.world.sleep(AGAIN_S)
