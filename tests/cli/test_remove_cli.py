"""`spark-groups remove`: who is meant, what became of them, and real brokers."""

from __future__ import annotations

import json
from typing import Any

import pytest
from rich.console import Console

from spark_groups.cli.remove_cli import (
    IdKind,
    Outcome,
    Removal,
    RemovalView,
    check_ids,
    render_removals,
    with_answers,
)
from spark_groups.errors import ErrorCode
from spark_groups.group.member.messages import HeartbeatRequest
from spark_groups.observation.observe import describe_any_group
from spark_groups.wire.cluster import Cluster
from tests.cli.classic_member import classic_leader, subscribed_to
from tests.cli.commands import Run, invoke
from tests.cli.remove_cli_setup import start_members
from tests.observation.groups import member
from tests.runtime.members import describe, heartbeat
from tests.wire.group_admin_setup import join
from workshop.parts.brokers import create_topic

VERSIONS = ["4.0.0", "4.3.1", "4.4.0"]


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
def test_a_missing_group_is_named(kafka, command: Run, group_id: str) -> None:
    asked = ("remove", group_id, "--bootstrap-server", kafka.bootstrap_servers)
    for ids in (("--member-id", "m"), ("--all",)):
        missing = command(*asked, *ids)
        assert (missing.returncode, missing.stdout) == (1, "")
        assert f"there is no group '{group_id}'" in missing.stderr


def classic_members(servers: str, group_id: str) -> list[str]:
    with Cluster(servers) as cluster:
        return [each.member_id for each in describe_any_group(cluster, group_id)[1].members]


@pytest.mark.broker
@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("instance_id", ["gate-1", None])
def test_a_classic_member_is_removed_like_any_other(  # noqa: PLR0917
    kafka_version,
    instance_id: str | None,
    version: str,
    command: Run,
    topic_name: str,
    group_id: str,
) -> None:
    """Those that KIP-345 is about; a group has them until all its consumers are migrated."""
    servers = kafka_version(version).bootstrap_servers
    create_topic(servers, topic_name)
    subscription = subscribed_to(topic_name)
    asked = ("remove", group_id, "--bootstrap-server", servers)
    with classic_leader(servers, group_id, subscription, instance_id=instance_id) as member_id:
        given = ("--instance-id", "gate-1") if instance_id else ("--member-id", member_id)
        foreseen = command(*asked, *given, "--dry-run")
        assert f"{given[1]}: would be removed" in foreseen.stdout
        assert classic_members(servers, group_id) == [member_id]
        done = command(*asked, *given, "--reason", "its host is gone")
        assert (done.returncode, done.stderr) == (0, "")
        assert classic_members(servers, group_id) == []


@pytest.mark.broker
def test_all_members_are_removed_each_by_the_id_that_stays_its_own(
    kafka, command: Run, topic_name: str, group_id: str
) -> None:
    servers = kafka.bootstrap_servers
    start_members(servers, group_id, topic_name, {"one": "gate-1", "two": None, "three": "gate-3"})
    asked = ("remove", group_id, "--all", "--bootstrap-server", servers)
    done = command(*asked, "--json")
    assert outcomes(done.stdout) == dict.fromkeys(("gate-1", "gate-3", "two"), "removed")
    assert (done.returncode, members_left(servers, group_id)) == (0, [])
    again = command(*asked)
    assert (again.returncode, again.stdout) == (0, f"group '{group_id}' has no members\n")


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (("g",), "--instance-id or --member-id, or --all"),
        (("g", "--all", "--member-id", "m"), "--instance-id or --member-id, or --all"),
        (("g", "--member-id", ""), "an id must not be empty"),
        (("", "--member-id", "m"), "an id must not be empty"),
    ],
)
def test_wrong_usage_is_exit_code_2(args: tuple[str, ...], message: str) -> None:
    done = invoke("remove", *args, "--bootstrap-server", "127.0.0.1:1", COLUMNS="200")
    assert (done.exit_code, done.stdout) == (2, "")
    assert message in done.stderr


def test_help_has_an_example() -> None:
    done = invoke("remove", "--help", COLUMNS="200")
    assert "spark-groups remove flight-readers --instance-id gate-1" in done.stdout


MEMBERS = (member("m1", instance_id="gate-1"), member("m2"))


def text(view: RemovalView) -> list[str]:
    console = Console(width=200, color_system=None)
    with console.capture() as capture:
        console.print(render_removals(view))
    return capture.get().splitlines()


