"""Settings across the wire; test_cluster and test_group_settings ask real brokers."""

from __future__ import annotations

import pytest

from spark_groups.errors import ProtocolError
from spark_groups.wire.configuration import (
    ConfigEntry,
    ConfigOrigin,
    ConfigResource,
    alteration_to_wire,
    check_alteration,
    configuration_from_wire,
    configurations_to_wire,
    refuse,
)
from spark_groups.wire.schemas.codec import decode, encode
from spark_groups.wire.schemas.wire_messages import DESCRIBE_CONFIGS, INCREMENTAL_ALTER_CONFIGS


@pytest.mark.parametrize(("keys", "sent"), [(None, None), ([], ()), (["a", "b"], ("a", "b"))])
def test_asks_for_all_or_for_some_keys(keys, sent) -> None:
    values = configurations_to_wire(ConfigResource.GROUP, ("g",), keys)
    (resource,) = decode(DESCRIBE_CONFIGS.request, encode(DESCRIBE_CONFIGS.request, values))[
        "resources"
    ]
    assert resource == {"resource_type": 32, "resource_name": "g", "configuration_keys": sent}


def result(error_code: int, message: str | None = None, **configuration: str | None) -> dict:
    return {
        "error_code": error_code,
        "error_message": message,
        "configs": [
            {"name": name, "value": value, "config_source": 4}
            for name, value in configuration.items()
        ],
    }


def test_reads_values_and_keeps_secrets_empty() -> None:
    answer = {"results": [result(0, port="1", password=None)]}
    assert configuration_from_wire(answer, "1") == {
        "port": ConfigEntry("1", ConfigOrigin.STATIC_BROKER),
        "password": ConfigEntry(None, ConfigOrigin.STATIC_BROKER),
    }


@pytest.mark.parametrize(
    ("source", "origin"),
    [
        (1, ConfigOrigin.TOPIC),
        (2, ConfigOrigin.BROKER),
        (3, ConfigOrigin.ALL_BROKERS),
        (4, ConfigOrigin.STATIC_BROKER),
        (5, ConfigOrigin.DEFAULT),
        (8, ConfigOrigin.GROUP),
        (99, ConfigOrigin.UNKNOWN),
    ],
)
def test_reads_where_a_value_comes_from(source: int, origin: ConfigOrigin) -> None:
    answer = result(0, key="1")
    answer["configs"][0]["config_source"] = source
    assert configuration_from_wire({"results": [answer]}, "g")["key"].origin is origin


def test_sets_and_takes_away_in_one_request() -> None:
    values = alteration_to_wire(ConfigResource.GROUP, "g", {"a": "1", "b": None})
    schema = INCREMENTAL_ALTER_CONFIGS.request
    sent = decode(schema, encode(schema, values))
    assert sent["validate_only"] is False
    (resource,) = sent["resources"]
    assert (resource["resource_type"], resource["resource_name"]) == (32, "g")
    assert resource["configs"] == (
        {"name": "a", "config_operation": 0, "value": "1"},
        {"name": "b", "config_operation": 1, "value": None},
    )


def test_a_refused_change_has_the_words_of_the_broker() -> None:
    done = {"error_code": 0, "error_message": None}
    check_alteration({"responses": [done]}, "g")
    refused = {"error_code": 40, "error_message": "must be smaller"}
    with pytest.raises(ProtocolError, match="'g' was refused: INVALID_CONFIG, must be smaller"):
        check_alteration({"responses": [refused]}, "g")
    forbidden = {"error_code": 30, "error_message": None}
    with pytest.raises(ProtocolError, match=r"AUTHORIZATION_FAILED, .* needs ALTER_CONFIGS on"):
        check_alteration({"responses": [forbidden]}, "g")
    with pytest.raises(ProtocolError, match="0 answers to one change of 'g'"):
        check_alteration({"responses": []}, "g")


@pytest.mark.parametrize(
    ("results", "says"),
    [
        ([], "0 configurations in the answer about 'g'"),
        ([result(0), result(0)], "2 configurations"),
        ([result(30, "no access")], "of 'g' was refused: GROUP_AUTHORIZATION_FAILED, no access"),
        ([result(30)], "GROUP_AUTHORIZATION_FAILED, the principal needs READ"),
        ([result(999)], "error 999"),
    ],
)
def test_a_refusal_says_why(results: list, says: str) -> None:
    with pytest.raises(ProtocolError, match=says):
        configuration_from_wire({"results": results}, "g")


def test_success_is_not_refused() -> None:
    refuse(0, "anything")
