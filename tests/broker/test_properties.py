"""The broker's configuration, as Java reads it."""

from __future__ import annotations

from pathlib import Path

from spark_groups.broker.properties import BrokerFiles, broker_properties, random_cluster_id

PORTS = {"CLIENT": 1001, "SECURE": 1002, "CONTROLLER": 1003}


def properties(**overrides: str) -> dict[str, str]:
    return broker_properties(
        ports=PORTS,
        protocols={"SECURE": "SASL_SSL"},
        logs=Path("/logs"),
        server_properties={name.replace("_", "."): value for name, value in overrides.items()},
    )


def test_listeners_are_local() -> None:
    made = properties()
    assert made["listeners"] == (
        "CLIENT://127.0.0.1:1001,SECURE://127.0.0.1:1002,CONTROLLER://127.0.0.1:1003"
    )
    assert made["advertised.listeners"] == "CLIENT://127.0.0.1:1001,SECURE://127.0.0.1:1002"
    assert made["listener.security.protocol.map"] == (
        "CLIENT:PLAINTEXT,SECURE:SASL_SSL,CONTROLLER:PLAINTEXT"
    )


def test_clients_are_given_the_address_of_a_proxy() -> None:
    made = broker_properties(
        ports=PORTS,
        protocols={},
        logs=Path("/logs"),
        server_properties={},
        advertised={"SECURE": "127.0.0.1:9"},
    )
    assert made["listeners"] == properties()["listeners"]
    assert made["advertised.listeners"] == "CLIENT://127.0.0.1:1001,SECURE://127.0.0.1:9"


def test_kafka_s_own_heartbeat_and_session_are_left_alone() -> None:
    made = properties()
    assert "group.consumer.heartbeat.interval.ms" not in made
    assert "group.consumer.session.timeout.ms" not in made
    assert made["group.initial.rebalance.delay.ms"] == "0"


def test_anything_can_be_overridden() -> None:
    assert properties(node_id="7", listeners="X://:1")["node.id"] == "7"
    assert properties(node_id="7", listeners="X://:1")["listeners"] == "X://:1"


def test_cluster_ids_are_never_options() -> None:
    ids = {random_cluster_id() for _ in range(500)}
    assert len(ids) == 500
    assert all(len(each) == 22 and not each.startswith("-") for each in ids)


def test_the_files_are_in_one_folder(tmp_path: Path) -> None:
    files = BrokerFiles(tmp_path / "broker")
    files.write(properties())
    assert {path.name for path in files.directory.iterdir()} == {
        "server.properties",
        "log4j2.properties",
        "tool-log4j2.properties",
    }
    assert "node.id=1\n" in files.properties.read_text()
