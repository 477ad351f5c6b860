"""What follows from an answer about positions."""

from __future__ import annotations

from dataclasses import dataclass, field

from spark_groups.errors import ErrorCode, Reaction, SparkGroupsError, is_graver
from spark_groups.group.member.events import Event
from spark_groups.types import TopicIdPartition


@dataclass(slots=True)
class Resolved:
    """What follows from an answer.

    Args:
        reaction: The gravest reaction, or ACCEPT.
        error: The Kafka error code behind that reaction.
        data_loss: Why the query must fail because offsets or records are gone, if it must.
        refusal: Why the query must fail because of its checkpoint or options, if it must.
        failed: Partitions that still wait, each with the error code that made it wait.
        to_commit: Partitions whose position must be committed.
    """

    reaction: Reaction = Reaction.ACCEPT
    error: int = int(ErrorCode.NONE)
    events: list[Event] = field(default_factory=list)
    data_loss: str | None = None
    refusal: SparkGroupsError | None = None
    failed: dict[TopicIdPartition, int] = field(default_factory=dict)
    to_commit: list[TopicIdPartition] = field(default_factory=list)

    def react(self, reaction: Reaction, error: int) -> None:
        """Keep the gravest reaction and its error code."""
        if is_graver(reaction, self.reaction):
            self.reaction, self.error = reaction, error
