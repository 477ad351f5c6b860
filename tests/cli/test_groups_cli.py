"""`spark-groups groups`: the list of groups, on a real broker and made up."""

from __future__ import annotations

import pytest

from spark_groups.broker.embedded import EmbeddedKafka
from spark_groups.cli.groups_cli import (
    GROUP_STATES,
    GROUP_TYPES,
    GroupListView,
    parse_names,
    render_groups,
    view_groups,
)
from spark_groups.errors import OptionsError
from spark_groups.types import TopicIdPartition
from spark_groups.wire.cluster import Cluster, ListedGroup
from spark_groups.wire.group_admin import commit_outside
from tests.cli.commands import invoke
from tests.cli.rendered import cells, lines
from tests.wire.coordinator_connection_setup import topic_id
from workshop.parts.brokers import create_topic


@pytest.mark.broker
def test_a_list_is_limited_by_type_and_state(
    kafka: EmbeddedKafka, topic_name: str, group_id: str
) -> None:
    servers = kafka.bootstrap_servers
    create_topic(servers, topic_name)
    with Cluster(servers) as cluster:
        key = TopicIdPartition(topic_id(cluster, topic_name), 0)
        commit_outside(cluster, group_id, {key: 0})
    asked = ("groups", "--bootstrap-server", servers)
    shown = invoke(*asked, "--type", "generic", "--state", "empty,dead")
    assert [group_id, "Classic", "—", "Empty"] in [
        line.split() for line in shown.stdout.splitlines()
    ]
    assert group_id not in invoke(*asked, "--type", "consumer,share").stdout


def test_a_type_that_is_none_is_wrong_usage() -> None:
    done = invoke("groups", "--bootstrap-server", "localhost:1", "--type", "strems")
    assert (done.exit_code, done.stdout) == (2, "")
    assert "did you mean streams?" in done.stderr


def test_each_group_has_a_row() -> None:
    assert cells(render_groups(view_groups(LISTED))) == [
        ["GROUP", "TYPE", "PROTOCOL", "STATE"],
        ["a", "Classic", "—", "Empty"],
        ["m", "Newer", "x", "New"],
        ["z", "Consumer", "consumer", "Stable"],
    ]


def test_an_empty_list_is_a_sentence() -> None:
    assert lines(render_groups(GroupListView(groups=()))) == ["no matching groups"]


LISTED = (
    ListedGroup(
        group_id="z", protocol_type="consumer", group_state="Stable", group_type="consumer"
    ),
    ListedGroup(group_id="a", protocol_type="", group_state="Empty", group_type="classic"),
    ListedGroup(group_id="m", protocol_type="x", group_state="New", group_type="newer"),
)


def test_groups_are_sorted_and_called_what_kafkas_tool_calls_them() -> None:
    rows = view_groups(LISTED).to_json()["groups"]
    assert [(each["group_id"], each["group_type"]) for each in rows] == [
        ("a", "classic"),
        ("m", "newer"),
        ("z", "consumer"),
    ]


def test_names_are_taken_in_any_case_between_commas_and_each_once() -> None:
    assert parse_names(["generic, CLASSIC", "share"], GROUP_TYPES, "types") == ("classic", "share")
    states = parse_names(["preparingrebalance", "NotReady"], GROUP_STATES, "states")
    assert states == ("PreparingRebalance", "NotReady")
    assert parse_names([], GROUP_STATES, "states") == ()


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ("consumers", "'consumers' is not one of the types: did you mean consumer?"),
        ("?", "'?' is not one of the types: valid types are classic, consumer, share, streams"),
    ],
)
def test_a_name_that_is_not_known_is_refused(given: str, message: str) -> None:
    with pytest.raises(OptionsError) as refused:
        parse_names(["classic", given], GROUP_TYPES, "types")
    assert str(refused.value) == message
