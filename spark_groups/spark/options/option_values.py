"""Parsers of option values, which raise a ValueError without the option's name."""

from __future__ import annotations

import json
import os
import re
import socket
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from math import inf
from typing import Final, TypeVar

from spark_groups.errors import OptionsError
from spark_groups.group.ledger.starting import StartingOffsets, StartingPoint, Timestamps
from spark_groups.group.member.subscription import LEGAL_TOPIC_NAME
from spark_groups.spark.options.range_settings import VARIABLE_REFERENCE
from spark_groups.types import TopicPartition
from spark_groups.wire.addresses import parse_bootstrap_servers
from spark_groups.wire.security.config_references import Allowed

_TRUE: Final = frozenset({"true", "t", "yes", "y", "on", "1"})
_FALSE: Final = frozenset({"false", "f", "no", "n", "off", "0"})
Choice = TypeVar("Choice", bound=Enum)

EARLIEST_OFFSET: Final = -2
"""In `startingOffsets`, -2 is the earliest and -1 the latest offset."""

# The suffixes of Spark's JavaUtils.timeStringAs; a bare number is in milliseconds.
_UNIT_S: Final = dict(
    [("", 1e-3), ("us", 1e-6), ("ms", 1e-3), ("s", 1.0)], m=60.0, min=60.0, h=3600.0, d=86400.0
)

# Those of its byteStringAs; a bare number is in bytes.
_UNIT_BYTES: Final[dict[str, float]] = {"": 1, "b": 1} | {
    f"{unit}{b}": 1024**power for power, unit in enumerate("kmg", 1) for b in ("", "b")
}


def parse_servers(text: str) -> tuple[str, ...]:
    """Parse `kafka.bootstrap.servers`."""
    try:
        return tuple(str(address) for address in parse_bootstrap_servers(text))
    except OptionsError as error:
        reason = str(error).removeprefix("kafka.bootstrap.servers").lstrip(": ")
        raise ValueError(reason) from error


def parse_text(text: str) -> str:
    """Parse a text that is not empty."""
    if not text.strip():
        raise ValueError("is empty")
    return text.strip()


def whole_number(at_least: int, at_most: int | None = None) -> Callable[[str], int]:
    """Return a parser of whole numbers."""
    bounds = f"of at least {at_least}" if at_most is None else f"from {at_least} to {at_most}"

    def parse(text: str) -> int:
        number = int(text) if re.fullmatch(r"\s*[+-]?[0-9]{1,19}\s*", text) else None
        if number is None or not at_least <= number <= (number if at_most is None else at_most):
            raise ValueError(f"{text!r} is invalid: write a whole number {bounds}")
        return number

    return parse


def parse_boolean(text: str) -> bool:
    """Parse a boolean."""
    given = text.strip().lower()
    if given in _TRUE or given in _FALSE:
        return given in _TRUE
    raise ValueError(f"{text!r} is invalid: write true or false")


def _scaled(text: str, units: Mapping[str, float], quantity: str) -> float:
    found = re.fullmatch(r"(\d+)\s*([a-z]*)", str(text).strip().lower())
    if found is None or found[2] not in units:
        names = ", ".join(unit for unit in units if unit)
        raise ValueError(f"{text!r} is not a {quantity}: write a number and one of {names}")
    return int(found[1]) * units[found[2]]


def parse_duration_s(text: str) -> float:
    """Parse a duration in Spark's notation; without a unit, in milliseconds."""
    return _scaled(text, _UNIT_S, "duration")


def parse_limit_s(text: str) -> float:
    """Parse a duration as `parse_duration_s`; `none` and 0 mean no limit."""
    return _limit(text, parse_duration_s) or inf


def parse_bytes(text: str) -> int:
    """Parse a size in Spark's notation; without a unit, in bytes."""
    return int(_scaled(text, _UNIT_BYTES, "size"))


def parse_limit_bytes(text: str) -> float:
    """Parse a size as `parse_bytes`; `none` means no limit."""
    size_bytes = _limit(text, parse_bytes)
    if size_bytes < 1:
        raise ValueError("is not positive; none means no limit")
    return size_bytes


def _limit(text: str, parse: Callable[[str], float]) -> float:
    if str(text).strip().lower() == "none":
        return inf
    try:
        return parse(text)
    except ValueError as error:
        raise ValueError(f"{error}, or none") from error


def parse_instance_id(text: str) -> str:
    """Parse `kafka.group.instance.id`, with `${NAME}` from the environment of the driver."""
    missing: list[str] = []

    def value_of(found: re.Match[str]) -> str:
        Allowed.by(os.environ).check_bare_variable(found[1])
        value = os.environ.get(found[1])
        if not value and found[1] == "HOSTNAME":
            value = socket.gethostname()
        if not value:
            missing.append(found[1])
        return value or ""

    expanded = re.sub(r"\$\{([A-Za-z_][A-Za-z0-9_]*)\}", value_of, text.strip())
    if missing:
        names = ", ".join(dict.fromkeys(missing))
        raise ValueError(f"{text!r}: set {names} in the environment of the driver")
    if not LEGAL_TOPIC_NAME.fullmatch(expanded) or expanded in (".", ".."):
        became = "" if expanded == text.strip() else f", which becomes {expanded!r},"
        raise ValueError(
            f"{text!r}{became} is not an instance ID: use up to 249 letters, digits, '.', '_' and"
            " '-'; ${NAME} is read from the environment of the driver"
        )
    return expanded


