"""Tables of every kind, which one client of a Spark Connect server writes."""

from __future__ import annotations

import uuid
from pathlib import Path

import pytest

from spark_groups.broker.embedded import EmbeddedKafka
from tests.spark.connect_setup import serving
from tests.spark.tables.every_table_setup import KINDS, place_of
from tests.spark.tables.places import Place
from workshop.parts.brokers import Row, create_topic, produce
from workshop.parts.waiting import LONG_S

pytestmark = [pytest.mark.broker, pytest.mark.spark, pytest.mark.long, pytest.mark.timeout(900)]

PARTITIONS = 2
EACH = 30


@pytest.fixture(scope="module")
def groups(
    request: pytest.FixtureRequest, kafka: EmbeddedKafka, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, tuple[str, Place]]:
    """The group and the table of each kind, after queries have read a topic to its end, twice."""
    directory: Path = tmp_path_factory.mktemp("served")
    servers, topic = kafka.bootstrap_servers, f"topic-{uuid.uuid4().hex}"
    create_topic(servers, topic, PARTITIONS)
    found = {kind: (f"{topic}-{kind}", place_of(kind, request, directory)) for kind in KINDS}
    options = {
        "kafka.bootstrap.servers": servers,
        "subscribe": topic,
        "startingOffsets": "earliest",
        "maxOffsetsPerTrigger": "40",
    }
    with serving(directory) as server:
        server.start()
        client = server.client("client", options, dict(found.values()))
        for _ in range(2):
            rows = [Row(b"%d" % n, partition=n % PARTITIONS) for n in range(EACH * PARTITIONS)]
            produce(servers, topic, rows)
            client.start(is_once=True)
            assert client.process is not None
            assert client.process.wait(LONG_S) == 0, client.log.read_text()[-4000:]
    return found


@pytest.mark.parametrize("kind", KINDS)
def test_table_has_each_record_once(groups: dict[str, tuple[str, Place]], kind: str) -> None:
    group_id, place = groups[kind]
    found = [place.offsets(partition) for partition in range(PARTITIONS)]
    assert found == [[*range(2 * EACH)]] * PARTITIONS
    entries = {key.partition: each for key, each in place.entries(group_id).items()}
    assert {index: each.next_offset for index, each in entries.items()} == {0: 60, 1: 60}
    assert place.staged() == []
