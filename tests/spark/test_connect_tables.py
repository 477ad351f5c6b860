"""Tables that clients of a Spark Connect server write."""

from __future__ import annotations

import urllib.request
from pathlib import Path

import deltalake
import pytest

from spark_groups.broker.embedded import EmbeddedKafka
from tests.secured import PASSWORDS, SecuredKafka
from tests.spark.connect_setup import START_S, serving, shown, start
from tests.spark.standalone import StandaloneCluster, executor_conf
from tests.spark.tables.delta_setup import DeltaPlace, offsets
from tests.spark.tables.places import SqlitePlace
from workshop.parts.brokers import Row, create_topic, produce
from workshop.parts.waiting import wait_until

pytestmark = [pytest.mark.broker, pytest.mark.spark, pytest.mark.long, pytest.mark.timeout(900)]

PARTITIONS = 4
KILLS = 2
EACH = 200
"""How many records come between two kills."""
READ_S = 180
STATEMENT = "SparkListenerConnectOperationStarted"
"""The event, also shown on the page Connect, with the options as the client has sent them to Spark:
docs/databricks.md warns of it.
"""


def written(place: DeltaPlace) -> int:
    """Return the number of rows in the table."""
    path = str(place.path)
    if not deltalake.DeltaTable.is_deltatable(path):
        return 0
    return int(deltalake.DeltaTable(path).to_pyarrow_dataset().count_rows())


def test_clients_of_a_killed_server_write_each_record_once_and_show_no_secret(
    secured: SecuredKafka, topic_name: str, group_id: str, tmp_path: Path
) -> None:
    """Two clients have a query each in one group; in the end one of the clients is killed."""
    plain = secured.kafka.bootstrap_servers
    create_topic(plain, topic_name, PARTITIONS)
    secured.allow("alice", "TOPIC", topic_name, "READ")
    secured.allow("alice", "GROUP", group_id, "READ")
    login = secured.login("SCRAM-SHA-512") | {
        "ssl.truststore.certificates": secured.authority.certificate_pem
    }
    # Through Spark Connect, no file may be named unless the server allows it.
    del login["ssl.truststore.location"]
    options = {
        "kafka.bootstrap.servers": secured.kafka.listener("LOGIN"),
        "subscribe": topic_name,
        "startingOffsets": "earliest",
        "maxOffsetsPerTrigger": "20",
        **{f"kafka.{key}": value for key, value in login.items()},
    }
    place = DeltaPlace(tmp_path / "table")
    produced = 0

    def more() -> int:
        nonlocal produced
        produce(plain, topic_name, [Row(b"row", partition=n % PARTITIONS) for n in range(EACH)])
        produced += EACH
        return produced

    with serving(tmp_path) as server:
        for name in ("first", "second"):
            server.client(name, options, {group_id: place})
        start(server)
        for _ in range(KILLS):
            before = written(place)
            more()
            wait_until(lambda before=before: written(place) > before, READ_S, "rows")
            server.kill()
            for each in server.clients:
                each.kill()
            start(server)
        server.clients[0].kill()
        wait_until(lambda: written(place) == produced, READ_S, "all rows")
        more()
        wait_until(lambda: written(place) >= produced, READ_S, "rows after the end of a client")
        pages = {
            page: urllib.request.urlopen(f"{server.ui}/{page}", timeout=30).read().decode("latin-1")
            for page in ("StreamingQuery/", "SQL/", "environment/", "jobs/")
        }
    found = [offsets(tmp_path / "table", partition) for partition in range(PARTITIONS)]
    assert found == [[*range(produced // PARTITIONS)]] * PARTITIONS
    places = {
        place: "\n".join(line for line in text.splitlines() if STATEMENT not in line)
        for place, text in {**shown(tmp_path), **pages}.items()
    }
    assert any(place.startswith("events/") for place in places)
    assert secured.kafka.listener("LOGIN") in places["server.log"], "options are shown"
    for secret in (PASSWORDS["alice"], 'ScramLoginModule required username="'):
        assert [place for place, text in places.items() if secret in text] == []


def test_sqlite_table_is_refused_where_tasks_run_on_other_machines(
    kafka: EmbeddedKafka, topic_name: str, group_id: str, tmp_path: Path
) -> None:
    create_topic(kafka.bootstrap_servers, topic_name)
    options = {"kafka.bootstrap.servers": kafka.bootstrap_servers, "subscribe": topic_name}
    with StandaloneCluster(tmp_path) as cluster:
        conf = executor_conf() | {"spark.master": cluster.master}
        with serving(tmp_path, **conf) as server:
            server.start()
            client = server.client("client", options, {group_id: SqlitePlace(tmp_path / "rows.db")})
            client.start()
            assert client.process is not None
            assert client.process.wait(START_S), "it ends with an error"
    shown_to_client = client.log.read_text()
    assert f"the master is {cluster.master}: use local[*]" in shown_to_client
    assert not client.runs(), "the query does not start"
