"""The uniform assignor, Kafka's default: everybody has the same number of partitions."""

from __future__ import annotations

from dataclasses import dataclass

from spark_groups.lab.assignors import uniform_heterogeneous as heterogeneous
from spark_groups.lab.assignors import uniform_homogeneous as homogeneous
from spark_groups.lab.assignors.assignor import GroupSpec
from spark_groups.types import Assignment


@dataclass(frozen=True, slots=True)
class UniformAssignor:
    """Balances partitions over all topics, and leaves them where they are as far as it can.

    Args:
        stable_extras: The partition too many stays where it is (from 4.0.1 on).
    """

    stable_extras: bool

    @property
    def name(self) -> str:
        return "uniform"

    def assign(self, group: GroupSpec) -> dict[str, Assignment]:
        """Return the target of every member.

        Raises:
            AssignorError: A subscribed topic is not known.
        """
        if not group.members:
            return {}
        if group.is_homogeneous:
            return homogeneous.assign(group, stable_extras=self.stable_extras)
        return heterogeneous.assign(group)
