"""A group's settings: assembled by hand, and as real brokers report them."""

from __future__ import annotations

import pytest
from confluent_kafka.admin import (
    AclOperation,
    AclPermissionType,
    ResourceType,
)

from spark_groups.broker.embedded import EmbeddedKafka
from spark_groups.errors import ErrorCode
from spark_groups.group.member.messages import FindCoordinatorRequest, FindCoordinatorResponse, Node
from spark_groups.wire.cluster import Cluster
from spark_groups.wire.configuration import ConfigEntry, ConfigOrigin, ConfigResource
from spark_groups.wire.connection import RequestError
from spark_groups.wire.group_settings import (
    HEARTBEAT_INTERVAL_MS,
    SESSION_TIMEOUT_MS,
    GroupSetting,
    GroupSettings,
    group_settings,
    merge_settings,
)
from tests.wire.group_settings_setup import AUTHORIZER, add_acl
from workshop.parts.waiting import wait_until

BROKER = {
    "group.consumer.session.timeout.ms": ConfigEntry("20000", ConfigOrigin.STATIC_BROKER),
    "group.consumer.min.session.timeout.ms": ConfigEntry("1000", ConfigOrigin.STATIC_BROKER),
    "group.consumer.max.session.timeout.ms": ConfigEntry("60000", ConfigOrigin.DEFAULT),
}
SESSION = GroupSetting(
    name=SESSION_TIMEOUT_MS,
    value="20000",
    origin=ConfigOrigin.STATIC_BROKER,
    minimum=1000,
    maximum=60000,
    inherited="20000",
)


def merged(own: dict[str, ConfigEntry] | None, broker: dict[str, ConfigEntry]) -> GroupSettings:
    return GroupSettings(settings=merge_settings([SESSION_TIMEOUT_MS], own, broker))


class Headless:
    """A cluster without a live broker."""

    def describe_configuration(self, *_: object) -> dict[str, ConfigEntry]:
        return {}

    def find_coordinator(self, request: FindCoordinatorRequest) -> FindCoordinatorResponse:
        return FindCoordinatorResponse(error_code=ErrorCode.COORDINATOR_NOT_AVAILABLE)

    def nodes(self) -> tuple[Node, ...]:
        return ()


def test_a_cluster_without_a_living_broker_is_one_that_does_not_answer() -> None:
    with pytest.raises(RequestError, match="no live broker"):
        group_settings(Headless(), "g")  # type: ignore[arg-type]


@pytest.mark.parametrize("origin", [ConfigOrigin.DEFAULT, ConfigOrigin.STATIC_BROKER])
def test_a_value_that_shows_through_is_the_brokers(origin: ConfigOrigin) -> None:
    own = {SESSION_TIMEOUT_MS: ConfigEntry("20000", origin)}
    assert merged(own, BROKER).settings == (SESSION,)


def test_the_groups_own_value_wins() -> None:
    setting = merged({SESSION_TIMEOUT_MS: ConfigEntry("9000", ConfigOrigin.GROUP)}, BROKER).of(
        SESSION_TIMEOUT_MS
    )
    assert setting is not None
    assert (setting.value, setting.origin) == ("9000", ConfigOrigin.GROUP)
    assert (setting.inherited, setting.maximum) == ("20000", 60000)


def test_without_the_group_the_brokers_value_is_given() -> None:
    assert merged(None, BROKER).settings == (SESSION,)


def test_without_the_broker_the_bounds_are_not_known() -> None:
    own = {SESSION_TIMEOUT_MS: ConfigEntry("20000", ConfigOrigin.DEFAULT)}
    (setting,) = merged(own, {}).settings
    assert (setting.origin, setting.minimum, setting.inherited) == (
        ConfigOrigin.DEFAULT,
        None,
        None,
    )
    assert merged(own, {}).session_timeout_ms == 20000


def test_what_neither_says_is_not_known() -> None:
    nothing = merged(None, {})
    assert nothing.settings == ()
    assert nothing.session_timeout_ms is None
    assert nothing.heartbeat_interval_ms is None
    sensitive = merged({SESSION_TIMEOUT_MS: ConfigEntry(None, ConfigOrigin.GROUP)}, {})
    assert sensitive.session_timeout_ms is None


