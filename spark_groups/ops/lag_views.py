"""How far behind groups are, for people: one value, derived from several views of each group."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from spark_groups.observation.plain_values import listed
from spark_groups.observation.views import GroupView, LagOrigin, PartitionView
from spark_groups.ops.lag_rules import (
    LagSample,
    PartitionStatus,
    Verdict,
    judge_group,
    judge_partition,
    worst,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionLag:
    """How far behind a group is in a partition.

    Args:
        topic: Its topic.
        partition: Its index.
        committed_offset: The next offset to read; None: unknown, or none is committed.
        log_end_offset: The next offset to be written; None: unknown.
        lag: Offsets between the committed offset (or the log start) and the end; None: unknown.
        lag_origin: Where lag is counted from; None if that is not known.
        lag_change: By how much the lag grew since the first sample; None: unknown.
        status: What the samples say; None: nothing was asked, or too little is known.
        remark: What is unusual, in words; empty if nothing is.
    """

    topic: str
    partition: int
    committed_offset: int | None
    log_end_offset: int | None
    lag: int | None
    lag_origin: LagOrigin | None
    lag_change: int | None = None
    status: PartitionStatus | None = None
    remark: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupLag:
    """How far behind a group is.

    Args:
        group_id: Its id.
        group_state: The coordinator's word.
        lag: The sum of all lags that are known; None if none is.
        unknown_lag_partitions: Partitions whose lag is not known.
        partitions: Sorted by topic and index.
        verdict: What the samples come to; None: nothing was asked.
    """

    group_id: str
    group_state: str
    lag: int | None
    unknown_lag_partitions: int
    partitions: tuple[PartitionLag, ...]
    verdict: Verdict | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class LagView:
    """How far behind groups are.

    Args:
        groups: In the order in which they were asked for.
        window_s: Seconds between the first sample and the last.
    """

    groups: tuple[GroupLag, ...]
    window_s: float = 0.0

    @property
    def verdict(self) -> Verdict:
        """The worst of the groups."""
        return worst(each.verdict or Verdict.OK for each in self.groups)

    def to_json(self) -> dict[str, Any]:
        """Return the view as plain values."""
        plain = asdict(self)
        for group, shown in zip(self.groups, plain["groups"], strict=True):
            shown["verdict"] = group.verdict and group.verdict.name
            for each, row in zip(group.partitions, shown["partitions"], strict=True):
                row["lag_origin"] = each.lag_origin and each.lag_origin.value
                row["status"] = each.status and each.status.value
        return {name: listed(value) for name, value in plain.items()}


def view_group_lag(view: GroupView) -> GroupLag:
    """Return how far behind a group is now.

    Args:
        view: The group.
    """
    return GroupLag(
        group_id=view.group_id,
        group_state=view.group_state,
        lag=view.totals.lag,
        unknown_lag_partitions=view.totals.unknown_lag_partitions,
        partitions=tuple(_partition_lag(each) for each in view.partitions),
    )


def judge_group_lag(samples: Sequence[tuple[float, GroupView]], allowed_lag: int = 0) -> GroupLag:
    """Return how far behind a group is, and whether it keeps up.

    Args:
        samples: The time in seconds and the group at that time, the oldest first; at least one.
        allowed_lag: Up to which lag a partition keeps up.
    """
    now_s, view = samples[-1]
    seen: dict[tuple[str, int], list[LagSample]] = {}
    for at_s, each in samples:
        batches = _batch_beginnings(each, at_s)
        for partition in each.partitions:
            seen.setdefault((partition.topic_id, partition.partition), []).append(
                LagSample(
                    at_s,
                    partition.committed_offset,
                    partition.lag,
                    batches.get(partition.owner or ""),
                )
            )
    latest = _batch_beginnings(view, now_s)
    partitions = []
    for partition in view.partitions:
        known = seen[partition.topic_id, partition.partition]
        status = judge_partition(known, now_s, allowed_lag)
        batch_began_at_s = latest.get(partition.owner or "")
        batch_age_s = None if batch_began_at_s is None else now_s - batch_began_at_s
        partitions.append(_partition_lag(partition, known, status, batch_age_s))
    return GroupLag(
        group_id=view.group_id,
        group_state=view.group_state,
        lag=view.totals.lag,
        unknown_lag_partitions=view.totals.unknown_lag_partitions,
        partitions=tuple(partitions),
        verdict=judge_group(each.status for each in partitions),
    )


def _batch_beginnings(view: GroupView, at_s: float) -> Mapping[str, float]:
    """Return since when members on this machine are in a batch, by member id."""
    return {
        each.member_id: at_s - each.local.batch_age_s
        for each in view.members
        if each.local is not None
        and each.local.in_flight_partitions
        and each.local.batch_age_s is not None
    }


def _partition_lag(
    partition: PartitionView,
    samples: Sequence[LagSample] = (),
    status: PartitionStatus | None = None,
    batch_age_s: float | None = None,
) -> PartitionLag:
    first = samples[0].lag if samples else None
    remark = partition.remark
    if not remark and status not in (None, PartitionStatus.OK) and batch_age_s is not None:
        remark = f"a batch is under way for {batch_age_s:.1f} s"
    return PartitionLag(
        topic=partition.topic,
        partition=partition.partition,
        committed_offset=partition.committed_offset,
        log_end_offset=partition.log_end_offset,
        lag=partition.lag,
        lag_origin=partition.lag_origin,
        lag_change=None if first is None or partition.lag is None else partition.lag - first,
        status=status,
        remark=remark,
    )
