"""Positions of owned partitions, and what responses change about them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from spark_groups.errors import DataLossError, SparkGroupsError
from spark_groups.offsets.commits import CommitQueue
from spark_groups.offsets.known_topics import TopicDirectory
from spark_groups.offsets.ledger import Ledger
from spark_groups.offsets.resolution import PositionResolver, Resolved
from spark_groups.offsets.validation import PositionValidator
from spark_groups.protocol.events import Event
from spark_groups.protocol.member import Member


@dataclass(slots=True)
class Positions:
    """Owned partitions and their positions."""

    member: Member
    ledger: Ledger
    commits: CommitQueue
    topics: TopicDirectory
    resolver: PositionResolver
    validator: PositionValidator
    emit: Callable[[Event], None]
    data_loss: str | None = field(default=None, init=False)
    """Why the query must fail because offsets are lost, if it must."""
    refusal: SparkGroupsError | None = field(default=None, init=False)
    """Why the query must fail because of its checkpoint or options, if it must."""

    @property
    def must_fail(self) -> bool:
        """Whether the query is about to fail: then no more requests for positions are sent."""
        return self.data_loss is not None or self.refusal is not None

    def check(self) -> None:
        """Raise what prevents the query from continuing.

        Raises:
            CheckpointError: The checkpoint is of another group.
            OptionsError: No record has the starting timestamp of a partition, or a later one.
            DataLossError: Offsets are gone and `failOnDataLoss` is true.
        """
        if self.refusal is not None:
            raise self.refusal
        if self.data_loss is not None:
            raise DataLossError(self.data_loss)

    def take(self, resolved: Resolved) -> None:
        """Apply what follows from a response."""
        for event in resolved.events:
            self.emit(event)
        self.data_loss = resolved.data_loss or self.data_loss
        self.refusal = resolved.refusal or self.refusal
        self.commits.add(
            self.ledger.commit_of_position(key, self.member.member_epoch)
            for key in resolved.to_commit
        )
