"""`spark-groups config` on real brokers, as somebody types it."""

from __future__ import annotations

import json
from typing import Any

import pytest
from confluent_kafka.admin import AclOperation, AclPermissionType, ResourceType

from spark_groups.lab.broker.embedded import EmbeddedKafka
from spark_groups.protocol.messages import HeartbeatRequest
from spark_groups.types import NO_PARTITIONS
from spark_groups.wire.cluster import Cluster
from spark_groups.wire.group_settings import group_settings
from tests.brokers import create_topic
from tests.ops.commands import Run
from tests.runtime.members import heartbeat
from tests.waiting import wait_until
from tests.wire.test_group_settings import AUTHORIZER, add_acl

HEARTBEAT, SESSION = "consumer.heartbeat.interval.ms", "consumer.session.timeout.ms"
ASSIGNMENT = "consumer.assignment.interval.ms"


def settings(stdout: str) -> dict[str, dict[str, Any]]:
    return {each["name"]: each for each in json.loads(stdout)["settings"]}


@pytest.mark.broker
@pytest.mark.long
@pytest.mark.parametrize(
    ("version", "names"),
    [
        ("4.0.0", [HEARTBEAT, SESSION]),
        ("4.3.1", [ASSIGNMENT, HEARTBEAT, SESSION]),
        ("4.4.0", [ASSIGNMENT, HEARTBEAT, SESSION]),
    ],
)
def test_settings_are_shown_set_and_taken_away_before_the_group_exists(
    kafka_version, version, names, command: Run, group_id: str
) -> None:
    where = ("--bootstrap-server", kafka_version(version).bootstrap_servers, "--json")
    shown = command("config", group_id, *where)
    assert shown.returncode == 0, shown.stderr
    before = settings(shown.stdout)
    assert list(before) == names
    assert before[HEARTBEAT] == {
        "name": HEARTBEAT,
        "value": "5000",
        "origin": "default",
        "minimum": 100,
        "maximum": 15000,
        "inherited": "5000",
    }
    both = ("--set", f"{HEARTBEAT}=700", "--set", f"{SESSION}=9000")
    done = command("config", group_id, *both, *where)
    assert done.returncode == 0, done.stderr
    after = settings(done.stdout)
    assert (after[SESSION]["value"], after[SESSION]["origin"]) == ("9000", "group")
    assert json.loads(done.stdout)["changed"] == [
        {"name": HEARTBEAT, "before": "5000", "after": "700"},
        {"name": SESSION, "before": "45000", "after": "9000"},
    ]
    # What the broker's file says is shown again as soon as the group's own value is gone.
    undone = command("config", group_id, "--unset", HEARTBEAT, "--set", f"{SESSION}=8000", *where)
    left = settings(undone.stdout)
    assert left[HEARTBEAT] == before[HEARTBEAT]
    assert (left[SESSION]["value"], left[SESSION]["inherited"]) == ("8000", "45000")


@pytest.mark.broker
@pytest.mark.long
def test_members_are_told_and_settings_outlive_the_group(
    kafka, command: Run, topic_name: str, group_id: str
) -> None:
    servers = kafka.bootstrap_servers
    where = ("--bootstrap-server", servers)
    create_topic(servers, topic_name)
    assert command("config", group_id, "--set", f"{HEARTBEAT}=600", *where).returncode == 0
    joining = HeartbeatRequest(
        group_id=group_id,
        member_id="m",
        member_epoch=0,
        rebalance_timeout_ms=5_000,
        subscribed_topic_names=(topic_name,),
        topic_partitions=NO_PARTITIONS,
    )
    joined = heartbeat(servers, joining)
    assert joined.heartbeat_interval_ms == 600
    assert command("config", group_id, "--set", f"{HEARTBEAT}=800", *where).returncode == 0
    beating = HeartbeatRequest(group_id=group_id, member_id="m", member_epoch=joined.member_epoch)
    assert heartbeat(servers, beating).heartbeat_interval_ms == 800
    leaving = HeartbeatRequest(group_id=group_id, member_id="m", member_epoch=-1)
    heartbeat(servers, leaving)
    text = command("config", group_id, *where).stdout
    assert text.startswith(f"settings of group {group_id}\n")
    (row,) = (line.split() for line in text.splitlines() if line.startswith(HEARTBEAT))
    assert row == [HEARTBEAT, "800", "group", "5000", "100", "15000"]


