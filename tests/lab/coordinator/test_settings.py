"""A group's own settings win over the brokers'."""

from __future__ import annotations

from spark_groups.lab.coordinator.settings import BrokerSettings, Settings

BROKER = BrokerSettings(session_timeout_s=45.0, heartbeat_interval_s=5.0, assignment_interval_s=1.0)


def test_a_group_without_settings_has_those_of_the_brokers() -> None:
    settings = Settings(BROKER, {"other": {"consumer.session.timeout.ms": "50000"}})
    assert settings.session_timeout_s("g") == 45.0
    assert settings.heartbeat_interval_s("g") == 5.0
    assert settings.assignment_interval_s("g") == 1.0


def test_each_setting_is_the_groups_where_it_has_one() -> None:
    own = {
        "consumer.session.timeout.ms": "50000",
        "consumer.heartbeat.interval.ms": "7500",
        "consumer.assignment.interval.ms": "0",
    }
    settings = Settings(BROKER, {"g": own})
    assert settings.session_timeout_s("g") == 50.0
    assert settings.heartbeat_interval_s("g") == 7.5
    assert settings.assignment_interval_s("g") == 0.0
