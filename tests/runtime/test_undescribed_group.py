"""A group that may not be described: one member subscribes to a topic that another may not see."""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterator

import pytest
from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    ResourcePatternType,
    ResourceType,
)

from spark_groups.broker.embedded import EmbeddedKafka
from spark_groups.errors import ErrorCode
from spark_groups.group.batches.available_now_wait import AvailableNowWait
from spark_groups.group.member.messages import (
    DescribeGroupRequest,
    FindCoordinatorRequest,
    HeartbeatRequest,
)
from spark_groups.types import NO_PARTITIONS
from spark_groups.wire.cluster import Cluster
from tests.runtime.members import filled_topic, heartbeat, patient, queries
from workshop.parts.brokers import admin, create_topic
from workshop.parts.waiting import LONG_S, SOON_S, wait_until

pytestmark = [pytest.mark.broker, pytest.mark.long]


@pytest.fixture(scope="module")
def restricted() -> Iterator[str]:
    """A broker with an authorizer; without an ACL every user may do everything."""
    authorizer = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
    rules = {"authorizer.class.name": authorizer, "allow.everyone.if.no.acl.found": "true"}
    with EmbeddedKafka(server_properties=rules) as kafka:
        yield kafka.bootstrap_servers


@pytest.fixture
def undescribed(restricted: str, group_id: str) -> str:
    """A group that no user may describe; its one member has gone silent."""
    secret = f"secret-{uuid.uuid4().hex[:12]}"
    create_topic(restricted, secret)
    request = HeartbeatRequest(
        group_id=group_id,
        member_id="holder",
        member_epoch=0,
        rebalance_timeout_ms=60_000,
        subscribed_topic_names=(secret,),
        topic_partitions=NO_PARTITIONS,
    )
    with Cluster(restricted) as cluster:
        # The first group of a broker makes its topic: until then it has no coordinator.
        search = FindCoordinatorRequest(group_id=group_id)
        wait_until(lambda: cluster.find_coordinator(search).coordinator)
    wait_until(lambda: heartbeat(restricted, request).error_code == ErrorCode.NONE)
    rule = AclBinding(
        *(ResourceType.TOPIC, secret, ResourcePatternType.LITERAL, "User:somebody-else", "*"),
        *(AclOperation.READ, AclPermissionType.ALLOW),
    )
    operator = admin(restricted)
    for future in operator.create_acls([rule]).values():
        future.result(LONG_S)
    with Cluster(restricted) as cluster:
        described = DescribeGroupRequest(group_id=group_id)
        refused = ErrorCode.TOPIC_AUTHORIZATION_FAILED
        wait_until(lambda: cluster.describe_group(described).error_code == refused)
    return group_id


def test_the_first_plan_does_not_wait_for_a_word_that_never_comes(
    restricted: str, undescribed: str, topic_name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    patient(monkeypatch, first_assignment_s=LONG_S)
    with queries(restricted, undescribed, topic_name) as start:
        query = start()
        began_at = time.monotonic()
        plan = query.plan()
        assert time.monotonic() - began_at < SOON_S
        assert plan is not None
        assert not plan.ranges
        timeline = query.driver.snapshot().timeline
        refusals = [each for each in timeline if "cannot describe the group" in str(each)]
        assert len(refusals) == 1
        assert "needs DESCRIBE on every topic" in str(refusals)


def test_available_now_ends_with_what_it_has(
    restricted: str, undescribed: str, topic_name: str
) -> None:
    filled_topic(restricted, topic_name, 2, 10)
    with queries(restricted, undescribed, topic_name) as start:
        query = start(available_now_wait=AvailableNowWait(LONG_S))
        query.driver.prepare_available_now()
        began_at = time.monotonic()
        while query.run() is not None:
            pass
        assert time.monotonic() - began_at < SOON_S
        assert sorted(query.ranges) == [(topic_name, 0, 0, 10), (topic_name, 1, 0, 10)]
