"""`spark-groups config`: changes, output, and real brokers."""

from __future__ import annotations

import json
from typing import Any

import pytest
from confluent_kafka.admin import AclOperation, AclPermissionType, ResourceType
from rich.console import Console

from spark_groups.broker.embedded import EmbeddedKafka
from spark_groups.cli.config_cli import (
    SettingChange,
    SettingsView,
    are_in_force,
    check_changes,
    parse_changes,
    render_settings,
    view_settings,
)
from spark_groups.errors import OptionsError
from spark_groups.group.member.messages import HeartbeatRequest
from spark_groups.types import NO_PARTITIONS
from spark_groups.wire.cluster import Cluster
from spark_groups.wire.configuration import ConfigOrigin
from spark_groups.wire.group_settings import (
    HEARTBEAT_INTERVAL_MS,
    SESSION_TIMEOUT_MS,
    GroupSetting,
    GroupSettings,
    group_settings,
)
from tests.cli.commands import Run
from tests.runtime.members import heartbeat
from tests.wire.group_settings_setup import AUTHORIZER, add_acl
from workshop.parts.brokers import create_topic
from workshop.parts.waiting import wait_until

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
def test_members_receive_settings_which_outlive_the_group(
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
def test_a_refused_change_names_the_reason_and_changes_nothing(
    kafka, command: Run, group_id: str, args: tuple[str, ...], wrong: tuple[int, str]
) -> None:
    code, message = wrong
    where = ("--bootstrap-server", kafka.bootstrap_servers)
    done = command("config", group_id, *args, *where, COLUMNS="200")
    assert (done.returncode, done.stdout) == (code, "")
    assert message in done.stderr
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
def test_missing_authorization_is_reported(command: Run, group_id: str) -> None:
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
        assert "some settings are unknown" in shown.stdout
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
    assert "must not" in empty.stderr


def text(view: SettingsView) -> list[str]:
    console = Console(width=120, color_system=None)
    with console.capture() as capture:
        console.print(render_settings(view))
    return [" ".join(line.split()) for line in capture.get().splitlines()]


def test_each_setting_has_its_value_origin_and_bounds() -> None:
    assert text(view_settings("g", SETTINGS)) == [
        "settings of group g",
        "SETTING VALUE ORIGIN INHERITED MINIMUM MAXIMUM",
        "consumer.heartbeat.interval.ms 5000 default 100 15000",
        "consumer.session.timeout.ms 50000 group 45000 45000 —",
        "consumer.switch true default — —",
    ]


def test_a_change_stands_above_the_table() -> None:
    lines = text(view_settings("g", SETTINGS, {SESSION_TIMEOUT_MS: "50000"}))
    assert lines[0] == "consumer.session.timeout.ms: — -> 50000"


def test_the_reason_of_unknown_settings_is_shown() -> None:
    lines = text(view_settings("g\x1b", GroupSettings(reason="no access")))
    assert lines == ["settings of group g?", "some settings are unknown: no access"]


HEARTBEAT_SETTING = GroupSetting(
    name=HEARTBEAT_INTERVAL_MS,
    value="5000",
    origin=ConfigOrigin.DEFAULT,
    minimum=100,
    maximum=15000,
    inherited="5000",
)
OWN_SESSION = GroupSetting(
    name=SESSION_TIMEOUT_MS,
    value="50000",
    origin=ConfigOrigin.GROUP,
    minimum=45000,
    maximum=None,
    inherited="45000",
)
SWITCH = GroupSetting(name="consumer.switch", value="true", origin=ConfigOrigin.DEFAULT)
SETTINGS = GroupSettings(settings=(HEARTBEAT_SETTING, OWN_SESSION, SWITCH))


def test_changes_are_read() -> None:
    assert parse_changes(["a=1", " b = x=y "], ["c"]) == {"a": "1", "b": "x=y", "c": None}
    assert parse_changes([], []) == {}


@pytest.mark.parametrize(
    ("set_values", "unset", "says"),
    [
        (["a"], [], "--set 'a' is not name=value"),
        (["=1"], [], "--set '=1' is not name=value"),
        (["a="], [], "to remove a value: --unset"),
        (["a=1", "a=1"], [], "--set a is given twice"),
        ([], ["a", "a"], "--unset a is given twice"),
        (["a=1"], ["a"], "a is given to --set and to --unset"),
        ([], ["a=1"], "--unset 'a=1' is not a name"),
        ([], [""], "--unset '' is not a name"),
        (["a", "b=1", "b=2"], ["c="], "'a' is not.*; --set b is given twice; --unset 'c='"),
    ],
)
def test_every_malformed_change_is_listed(set_values, unset, says: str) -> None:
    with pytest.raises(OptionsError, match=says):
        parse_changes(set_values, unset)


@pytest.mark.parametrize(
    "changes",
    [
        {HEARTBEAT_INTERVAL_MS: "100"},
        {HEARTBEAT_INTERVAL_MS: "15000", SESSION_TIMEOUT_MS: None},
        {SESSION_TIMEOUT_MS: "45000"},
        {SESSION_TIMEOUT_MS: "999999999"},
        {"consumer.switch": "false"},
    ],
)
def test_what_the_broker_takes_is_let_through(changes) -> None:
    check_changes(changes, SETTINGS)


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        (
            {HEARTBEAT_INTERVAL_MS: "99"},
            "consumer.heartbeat.interval.ms=99 is out of range: the broker accepts at least 100"
            " (group.consumer.min.heartbeat.interval.ms) and at most 15000"
            " (group.consumer.max.heartbeat.interval.ms)",
        ),
        ({HEARTBEAT_INTERVAL_MS: "15001"}, "consumer.heartbeat.interval.ms=15001 is out of range"),
        (
            {SESSION_TIMEOUT_MS: "44999"},
            "consumer.session.timeout.ms=44999 is out of range: the broker accepts at least 45000"
            " (group.consumer.min.session.timeout.ms)",
        ),
        ({SESSION_TIMEOUT_MS: "1m"}, "consumer.session.timeout.ms=1m is not a whole number"),
        ({SESSION_TIMEOUT_MS: "1_0"}, "is not a whole number"),
        ({"consumer.heartbeat.intervall.ms": "1"}, "did you mean consumer.heartbeat.interval.ms?"),
        ({"session.timeout.ms": None}, "did you mean consumer.session.timeout.ms?"),
        ({"zzz": None}, "it has consumer.heartbeat.interval.ms, consumer.session.timeout.ms, con"),
        ({"zzz": None, SESSION_TIMEOUT_MS: "1"}, "is out of range"),
    ],
)
def test_what_the_broker_would_refuse_is_refused_first(changes, says: str) -> None:
    with pytest.raises(OptionsError) as refused:
        check_changes(changes, SETTINGS)
    assert says in str(refused.value)
    assert str(refused.value).count(";") == len(changes) - 1