def parse_rack(text: str) -> str:
    """Parse `kafka.client.rack`; `${env:NAME}` stays in it, for each executor to resolve."""
    rack = text.strip()
    if not rack:
        raise ValueError("is empty")
    literal = rack
    for reference, name in VARIABLE_REFERENCE.findall(rack):
        allowed = Allowed.by(os.environ)
        try:
            allowed.check_provider("env")
            allowed.check_variable(name)
        except ValueError as error:
            raise ValueError(f"{reference}: {error}") from None
        literal = literal.replace(reference, "")
    if "${" in literal:
        raise ValueError(
            f"{text!r} is not a rack: a variable of the executors is written ${{env:NAME}}"
        )
    return rack


def one_of(choices: type[Choice], text: str) -> Choice:
    """Parse an enumerated option, in any case."""
    found = {str(choice.value).lower(): choice for choice in choices}.get(text.strip().lower())
    if found is None:
        names = " nor ".join(str(choice.value) for choice in choices)
        raise ValueError(f"{text!r} is neither {names}")
    return found


class Emit(Enum):
    """The option `emit`: the content of rows."""

    RECORDS = "records"
    RANGES = "ranges"


def parse_unreleased(text: str) -> bool:
    """Parse `unreleasedInstance`; True means wait."""
    return _known(text.strip().lower(), "wait", "fail") == "wait"


def parse_isolation(text: str) -> bool:
    """Parse `kafka.isolation.level`; True means read_committed."""
    return _known(text, "read_uncommitted", "read_committed") == "read_committed"


def _known(text: str, *names: str) -> str:
    if text not in names:
        raise ValueError(f"{text!r} is neither {' nor '.join(names)}")
    return text


class MoveWithState(Enum):
    """The option `partitionMoveWithState`."""

    WARN = "warn"
    FAIL = "fail"
    IGNORE = "ignore"


class LogLevel(Enum):
    """The option `logLevel`, with Spark's names."""

    DEBUG = "debug"
    INFO = "info"
    WARN = "warn"
    ERROR = "error"
    OFF = "off"


def parse_starting_offsets(text: str) -> StartingOffsets:
    """Parse `startingOffsets` in the notation of Spark's Kafka source.

    A partition that the JSON does not name starts at its earliest offset, as in Spark for a
    partition that it discovers later.
    """
    named = {point.name.lower(): point for point in StartingPoint}
    if text.strip().lower() in named:
        return StartingOffsets(default=named[text.strip().lower()])
    return StartingOffsets(
        default=StartingPoint.EARLIEST,
        by_partition=_by_partition(
            text, "offset", EARLIEST_OFFSET, "; -2 is the earliest, -1 the latest", _EITHER
        ),
    )


@dataclass(frozen=True, slots=True)
class EndingOffsets:
    """Where a batch read ends in each partition.

    Args:
        by_partition: The first offset that is not read, or -1 for the log end; empty: the log end
            of every partition.
        timestamps: The first record with this timestamp or a later one is not read; these take
            precedence, and a partition without such a record is read to its log end.
    """

    by_partition: Mapping[TopicPartition, int] = field(default_factory=dict)
    timestamps: Timestamps | None = None


def parse_ending_offsets(text: str) -> EndingOffsets:
    """Parse `endingOffsets` in the notation of Spark's Kafka source."""
    if text.strip().lower() == "latest":
        return EndingOffsets()
    if text.strip().lower() == "earliest":
        raise ValueError("a read that ends at the earliest offset has no rows")
    return EndingOffsets(_by_partition(text, "offset", -1, "; -1 is the latest", "not latest nor"))


def parse_timestamp_ms(text: str) -> int:
    """Parse `startingTimestamp` and `endingTimestamp`: milliseconds since 1970."""
    if re.fullmatch(r"[0-9]{1,18}", text.strip()) is None:
        raise ValueError(f"{text!r} is not a timestamp: write milliseconds since 1970, UTC")
    return int(text)


def parse_timestamps_ms(text: str) -> Mapping[TopicPartition, int]:
    """Parse `startingOffsetsByTimestamp` and `endingOffsetsByTimestamp`."""
    return _by_partition(text, "timestamp", 0, ": write milliseconds since 1970, UTC", "not")


_EITHER: Final = "neither earliest nor latest nor"


def _by_partition(
    text: str, what: str, at_least: int, hint: str, is_not: str
) -> dict[TopicPartition, int]:
    """Parse JSON such as {"orders": {"0": 23, "1": -2}}.

    Args:
        what: What the numbers are.
        at_least: The smallest that is allowed.
        hint: What to write in place of a wrong one.
        is_not: What the text was expected to be, up to "JSON".
    """

    def wrong(reason: str) -> ValueError:
        return ValueError(f'the JSON is not {{"topic": {{"partition": {what}}}}}: {reason}')

    try:
        topics = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{text!r} is {is_not} JSON: {error}") from error
    if not isinstance(topics, dict) or not topics:
        raise wrong("expected an object of topics")
    found = {}
    for topic, partitions in topics.items():
        if not isinstance(partitions, dict) or not partitions:
            raise wrong(f"{topic!r} needs an object of partitions")
        for index, value in partitions.items():
            if re.fullmatch(r"[0-9]{1,9}", index) is None:
                raise wrong(f"{index!r} is not a partition of {topic!r}")
            if type(value) is not int or not at_least <= value < 2**63:
                raise wrong(f"{value!r} is not {_AN[what]} of {topic}-{index}{hint}")
            found[TopicPartition(topic, int(index))] = value
    return found


_AN: Final = {"offset": "an offset", "timestamp": "a timestamp"}
