"""Applications that die, or are stopped for too long, while they write to an Iceberg table."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from spark_groups.lab.broker.embedded import EmbeddedKafka
from tests.processes import descendants, is_alive
from tests.spark.tables.iceberg_tables import Lake
from tests.spark.tables.test_killed import (
    EACH,
    PARTITIONS,
    RUN_S,
    SHORT_SESSION,
    Place,
    filled,
)
from tests.waiting import wait_until

pytestmark = [
    pytest.mark.broker,
    pytest.mark.spark,
    pytest.mark.long,
    pytest.mark.timeout(900),
]


class LakePlace(Place):
    """Where applications of one group write to an Iceberg table."""

    @property
    def table(self) -> Path:
        return self.directory / "lake"

    def check(self) -> None:
        lake = Lake.at(self.table)
        for partition in range(PARTITIONS):
            assert lake.offsets(partition) == list(range(EACH))


def filled_lake(servers: str, topic: str, group_id: str, directory: Path) -> LakePlace:
    filled(servers, topic, group_id, directory, "ranges")
    return LakePlace(servers, topic, group_id, directory, "ranges")


@pytest.mark.parametrize("hold", ["before", "behind"])
def test_killed_application_leaves_each_record_once(
    kafka: EmbeddedKafka, topic_name: str, group_id: str, tmp_path: Path, hold: str
) -> None:
    place = filled_lake(kafka.bootstrap_servers, topic_name, group_id, tmp_path)
    with place.running("killed", 20, "first", hold) as process:
        place.await_held("killed", process)
    place.finish("next", 30, "first")
    place.check()
    told = place.log("next").read_text().count("are skipped")
    assert told == (PARTITIONS if hold == "behind" else 0)


def test_zombie_is_refused_by_the_table(topic_name: str, group_id: str, tmp_path: Path) -> None:
    """Its files are written and it is about to commit them, when it is stopped for too long."""
    with EmbeddedKafka(server_properties=SHORT_SESSION) as broker:
        place = filled_lake(broker.bootstrap_servers, topic_name, group_id, tmp_path)
        with place.running("zombie", 20, "first", "before") as zombie:
            place.await_held("zombie", zombie)
            pids = [each for each in (zombie.pid, *descendants(zombie.pid)) if is_alive(each)]
            for pid in pids:
                os.kill(pid, signal.SIGSTOP)
            wait_until(lambda: not place.members(), RUN_S, "the end of its session")
            place.finish("owner", 30, "second")
            place.check()
            place.sign("go").touch()
            for pid in pids:
                os.kill(pid, signal.SIGCONT)
            assert zombie.wait(RUN_S) == 0, place.log("zombie").read_text()[-3000:]
        assert place.sign("refused").exists()
        assert place.log("zombie").read_text().count("are skipped") == PARTITIONS
        place.check()
