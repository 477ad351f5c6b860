"""Shared by test_remove_cli.py and other tests."""

from __future__ import annotations

from spark_groups.wire.cluster import Cluster
from tests.wire.coordinator_connection_setup import coordinator
from tests.wire.group_admin_setup import join
from workshop.parts.brokers import create_topic


def start_members(servers: str, group_id: str, topic: str, ids: dict[str, str | None]) -> None:
    """Join members that send no further heartbeats."""
    create_topic(servers, topic)
    with Cluster(servers) as cluster:
        coordinator(cluster, group_id)
    for member_id, instance_id in ids.items():
        join(servers, group_id, topic, member_id, instance_id)