def test_each_id_has_a_line() -> None:
    checked = check_ids(MEMBERS, ["gate-1", "gate-\x1b"], ["m1", "m2"])
    assert text(RemovalView(group_id="g", removals=checked)) == [
        "instance id gate-1: removed (member id m1)",
        "instance id gate-?: unknown (no member of the group has this instance id)",
        "member id m1: removed (instance id gate-1)",
        "member id m2: removed",
    ]


def test_an_id_that_is_somebody_elses_says_whose() -> None:
    lines = text(RemovalView(group_id="g", removals=check_ids(MEMBERS, ["gate-2"], ["m1"])))
    message = "member id m1: fenced (member id m1 belongs to instance id gate-1, not gate-2)"
    assert lines[1] == message


THREE_MEMBERS = (
    member("m1", instance_id="gate-1"),
    member("m2", instance_id="gate-2"),
    member("m3"),
)


def outcomes_of(checked: tuple[Removal, ...]) -> dict[str, str]:
    return {each.given: each.outcome.value for each in checked}


@pytest.mark.parametrize(
    ("instance_ids", "member_ids", "expected"),
    [
        (["gate-1", "gate-9"], [], {"gate-1": "removed", "gate-9": "unknown"}),
        ([], ["m3", "m1", "m9"], {"m3": "removed", "m1": "removed", "m9": "unknown"}),
        (["gate-1"], ["m1"], {"gate-1": "removed", "m1": "removed"}),
        (
            ["gate-1", "gate-2"],
            ["m2", "m3"],
            dict.fromkeys(["gate-1", "gate-2", "m2", "m3"], "removed"),
        ),
        (["gate-1"], ["m9"], {"gate-1": "removed", "m9": "unknown"}),
        (["gate-1"], ["m2"], {"gate-1": "fenced", "m2": "fenced"}),
        # The pair that fits is not doubted for the one that does not.
        (["gate-1"], ["m1", "m2"], {"gate-1": "removed", "m1": "removed", "m2": "fenced"}),
        (["gate-9"], ["m2"], {"gate-9": "unknown", "m2": "fenced"}),
    ],
)
def test_each_id_is_judged(instance_ids, member_ids, expected) -> None:
    assert outcomes_of(check_ids(THREE_MEMBERS, instance_ids, member_ids)) == expected


def test_a_wrong_pair_of_ids_names_the_owner_of_each() -> None:
    instance, one = check_ids(THREE_MEMBERS, ["gate-1"], ["m2"])
    assert one.remark == "member id m2 belongs to instance id gate-2, not gate-1"
    assert instance.remark == "instance id gate-1 belongs to member id m1, not m2"


def test_an_id_of_the_other_kind_is_hinted_at() -> None:
    instance, one = check_ids(THREE_MEMBERS, ["m1"], ["gate-1"])
    assert instance.remark.endswith("it is a member id")
    assert one.remark.endswith("it is an instance id")


@pytest.mark.parametrize(
    ("code", "outcome", "remark"),
    [
        (ErrorCode.NONE, Outcome.REMOVED, ""),
        (ErrorCode.UNKNOWN_MEMBER_ID, Outcome.REMOVED, "it had already left"),
        (ErrorCode.FENCED_INSTANCE_ID, Outcome.FENCED, "another member has just joined with its"),
        (ErrorCode.GROUP_AUTHORIZATION_FAILED, Outcome.REFUSED, "GROUP_AUTHORIZATION_FAILED: the"),
    ],
)
def test_the_coordinator_has_the_last_word(code: ErrorCode, outcome: Outcome, remark: str) -> None:
    checked = check_ids(THREE_MEMBERS, ["gate-9"], ["m3"])
    unknown, one = with_answers(checked, {"m3": code.value})
    assert unknown == checked[0]
    assert one.outcome is outcome
    assert one.remark.startswith(remark)


def test_a_member_that_is_not_answered_for_is_not_removed() -> None:
    (one,) = with_answers(check_ids(THREE_MEMBERS, [], ["m1"]), {})
    assert one.outcome is Outcome.REFUSED
    assert "UNKNOWN_SERVER_ERROR" in one.remark


def test_a_view_has_plain_values_and_is_complete_only_if_all_are_gone() -> None:
    view = RemovalView(group_id="g", removals=check_ids(THREE_MEMBERS, ["gate-1"], []))
    assert view.is_complete
    assert view.to_json() == {
        "group_id": "g",
        "removals": [
            {
                "id_kind": "instance id",
                "given": "gate-1",
                "outcome": "removed",
                "member_id": "m1",
                "instance_id": "gate-1",
                "remark": "",
            }
        ],
        "is_dry_run": False,
    }
    lost = Removal(id_kind=IdKind.MEMBER_ID, given="m", outcome=Outcome.UNKNOWN)
    assert not RemovalView(group_id="g", removals=(*view.removals, lost)).is_complete
