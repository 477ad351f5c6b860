"""The options of the `kafka-group-state` source."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import MISSING, dataclass
from typing import Final

from spark_groups.spark.options.checks import (
    SECURITY_OPTIONS,
    read_security,
    refuse_load,
    unknown_or_refused,
)
from spark_groups.spark.options.declaring import declared_options, option, parsed
from spark_groups.spark.options.option_values import parse_isolation, parse_servers, whole_number
from spark_groups.wire.security.security import PLAINTEXT, Security


def _group_ids(text: str) -> tuple[str, ...]:
    found = tuple(dict.fromkeys(each.strip() for each in text.split(",") if each.strip()))
    if not found:
        raise ValueError("names no group: list groups separated by commas, or omit it for all")
    return found


@dataclass(frozen=True, slots=True, kw_only=True)
class StateOptions:
    """The validated options of one load().

    Args:
        group_ids: Empty means all groups of the consumer and the classic protocol.
        api_timeout_ms: The limit for reading one group, in milliseconds.
        read_committed: Whether the groups skip records of aborted transactions.
    """

    bootstrap_servers: tuple[str, ...] = option(
        "kafka.bootstrap.servers", parse_servers, default=MISSING
    )
    group_ids: tuple[str, ...] = option("kafka.group.id", _group_ids, default=())
    api_timeout_ms: int = option("kafka.default.api.timeout.ms", whole_number(1), default=60_000)
    read_committed: bool = option("kafka.isolation.level", parse_isolation, default=False)
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
        values = parsed(cls, given, problems)
        security = read_security(given, problems)
        if problems:
            refuse_load("kafka-group-state", problems)
        return cls(**values, security=security)


STATE_OPTIONS: Final = tuple(each.name for each in declared_options(StateOptions).values())
_KNOWN: Final = {
    name: name for name in (*STATE_OPTIONS, *(name for name, _, _ in SECURITY_OPTIONS))
}
