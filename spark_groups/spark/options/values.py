"""Parsers of option values, which raise a ValueError without the option's name."""

from __future__ import annotations

import json
import os
import re
import socket
from collections.abc import Mapping
from enum import Enum
from math import inf
from typing import Any, Final, TypeVar

from spark_groups.errors import OptionsError
from spark_groups.offsets.starting import StartingOffsets, StartingPoint
from spark_groups.protocol.subscription import LEGAL_TOPIC_NAME
from spark_groups.spark.options.range_settings import VARIABLE_REFERENCE
from spark_groups.types import TopicPartition
from spark_groups.wire.addresses import parse_bootstrap_servers
from spark_groups.wire.security.config_references import Allowed

Choice = TypeVar("Choice", bound=Enum)

EARLIEST_OFFSET: Final = -2
"""In `startingOffsets`, -2 is the earliest and -1 the latest offset."""

# The suffixes of Spark's JavaUtils.timeStringAs; a bare number is in milliseconds.
_UNIT_S: Final = dict(
    [("", 1e-3), ("us", 1e-6), ("ms", 1e-3), ("s", 1.0)],
    m=60.0,
    min=60.0,
    h=3600.0,
    d=86400.0,
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
    if str(text).strip().lower() == "none":
        return inf
    try:
        return parse_duration_s(text) or inf
    except ValueError as error:
        raise ValueError(f"{error}, or none") from error


def parse_bytes(text: str) -> int:
    """Parse a size in Spark's notation; without a unit, in bytes."""
    return int(_scaled(text, _UNIT_BYTES, "size"))


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
    try:
        return choices(text.strip().lower())
    except ValueError:
        names = " nor ".join(str(each.value) for each in choices)
        raise ValueError(f"{text!r} is neither {names}") from None


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
    try:
        topics = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{text!r} is neither earliest nor latest nor JSON: {error}") from error
    if not isinstance(topics, dict) or not topics:
        raise _not_offsets("expected an object of topics")
    return StartingOffsets(
        default=StartingPoint.EARLIEST,
        by_partition={
            _partition(topic, index): _starting_offset(topic, index, value)
            for topic, offsets in topics.items()
            for index, value in _items(topic, offsets)
        },
    )


def _items(topic: str, offsets: Any) -> Any:
    if not isinstance(offsets, dict) or not offsets:
        raise _not_offsets(f"{topic!r} needs an object of partitions")
    return offsets.items()


def _partition(topic: str, index: str) -> TopicPartition:
    if re.fullmatch(r"[0-9]{1,9}", index) is None:
        raise _not_offsets(f"{index!r} is not a partition of {topic!r}")
    return TopicPartition(topic, int(index))


def _starting_offset(topic: str, index: str, value: Any) -> int:
    if type(value) is not int or value < EARLIEST_OFFSET:
        raise _not_offsets(
            f"{value!r} is not an offset of {topic}-{index}; -2 is the earliest, -1 the latest"
        )
    return value


def _not_offsets(reason: str) -> ValueError:
    return ValueError(f'the JSON is not {{"topic": {{"partition": offset}}}}: {reason}')
