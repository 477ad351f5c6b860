"""DescribeConfigs across the wire; test_cluster asks a real broker."""

from __future__ import annotations

import pytest

from spark_groups.errors import ProtocolError
from spark_groups.kafka.codec import decode, encode
from spark_groups.kafka.configuration import (
    ConfigResource,
    configuration_from_wire,
    configuration_to_wire,
    refuse,
)
from spark_groups.kafka.topic_schemas import DESCRIBE_CONFIGS


@pytest.mark.parametrize(("keys", "sent"), [(None, None), ([], ()), (["a", "b"], ("a", "b"))])
def test_asks_for_all_or_for_some_keys(keys, sent) -> None:
    values = configuration_to_wire(ConfigResource.GROUP, "g", keys)
    (resource,) = decode(DESCRIBE_CONFIGS.request, encode(DESCRIBE_CONFIGS.request, values))[
        "resources"
    ]
    assert resource == {"resource_type": 32, "resource_name": "g", "configuration_keys": sent}


def result(error_code: int, message: str | None = None, **configuration: str | None) -> dict:
    return {
        "error_code": error_code,
        "error_message": message,
        "configs": [{"name": name, "value": value} for name, value in configuration.items()],
    }


def test_reads_values_and_keeps_secrets_empty() -> None:
    answer = {"results": [result(0, port="1", password=None)]}
    assert configuration_from_wire(answer, "1") == {"port": "1", "password": None}


@pytest.mark.parametrize(
    ("results", "says"),
    [
        ([], "0 configurations, asked was for 'g'"),
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
