"""The options of the `kafka-group-state` source."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import Annotated, Any, Final

from pydantic import BeforeValidator, ConfigDict, Field, PositiveInt
from pydantic.dataclasses import dataclass
from pydantic.fields import FieldInfo

from spark_groups.spark.options.checks import (
    SECURITY_OPTIONS,
    read_security,
    refuse_load,
    unknown_or_refused,
    validated,
)
from spark_groups.spark.options.option_values import parse_isolation, parse_servers
from spark_groups.wire.security.security import PLAINTEXT, Security


def _group_ids(text: str) -> tuple[str, ...]:
    found = tuple(dict.fromkeys(each.strip() for each in text.split(",") if each.strip()))
    if not found:
        raise ValueError("names no group: list groups separated by commas, or omit it for all")
    return found


@dataclass(frozen=True, slots=True, kw_only=True, config=ConfigDict(arbitrary_types_allowed=True))
class StateOptions:
    """The validated options of one load().

    Args:
        group_ids: Empty means all groups of the consumer and the classic protocol.
        api_timeout_ms: The limit for reading one group, in milliseconds.
        read_committed: Whether the groups skip records of aborted transactions.
    """

    bootstrap_servers: Annotated[tuple[str, ...], BeforeValidator(parse_servers)] = Field(
        alias="kafka.bootstrap.servers"
    )
    group_ids: Annotated[tuple[str, ...], BeforeValidator(_group_ids)] = Field(
        default=(), alias="kafka.group.id"
    )
    api_timeout_ms: PositiveInt = Field(default=60_000, alias="kafka.default.api.timeout.ms")
    read_committed: Annotated[bool, BeforeValidator(parse_isolation)] = Field(
        default=False, alias="kafka.isolation.level"
    )
    security: Security = PLAINTEXT

    @classmethod
    def of(cls, options: Mapping[str, str]) -> StateOptions:
        """Validate the options of a load().

        Args:
            options: Texts by name, in any case.

        Raises:
            OptionsError: Options are unknown, missing or invalid; lists all.
        """
        given = {name.lower(): str(value) for name, value in options.items()}
        problems = [*unknown_or_refused(options, _KNOWN)]
        values: dict[str, Any] = {name: given[name] for name in STATE_OPTIONS if name in given}
        values["security"] = read_security(given, problems)
        checked = validated(cls, values, STATE_OPTIONS, problems)
        if problems or checked is None:
            refuse_load("kafka-group-state", problems)
        return checked


STATE_OPTIONS: Final = tuple(
    field.default.alias
    for field in fields(StateOptions)
    if isinstance(field.default, FieldInfo) and field.default.alias
)
_KNOWN: Final = {
    name: name for name in (*STATE_OPTIONS, *(name for name, _, _ in SECURITY_OPTIONS))
}
