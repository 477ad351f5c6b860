"""Options for executors' reads that are passed to librdkafka, under Kafka's names."""

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
"""librdkafka's message.max.bytes, the minimum of fetch.max.bytes."""


@dataclass(frozen=True, slots=True)
class FetchTuning:
    """One option.

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
        "Minimum bytes per fetch response.",
        at_least=1,
        at_most=100_000_000,
    ),
    # Every offset of a range exists; a prefetch past its end must not delay the next range.
    FetchTuning(
        "kafka.fetch.max.wait.ms",
        "fetch.wait.max.ms",
        "5",
        "Maximum wait of a broker for kafka.fetch.min.bytes.",
        at_most=300_000,
    ),
    FetchTuning(
        "kafka.fetch.max.bytes",
        "fetch.max.bytes",
        "52428800",
        "Maximum bytes per fetch; with the fast reader at most an eighth of maxMemoryPerTask.",
        at_least=_MESSAGE_MAX_BYTES,
        at_most=_INT_MAX - 512,
    ),
    FetchTuning(
        "kafka.max.partition.fetch.bytes",
        "max.partition.fetch.bytes",
        "8388608",
        "Maximum bytes per partition and fetch.",
        at_least=1,
        at_most=1_000_000_000,
    ),
    # The default of Kafka's own consumer, unlike librdkafka's.
    FetchTuning(
        "kafka.check.crcs", "check.crcs", "true", "Whether executors verify checksums.", None
    ),
    FetchTuning(
        "kafka.receive.buffer.bytes",
        "socket.receive.buffer.bytes",
        THE_SYSTEMS,
        "Size of socket receive buffers.",
        at_most=_BUFFER_BYTES_MAX,
    ),
    FetchTuning(
        "kafka.send.buffer.bytes",
        "socket.send.buffer.bytes",
        THE_SYSTEMS,
        "Size of socket send buffers; librdkafka only.",
        at_most=_BUFFER_BYTES_MAX,
    ),
    FetchTuning(
        "kafka.metadata.max.age.ms",
        "metadata.max.age.ms",
        "900000",
        "Maximum age of metadata; librdkafka only.",
        at_least=1,
        at_most=24 * _HOUR_MS,
    ),
    FetchTuning(
        "kafka.reconnect.backoff.ms",
        "reconnect.backoff.ms",
        "100",
        "First reconnect backoff; librdkafka only.",
        at_most=_HOUR_MS,
    ),
    FetchTuning(
        "kafka.reconnect.backoff.max.ms",
        "reconnect.backoff.max.ms",
        "10000",
        "Maximum reconnect backoff; librdkafka only.",
        at_most=_HOUR_MS,
    ),
)

FETCH_DEFAULTS: Final[Mapping[str, str]] = MappingProxyType(
    {each.setting: each.default for each in FETCH_TUNING if each.default != THE_SYSTEMS}
)
"""Always passed to librdkafka, so that the option table is right."""
