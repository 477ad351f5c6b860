"""Shared by test_authentication.py and other tests."""

from __future__ import annotations

import time
from collections.abc import Mapping

import pytest
from confluent_kafka.admin import (
    AdminClient,
)

from spark_groups.errors import AccessError
from spark_groups.wire.cluster import Cluster
from spark_groups.wire.security.security_settings import security_of
from workshop.parts.waiting import LONG_S, SOON_S


def opened(servers: str, settings: Mapping[str, str]) -> int:
    """Return how many brokers both ways of connecting find."""
    security = security_of(settings)
    with Cluster(servers, security=security) as cluster:
        ours = len(cluster.nodes())
    theirs = AdminClient(
        {"bootstrap.servers": servers, "log_level": 0, **security.librdkafka_settings()}
    )
    assert len(theirs.list_topics(timeout=LONG_S).brokers) == ours
    return ours


def refused(servers: str, settings: Mapping[str, str]) -> str:
    """Return the error, which must come once and soon, long before the timeout."""
    began_at = time.monotonic()
    with (
        Cluster(servers, security=security_of(settings), request_timeout_s=LONG_S) as cluster,
        pytest.raises(AccessError) as raised,
    ):
        cluster.nodes()
    assert time.monotonic() - began_at < SOON_S
    assert servers in str(raised.value) or "token endpoint" in str(raised.value)
    return str(raised.value)
