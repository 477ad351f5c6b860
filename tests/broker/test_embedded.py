"""The embedded broker: a real Apache Kafka, started, stopped, killed and broken."""

from __future__ import annotations

import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from spark_groups.broker.embedded import (
    EmbeddedKafka,
    answers,
    check_port,
    free_ports,
)
from spark_groups.broker.kafka_jars import fetch_kafka
from spark_groups.errors import EmbeddedKafkaError
from spark_groups.runtime.cache_directory import CACHE_DIR_VARIABLE
from workshop.parts.brokers import ANSWER_S, admin, create_topic, produce
from workshop.parts.class_archive import archive_kafka
from workshop.parts.processes import is_alive
from workshop.parts.waiting import wait_until

pytestmark = pytest.mark.broker

GROUPS_TOOL = "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand"
OFFSETS_TOOL = "org.apache.kafka.tools.GetOffsetShell"

OWNER = """
import sys, time
from spark_groups.broker.embedded import EmbeddedKafka

with EmbeddedKafka() as kafka:
    print(kafka.pid, kafka.log_dir, kafka.bootstrap_servers, flush=True)
    time.sleep(600)
"""


@pytest.fixture(scope="module")
def broker() -> Iterator[EmbeddedKafka]:
    """A broker that these tests may stop and kill."""
    with EmbeddedKafka() as kafka:
        yield kafka


def topics(kafka: EmbeddedKafka) -> set[str]:
    return set(admin(kafka.bootstrap_servers).list_topics(timeout=ANSWER_S).topics)


def port_of(kafka: EmbeddedKafka) -> int:
    return int(kafka.bootstrap_servers.rpartition(":")[2])


def end_offsets(kafka: EmbeddedKafka, topic: str) -> str:
    server = ("--bootstrap-server", kafka.bootstrap_servers)
    return kafka.run_tool(OFFSETS_TOOL, *server, "--topic", topic).strip()


def test_broker_starts_with_the_archive_of_its_classes(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    # Another folder of the same jars has no archive yet.
    jars = fetch_kafka().directory
    monkeypatch.setenv(CACHE_DIR_VARIABLE, str(tmp_path))
    own = tmp_path / "kafka" / jars.name
    own.mkdir(parents=True)
    for each in (*jars.glob("*.jar"), jars / "manifest.txt"):
        shutil.copy2(each, own)
    archive = archive_kafka()
    assert archive.parent == own
    written_at = archive.stat().st_mtime_ns
    assert archive_kafka().stat().st_mtime_ns == written_at, "it is written once"
    assert [each.name for each in own.glob("*.jsa*")] == [archive.name]
    with EmbeddedKafka() as kafka:
        used = Path(f"/proc/{kafka.pid}/maps").read_text()
        assert str(archive) in used


def test_it_is_ready_when_it_is_started(broker: EmbeddedKafka, topic_name: str) -> None:
    create_topic(broker.bootstrap_servers, topic_name, 3)
    produce(broker.bootstrap_servers, topic_name, [b"row"] * 10)
    counts = [int(line.rpartition(":")[2]) for line in end_offsets(broker, topic_name).split()]
    assert len(counts) == 3
    assert sum(counts) == 10


def test_a_restart_keeps_port_and_topics(broker: EmbeddedKafka, topic_name: str) -> None:
    create_topic(broker.bootstrap_servers, topic_name)
    produce(broker.bootstrap_servers, topic_name, [b"row"] * 5)
    before = (broker.bootstrap_servers, broker.log_dir)
    pid = broker.pid
    broker.restart()
    assert (broker.bootstrap_servers, broker.log_dir) == before
    assert broker.pid != pid
    assert end_offsets(broker, topic_name) == f"{topic_name}:0:5"


def test_it_comes_back_after_a_kill(broker: EmbeddedKafka, topic_name: str) -> None:
    create_topic(broker.bootstrap_servers, topic_name)
    port = port_of(broker)
    broker.kill()
    assert broker.pid is None
    assert not answers(port)
    with pytest.raises(EmbeddedKafkaError, match="SIGSTOP cannot be sent"):
        broker.pause()
    broker.start()
    assert port_of(broker) == port
    assert topic_name in topics(broker)


def test_a_pause_is_silence_and_ends(broker: EmbeddedKafka) -> None:
    broker.pause()
    try:
        assert not answers(port_of(broker), timeout_s=0.3)
    finally:
        broker.resume()
    wait_until(lambda: answers(port_of(broker)), what="an answer after the pause")


@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="threads are seen in /proc only")
def test_a_pause_returns_when_every_thread_stands_still(broker: EmbeddedKafka) -> None:
    for _ in range(20):
        broker.pause()
        try:
            stats = Path(f"/proc/{broker.pid}/task").glob("*/stat")
            assert {stat.read_text().rpartition(") ")[2][0] for stat in stats} == {"T"}
        finally:
            broker.resume()


