"""The consumers of librdkafka that executors read ranges with.

A consumer here is only a fetcher: it is told partitions and offsets with `assign()`, joins no
group, and commits nothing.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable
from concurrent.futures import Future, wait
from typing import Any, Final

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicCollection
from confluent_kafka.admin import AdminClient

from spark_groups.errors import AccessError, BrokerUnreachableError
from spark_groups.spark.options.range_settings import RangeSettings
from spark_groups.spark.reading.consumer_cache import ConsumerCache
from spark_groups.spark.reading.fetch_tuning import FETCH_DEFAULTS
from spark_groups.types import TopicId, parse_topic_id

_log = logging.getLogger(__name__)

_DAY_MS: Final = 86_400_000
_LOOK_S: Final = 0.1
"""How often it is looked whether a broker refused us, while there is no answer."""
_REFUSED: Final = frozenset({KafkaError._AUTHENTICATION, KafkaError._SSL})
_UNREACHABLE: Final = frozenset(
    {KafkaError._TIMED_OUT, KafkaError._TRANSPORT, KafkaError._ALL_BROKERS_DOWN}
)


def librdkafka_settings(settings: RangeSettings) -> dict[str, Any]:
    """Return the configuration of a consumer that reads ranges."""
    configuration: dict[str, Any] = {
        "bootstrap.servers": ",".join(settings.bootstrap_servers),
        "client.id": settings.client_id,
        "group.id": settings.group_id,
        "enable.auto.commit": False,
        "enable.auto.offset.store": False,
        "enable.partition.eof": True,
        # An offset that is gone must come up as an error: failOnDataLoss decides.
        "auto.offset.reset": "error",
        "isolation.level": "read_committed" if settings.read_committed else "read_uncommitted",
        # A consumer that is kept between tasks is not polled, and is no member that could be late.
        "max.poll.interval.ms": _DAY_MS,
        # After its queue was full for a moment, librdkafka would pause a partition for a second.
        "fetch.queue.backoff.ms": 5,
        "queued.min.messages": 100_000,
        "log_level": 3,
    }
    if settings.rack is not None:
        configuration["client.rack"] = settings.rack
    configuration |= settings.security.librdkafka_settings()
    return configuration | dict(FETCH_DEFAULTS) | dict(settings.tuning)


class RangeConsumer:
    """A consumer with what it last complained about."""

    def __init__(self, settings: RangeSettings) -> None:
        self.settings = settings
        self.last_error: str | None = None
        self._refusal: str | None = None
        self.fetcher = Consumer(
            librdkafka_settings(settings) | {"error_cb": self._note_error}, logger=_log
        )
        self._admin: AdminClient | None = None
        self._known_topics: set[str] = set()

    def look_up(self, topics: Iterable[str]) -> None:
        """Learn who leads the partitions of topics that this consumer has not read yet.

        Otherwise librdkafka would notice a second later that it does not know.

        Raises:
            BrokerUnreachableError: No broker answered within `request_timeout_s`.
        """
        for topic in sorted(set(topics) - self._known_topics):
            try:
                self.fetcher.list_topics(topic, timeout=self.settings.request_timeout_s)
            except KafkaException as error:
                raise self.failure(error.args[0], f"looking up the topic {topic}") from error
            self._known_topics.add(topic)

    def topic_ids(self, topics: Iterable[str]) -> dict[str, TopicId]:
        """Return the ids that topics have now; a topic that does not exist is left out.

        Raises:
            BrokerUnreachableError: No broker answered within `request_timeout_s`.
            AccessError: A certificate or the login was refused.
        """
        if self._admin is None:
            configuration: dict[str, Any] = self.settings.security.librdkafka_settings()
            self._admin = AdminClient(
                configuration
                | {
                    "bootstrap.servers": ",".join(self.settings.bootstrap_servers),
                    "client.id": self.settings.client_id,
                    "log_level": 3,
                    "error_cb": self._note_error,
                },
                logger=_log,
            )
        described = self._admin.describe_topics(
            TopicCollection(list(topics)), request_timeout=self.settings.request_timeout_s
        )
        self._await(self._admin, described.values())
        found = {topic: self._topic_id(topic, future) for topic, future in described.items()}
        return {topic: topic_id for topic, topic_id in found.items() if topic_id is not None}

    def _await(self, admin: AdminClient, futures: Collection[Future[Any]]) -> None:
        """Wait for answers, but not after a broker refused us: librdkafka would go on asking."""
        while wait(futures, timeout=_LOOK_S).not_done:
            admin.poll(0)
            if self._refusal is not None:
                servers = ",".join(self.settings.bootstrap_servers)
                raise AccessError(f"brokers of {servers} refuse this executor: {self._refusal}")

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
        """Return the error for what did not happen in time."""
        servers = ",".join(self.settings.bootstrap_servers)
        said = f"; librdkafka says: {self.last_error}" if self.last_error else ""
        return BrokerUnreachableError(f"no answer when {what}, from brokers of {servers}{said}")

    def rest(self) -> None:
        """Stop fetching, until there is another task."""
        self.fetcher.unassign()
        self.last_error = None

    def close(self) -> None:
        """Close the connections."""
        self.fetcher.close()
        # An admin client has no close(): its threads end with the last reference to it.
        self._admin = None

    def _note_error(self, error: KafkaError) -> None:
        self.last_error = error.str()
        if error.code() in _REFUSED:
            self._refusal = self.last_error


CONSUMERS: Final = ConsumerCache(RangeConsumer)
"""The consumers of this worker process."""
