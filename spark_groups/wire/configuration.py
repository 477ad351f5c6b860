"""Configuration of groups, brokers and topics on the wire."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import Enum, IntEnum

from spark_groups.errors import ErrorCode, ProtocolError, rule_for
from spark_groups.wire.schemas.codec import Values


class ConfigResource(IntEnum):
    """The owner of a configuration (org.apache.kafka.common.config.ConfigResource.Type)."""

    TOPIC = 2
    BROKER = 4
    GROUP = 32


class ConfigOrigin(Enum):
    """The source of a value (org.apache.kafka.clients.admin.ConfigEntry.ConfigSource)."""

    UNKNOWN = "unknown"
    TOPIC = "topic"
    BROKER = "broker, dynamic"
    ALL_BROKERS = "all brokers, dynamic"
    STATIC_BROKER = "broker, static"
    DEFAULT = "default"
    GROUP = "group"


_ORIGINS: Mapping[int, ConfigOrigin] = {
    1: ConfigOrigin.TOPIC,
    2: ConfigOrigin.BROKER,
    3: ConfigOrigin.ALL_BROKERS,
    4: ConfigOrigin.STATIC_BROKER,
    5: ConfigOrigin.DEFAULT,
    8: ConfigOrigin.GROUP,
}
"""By `config_source` of DescribeConfigs."""


class _Operation(IntEnum):
    """org.apache.kafka.clients.admin.AlterConfigOp.OpType."""

    SET = 0
    DELETE = 1


@dataclass(frozen=True, slots=True)
class ConfigEntry:
    """A setting on a broker; `value` is None if it is sensitive."""

    value: str | None
    origin: ConfigOrigin


def configurations_to_wire(
    resource: ConfigResource, names: Iterable[str], keys: Iterable[str] | None
) -> Values:
    """Request the configuration of several resources; all keys if None."""
    wanted = None if keys is None else tuple(keys)
    asked = tuple(
        {"resource_type": int(resource), "resource_name": name, "configuration_keys": wanted}
        for name in names
    )
    return {"resources": asked, "include_synonyms": False, "include_documentation": False}


def configuration_from_wire(values: Values, name: str) -> Mapping[str, ConfigEntry]:
    """Read the configuration of one resource.

    Raises:
        ProtocolError: The broker refused, or its answer is not about one resource.
    """
    if len(values["results"]) != 1:
        raise ProtocolError(f"{len(values['results'])} configurations in the answer about {name!r}")
    (result,) = values["results"]
    refuse(result["error_code"], f"DescribeConfigs of {name!r}", result["error_message"])
    return _entries(result)


def configurations_from_wire(
    values: Values,
) -> tuple[Mapping[str, Mapping[str, ConfigEntry]], Mapping[str, str]]:
    """Read the configurations of several resources, and the reasons of refusals, both by name."""
    results = values["results"]
    found = {
        result["resource_name"]: _entries(result) for result in results if not result["error_code"]
    }
    refused = {
        result["resource_name"]: ErrorCode.name_of(result["error_code"])
        for result in results
        if result["error_code"]
    }
    return found, refused


def _entries(result: Values) -> dict[str, ConfigEntry]:
    return {
        each["name"]: ConfigEntry(
            each["value"], _ORIGINS.get(each["config_source"], ConfigOrigin.UNKNOWN)
        )
        for each in result["configs"]
    }


def alteration_to_wire(
    resource: ConfigResource, name: str, changes: Mapping[str, str | None]
) -> Values:
    """Request changes of one resource's configuration; None removes a value."""
    configs = tuple(
        {
            "name": key,
            "config_operation": int(_Operation.DELETE if value is None else _Operation.SET),
            "value": value,
        }
        for key, value in changes.items()
    )
    altered = {"resource_type": int(resource), "resource_name": name, "configs": configs}
    return {"resources": (altered,), "validate_only": False}


def check_alteration(values: Values, name: str) -> None:
    """Raise unless the broker changed the configuration of one resource.

    Raises:
        ProtocolError: The broker refused, or its answer is not about one resource.
    """
    if len(values["responses"]) != 1:
        raise ProtocolError(f"{len(values['responses'])} answers to one change of {name!r}")
    (answer,) = values["responses"]
    message = answer["error_message"]
    if answer["error_code"] == ErrorCode.GROUP_AUTHORIZATION_FAILED:
        message = f"{message or ''} (the principal needs ALTER_CONFIGS on the group)".lstrip()
    refuse(answer["error_code"], f"IncrementalAlterConfigs of {name!r}", message)


def refuse(error_code: int, asked: str, message: str | None = None) -> None:
    """Raise a ProtocolError if the error code is one.

    Args:
        asked: The request, for the message.
        message: The broker's error message, if any.
    """
    if error_code:
        reason = message or rule_for(error_code).remedy
        raise ProtocolError(f"{asked} was refused: {ErrorCode.name_of(error_code)}, {reason}")
