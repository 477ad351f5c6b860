"""Fixtures for all tests: one real broker, unique names."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator

import pytest

from spark_groups.kafka.embedded import EmbeddedKafka


@pytest.fixture(scope="session")
def kafka_version() -> Iterator[Callable[[str], EmbeddedKafka]]:
    """A running broker of any version, one for all tests that ask for that version."""
    running: dict[str, EmbeddedKafka] = {}

    def start(version: str) -> EmbeddedKafka:
        if version not in running:
            kafka = EmbeddedKafka(version)
            kafka.start()
            running[version] = kafka
        return running[version]

    yield start
    for kafka in running.values():
        kafka.stop()


@pytest.fixture(scope="session")
def kafka(kafka_version: Callable[[str], EmbeddedKafka]) -> EmbeddedKafka:
    """The broker for all tests: Apache Kafka 4.3.1 on its default settings. Do not stop it."""
    return kafka_version("4.3.1")


@pytest.fixture
def topic_name() -> str:
    """A topic name that nobody else uses."""
    return f"topic-{uuid.uuid4().hex[:12]}"


@pytest.fixture
def group_id() -> str:
    """A group id that nobody else uses."""
    return f"group-{uuid.uuid4().hex[:12]}"