def test_values_without_known_limits_are_left_to_the_broker() -> None:
    check_changes({"zzz": "1"}, GroupSettings(reason="refused", group_is_known=False))
    brokers_only = GroupSettings(
        settings=(HEARTBEAT_SETTING,), reason="refused", group_is_known=False
    )
    check_changes({"consumer.newer": "1", HEARTBEAT_INTERVAL_MS: "900"}, brokers_only)
    with pytest.raises(OptionsError, match="out of range"):
        check_changes({HEARTBEAT_INTERVAL_MS: "99"}, brokers_only)


@pytest.mark.parametrize(
    ("changes", "are"),
    [
        ({SESSION_TIMEOUT_MS: "50000"}, True),
        ({SESSION_TIMEOUT_MS: "50001"}, False),
        ({SESSION_TIMEOUT_MS: None}, False),
        ({HEARTBEAT_INTERVAL_MS: None}, True),
        # The group's own value may be the very one that it would inherit.
        ({HEARTBEAT_INTERVAL_MS: "5000"}, False),
        ({"zzz": None}, False),
    ],
)
def test_changes_are_in_force_when_the_broker_shows_them(changes, are: bool) -> None:
    assert are_in_force(changes, SETTINGS) is are


def test_a_view_has_the_changes_as_plain_values() -> None:
    before = GroupSettings(settings=(HEARTBEAT_SETTING,), reason="not everything")
    view = view_settings("g", SETTINGS, {SESSION_TIMEOUT_MS: "50000"}, before)
    assert view.changed == (SettingChange(SESSION_TIMEOUT_MS, None, "50000"),)
    plain = view.to_json()
    assert plain["settings"][1] == {
        "name": SESSION_TIMEOUT_MS,
        "value": "50000",
        "origin": "group",
        "minimum": 45000,
        "maximum": None,
        "inherited": "45000",
    }
    assert plain["changed"] == [{"name": SESSION_TIMEOUT_MS, "before": None, "after": "50000"}]
    assert (plain["group_id"], plain["reason"]) == ("g", "")
