"""A Spark Connect server that is killed at random moments, while its queries write tables.

    python -m pytest -s -m slow tests/spark/test_connect_kills.py

Each of two clients has a query for each table, so that the members of each group are two queries.
"""

from __future__ import annotations

import random
import signal
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from spark_groups.broker.embedded import EmbeddedKafka
from tests.spark.connect_setup import Client, Server, serving
from tests.spark.tables.delta_setup import DeltaPlace
from tests.spark.tables.places import Place, PostgresPlace
from workshop.chaos.plants import Plant
from workshop.chaos.results.account import SinkAccount, SinkRow, sink_account
from workshop.chaos.systems.cluster import Broker
from workshop.chaos.systems.production import Production
from workshop.chaos.systems.record import is_right
from workshop.parts.processes import is_alive
from workshop.parts.waiting import LONG_S, wait_until

pytestmark = [
    pytest.mark.broker,
    pytest.mark.spark,
    pytest.mark.slow,
    pytest.mark.timeout(3600),
]

PARTITIONS = 4
PER_SECOND = 50
KILLS = 30
EARLY = 4
"""One kill in so many does not wait for the queries to start."""
OF_A_CLIENT = 5
"""Before one kill in so many, a client is killed, and its queries run on."""
WITHIN = 8 * PER_SECOND
"""How many records are written at most before a kill."""
SEED = 20
KNOWN = ("Illegal size", "Timed out while waiting for the Python worker to connect back")
"""In errors of Spark that may end a query: see docs/databricks.md. The second comes after 10 s."""


class Ordeal:
    """The queries of two clients of a server, while records are written all the time.

    Args:
        server: The server.
        broker: The broker.
        topics: The topic, with its number of partitions.
        places: The table of each group.
        production: Writes the records.
    """

    def __init__(
        self,
        server: Server,
        broker: Broker,
        topics: dict[str, int],
        places: dict[str, Place],
        production: Production,
    ) -> None:
        self.server = server
        self._broker = broker
        self._topics = topics
        self._places = places
        self._production = production
        self._chance = random.Random(SEED)
        self.counts: Counter[str] = Counter()
        self.ended: list[str] = []
        """What the clients have shown whose queries ended by themselves."""

    def start(self, *, is_awaited: bool) -> None:
        """Start the server and the clients, and wait until the queries run, if they are awaited."""
        self.server.start()
        for each in self.server.clients:
            each.start()
        if is_awaited:
            self._wait(lambda: all(each.runs() for each in self.server.clients), "queries")

    def kill(self, number: int) -> None:
        """Kill the server at a random moment, and before it a client."""
        if number % OF_A_CLIENT == OF_A_CLIENT - 1:
            self._kill_a_client()
        at = self._production.acknowledged + self._chance.randrange(WITHIN)
        self._wait(lambda: self._production.acknowledged >= at, "a random moment")
        self.server.kill()
        for each in self.server.clients:
            each.kill()
            for path in each.checkpoints.values():
                self.counts["batches cut off"] += _last(path / "offsets") > _last(path / "commits")
        self.counts["kills"] += 1

    def account(self) -> dict[str, SinkAccount]:
        """Compare the tables with the topic."""
        ends, found = self._broker.ends(self._topics), {}
        (topic,) = self._topics
        for group_id, place in self._places.items():
            entries = {
                (topic, key.partition): (each.start_offset, each.next_offset)
                for key, each in place.entries(group_id).items()
            }
            # Without entries there is no table yet.
            columns = ("topic", "partition", "offset", "value")
            values = place.values(*columns) if entries else []
            rows = [SinkRow("", *at, is_right(value, *at)) for *at, value in values]
            examples: list[str] = []
            found[group_id] = sink_account(group_id, rows, ends, examples, entries=entries)
            print(*examples, sep="\n")
        return found

    def drain(self) -> int:
        """Write no more, and return the number of records when both tables have that many."""
        self._production.stop()
        assert self._production.problems == []
        produced = sum(self._broker.ends(self._topics).values())
        for at in self._places.items():
            self._wait(lambda at=at: _counted(*at) >= produced, "all rows")
        return produced

    def _kill_a_client(self) -> None:
        client = self._chance.choice(self.server.clients)
        self._wait(client.runs, "queries")
        client.kill()
        self.counts["kills of clients"] += 1
        paths = [each / "commits" for each in client.checkpoints.values()]
        before = [*map(_last, paths)]
        more = "batches of a client that is gone"
        self._wait(lambda: all(_last(p) > n for p, n in zip(paths, before, strict=True)), more)

    def _wait(self, condition: Callable[[], bool], what: str) -> None:
        """Wait, and start clients again whose queries have ended by themselves."""

        def is_so() -> bool:
            for each in filter(_has_ended, self.server.clients):
                self.ended.append(each.log.read_text(errors="replace")[-4000:])
                each.start()
            return condition()

        wait_until(is_so, LONG_S, what)


