"""Checkpoints from which a query cannot continue: those of another group, cluster or source.

Texts that are no plan of this package are refused by `plan_text`.
"""

from __future__ import annotations

from collections.abc import Iterable

from spark_groups.errors import CheckpointError
from spark_groups.group.ledger.sparks_kafka_offsets import sparks_kafka_offsets
from spark_groups.group.ledger.starting import reset_command
from spark_groups.group.member.subscription import Subscription
from spark_groups.types import BatchPlan
from spark_groups.values import dataclass


@dataclass(frozen=True, slots=True)
class CheckpointOwner:
    """The stream that a checkpoint has to be of.

    Args:
        servers: The bootstrap servers, separated by commas.
        command_options: Options of commands that reach the brokers, for errors.
    """

    group_id: str
    subscription: Subscription
    servers: str
    command_options: str = ""

    def refuse_sparks_source(self, offset: object) -> None:
        """Refuse a checkpoint of Spark's own Kafka source, and say how to continue from it.

        Raises:
            CheckpointError: It is one.
        """
        read = sparks_kafka_offsets(offset)
        if read is None:
            return
        topics = ", ".join(sorted({each.topic for each in read}))
        command = reset_command(
            self.group_id, self.command_options, "--from-checkpoint", "CHECKPOINT"
        )
        raise CheckpointError(
            f"the checkpoint was written by Spark's own Kafka source, which has read {topics}; this"
            " source cannot continue from it. Set a new checkpointLocation. To continue where that"
            f" query stands, stop all members of {self.group_id!r} and run, with the old"
            f" checkpointLocation for CHECKPOINT: {command}"
        )

    def refuse_another_former_plan(self, before: BatchPlan | None, plan: BatchPlan | None) -> None:
        """Refuse a plan of this group that follows one of another group or cluster.

        Raises:
            CheckpointError: It does.
        """
        if before is None or plan is None:
            return
        if before.cluster_id and plan.cluster_id and before.cluster_id != plan.cluster_id:
            raise CheckpointError(
                f"the checkpoint is of the Kafka cluster {before.cluster_id}, but {self.servers}"
                f" lead to the cluster {plan.cluster_id}: correct the address, or set a new"
                " checkpointLocation"
            )
        own = self.group_id
        read = [topic.name for topic in before.topics if topic.is_read]
        if before.group_id == own or plan.group_id != own or not read:
            return
        copy = _copy_command(own, before.group_id, read, self.command_options)
        raise CheckpointError(
            f"the checkpoint belongs to the group {before.group_id!r}, but this query reads as the"
            f" group {own!r}, and Spark before 4.2 cannot continue from there. Set a new"
            f" checkpointLocation. To continue at the offsets of {before.group_id!r}, stop all"
            f" members of {own!r} and run: {copy}"
        )

    def unsubscribed(self, plan: BatchPlan) -> tuple[str, ...]:
        """Return topics of a batch to run again that this stream no longer subscribes to.

        Spark assigns the offsets in a checkpoint to the streams of a query by their order: a batch
        that reads none of this stream's topics is refused.

        Raises:
            CheckpointError: The batch reads none of them.
        """
        read = {offset_range.topic for offset_range in plan.ranges}
        others = sorted(each for each in read if not self.subscription.matches(each))
        if read and len(others) == len(read):
            wanted = self.subscription.topic_regex or ", ".join(self.subscription.topic_names)
            raise CheckpointError(
                f"the unfinished last batch of the checkpoint reads {', '.join(others)}, but this"
                f" stream subscribes to {wanted}: its topics or the order of the query's streams"
                " changed. Run the unchanged query once to finish the batch, or set a new"
                " checkpointLocation"
            )
        return tuple(others)


def not_read_by_group(
    group_id: str, former_group_id: str, topics: Iterable[str], command_options: str
) -> CheckpointError:
    """Return the refusal of another group's checkpoint, because this group has not read topics.

    Args:
        topics: These topics.
        command_options: Options of commands that reach the brokers.
    """
    named = sorted(topics)
    command = _copy_command(group_id, former_group_id, named, command_options)
    return CheckpointError(
        f"the checkpoint was written in the group {former_group_id!r}, but this query reads in the"
        f" group {group_id!r}, which has committed nothing for {', '.join(named)}: startingOffsets"
        " would skip rows, or read them all again. To start over, give the query a new"
        f" checkpointLocation. To continue from the offsets of {former_group_id!r}, stop all"
        f" members of {group_id!r} and run: {command}"
    )


def _copy_command(
    group_id: str, former_group_id: str, topics: Iterable[str], command_options: str
) -> str:
    named = (word for name in topics for word in ("--topic", name))
    return reset_command(group_id, command_options, "--from-group", former_group_id, *named)