@pytest.mark.broker
@pytest.mark.long
@pytest.mark.parametrize(
    ("args", "wrong"),
    [
        (("--set", f"{HEARTBEAT}=99"), (1, "at least 100 (group.consumer.min.heartbeat.interval")),
        (("--set", "heartbeat.interval.ms=900"), (1, f"did you mean {HEARTBEAT}?")),
        (
            # Each is in range, and the broker itself knows why they do not go together.
            ("--set", f"{HEARTBEAT}=3000", "--set", f"{SESSION}=2000"),
            (1, f"INVALID_CONFIG, {SESSION} must be greater than {HEARTBEAT}"),
        ),
        (("--set", f"{HEARTBEAT}=900", "--set", f"{HEARTBEAT}=901"), (2, "is given twice")),
        (("--set", f"{HEARTBEAT}=900", "--unset", HEARTBEAT), (2, "choose one")),
        (("--set", HEARTBEAT), (2, "is not name=value")),
    ],
)
def test_what_is_wrong_is_said_and_changes_nothing(
    kafka, command: Run, group_id: str, args: tuple[str, ...], wrong: tuple[int, str]
) -> None:
    code, said = wrong
    where = ("--bootstrap-server", kafka.bootstrap_servers)
    done = command("config", group_id, *args, *where, COLUMNS="200")
    assert (done.returncode, done.stdout) == (code, "")
    assert said in done.stderr
    assert "Traceback" not in done.stderr
    unchanged = settings(command("config", group_id, *where, "--json").stdout)
    assert {each["origin"] for each in unchanged.values()} == {"default"}


@pytest.mark.broker
@pytest.mark.long
def test_a_setting_of_a_newer_broker_is_not_known_to_an_older(
    kafka_version, command: Run, group_id: str
) -> None:
    where = ("--bootstrap-server", kafka_version("4.0.0").bootstrap_servers)
    done = command("config", group_id, "--set", f"{ASSIGNMENT}=0", *where)
    assert done.returncode == 1
    assert f"this broker has no setting {ASSIGNMENT} for consumer groups" in done.stderr


@pytest.mark.broker
@pytest.mark.long
def test_who_may_not_see_the_settings_is_told_so(command: Run, group_id: str) -> None:
    with EmbeddedKafka(server_properties=AUTHORIZER) as kafka:
        servers = kafka.bootstrap_servers
        where = ("--bootstrap-server", servers)
        group = (ResourceType.GROUP, group_id, AclOperation.DESCRIBE_CONFIGS)
        add_acl(servers, *group, AclPermissionType.DENY)
        with Cluster(servers) as cluster:
            wait_until(
                lambda: not group_settings(cluster, group_id).group_is_known,
                what="the group's settings gone",
            )
        shown = command("config", group_id, *where)
        assert (shown.returncode, shown.stderr) == (0, "")
        assert "not everything is known" in shown.stdout
        assert "needs DESCRIBE_CONFIGS" in shown.stdout
        refused = command("config", group_id, "--set", f"{HEARTBEAT}=900", *where)
        assert refused.returncode == 1
        assert "GROUP_AUTHORIZATION_FAILED" in refused.stderr
        assert "needs ALTER_CONFIGS on the group" in refused.stderr


def test_help_has_an_example_and_an_empty_group_is_refused(command: Run) -> None:
    done = command("config", "--help", COLUMNS="200")
    assert "spark-groups config flight-readers --set consumer.session.timeout.ms=60000" in (
        done.stdout
    )
    empty = command("config", "", "--bootstrap-server", "127.0.0.1:1")
    assert empty.returncode == 2
    assert "not empty" in empty.stderr