def test_a_paused_broker_can_be_stopped() -> None:
    with EmbeddedKafka() as kafka:
        pid, folder = kafka.pid, kafka.log_dir
        kafka.pause()
        kafka.stop(timeout_s=60)
    assert pid is not None
    assert not is_alive(pid)
    assert not folder.exists()


def test_a_running_one_does_not_start_again(broker: EmbeddedKafka) -> None:
    with pytest.raises(EmbeddedKafkaError, match="runs already"):
        broker.start()


def test_tools_of_kafka_run_on_its_class_path(broker: EmbeddedKafka, group_id: str) -> None:
    server = ("--bootstrap-server", broker.bootstrap_servers)
    assert group_id not in broker.run_tool(GROUPS_TOOL, *server, "--list")
    with pytest.raises(EmbeddedKafkaError, match=r"ConsumerGroupCommand ended with exit code 1"):
        broker.run_tool(GROUPS_TOOL, "--nonsense")
    with pytest.raises(EmbeddedKafkaError, match=r"did not end within 0\.05 s"):
        broker.run_tool(GROUPS_TOOL, *server, "--list", timeout_s=0.05)


def test_its_log_can_be_read(broker: EmbeddedKafka) -> None:
    assert "Kafka Server started" in broker.log_tail(2000)
    assert len(broker.log_tail(3).splitlines()) == 3


def test_a_group_that_asks_for_nothing_gets_kafka_s_defaults(broker: EmbeddedKafka) -> None:
    shown = broker.run_tool(
        "kafka.admin.ConfigCommand",
        *("--bootstrap-server", broker.bootstrap_servers),
        *("--describe", "--all", "--entity-type", "brokers", "--entity-name", "1"),
    )
    values = dict(re.findall(r"^\s+(group\.consumer\.\S+)=(\S+) ", shown, re.MULTILINE))
    assert values["group.consumer.heartbeat.interval.ms"] == "5000"
    assert values["group.consumer.session.timeout.ms"] == "45000"


def test_stopping_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    kafka = EmbeddedKafka()
    kafka.start()
    pid, folder = kafka.pid, kafka.log_dir
    assert pid is not None
    assert folder.parent == tmp_path
    kafka.stop()
    kafka.stop()
    assert not is_alive(pid)
    assert list(tmp_path.iterdir()) == []
    assert kafka.pid is None
    with pytest.raises(EmbeddedKafkaError, match="before the broker was started"):
        _ = kafka.bootstrap_servers


@pytest.mark.long
def test_a_kept_folder_brings_its_topics_back(tmp_path: Path, topic_name: str) -> None:
    folder = tmp_path / "kept broker"
    with EmbeddedKafka(log_dir=folder) as kafka:
        create_topic(kafka.bootstrap_servers, topic_name)
    with EmbeddedKafka(log_dir=folder) as kafka:
        assert topic_name in topics(kafka)
    assert (folder / "broker.log").exists()


