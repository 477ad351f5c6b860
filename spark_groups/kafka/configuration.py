"""DescribeConfigs: the settings of groups, brokers and topics as the cluster has them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import IntEnum

from spark_groups.errors import ErrorCode, ProtocolError, rule_for
from spark_groups.kafka.codec import Values


class ConfigResource(IntEnum):
    """What a configuration belongs to (org.apache.kafka.common.config.ConfigResource.Type)."""

    TOPIC = 2
    BROKER = 4
    GROUP = 32


def configuration_to_wire(
    resource: ConfigResource, name: str, keys: Iterable[str] | None
) -> Values:
    """Ask for the configuration of one resource; all keys if None."""
    asked = {
        "resource_type": int(resource),
        "resource_name": name,
        "configuration_keys": None if keys is None else tuple(keys),
    }
    return {"resources": (asked,), "include_synonyms": False, "include_documentation": False}


def configuration_from_wire(values: Values, name: str) -> Mapping[str, str | None]:
    """Read the configuration of one resource; sensitive values are None.

    Raises:
        ProtocolError: The broker refused, or its answer is not about one resource.
    """
    if len(values["results"]) != 1:
        raise ProtocolError(f"{len(values['results'])} configurations, asked was for {name!r}")
    (result,) = values["results"]
    refuse(result["error_code"], f"DescribeConfigs of {name!r}", result["error_message"])
    return {each["name"]: each["value"] for each in result["configs"]}


def refuse(error_code: int, asked: str, message: str | None = None) -> None:
    """Raise if an answer is an error.

    Args:
        error_code: Kafka's error code.
        asked: What was asked, for people.
        message: The broker's own words, if it gave any.

    Raises:
        ProtocolError: It is an error.
    """
    if error_code:
        reason = message or rule_for(error_code).remedy
        raise ProtocolError(f"{asked} was refused: {ErrorCode.name_of(error_code)}, {reason}")
