"""What the commands of one scenario share, and how a line is read."""

from __future__ import annotations

import shlex
from dataclasses import dataclass, field

from group_lab.coordinator.classic.messages import JoinedMember, JoinGroupRequest
from lab.tests.scenarios.wording import Names
from lab.tests.scenarios.world import Asked, ClassicClient, World
from spark_groups.group.member.embedded import NO_GENERATION, Subscription
from spark_groups.types import NO_PARTITIONS, Assignment, TopicPartition

BOUND_S = 120.0
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
class ClassicMember:
    """A member of the classic protocol whose requests are written by hand.

    Args:
        join: Its last join.
        member_id: "" until it received one.
        sent: A join or sync that is not answered yet.
    """

    join: JoinGroupRequest
    member_id: str = ""
    generation_id: int = NO_GENERATION
    protocol_name: str | None = None
    leads: tuple[JoinedMember, ...] = ()
    assigned: frozenset[TopicPartition] = frozenset()
    subscription: Subscription = field(default_factory=lambda: Subscription(topics=()))
    sent: Asked | None = None


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
    raw_classic: dict[str, ClassicMember] = field(default_factory=dict)
    classic: dict[str, ClassicClient] = field(default_factory=dict)
    slept_s: float = 0.0

    def group_of(self, command: Command) -> str:
        """Return the group a command is about."""
        named = command.take("group")
        return self.group_id if named is None else named

    def member_id(self, name: str) -> str:
        """Return the id of a member; members of the consumer protocol have that of their name."""
        return self.raw_classic[name].member_id if name in self.raw_classic else name

    def member_name(self, member_id: str) -> str:
        """Return the name of a member by its id."""
        names = (name for name, each in self.raw_classic.items() if each.member_id == member_id)
        return next(names, member_id) if member_id else ""

    def message(self, text: str | None) -> str:
        """Return a broker's message as it is shown."""
        return (text or "no message").replace(self.group_id, self.shown_as)
