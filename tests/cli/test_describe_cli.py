"""`spark-groups describe` in the columns of Kafka's own tool, for both protocols."""

from __future__ import annotations

import json
import re
from dataclasses import replace

import pytest
from confluent_kafka import TopicPartition

from spark_groups.broker.embedded import EmbeddedKafka
from spark_groups.cli.describe_cli import (
    render_members,
    render_offsets,
    render_state,
    starting_offsets_of,
)
from spark_groups.errors import SparkGroupsError
from spark_groups.observation.reading import GroupType
from spark_groups.observation.views import LagOrigin, view_group
from spark_groups.types import TopicIdPartition
from spark_groups.wire.cluster import Cluster
from spark_groups.wire.group_admin import commit_outside
from tests.cli.cli_setup import CONSUMER_GROUP_COMMAND
from tests.cli.commands import invoke
from tests.cli.rendered import cells, lines
from tests.observation.groups import ONE, TWO, member, read
from tests.observation.observe_setup import classic_member
from tests.runtime.members import queries
from tests.wire.coordinator_connection_setup import topic_id
from workshop.parts.brokers import Row, create_topic, produce


def rows(text: str, group_id: str) -> set[tuple[str, ...]]:
    """Return the rows about a group, written alike by both tools."""
    text = re.sub(
        r" +\(id (\d+)\)| +\((\d+)\)", r" (\1\2)", text.replace("/127.0.0.1", "127.0.0.1")
    )
    found = (line.split() for line in text.splitlines() if line.startswith(group_id))
    return {tuple("-" if cell == "—" else cell for cell in row) for row in found}


@pytest.mark.broker
@pytest.mark.long
def test_groups_of_both_protocols_are_shown_as_kafkas_own_tool_shows_them(
    kafka: EmbeddedKafka, topic_name: str, group_id: str
) -> None:
    servers = kafka.bootstrap_servers
    create_topic(servers, topic_name, 3)
    produce(servers, topic_name, [Row(b"x", partition=each) for each in range(3)])
    old, new = f"{group_id}-old", f"{group_id}-new"
    with (
        queries(servers, new, topic_name) as start,
        classic_member(servers, old, topic_name) as consumer,
    ):
        start_of_each = [TopicPartition(topic_name, each, 0) for each in range(3)]
        consumer.commit(offsets=start_of_each, asynchronous=False)
        query = start()
        query.plan_rows()
        query.commit_all()
        address = ("--bootstrap-server", servers)
        ours = invoke("describe", old, new, "--offsets", "--verbose", *address)
        plain = json.loads(invoke("describe", old, new, "--json", *address).stdout)
        listed = json.loads(invoke("groups", "--json", *address).stdout)["groups"]
        of_type = invoke("describe", "--type", "generic", "--json", *address)
        asked = ("--describe", "--group", old, "--group", new, "--offsets", "--verbose")
        theirs = kafka.run_tool(CONSUMER_GROUP_COMMAND, *address, *asked)
        everything = invoke("describe", new, "--verbose", *address)
        state = invoke("describe", old, new, "--state", "--verbose", *address)
        asked = ("--describe", "--group", old, "--group", new, "--state", "--verbose")
        their_state = kafka.run_tool(CONSUMER_GROUP_COMMAND, *address, *asked)
    assert ours.exit_code == 0, ours.stderr
    # Without an authorizer everybody may do all that there is to do with a group.
    allowed = {"READ", "DELETE", "DESCRIBE", "DESCRIBE_CONFIGS", "ALTER_CONFIGS"}
    for each in plain:
        assert set(each["authorized_operations"]) == allowed
    assert "authorized operations READ, DELETE, DESCRIBE" in everything.stdout
    for each in (old, new):
        assert rows(ours.stdout, each) == rows(theirs, each)
        assert rows(state.stdout, each) == rows(their_state, each)
    assert len(rows(theirs, old)) == len(rows(theirs, new)) == 3
    assert [(each["group_id"], each["group_type"]) for each in plain] == [
        (old, "classic"),
        (new, "consumer"),
    ]
    shown = {each["group_id"]: each["group_type"] for each in json.loads(of_type.stdout)}
    assert (shown.pop(old), set(shown.values()) <= {"classic"}) == ("classic", True)
    assert {
        (each["group_id"], each["group_type"], each["protocol_type"], each["group_state"])
        for each in listed
    } >= {(old, "classic", "consumer", "Stable"), (new, "consumer", "consumer", "Stable")}


def test_parts_that_do_not_go_together_are_wrong_usage() -> None:
    message = "choose one of --members, --state"
    done = invoke("describe", "g", "--members", "--state", "--bootstrap-server", "localhost:1")
    assert (done.exit_code, done.stdout) == (2, "")
    assert message in " ".join(done.stderr.replace("│", " ").split())


@pytest.mark.parametrize("given", [(), ("g", "--type", "classic")])
def test_groups_are_named_or_of_a_type(given: tuple[str, ...]) -> None:
    done = invoke("describe", *given, "--bootstrap-server", "localhost:1")
    assert (done.exit_code, done.stdout) == (2, "")
    assert "give either group ids or --type" in done.stderr


def test_a_type_that_is_not_shown_is_refused() -> None:
    done = invoke("describe", "--type", "share", "--bootstrap-server", "localhost:1")
    assert done.exit_code == 2
    assert "valid types are classic, consumer" in " ".join(done.stderr.replace("│", " ").split())


READING = read(
    member(ONE, [0, 2], [0], instance_id="gate-1"),
    member(TWO, [], [2]),
    partitions=4,
    committed={0: 1_000},
    starts={0: 0, 1: 0},
    ends={0: 1_234, 1: 5},
    state="Reconciling",
)
VIEW = view_group(READING)
CLASSIC = view_group(replace(READING, group_type=GroupType.CLASSIC))


