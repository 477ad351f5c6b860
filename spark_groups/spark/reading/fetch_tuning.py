"""The options for executors' reads that librdkafka takes as they are, under its own names."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

THE_SYSTEMS: Final = "the system's"
_INT_MAX: Final = 2**31 - 1
_HOUR_MS: Final = 3_600_000
_BUFFER_BYTES_MAX: Final = 100_000_000
_MESSAGE_MAX_BYTES: Final = 1_000_000
"""librdkafka's message.max.bytes, which fetch.max.bytes may not be below."""


@dataclass(frozen=True, slots=True)
class FetchTuning:
    """An option for the executors' reads that librdkafka takes as it is.

    Args:
        name: The option, named as in a Java consumer.
        setting: librdkafka's name.
        default: As the option table shows it.
        at_least: The minimum; None for a boolean.
    """

    name: str
    setting: str
    default: str
    meaning: str
    at_least: int | None = 0
    at_most: int = _INT_MAX


FETCH_TUNING: Final[tuple[FetchTuning, ...]] = (
    FetchTuning(
        "kafka.fetch.min.bytes",
        "fetch.min.bytes",
        "1",
        "Bytes a broker waits for.",
        at_least=1,
        at_most=100_000_000,
    ),
    # Every offset of a range exists. A fetch beyond one, sent ahead, must not hold up the next.
    FetchTuning(
        "kafka.fetch.max.wait.ms",
        "fetch.wait.max.ms",
        "5",
        "How long it waits for them.",
        at_most=300_000,
    ),
    FetchTuning(
        "kafka.fetch.max.bytes",
        "fetch.max.bytes",
        "52428800",
        "Bytes of one fetch; fast: at most an eighth of maxMemoryPerTask.",
        at_least=_MESSAGE_MAX_BYTES,
        at_most=_INT_MAX - 512,
    ),
    FetchTuning(
        "kafka.max.partition.fetch.bytes",
        "max.partition.fetch.bytes",
        "8388608",
        "Bytes of one partition in one fetch.",
        at_least=1,
        at_most=1_000_000_000,
    ),
    # As Kafka's own consumer does; librdkafka would not.
    FetchTuning(
        "kafka.check.crcs", "check.crcs", "true", "Whether executors check checksums.", None
    ),
    FetchTuning(
        "kafka.receive.buffer.bytes",
        "socket.receive.buffer.bytes",
        THE_SYSTEMS,
        "Size of a socket's receive buffer.",
        at_most=_BUFFER_BYTES_MAX,
    ),
    FetchTuning(
        "kafka.send.buffer.bytes",
        "socket.send.buffer.bytes",
        THE_SYSTEMS,
        "Size of a socket's send buffer, with librdkafka.",
        at_most=_BUFFER_BYTES_MAX,
    ),
    FetchTuning(
        "kafka.metadata.max.age.ms",
        "metadata.max.age.ms",
        "900000",
        "Age of known leaders, with librdkafka.",
        at_least=1,
        at_most=24 * _HOUR_MS,
    ),
    FetchTuning(
        "kafka.reconnect.backoff.ms",
        "reconnect.backoff.ms",
        "100",
        "First pause to reconnect, with librdkafka.",
        at_most=_HOUR_MS,
    ),
    FetchTuning(
        "kafka.reconnect.backoff.max.ms",
        "reconnect.backoff.max.ms",
        "10000",
        "Longest pause to reconnect, with librdkafka.",
        at_most=_HOUR_MS,
    ),
    FetchTuning(
        "kafka.connections.max.idle.ms",
        "connections.max.idle.ms",
        "0",
        "When an idle connection is closed, with librdkafka; 0 never.",
    ),
)

FETCH_DEFAULTS: Final[Mapping[str, str]] = MappingProxyType(
    {each.setting: each.default for each in FETCH_TUNING if each.default != THE_SYSTEMS}
)
"""What librdkafka is told where nothing is set, so that the option table says what holds."""