def test_a_taken_port_is_an_error_that_names_it() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        with pytest.raises(EmbeddedKafkaError, match=f"port {port} "), EmbeddedKafka(port=port):
            pass


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        # The first is refused by the formatting tool, the second by the broker itself.
        ({"node.id": "one"}, "Invalid value one for configuration"),
        (
            {"num.io.threads": "many"},
            "Invalid value many for configuration num.io.threads: Not a number",
        ),
    ],
)
def test_a_broken_property_is_an_error_with_the_broker_s_words(
    wrong: dict[str, str], words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    with pytest.raises(EmbeddedKafkaError) as raised, EmbeddedKafka(server_properties=wrong):
        pass
    assert words in str(raised.value)
    assert list(tmp_path.iterdir()) == []


def test_a_start_has_a_deadline() -> None:
    with (
        pytest.raises(EmbeddedKafkaError, match=r"takes too long|did not answer within 0\.2 s"),
        EmbeddedKafka(start_timeout_s=0.2),
    ):
        pass


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_it_never_outlives_its_owner(number: signal.Signals) -> None:
    owner = subprocess.Popen([sys.executable, "-c", OWNER], stdout=subprocess.PIPE, text=True)
    assert owner.stdout is not None
    with owner.stdout:
        pid, folder, address = owner.stdout.readline().split()
    wait_until(lambda: answers(int(address.rpartition(":")[2])), what="an answer")
    os.kill(owner.pid, number)
    owner.wait(300)
    wait_until(lambda: not is_alive(int(pid)), what="the end of the broker")
    wait_until(lambda: not Path(folder).exists(), what="the end of its folder")


@pytest.mark.long
def test_a_further_listener_asks_for_a_password() -> None:
    plain = "org.apache.kafka.common.security.plain.PlainLoginModule"
    with EmbeddedKafka(
        extra_listeners={"SECURE": "SASL_PLAINTEXT"},
        server_properties={
            "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-512",
            "listener.name.secure.plain.sasl.jaas.config": (
                f'{plain} required user_alice="wonder";'
            ),
            "listener.name.secure.scram-sha-512.sasl.jaas.config": (
                "org.apache.kafka.common.security.scram.ScramLoginModule required;"
            ),
        },
        format_arguments=["--add-scram", "SCRAM-SHA-512=[name=bob,password=builder]"],
    ) as kafka:
        from confluent_kafka.admin import AdminClient

        for mechanism, user, password in [
            ("PLAIN", "alice", "wonder"),
            ("SCRAM-SHA-512", "bob", "builder"),
        ]:
            client = AdminClient(
                {
                    "bootstrap.servers": kafka.listener("SECURE"),
                    "security.protocol": "SASL_PLAINTEXT",
                    "sasl.mechanism": mechanism,
                    "sasl.username": user,
                    "sasl.password": password,
                    "log_level": 0,
                }
            )
            assert client.list_topics(timeout=ANSWER_S).brokers


def test_one_that_outlives_its_owner_needs_a_folder() -> None:
    with pytest.raises(EmbeddedKafkaError, match="needs a log_dir"):
        EmbeddedKafka(outlives_owner=True)


def test_free_ports_are_different_and_free() -> None:
    ports = free_ports(20)
    assert len(set(ports)) == 20
    for port in ports:
        check_port(port)


def test_a_taken_port_is_named() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        with pytest.raises(EmbeddedKafkaError, match=f"port {port} .*choose another port"):
            check_port(port)


def test_a_port_that_does_not_exist_is_named() -> None:
    with pytest.raises(EmbeddedKafkaError, match="port 70000"):
        check_port(70000)


def test_a_free_port_does_not_answer() -> None:
    assert not answers(free_ports(1)[0])


def test_a_silent_port_does_not_answer_within_the_time() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        assert not answers(server.getsockname()[1], timeout_s=0.1)


@pytest.mark.parametrize("said", [b"", b"HTTP/1.1 400 Bad Request\r\n\r\n", b"\0" * 12])
def test_a_listener_that_is_no_broker_does_not_count(said: bytes) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            connection, _ = server.accept()
            with connection:
                connection.sendall(said)

        thread = threading.Thread(target=serve)
        thread.start()
        assert not answers(server.getsockname()[1], timeout_s=5.0)
        thread.join(300)


@pytest.mark.broker
def test_a_broker_answers(kafka: EmbeddedKafka) -> None:
    wait_until(lambda: answers(port_of(kafka)), what="an answer")
