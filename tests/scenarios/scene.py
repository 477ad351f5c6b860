"""What the commands of one scenario share, and how a line is read."""

from __future__ import annotations

import shlex
from dataclasses import dataclass, field

from spark_groups.types import NO_PARTITIONS, Assignment
from tests.scenarios.wording import Names
from tests.scenarios.world import ClassicClient, World

BOUND_S = 30.0
"""How long anything is waited for."""

AGAIN_S = 0.05
"""How long to wait before it is asked again."""


@dataclass
class RawMember:
    """A member whose heartbeats are written by hand, with the last answer."""

    group_id: str
    member_epoch: int = 0
    assigned: Assignment = NO_PARTITIONS
    instance_id: str | None = None
    topics: tuple[str, ...] | None = None
    regex: str | None = None


@dataclass
class Command:
    """One line: its name, its words and its `key=value` options."""

    name: str
    words: list[str] = field(default_factory=list)
    options: dict[str, str] = field(default_factory=dict)

    @classmethod
    def parse(cls, line: str) -> Command:
        name, *rest = shlex.split(line, posix=True)
        command = cls(name)
        for each in rest:
            key, equals, value = each.partition("=")
            if equals:
                command.options[key] = value
            else:
                command.words.append(each)
        return command

    def take(self, key: str) -> str | None:
        """Return an option and forget it, so that unknown options can be refused."""
        return self.options.pop(key, None)

    def done(self) -> None:
        if self.options:
            raise ValueError(f"{self.name} has no option {', '.join(sorted(self.options))}")


@dataclass
class Scene:
    """One scenario while it is played.

    Args:
        world: Where it is played.
        group_id: The group, unless a command names another.
        shown_as: What messages are to call it.
    """

    world: World
    group_id: str
    shown_as: str
    names: Names = field(default_factory=Names)
    raw: dict[str, RawMember] = field(default_factory=dict)
    classic: dict[str, ClassicClient] = field(default_factory=dict)
    slept_s: float = 0.0

    def group_of(self, command: Command) -> str:
        """Return the group a command is about."""
        named = command.take("group")
        return self.group_id if named is None else named

    def message(self, text: str | None) -> str:
        """Return a broker's message as it is shown."""
        return (text or "no message").replace(self.group_id, self.shown_as)
