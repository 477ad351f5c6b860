"""Settings for reading ranges on executors, cheap to unpickle, and code that both readers share."""

from __future__ import annotations

import logging
import re
import socket
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from enum import Enum
from typing import Final

from spark_groups.errors import DataLossError, OptionsError
from spark_groups.group.member.grant_command import Identity
from spark_groups.spark.schemas.row_formats import RowFormats
from spark_groups.types import OffsetRange, TopicPartition
from spark_groups.wire.security.security import PLAINTEXT, Security
from spark_groups.wire.timeouts import USUAL_TIMEOUTS, Timeouts

MEMORY_BYTES: Final = 256 * 1024 * 1024
VARIABLE_REFERENCE: Final = re.compile(r"(\$\{env:([A-Za-z_][A-Za-z0-9_]*)\})")
"""In `kafka.client.rack`: groups are the whole reference and the variable's name."""
_log = logging.getLogger(__name__)


class ReaderChoice(Enum):
    """The option `reader`."""

    AUTO = "auto"
    FAST = "fast"
    LIBRDKAFKA = "librdkafka"


class UnreadableTimestamp(Enum):
    """The option `onUnreadableTimestamp`."""

    FAIL = "fail"
    NULL = "null"


@dataclass(frozen=True, slots=True, kw_only=True)
class RangeSettings:
    """How executors read offset ranges; hashable, as the key of cached consumers.

    Args:
        group_id: The group whose ACLs apply; executors do not join it.
        cluster_id: Kafka's id of the cluster that the ranges are of; None: unknown.
        rack: `kafka.client.rack`, with `${env:NAME}` unresolved.
        poll_timeout_s: Seconds to wait for the next record.
        timeouts: Of connections and requests.
        memory_bytes: Memory limit of the fast reader in one task.
        tuning: Further settings under librdkafka's names.
        security: TLS and SASL settings, with secrets; excluded from the repr.
        formats: How keys and values are decoded; None: rows have their bytes.
    """

    bootstrap_servers: tuple[str, ...]
    group_id: str
    cluster_id: str | None = None
    client_id: str = "spark-groups"
    rack: str | None = None
    read_committed: bool = False
    include_headers: bool = False
    fail_on_data_loss: bool = True
    on_unreadable_timestamp: UnreadableTimestamp = UnreadableTimestamp.FAIL
    poll_timeout_s: float = 120.0
    timeouts: Timeouts = USUAL_TIMEOUTS
    reader: ReaderChoice = ReaderChoice.AUTO
    memory_bytes: int = MEMORY_BYTES
    tuning: tuple[tuple[str, str], ...] = ()
    security: Security = PLAINTEXT
    formats: RowFormats | None = None

    @property
    def request_timeout_s(self) -> float:
        """Seconds to wait for one response."""
        return self.timeouts.request_s

    @property
    def identity(self) -> Identity:
        """The reader's identity, for authorization errors."""
        return Identity(principal=self.security.principal, bootstrap_servers=self.bootstrap_servers)

    def in_process(self, environ: Mapping[str, str]) -> RangeSettings:
        """Return the settings with the rack of this process.

        Args:
            environ: The environment of the executor, which its Python workers inherit.

        Raises:
            OptionsError: A variable of `kafka.client.rack` is not set.
        """
        if self.rack is None:
            return self
        named = dict.fromkeys(name for _, name in VARIABLE_REFERENCE.findall(self.rack))
        missing = [name for name in named if name not in environ]
        if missing:
            raise OptionsError(
                f"kafka.client.rack is {self.rack}, but {', '.join(missing)} is not set in the"
                f" environment of the executor on {socket.gethostname()}: set it there, to nothing"
                " if that executor shall read from the leaders"
            )
        rack = VARIABLE_REFERENCE.sub(lambda found: environ[found[2]], self.rack).strip()
        return replace(self, rack=rack or None)


def rounds(ranges: Iterable[OffsetRange]) -> Iterator[list[OffsetRange]]:
    """Yield the non-empty ranges in lists that contain each partition at most once."""
    found: list[list[OffsetRange]] = []
    seen: Counter[TopicPartition] = Counter()
    for each in sorted(offset_range for offset_range in ranges if len(offset_range)):
        partition = each.topic_partition
        turn = seen[partition]
        seen[partition] += 1
        if turn == len(found):
            found.append([])
        found[turn].append(each)
    yield from found


def lose(settings: RangeSettings, what: str) -> None:
    """Fail or continue after a loss of offsets, as `failOnDataLoss` specifies.

    Raises:
        DataLossError: `failOnDataLoss` is true.
    """
    if settings.fail_on_data_loss:
        raise DataLossError(
            f"{what}; set failOnDataLoss to false to continue with the existing offsets"
        )
    _log.warning("%s; continuing, because failOnDataLoss is false", what)
