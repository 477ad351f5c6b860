"""A group's own settings win over the brokers', and which values may be configured."""

from __future__ import annotations

from typing import Any

import pytest

from group_lab.coordinator.messages import (
    AlterGroupConfigRequest,
    AlterGroupConfigResponse,
    DescribeGroupConfigRequest,
    GroupConfigValue,
)
from group_lab.coordinator.profile import KAFKA_4_0, KAFKA_4_3, KAFKA_4_4, Profile
from group_lab.coordinator.settings import (
    BrokerSettings,
    ConfigSource,
    Settings,
    alter,
    describe_config,
)
from spark_groups.errors import ErrorCode

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


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"session_timeout_s": 5.0}, "group.consumer.session.timeout.ms is 5 s: .* 45 to 60"),
        ({"session_timeout_s": 61.0}, "is 61 s"),
        ({"max_session_timeout_s": 1.0}, "from 45 to 1"),
        ({"heartbeat_interval_s": 100.0}, "group.consumer.heartbeat.interval.ms is 100 s"),
        ({"assignment_interval_s": 15.5}, "group.consumer.assignment.interval.ms is 15.5 s"),
        (
            {"session_timeout_s": 5.0, "min_session_timeout_s": 5.0},
            "heartbeat.interval.ms must be less than group.consumer.session.timeout.ms",
        ),
        ({"assignors": ()}, "group.consumer.assignors must name an assignor"),
        ({"max_size": 0}, "group.consumer.max.size and group.max.size must be at least 1"),
        ({"classic_max_size": 0}, "must be at least 1"),
    ],
)
def test_settings_with_which_no_broker_starts_are_refused(
    values: dict[str, Any], words: str
) -> None:
    with pytest.raises(ValueError, match=words):
        BrokerSettings(**values)


HEARTBEAT = "consumer.heartbeat.interval.ms"
SESSION = "consumer.session.timeout.ms"
ASSIGNMENT = "consumer.assignment.interval.ms"
BROKERS = BrokerSettings(
    session_timeout_s=4.0,
    min_session_timeout_s=1.0,
    heartbeat_interval_s=0.5,
    min_heartbeat_interval_s=0.1,
    assignment_interval_s=0.0,
)
SET = Settings(BROKERS, {"g": {HEARTBEAT: "300", SESSION: "2000"}})


def refusal(changes: dict[str, str | None], profile: Profile = KAFKA_4_3) -> str | None:
    request = AlterGroupConfigRequest(group_id="g", changes=changes)
    settings, response = alter(SET, request, profile)
    assert settings == SET
    assert response.error_code == ErrorCode.INVALID_CONFIG
    return response.error_message


@pytest.mark.parametrize(
    ("name", "value", "text"),
    [
        (HEARTBEAT, "50", "greater than or equal to group.consumer.min.heartbeat.interval.ms"),
        (HEARTBEAT, "15001", "less than or equal to group.consumer.max.heartbeat.interval.ms"),
        (SESSION, "500", "greater than or equal to group.consumer.min.session.timeout.ms"),
        (SESSION, "70000", "less than or equal to group.consumer.max.session.timeout.ms"),
        (ASSIGNMENT, "15001", "less than or equal to group.consumer.max.assignment.interval.ms"),
    ],
)
def test_a_value_out_of_bounds_is_refused_with_the_words_of_kafka(
    name: str, value: str, text: str
) -> None:
    assert refusal({name: value}) == f"{name} must be {text}"


def test_from_4_4_on_both_bounds_are_reported() -> None:
    assert refusal({HEARTBEAT: "50"}, KAFKA_4_4) == (
        f"{HEARTBEAT} must be in the range 100 to 15000 inclusive."
    )
    assert refusal({SESSION: "70000"}, KAFKA_4_4) == (
        f"{SESSION} must be in the range 1000 to 60000 inclusive."
    )


def test_names_and_numbers_are_checked_first() -> None:
    assert refusal({"consumer.bogus": "1"}) == "Unknown group config name: consumer.bogus"
    assert refusal({ASSIGNMENT: "1000"}, KAFKA_4_0) == f"Unknown group config name: {ASSIGNMENT}"
    for text in ("abc", "1.5", "", "99999999999"):
        assert refusal({HEARTBEAT: text}) == (
            f"Invalid value {text} for configuration {HEARTBEAT}: Not a number of type INT"
        )
    assert refusal({HEARTBEAT: "0"}) == (
        f"Invalid value 0 for configuration {HEARTBEAT}: Value must be at least 1"
    )


def test_a_session_is_longer_than_an_interval_also_where_one_of_them_is_set_already() -> None:
    assert refusal({HEARTBEAT: "3000"}) == f"{SESSION} must be greater than {HEARTBEAT}"


def test_a_setting_applies_until_it_is_removed() -> None:
    request = AlterGroupConfigRequest(group_id="g", changes={HEARTBEAT: None, SESSION: "3000"})
    settings, response = alter(SET, request, KAFKA_4_3)
    assert response == AlterGroupConfigResponse()
    assert settings.by_group == {"g": {SESSION: "3000"}}
    assert settings.session_timeout_s("g") == 3.0
    assert settings.heartbeat_interval_s("g") == 0.5
    request = AlterGroupConfigRequest(group_id="g", changes={SESSION: None})
    assert alter(settings, request, KAFKA_4_3)[0] == Settings(BROKERS)


def test_describe_shows_the_source_of_a_value() -> None:
    request = DescribeGroupConfigRequest(group_id="g")
    assert describe_config(Settings(BROKERS), request, KAFKA_4_3).values == {
        ASSIGNMENT: GroupConfigValue("0", ConfigSource.STATIC_BROKER),
        HEARTBEAT: GroupConfigValue("500", ConfigSource.STATIC_BROKER),
        SESSION: GroupConfigValue("4000", ConfigSource.STATIC_BROKER),
    }
    assert describe_config(SET, request, KAFKA_4_0).values == {
        HEARTBEAT: GroupConfigValue("300", ConfigSource.GROUP),
        SESSION: GroupConfigValue("2000", ConfigSource.GROUP),
    }
    assert describe_config(Settings(BROKERS), request, KAFKA_4_0).values == {
        HEARTBEAT: GroupConfigValue("500", ConfigSource.DEFAULT),
        SESSION: GroupConfigValue("4000", ConfigSource.DEFAULT),
    }