def _has_ended(client: Client) -> bool:
    return client.process is not None and client.process.poll() not in {None, -signal.SIGKILL}


def _counted(group_id: str, place: Place) -> int:
    """Return the number of records that a table has by its entries, which begin at 0."""
    return sum(each.next_offset for each in place.entries(group_id).values())


def _last(directory: Path) -> int:
    """Return the number of the last batch in a log of Spark's."""
    return max((int(each.name) for each in directory.glob("[0-9]*")), default=-1)


@pytest.fixture
def places(group_id: str, tmp_path: Path, on_postgres: PostgresPlace) -> dict[str, Place]:
    return {f"{group_id}-delta": DeltaPlace(tmp_path / "table"), f"{group_id}-pg": on_postgres}


@contextmanager
def ordeal(
    servers: str,
    topic: str,
    directory: Path,
    places: dict[str, Place],
    plant: Plant | None = None,
) -> Iterator[Ordeal]:
    """Yield what runs on a new topic; it ends afterwards."""
    broker, topics = Broker(servers), {topic: PARTITIONS}
    broker.create(topics)
    options = {
        "kafka.bootstrap.servers": servers,
        "subscribe": topic,
        "startingOffsets": "earliest",
        "maxOffsetsPerTrigger": "300",
    }
    production = Production(servers, topics, PER_SECOND, SEED)
    production.start()
    try:
        with serving(directory) as server:
            for name in ("first", "second"):
                server.client(name, options, places, plant)
            yield Ordeal(server, broker, topics, places, production)
    finally:
        production.stop()


def test_tables_have_each_record_once_after_thirty_kills(
    kafka: EmbeddedKafka, topic_name: str, tmp_path: Path, places: dict[str, Place]
) -> None:
    began_s = time.monotonic()
    with ordeal(kafka.bootstrap_servers, topic_name, tmp_path, places) as running:
        while (number := running.counts["kills"]) < KILLS:
            running.start(is_awaited=number % EARLY != EARLY - 1)
            running.kill(number)
            print(f"{time.monotonic() - began_s:.0f} s: {dict(running.counts)}", flush=True)
        running.start(is_awaited=True)
        killed_s = time.monotonic() - began_s
        left = running.server.left
        produced = running.drain()
        found = running.account()
        wait_until(lambda: not any(map(is_alive, left)), LONG_S, "the end of what kills left")
    print(f"{produced} records, {dict(running.counts)}, {killed_s:.0f} s until the last start")
    print(f"{len(running.ended)} queries ended by themselves", *running.ended, sep="\n")
    log = (tmp_path / "server.log").read_text(errors="replace")
    print(f"{log.count('are skipped')} ranges were skipped, {log.count(KNOWN[0])} lines {KNOWN[0]}")
    print(*found.items(), sep="\n")
    assert [each for each in running.ended if not any(known in each for known in KNOWN)] == []
    assert [*found.values()] == [SinkAccount(rows=produced)] * len(places)


def test_tables_that_do_not_compare_have_records_twice(
    kafka: EmbeddedKafka, topic_name: str, tmp_path: Path, places: dict[str, Place]
) -> None:
    """Else the test above would prove nothing."""
    plant = Plant.NO_COMPARE
    with ordeal(kafka.bootstrap_servers, topic_name, tmp_path, places, plant) as running:
        doubled = [0] * len(places)
        while not all(doubled) and running.counts["kills"] < KILLS:
            running.start(is_awaited=True)
            running.kill(0)
            doubled = [each.doubled for each in running.account().values()]
        print(f"{doubled} rows doubled after {running.counts['kills']} kills")
    assert all(doubled)
