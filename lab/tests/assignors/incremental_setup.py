"""Shared by test_incremental.py and other tests."""

from __future__ import annotations

import pytest

from group_lab.assignors.incremental import LeaderConfig, LeaderMemory, Policy
from lab.tests.assignors.groups import Partitions

DELAY_S, INTERVAL_S = 300.0, 30.0


IMMEDIATE = LeaderConfig(policy=Policy.IMMEDIATE)


DELAYED = LeaderConfig(policy=Policy.DELAYED, scheduled_rebalance_delay_s=DELAY_S)


INCREMENTAL = LeaderConfig(
    policy=Policy.INCREMENTAL, scheduled_rebalance_delay_s=DELAY_S, move_interval_s=INTERVAL_S
)


CONFIGS = {each.policy.value: each for each in (IMMEDIATE, DELAYED, INCREMENTAL)}


EACH = pytest.mark.parametrize("config", CONFIGS.values(), ids=CONFIGS)


DELAYING = pytest.mark.parametrize("config", [DELAYED, INCREMENTAL], ids=lambda c: c.policy.value)


NONE: Partitions = frozenset()


NEW_LEADER = LeaderMemory()
