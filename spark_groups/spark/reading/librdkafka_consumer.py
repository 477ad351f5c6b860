"""A client of librdkafka that reads ranges, and stays in its cluster.

librdkafka follows an address into another cluster: it takes the topic ids of that cluster's
metadata and reads on. It cannot fetch there before it has this metadata, of which it logs that the
cluster id changed, so the log comes before the records.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Collection, Iterable
from concurrent.futures import Future, wait
from typing import Any, Final

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicCollection
from confluent_kafka.admin import AdminClient

from spark_groups.errors import AccessError, BrokerUnreachableError
from spark_groups.spark.options.librdkafka_options import FETCH_DEFAULTS
from spark_groups.spark.options.range_settings import RangeSettings
from spark_groups.spark.reading.gaps import GapCheck
from spark_groups.types import TopicId, parse_topic_id
from spark_groups.wire.addresses import parse_bootstrap_servers
from spark_groups.wire.cluster_identity import ClusterIdentity
from spark_groups.wire.connection import AnotherClusterError

_log = logging.getLogger(__name__)

_DESCRIBE_S: Final = 5.0
"""How long one broker may take to describe topics before another one is asked; then twice this."""
ASK_AGAIN_S: Final = 0.2
_CONNECT_AGAIN_S: Final = 1.0
_DAY_MS: Final = 86_400_000
_OTHER_CLUSTER: Final = "CLUSTERID"
"""The facility of librdkafka's WARN that a broker reports another cluster id than before."""
_LOG_LEVEL: Final = 4
"""librdkafka's name for WARNING (syslog)."""
_LOOK_S: Final = 0.1
"""Interval for checking whether a broker refused the connection."""
_REFUSED: Final = frozenset({KafkaError._AUTHENTICATION, KafkaError._SSL})
GONE: Final = frozenset({KafkaError._UNKNOWN_TOPIC, KafkaError._UNKNOWN_PARTITION})
_LEADERLESS: Final = frozenset(
    {
        KafkaError.NOT_LEADER_FOR_PARTITION,
        KafkaError.LEADER_NOT_AVAILABLE,
        KafkaError.REPLICA_NOT_AVAILABLE,
        KafkaError.OFFSET_NOT_AVAILABLE,
        KafkaError.UNKNOWN_TOPIC_OR_PART,
        KafkaError.FENCED_LEADER_EPOCH,
        KafkaError.UNKNOWN_LEADER_EPOCH,
    }
)
"""Errors of brokers while a partition gets another leader, or they do not know it yet."""
BEHIND: Final = _LEADERLESS | GONE
"""Errors while brokers, or the metadata of librdkafka, have not caught up."""
_UNREACHABLE: Final = BEHIND | {
    KafkaError._DESTROY_BROKER,
    KafkaError._TIMED_OUT,
    KafkaError._TRANSPORT,
    KafkaError._ALL_BROKERS_DOWN,
}


def librdkafka_settings(settings: RangeSettings) -> dict[str, Any]:
    """Return the librdkafka configuration of a consumer that reads ranges."""
    configuration: dict[str, Any] = {
        "bootstrap.servers": ",".join(settings.bootstrap_servers),
        "client.id": settings.client_id,
        "group.id": settings.group_id,
        "enable.auto.commit": False,
        "enable.auto.offset.store": False,
        "enable.partition.eof": True,
        # Report missing offsets as an error, so that failOnDataLoss decides.
        "auto.offset.reset": "error",
        "isolation.level": "read_committed" if settings.read_committed else "read_uncommitted",
        # An idle consumer is not polled, and is not a group member.
        "max.poll.interval.ms": _DAY_MS,
        # By default librdkafka pauses a partition for a second when its queue is full.
        "fetch.queue.backoff.ms": 5,
        "queued.min.messages": 100_000,
        "socket.keepalive.enable": True,
        "socket.connection.setup.timeout.ms": max(1000, int(settings.timeouts.setup_max_s * 1000)),
        "connections.max.idle.ms": settings.timeouts.max_idle_ms,
        "log_level": _LOG_LEVEL,
    }
    if settings.rack is not None:
        configuration["client.rack"] = settings.rack
    configuration |= settings.security.librdkafka_settings()
    return configuration | dict(FETCH_DEFAULTS) | dict(settings.tuning)


