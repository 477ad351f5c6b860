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
_OTHER_NAMES: Final = {
    "fetch.max.wait.ms": "fetch.wait.max.ms",
    "receive.buffer.bytes": "socket.receive.buffer.bytes",
    "send.buffer.bytes": "socket.send.buffer.bytes",
}
"""librdkafka's names of settings, where they differ from Kafka's."""


@dataclass(frozen=True, slots=True)
class FetchTuning:
    """One option.

    Args:
        kafka_name: The setting of a Java consumer.
        default: As the option table shows it.
        at_least: The minimum; None for a boolean.
    """

    kafka_name: str
    default: str
    meaning: str
    at_least: int | None
    at_most: int = _INT_MAX

    @property
    def name(self) -> str:
        """The option."""
        return f"kafka.{self.kafka_name}"

    @property
    def setting(self) -> str:
        """librdkafka's name."""
        return _OTHER_NAMES.get(self.kafka_name, self.kafka_name)


FETCH_TUNING: Final[tuple[FetchTuning, ...]] = (
    FetchTuning("fetch.min.bytes", "1", "Minimum bytes per fetch response.", 1, 100_000_000),
    # Every offset of a range exists; a prefetch past its end must not delay the next range.
    FetchTuning(
        "fetch.max.wait.ms", "5", "Maximum wait of a broker for kafka.fetch.min.bytes.", 0, 300_000
    ),
    FetchTuning(
        "fetch.max.bytes",
        "52428800",
        "Maximum bytes per fetch; with the fast reader at most an eighth of maxMemoryPerTask.",
        _MESSAGE_MAX_BYTES,
        _INT_MAX - 512,
    ),
    FetchTuning(
        "max.partition.fetch.bytes",
        "8388608",
        "Maximum bytes per partition and fetch.",
        1,
        1_000_000_000,
    ),
    # The default of Kafka's own consumer, unlike librdkafka's.
    FetchTuning("check.crcs", "true", "Whether executors verify checksums.", None),
    FetchTuning(
        "receive.buffer.bytes", THE_SYSTEMS, "Size of socket receive buffers.", 0, _BUFFER_BYTES_MAX
    ),
    FetchTuning(
        "send.buffer.bytes",
        THE_SYSTEMS,
        "Size of socket send buffers; librdkafka only.",
        0,
        _BUFFER_BYTES_MAX,
    ),
    FetchTuning(
        "metadata.max.age.ms",
        "900000",
        "Maximum age of metadata; librdkafka only.",
        1,
        24 * _HOUR_MS,
    ),
    FetchTuning(
        "reconnect.backoff.ms", "100", "First reconnect backoff; librdkafka only.", 0, _HOUR_MS
    ),
    FetchTuning(
        "reconnect.backoff.max.ms",
        "10000",
        "Maximum reconnect backoff; librdkafka only.",
        0,
        _HOUR_MS,
    ),
)

FETCH_DEFAULTS: Final[Mapping[str, str]] = MappingProxyType(
    {each.setting: each.default for each in FETCH_TUNING if each.default != THE_SYSTEMS}
)
"""Always passed to librdkafka, so that the option table is right."""