def test_members_are_shown_as_kafkas_tool_shows_them() -> None:
    group = "flight-readers"
    assert cells(render_members(VIEW)) == [
        ["GROUP", "CONSUMER-ID", "GROUP-INSTANCE-ID", "HOST", "CLIENT-ID", "#PARTITIONS"],
        [group, ONE, "gate-1", "127.0.0.1", "app-1", "2"],
        [group, TWO, "—", "127.0.0.1", "app-2", "0"],
    ]
    header, first, second = cells(render_members(VIEW, verbose=True))
    assert header[5:] == [
        *("RACK", "#PARTITIONS", "CURRENT-EPOCH", "CURRENT-ASSIGNMENT"),
        *("TARGET-EPOCH", "TARGET-ASSIGNMENT"),
    ]
    assert first[5:] == ["—", "2", "7", "flights:0,2", "6", "flights:0"]
    assert second[5:] == ["—", "0", "7", "6", "flights:2"]


def test_offsets_are_shown_as_kafkas_tool_shows_them() -> None:
    rows = cells(render_offsets(VIEW, verbose=True))
    assert rows[0] == [
        *("GROUP", "TOPIC", "PARTITION", "LEADER-EPOCH", "CURRENT-OFFSET", "LOG-END-OFFSET"),
        *("LAG", "CONSUMER-ID", "HOST", "CLIENT-ID"),
    ]
    owned = ["127.0.0.1", "app-1"]
    assert rows[1][1:] == ["flights", "0", "—", "1000", "1234", "234", ONE, *owned]
    # Nothing is committed: it lags for us, from the log start, but not in these columns.
    assert rows[2][1:] == ["flights", "1", "—", "—", "5", "—", "—", "—", "—"]
    assert rows[3][1:] == ["flights", "2", "—", "—", "—", "—", ONE, *owned]
    assert "LEADER-EPOCH" not in cells(render_offsets(VIEW))[0]


def test_the_state_is_one_row() -> None:
    coordinator = "127.0.0.1:9092 (id 1)"
    assert cells(render_state(VIEW)) == [
        ["GROUP", "COORDINATOR (ID)", "ASSIGNMENT-STRATEGY", "STATE", "#MEMBERS"],
        ["flight-readers", coordinator, "uniform", "Reconciling", "2"],
    ]
    assert cells(render_state(VIEW, verbose=True))[1][3:] == ["Reconciling", "7", "6", "2"]


def test_a_classic_group_has_no_epochs() -> None:
    assert cells(render_state(CLASSIC, verbose=True))[1][3:] == ["Reconciling", "—", "—", "2"]
    assert cells(render_members(CLASSIC, verbose=True))[1][7:10] == ["—", "flights:0,2", "—"]


@pytest.mark.parametrize("render", [render_members, render_offsets, render_state])
def test_a_group_without_members_is_reported_as_such(render) -> None:
    empty = view_group(read(committed={0: 3}, ends={0: 5}, state="Empty"))
    first, *rest = lines(render(empty))
    assert first == "Consumer group 'flight-readers' has no active members."
    assert len(rest) == (0 if render is render_members else 2)


def test_many_members_and_partitions_have_a_row_each() -> None:
    members = [member(f"{each:036}", range(each * 5, each * 5 + 5)) for each in range(200)]
    view = view_group(read(*members, partitions=1_000, committed=dict.fromkeys(range(1_000), 1)))
    assert len(lines(render_members(view, verbose=True))) == 201
    assert len(lines(render_offsets(view))) == 1_001


@pytest.mark.broker
def test_where_a_group_stands_is_printed_for_sparks_own_source(
    kafka: EmbeddedKafka, topic_name: str, group_id: str
) -> None:
    servers = kafka.bootstrap_servers
    create_topic(servers, topic_name, 3)
    produce(servers, topic_name, [Row(b"x", partition=each % 2) for each in range(10)])
    asked = ("describe", group_id, "--starting-offsets", "--bootstrap-server", servers)
    with Cluster(servers) as cluster:
        topic = topic_id(cluster, topic_name)
        commit_outside(cluster, group_id, {TopicIdPartition(topic, each): each for each in (0, 1)})
    done = invoke(*asked)
    assert (done.exit_code, done.stdout) == (0, f'{{"{topic_name}":{{"0":0,"1":1,"2":-2}}}}\n')
    twice = invoke(*asked, group_id)
    assert (twice.exit_code, "give one group id" in twice.stderr) == (2, True)
    with queries(servers, group_id, topic_name) as start:
        query = start()
        query.plan_rows()
        with pytest.raises(SparkGroupsError, match=f"has members.* {query.member_id}"):
            raise invoke(*asked).exception or AssertionError("nothing was raised")


def test_unknown_offsets_are_not_printed() -> None:
    view = view_group(read(committed={0: 3}, ends={0: 5}, state="Empty"))
    known = {each.topic: 9 for each in view.partitions}
    part = replace(view.partitions[0], committed_offset=None, lag_origin=None)
    with pytest.raises(SparkGroupsError, match="are unknown now: repeat the command"):
        starting_offsets_of(replace(view, partitions=(part,)), known)
    for nothing in ((), (replace(part, lag_origin=LagOrigin.LOG_START_OFFSET),)):
        with pytest.raises(SparkGroupsError, match="has no committed offsets"):
            starting_offsets_of(replace(view, partitions=nothing), known)
    gone = replace(part, topic="AbCd", committed_offset=5)
    with pytest.raises(SparkGroupsError, match="has no committed offsets"):
        starting_offsets_of(replace(view, partitions=(gone,)), known)