class RangeConsumer:
    """A consumer, and the last error that it reported."""

    def __init__(self, settings: RangeSettings) -> None:
        self.settings = settings
        self.last_error: str | None = None
        self._refusal: str | None = None
        self._identity = ClusterIdentity(settings.cluster_id)
        self.gaps = GapCheck(settings)
        self._known_topics: set[str] = set()
        self._connect()

    def _connect(self) -> None:
        self._visited: str | None = None
        self._known_topics.clear()
        self._admin: AdminClient | None = None
        self.fetcher = Consumer(
            librdkafka_settings(self.settings) | {"error_cb": self._note_error}, logger=self
        )

    def look_up(self, topics: Iterable[str]) -> None:
        """Fetch metadata of new topics, a second before librdkafka would.

        Raises like `check_cluster`.
        """
        for topic in sorted(set(topics) - self._known_topics):
            self.check_cluster(topic)
            self._known_topics.add(topic)

    def check_cluster(self, topic: str) -> None:
        """Fetch metadata of a topic, and check which cluster has sent it.

        Raises:
            AnotherClusterError: It is not that of the ranges.
            BrokerUnreachableError: No broker responded within `request_timeout_s`.
        """
        try:
            found = self.fetcher.list_topics(topic, timeout=self.settings.request_timeout_s)
        except KafkaException as error:
            raise self.failure(error.args[0], f"looking up the topic {topic}") from error
        self._refuse_others(found.cluster_id)

    def check_topic_ids(self) -> None:
        """Check which cluster answers `topic_ids`; raises like `check_cluster`."""
        if self._admin is None:
            return
        # Metadata would create a missing topic: an admin client is a producer for librdkafka.
        described = self._admin.describe_cluster(request_timeout=self.settings.request_timeout_s)
        self._await(self._admin, [described])
        try:
            found = described.result()
        except KafkaException as error:
            raise self.failure(error.args[0], "describing the cluster") from error
        self._refuse_others(found.cluster_id)

    def _refuse_others(self, cluster_id: str | None) -> None:
        address = parse_bootstrap_servers(self.settings.bootstrap_servers)[0]
        refusal = self._identity.refusal(address, cluster_id)
        if refusal is not None:
            raise AnotherClusterError(refusal, may_have_arrived=False)

    def is_still_there(self, topic: str, deadline: float) -> bool:
        """Return whether librdkafka has met no other cluster; if it has, connect again.

        Args:
            topic: A topic to look up.
            deadline: Until when to try (of `time.monotonic`).

        Raises:
            AnotherClusterError: The addresses still lead to another cluster.
            BrokerUnreachableError: No broker responded in time.
        """
        if self._visited is None:
            return True
        _log.warning("dropping the records that came last, and connecting again: %s", self._visited)
        while True:
            self.fetcher.close()
            self._connect()
            try:
                self.check_cluster(topic)
            except BrokerUnreachableError:
                if time.monotonic() + _CONNECT_AGAIN_S >= deadline:
                    raise
                time.sleep(_CONNECT_AGAIN_S)
            else:
                return False

    def log(self, level: int, text: str, facility: str, *rest: object) -> None:
        """Take a line of librdkafka's log; called as `logging.Logger.log` is."""
        if facility == _OTHER_CLUSTER:
            self._visited = str(rest[-1])
        if level >= logging.ERROR:
            _log.log(level, text, facility, *rest)

    def topic_ids(self, topics: Collection[str]) -> dict[str, TopicId]:
        """Return the current IDs of the topics that exist.

        Raises:
            BrokerUnreachableError: No broker responded within `request_timeout_s`.
            AccessError: TLS or authentication failed.
        """
        deadline = time.monotonic() + self.settings.request_timeout_s
        attempt_s = _DESCRIBE_S
        while True:
            remaining_s = deadline - time.monotonic()
            try:
                return self._described(topics, min(attempt_s, remaining_s))
            except BrokerUnreachableError as error:
                is_over = time.monotonic() + ASK_AGAIN_S >= deadline
                if is_over or isinstance(error, AnotherClusterError):
                    raise
                # An admin client asks only the broker that it takes for the controller. If that
                # one is down, the client waits for it, although the others run: a new client
                # asks another one.
                self._admin = None
                attempt_s *= 2
                time.sleep(ASK_AGAIN_S)

    def _described(self, topics: Collection[str], timeout_s: float) -> dict[str, TopicId]:
        is_new = self._admin is None
        if self._admin is None:
            configuration: dict[str, Any] = self.settings.security.librdkafka_settings()
            self._admin = AdminClient(
                configuration
                | {
                    "bootstrap.servers": ",".join(self.settings.bootstrap_servers),
                    "client.id": self.settings.client_id,
                    "log_level": _LOG_LEVEL,
                    "error_cb": self._note_error,
                },
                logger=self,
            )
        described = self._admin.describe_topics(
            TopicCollection(list(topics)), request_timeout=timeout_s
        )
        self._await(self._admin, described.values())
        found = {topic: self._topic_id(topic, future) for topic, future in described.items()}
        if is_new:
            self.check_topic_ids()
        return {topic: topic_id for topic, topic_id in found.items() if topic_id is not None}

    def _await(self, admin: AdminClient, futures: Collection[Future[Any]]) -> None:
        """Wait for responses; raise if authentication failed, which librdkafka retries.

        Raises:
            AccessError: Brokers refuse the login.
            BrokerUnreachableError: They refuse a token; a new client asks for another one.
        """
        while wait(futures, timeout=_LOOK_S).not_done:
            admin.poll(0)
            if self._refusal is not None:
                servers = ",".join(self.settings.bootstrap_servers)
                refusal = f"brokers of {servers} refuse this executor: {self._refusal}"
                if self.settings.security.tries_another_token(refusal):
                    self._refusal = None
                    raise BrokerUnreachableError(refusal)
                raise AccessError(refusal)

    def _topic_id(self, topic: str, described: Future[Any]) -> TopicId | None:
        try:
            return parse_topic_id(str(described.result().topic_id))
        except KafkaException as error:
            if error.args[0].code() == KafkaError.UNKNOWN_TOPIC_OR_PART:
                return None
            raise self.failure(error.args[0], f"describing the topic {topic}") from error

    def failure(self, error: KafkaError, doing: str) -> Exception:
        """Return the exception for an error of librdkafka."""
        if error.code() in _UNREACHABLE:
            return self.unreachable(f"{doing} within {self.settings.request_timeout_s:g} s")
        return KafkaException(error)

    def unreachable(self, what: str) -> BrokerUnreachableError:
        """Return the error for a timeout."""
        servers = ",".join(self.settings.bootstrap_servers)
        last = f"; librdkafka reports: {self.last_error}" if self.last_error else ""
        return BrokerUnreachableError(f"timeout when {what}, from brokers of {servers}{last}")

    def rest(self) -> None:
        """Stop fetching until the next task."""
        self.fetcher.unassign()
        # If brokers still refuse this executor, librdkafka reports so again.
        self.last_error = self._refusal = None

    def close(self) -> None:
        """Close the connections."""
        self.fetcher.close()
        self.gaps.close()
        # An admin client has no close(); its threads end with its last reference.
        self._admin = None

    def _note_error(self, error: KafkaError) -> None:
        self.last_error = error.str()
        if error.code() in _REFUSED:
            self._refusal = self.last_error
