"""A member whose threads died leaves its group all the same."""

from __future__ import annotations

import pytest

from spark_groups.errors import DeadOwnershipError
from spark_groups.lab.broker.embedded import EmbeddedKafka
from spark_groups.protocol.member_config import MemberConfig
from spark_groups.protocol.messages import Node
from spark_groups.protocol.subscription import Subscription
from spark_groups.runtime.leave import leave_at_once
from spark_groups.wire.security.security import Security
from tests.brokers import create_topic
from tests.runtime.members import instance_epochs, queries

CONFIG = MemberConfig(group_id="g", subscription=Subscription.of_names("orders"))


@pytest.mark.broker
@pytest.mark.parametrize(("instance_id", "left"), [(None, {}), ("i1", {"i1": -2})])
def test_member_whose_thread_died_is_not_waited_for(
    kafka: EmbeddedKafka,
    topic_name: str,
    group_id: str,
    instance_id: str | None,
    left: dict[str, int],
) -> None:
    create_topic(kafka.bootstrap_servers, topic_name)
    with queries(kafka.bootstrap_servers, group_id, topic_name) as start:
        query = start(member={"instance_id": instance_id})
        query.plan()
        query.driver._crashed(RuntimeError("a bug"))
        with pytest.raises(DeadOwnershipError, match="a bug"):
            query.plan()
        query.driver.leave(10.0, will_return=True)
        assert instance_epochs(kafka.bootstrap_servers, group_id) == left


def test_broker_that_is_gone_is_no_error() -> None:
    took = leave_at_once(
        CONFIG,
        "m1",
        Node(1, "localhost", 1),
        will_return=False,
        client_id="test",
        security=Security(),
        timeout_s=2.0,
    )
    assert not took
