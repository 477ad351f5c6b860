"""Whole members of one group in virtual time, each asked at every step what it has to send."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping
from typing import Final

from group_lab.coordinator.shard import Shard
from group_lab.coordinator.topic_images import TopicImage
from lab.tests.scenarios.scene import Command

STEP_S: Final = 0.1


class MembersInTime:
    """One scenario.

    Args:
        shard: The first coordinator.
    """

    def __init__(self, shard: Shard) -> None:
        self.now = shard.now
        self.shard = shard
        self.lines: list[str] = []
        """What the command that runs prints."""
        self.commands: dict[str, Callable[[Command], None]] = {
            "topic": self.topic,
            "run": self._run,
        }

    def play(self, line: str) -> list[str]:
        """Run one command, and return what it prints."""
        command = Command.parse(line)
        if command.name not in self.commands:
            raise ValueError(f"no command {command.name!r}: {', '.join(sorted(self.commands))}")
        self.commands[command.name](command)
        command.done()
        lines, self.lines = self.lines, []
        return lines

    @property
    def partition_counts(self) -> Mapping[str, int]:
        """How many partitions each topic has."""
        return {each.name: each.partition_count for each in self.shard.topics.by_name.values()}

    def topic(self, command: Command) -> None:
        """`topic T 4`: a topic has so many partitions from now on."""
        name, count = command.words
        topic = TopicImage(uuid.uuid5(uuid.NAMESPACE_DNS, name), name, int(count))
        self.shard.set_topics(self.shard.topics.with_topic(topic), self.now)

    def _run(self, command: Command) -> None:
        """`run 20`: let seconds pass."""
        (seconds,) = command.words
        for _ in range(round(float(seconds) / STEP_S)):
            self.now = round(self.now + STEP_S, 1)
            self.wake()
            self.settle()
            self.step()

    def wake(self) -> None:
        """Let the coordinator fire its due timers."""
        self.shard.wake(self.now)

    def settle(self) -> None:
        """Replicate what the coordinator wrote, and see which requests are answered."""
        self.shard.replicate(self.now)
        self.shard.take_answered()

    def step(self) -> None:
        """Let each member poll, and send what it has to send."""
        raise NotImplementedError
