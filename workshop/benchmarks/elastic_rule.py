"""How many applications a group shall have: the rule of Kubernetes' HorizontalPodAutoscaler; pure.

    wanted = ceil(applications * lag in time / target), if the lag is not within a tenth of it

A lag below its target does not show how many applications keep it there. So no application is
removed that the rate of the records needs: `records a second / records of one application`.
Source: k8s.io/kubernetes/pkg/controller/podautoscaler (replica_calculator.go, horizontal.go).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """The settings of a scaler, as those of KEDA and of the HorizontalPodAutoscaler.

    Args:
        target_s: The lag in time above which applications are added, in seconds.
        max_applications: The largest number of applications: at most the partitions.
        per_application_per_s: The most records that one application reads in a second.
        tolerance: By which share of the target the lag may differ from it without a change.
        growth_max: By which factor the number grows at most in one change.
        up_wait_s: Seconds between two additions: a new application needs time until it reads.
        down_wait_s: Seconds between a change and a removal.
        down_window_s: An application is removed only if no recommendation of so many seconds
            needed it (`stabilizationWindowSeconds`).
    """

    target_s: float
    max_applications: int
    per_application_per_s: float
    tolerance: float = 0.1
    growth_max: float = 2.0
    up_wait_s: float = 30.0
    down_wait_s: float = 20.0
    down_window_s: float = 40.0

    def __post_init__(self) -> None:
        """Refuse settings that no group can have.

        Raises:
            ValueError: The target or a limit is not positive.
        """
        limits = self.target_s, self.max_applications, self.per_application_per_s
        if not all(each > 0 for each in limits):
            raise ValueError(f"the target and the limits must be positive: {self}")


@dataclass(frozen=True, slots=True)
class Recommendation:
    """How many applications one reading of the group calls for.

    Args:
        at_s: The time of the reading, in seconds.
        wanted: The number.
    """

    at_s: float
    wanted: int


def recommend(
    rule: Rule, *, lag_s: float | None, records_per_s: float | None, applications: int
) -> int:
    """Return how many applications a reading calls for.

    Args:
        rule: The settings.
        lag_s: The lag in time; None: unknown, which changes nothing.
        records_per_s: The records written in a second; None: unknown, which removes nothing.
        applications: The number of applications, those that start included.
    """
    if lag_s is None:
        return applications
    ratio = lag_s / rule.target_s
    by_lag = applications
    if abs(ratio - 1) > rule.tolerance:
        by_lag = math.ceil(applications * ratio)
    by_rate = applications
    if records_per_s is not None:
        by_rate = min(applications, math.ceil(records_per_s / rule.per_application_per_s))
    return max(1, min(rule.max_applications, max(by_lag, by_rate)))


def decide(
    rule: Rule, recommendations: Sequence[Recommendation], applications: int, changed_at_s: float
) -> int:
    """Return how many applications there shall be now.

    Args:
        rule: The settings.
        recommendations: The oldest first, since the beginning or for `down_window_s`; the last one
            is that of now.
        applications: The number of applications, those that start included.
        changed_at_s: When that number changed.
    """
    if not recommendations:
        return applications
    now = recommendations[-1]
    since_s = now.at_s - changed_at_s
    if now.wanted > applications:
        largest = math.ceil(applications * rule.growth_max)
        return min(now.wanted, largest) if since_s >= rule.up_wait_s else applications
    began_s = now.at_s - rule.down_window_s
    is_covered = recommendations[0].at_s <= began_s
    needed = max(
        recommendation.wanted
        for recommendation in recommendations
        if recommendation.at_s >= began_s
    )
    if is_covered and needed < applications and since_s >= rule.down_wait_s:
        return applications - 1
    return applications
