"""`spark-groups remove` on real brokers, as somebody types it."""

from __future__ import annotations

import json
from typing import Any

import pytest

from spark_groups.errors import ErrorCode
from spark_groups.protocol.messages import HeartbeatRequest
from spark_groups.wire.cluster import Cluster
from tests.brokers import create_topic
from tests.observation.test_observe import classic_member
from tests.ops.commands import Run
from tests.runtime.members import describe, heartbeat
from tests.wire.test_coordinator import coordinator
from tests.wire.test_groups import join

VERSIONS = ["4.0.0", "4.3.1", "4.4.0"]


def start_members(servers: str, group_id: str, topic: str, ids: dict[str, str | None]) -> None:
    """Let members join that only say so; nobody sends heartbeats for them."""
    create_topic(servers, topic)
    with Cluster(servers) as cluster:
        coordinator(cluster, group_id)
    for member_id, instance_id in ids.items():
        join(servers, group_id, topic, member_id, instance_id)


def members_left(servers: str, group_id: str) -> list[str]:
    return sorted(each.member_id for each in describe(servers, group_id).members)


def outcomes(stdout: str) -> dict[str, str]:
    removals: list[dict[str, Any]] = json.loads(stdout)["removals"]
    return {each["given"]: each["outcome"] for each in removals}


@pytest.mark.broker
@pytest.mark.parametrize("version", VERSIONS)
def test_a_batch_has_a_result_for_each_id(
    kafka_version, version, command: Run, topic_name: str, group_id: str
) -> None:
    servers = kafka_version(version).bootstrap_servers
    ids = {"one": "gate-1", "two": "gate-2", "three": "gate-3", "four": None, "five": None}
    start_members(servers, group_id, topic_name, ids)
    static = ("--instance-id", "gate-1", "--instance-id", "gate-2", "--instance-id", "gate-9")
    dynamic = ("--member-id", "four", "--member-id", "two", "--member-id", "nine")
    where = ("--bootstrap-server", servers, "--json")
    foreseen = command("remove", group_id, *static, *dynamic, *where, "--dry-run")
    assert members_left(servers, group_id) == sorted(ids)
    done = command("remove", group_id, *static, *dynamic, *where)
    assert outcomes(done.stdout) == outcomes(foreseen.stdout)
    assert done.returncode == 1, done.stderr
    assert outcomes(done.stdout) == {
        "gate-1": "removed",
        "gate-2": "removed",
        "gate-9": "unknown",
        "four": "removed",
        "two": "removed",
        "nine": "unknown",
    }
    assert members_left(servers, group_id) == ["five", "three"]
    rest = command("remove", group_id, "--member-id", "three", "--member-id", "five", *where)
    assert (rest.returncode, members_left(servers, group_id)) == (0, [])


@pytest.mark.broker
@pytest.mark.parametrize("version", VERSIONS)
def test_a_member_id_of_another_instance_id_is_refused(
    kafka_version, version, command: Run, topic_name: str, group_id: str
) -> None:
    servers = kafka_version(version).bootstrap_servers
    start_members(servers, group_id, topic_name, {"one": "gate-1", "two": "gate-2"})
    ids = ("--instance-id", "gate-1", "--member-id", "two")
    done = command("remove", group_id, *ids, "--bootstrap-server", servers)
    assert done.returncode == 1
    assert done.stdout.splitlines() == [
        "instance id gate-1: fenced (instance id gate-1 belongs to member id one, not two)",
        "member id two: fenced (member id two belongs to instance id gate-2, not gate-1)",
    ]
    assert members_left(servers, group_id) == ["one", "two"]


@pytest.mark.broker
@pytest.mark.parametrize("version", VERSIONS)
def test_an_instance_id_is_free_at_once_also_of_a_member_that_left_for_a_while(
    kafka_version, version, command: Run, topic_name: str, group_id: str
) -> None:
    servers = kafka_version(version).bootstrap_servers
    start_members(servers, group_id, topic_name, {"one": "gate-1", "two": "gate-2"})
    away = HeartbeatRequest(
        group_id=group_id, member_id="two", member_epoch=-2, instance_id="gate-2"
    )
    assert heartbeat(servers, away).error_code == ErrorCode.NONE
    ids = ("--instance-id", "gate-1", "--instance-id", "gate-2")
    done = command("remove", group_id, *ids, "--bootstrap-server", servers)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [
        "instance id gate-1: removed (member id one)",
        "instance id gate-2: removed (member id two)",
    ]
    # Without the removal this would be UNRELEASED_INSTANCE_ID.
    join(servers, group_id, topic_name, "new", "gate-1")
    assert members_left(servers, group_id) == ["new"]


@pytest.mark.broker
def test_a_group_that_is_not_there_or_classic_is_said_to_be(
    kafka, command: Run, topic_name: str, group_id: str
) -> None:
    servers = kafka.bootstrap_servers
    asked = ("remove", group_id, "--member-id", "m", "--bootstrap-server", servers)
    missing = command(*asked)
    assert (missing.returncode, missing.stdout) == (1, "")
    assert f"there is no group '{group_id}'" in missing.stderr
    create_topic(servers, topic_name)
    with classic_member(servers, group_id, topic_name):
        classic = command(*asked)
    assert (classic.returncode, classic.stdout) == (1, "")
    assert f"group '{group_id}' is a classic group" in classic.stderr


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (("g",), "--instance-id or --member-id"),
        (("g", "--member-id", ""), "an id is not empty"),
        (("", "--member-id", "m"), "an id is not empty"),
    ],
)
def test_wrong_usage_is_exit_code_2(command: Run, args: tuple[str, ...], said: str) -> None:
    done = command("remove", *args, "--bootstrap-server", "127.0.0.1:1", COLUMNS="200")
    assert (done.returncode, done.stdout) == (2, "")
    assert said in done.stderr


def test_help_has_an_example(command: Run) -> None:
    done = command("remove", "--help", COLUMNS="200")
    assert "spark-groups remove flight-readers --instance-id gate-1" in done.stdout