@pytest.mark.broker
@pytest.mark.long
@pytest.mark.parametrize(
    ("version", "names"),
    [
        ("4.0.0", [HEARTBEAT_INTERVAL_MS, SESSION_TIMEOUT_MS]),
        ("4.3.1", ["consumer.assignment.interval.ms", HEARTBEAT_INTERVAL_MS, SESSION_TIMEOUT_MS]),
        ("4.4.0", ["consumer.assignment.interval.ms", HEARTBEAT_INTERVAL_MS, SESSION_TIMEOUT_MS]),
    ],
)
def test_settings_of_a_group_on_a_real_broker(kafka_version, version, names, group_id) -> None:
    with Cluster(kafka_version(version).bootstrap_servers) as cluster:
        before = group_settings(cluster, group_id)
        assert [each.name for each in before.settings] == names
        assert (before.reason, before.group_is_known) == ("", True)
        assert (before.session_timeout_ms, before.heartbeat_interval_ms) == (45000, 5000)
        assert before.of(HEARTBEAT_INTERVAL_MS) == GroupSetting(
            name=HEARTBEAT_INTERVAL_MS,
            value="5000",
            origin=ConfigOrigin.DEFAULT,
            minimum=100,
            maximum=15000,
            inherited="5000",
        )
        changes = {HEARTBEAT_INTERVAL_MS: "700", SESSION_TIMEOUT_MS: "9000"}
        cluster.alter_configuration(ConfigResource.GROUP, group_id, changes)
        wait_until(
            lambda: group_settings(cluster, group_id).heartbeat_interval_ms == 700,
            what="the group's own heartbeat interval",
        )
        after = group_settings(cluster, group_id)
        assert after.session_timeout_ms == 9000
        setting = after.of(SESSION_TIMEOUT_MS)
        assert setting is not None
        assert (setting.origin, setting.inherited) == (ConfigOrigin.GROUP, "45000")
        taken_away = dict.fromkeys(changes)
        cluster.alter_configuration(ConfigResource.GROUP, group_id, taken_away)
        wait_until(lambda: group_settings(cluster, group_id) == before, what="the old settings")


@pytest.mark.broker
@pytest.mark.long
def test_the_brokers_own_file_shows_through_on_4_0(group_id) -> None:
    properties = {"group.consumer.session.timeout.ms": "20000"}
    with (
        EmbeddedKafka("4.0.0", server_properties=properties) as kafka,
        Cluster(kafka.bootstrap_servers) as cluster,
    ):
        assert group_settings(cluster, group_id).of(SESSION_TIMEOUT_MS) == SESSION


@pytest.mark.broker
@pytest.mark.long
def test_without_describe_configs_the_reason_is_given(group_id) -> None:
    with EmbeddedKafka(server_properties=AUTHORIZER) as kafka:
        servers = kafka.bootstrap_servers
        group = (ResourceType.GROUP, group_id, AclOperation.DESCRIBE_CONFIGS)
        brokers = (ResourceType.BROKER, "kafka-cluster", AclOperation.DESCRIBE_CONFIGS)
        everything = (ResourceType.BROKER, "kafka-cluster", AclOperation.ALL)
        add_acl(servers, *group, AclPermissionType.DENY)
        with Cluster(servers) as cluster:
            wait_until(
                lambda: group_settings(cluster, group_id).reason, what="the group's settings gone"
            )
            without_group = group_settings(cluster, group_id)
            assert without_group.session_timeout_ms == 45000
            assert not without_group.group_is_known
            assert "GROUP_AUTHORIZATION_FAILED" in without_group.reason
            assert "DESCRIBE_CONFIGS" in without_group.reason
            add_acl(servers, *everything, AclPermissionType.ALLOW)
            add_acl(servers, *brokers, AclPermissionType.DENY)
            wait_until(
                lambda: not group_settings(cluster, group_id).settings, what="nothing to be seen"
            )
            nothing = group_settings(cluster, group_id)
            assert nothing.session_timeout_ms is None
            assert "CLUSTER_AUTHORIZATION_FAILED" in nothing.reason
