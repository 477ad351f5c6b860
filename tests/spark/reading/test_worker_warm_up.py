"""Tasks that warm workers up: each keeps its slot until all have begun, and none fails."""

from __future__ import annotations

import logging
import multiprocessing
import os
import time
from pathlib import Path

import pytest

from spark_groups.broker.embedded import EmbeddedKafka
from spark_groups.errors import BrokerUnreachableError
from spark_groups.spark.options.packed import Load
from spark_groups.spark.options.range_settings import RangeSettings
from spark_groups.spark.reading import fast_reader, librdkafka_reader, worker_warm_up
from spark_groups.spark.reading.consumer_cache import ConsumerCache
from spark_groups.spark.reading.worker_warm_up import slot_held, warm_slot
from spark_groups.spark.source.source import KafkaGroupStreamReader, WarmUpPartition
from spark_groups.wire.timeouts import Timeouts
from tests.wire.listener import await_end, listening
from workshop.parts.brokers import create_topic
from workshop.parts.waiting import wait_until


def hold(directory: Path, tasks: int) -> None:
    with slot_held("run", tasks, directory):
        (directory.parent / f"began-{os.getpid()}").touch()


def test_tasks_of_a_host_end_once_all_have_begun(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(worker_warm_up, "HOLD_S", 600.0)
    directory, fork = tmp_path / "warm", multiprocessing.get_context("fork")
    tasks = [fork.Process(target=hold, args=(directory, 3)) for _ in range(3)]
    for each in tasks[:2]:
        each.start()
    wait_until(lambda: len(list(tmp_path.glob("began-*"))) == 2, what="two tasks")
    assert all(each.is_alive() for each in tasks[:2])
    tasks[2].start()
    for each in tasks:
        each.join(300)
        assert each.exitcode == 0
    assert not list(directory.iterdir())


def test_tasks_wait_for_those_of_other_hosts_once(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(worker_warm_up, "HOLD_S", 2.0)
    for waited in (True, False):
        began_at = time.monotonic()
        with slot_held("run", 3, tmp_path / "warm"):
            pass
        assert (time.monotonic() - began_at >= 1.9) is waited
    (left,) = (tmp_path / "warm").iterdir()
    os.utime(left, (0, 0))
    with slot_held("next", 2, tmp_path / "warm"):
        assert not left.exists()


def test_one_task_waits_for_nothing(tmp_path: Path) -> None:
    with slot_held("run", 1, tmp_path / "warm"):
        pass
    assert not (tmp_path / "warm").exists()


def test_a_worker_that_cannot_be_warmed_up_fails_no_batch(caplog) -> None:
    def warm() -> None:
        raise BrokerUnreachableError("no broker responded")

    with caplog.at_level(logging.WARNING):
        warm_slot(warm, run="run", tasks=1)
    assert "not warm for the first batch: no broker responded" in caplog.text


def test_brokers_that_do_not_answer_end_the_warm_up_in_time(monkeypatch) -> None:
    monkeypatch.setattr(fast_reader, "_WARM_S", 0.2)
    cache = ConsumerCache(fast_reader.FastConsumer)
    with listening(await_end) as silent:
        settings = RangeSettings(
            bootstrap_servers=(f"127.0.0.1:{silent}",),
            group_id="g",
            timeouts=Timeouts(request_s=3_600.0),
        )
        with pytest.raises(BrokerUnreachableError):
            fast_reader.warm_up(settings, ["topic"], cache=cache)
    cache.close()


@pytest.mark.broker
def test_connections_stay_for_the_next_task(kafka: EmbeddedKafka, topic_name: str) -> None:
    create_topic(kafka.bootstrap_servers, topic_name, partitions=2)
    settings = RangeSettings(bootstrap_servers=(kafka.bootstrap_servers,), group_id="g")
    fast = ConsumerCache(fast_reader.FastConsumer)
    for topics in ([topic_name], [], ["missing"]):
        fast_reader.warm_up(settings, topics, cache=fast)
        with fast.borrow(settings) as consumer:
            (connection,) = consumer._pool._connections.values()
            assert connection.is_usable()
    fast.close()
    other = ConsumerCache(librdkafka_reader.RangeConsumer)
    for topics in ([topic_name], []):
        librdkafka_reader.warm_up(settings, topics, cache=other)
    with other.borrow(settings) as reader:
        assert reader._known_topics == {topic_name}
    other.close()


@pytest.mark.broker
@pytest.mark.parametrize("changed", [{}, {"reader": "librdkafka"}, {"emit": "ranges"}], ids=str)
def test_a_warm_up_task_has_no_rows(
    kafka: EmbeddedKafka, topic_name: str, changed: dict[str, str], caplog
) -> None:
    create_topic(kafka.bootstrap_servers, topic_name)
    servers = {"kafka.bootstrap.servers": kafka.bootstrap_servers, "kafka.group.id": "g"}
    reader = KafkaGroupStreamReader(Load.of({**servers, "subscribe": topic_name, **changed}))
    assert not list(reader.read(WarmUpPartition(topic_name, 1, (topic_name,), None)))
    assert not caplog.records
