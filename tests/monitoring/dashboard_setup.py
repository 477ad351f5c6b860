"""Shared by test_dashboard.py and other tests."""

from __future__ import annotations

import re

from spark_groups.monitoring.families import families
from tests.monitoring.views import busy_view

NAME = re.compile(r"\bkafka_group_\w+")


SUFFIXES = {"counter": ("_total",), "histogram": ("_bucket", "_sum", "_count"), "info": ("_info",)}


def exported() -> dict[str, str]:
    """Every sample that can be there, with the family that it is of."""
    return {
        f"{family.name}{suffix}": family.name
        for family in families(busy_view())
        for suffix in SUFFIXES.get(family.type, ("",))
    }
