"""`spark-groups delete` and `delete-offsets`: who is meant, what became of it, real brokers."""

from __future__ import annotations

import json

import pytest

from spark_groups.broker.embedded import EmbeddedKafka
from spark_groups.cli.delete_cli import (
    DeletedGroup,
    DeletedOffset,
    GroupDeletionView,
    OffsetDeletionView,
    error_fields,
    render_deleted_groups,
    render_deleted_offsets,
    view_deleted,
)
from spark_groups.cli.topic_partitions import parse_topics, partitions_of
from spark_groups.errors import ErrorCode, OptionsError
from spark_groups.group.member.messages import TopicMetadata
from spark_groups.types import TopicIdPartition, TopicPartition
from spark_groups.wire import group_admin
from spark_groups.wire.cluster import Cluster
from spark_groups.wire.connection import RequestError
from spark_groups.wire.group_admin import OffsetDeletion, commit_outside
from tests.cli.commands import invoke
from tests.cli.rendered import cells, lines
from tests.observation.groups import FLIGHTS
from tests.runtime.members import queries
from tests.wire.coordinator_connection_setup import topic_id
from workshop.parts.brokers import Row, create_topic, produce


@pytest.mark.broker
def test_offsets_and_then_the_group_are_deleted(
    kafka: EmbeddedKafka, topic_name: str, group_id: str
) -> None:
    servers = kafka.bootstrap_servers
    create_topic(servers, topic_name, 2)
    address = ("--bootstrap-server", servers)
    with Cluster(servers) as cluster:
        keys = [TopicIdPartition(topic_id(cluster, topic_name), each) for each in range(2)]
        commit_outside(cluster, group_id, dict.fromkeys(keys, 5))
        asked = ("delete-offsets", group_id, "--topic", f"{topic_name}:1", *address)
        foreseen = invoke(*asked, "--dry-run")
        assert (foreseen.exit_code, "Successful" in foreseen.stdout) == (0, True)
        assert "No action is performed" in foreseen.stdout
        assert set(cluster.fetch_all_offsets(group_id)) == set(keys)
        first = invoke(*asked)
        assert (first.exit_code, first.stdout.split()[-3:]) == (0, [topic_name, "1", "Successful"])
        assert set(cluster.fetch_all_offsets(group_id)) == {keys[0]}
        second = invoke(*asked, "--topic", "~", "--json")
        statuses = [each["error"] for each in json.loads(second.stdout)["offsets"]]
        assert (second.exit_code, statuses) == (1, [None, "UNKNOWN_TOPIC_OR_PARTITION"])
        third = invoke("delete-offsets", group_id, "--topic", f"{topic_name}x", *address)
        assert third.exit_code == 1
        assert f"or correct its name (did you mean '{topic_name}'?)" in third.stdout
    foreseen = invoke("delete", group_id, f"{group_id}-not", *address, "--dry-run", "--json")
    errors = [each["error"] for each in json.loads(foreseen.stdout)["groups"]]
    assert (foreseen.exit_code, errors) == (1, [None, "GROUP_ID_NOT_FOUND"])
    assert invoke("delete", group_id, *address).stdout == f"group '{group_id}': deleted\n"
    again = invoke("delete", group_id, *address)
    assert again.exit_code == 1
    assert "could not be deleted due to: GROUP_ID_NOT_FOUND" in again.stdout


@pytest.mark.broker
def test_a_group_without_an_answer_does_not_hide_what_became_of_the_others(
    kafka: EmbeddedKafka, topic_name: str, group_id: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The answer about the second of three groups is lost; the broker has deleted the group."""
    groups = [f"{group_id}-{each}" for each in "abc"]
    create_topic(kafka.bootstrap_servers, topic_name, 1)
    with Cluster(kafka.bootstrap_servers) as cluster:
        key = TopicIdPartition(topic_id(cluster, topic_name), 0)
        for each in groups:
            commit_outside(cluster, each, {key: 0})
    delete = group_admin.delete_group

    def lost(cluster: Cluster, asked: str) -> object:
        answer = delete(cluster, asked)
        if asked == groups[1]:
            raise RequestError("the connection was closed", may_have_arrived=True)
        return answer

    monkeypatch.setattr(group_admin, "delete_group", lost)
    done = invoke("delete", *groups, "--bootstrap-server", kafka.bootstrap_servers, "--json")
    shown = json.loads(done.stdout)["groups"]
    assert done.exit_code == 1
    assert [each["error"] for each in shown] == [None, "NETWORK_EXCEPTION", None]
    assert "repeat the command" in shown[1]["remark"]


def test_a_topic_that_is_malformed_is_wrong_usage() -> None:
    address = ("--bootstrap-server", "localhost:1")
    done = invoke("delete-offsets", "g", "--topic", "flights:", *address)
    assert (done.exit_code, done.stdout) == (2, "")
    assert "is neither TOPIC nor TOPIC:0,1,2" in done.stderr


@pytest.mark.broker
def test_what_members_read_is_foreseen_to_be_refused(
    kafka: EmbeddedKafka, topic_name: str, group_id: str
) -> None:
    servers = kafka.bootstrap_servers
    create_topic(servers, topic_name, 1)
    produce(servers, topic_name, [Row(b"x", partition=0)])
    address = ("--bootstrap-server", servers, "--json")
    with queries(servers, group_id, topic_name) as start:
        query = start()
        query.plan_rows()
        query.commit_all()
        for dry_run in (("--dry-run",), ()):
            asked = ("delete-offsets", group_id, "--topic", topic_name, *address, *dry_run)
            done = invoke(*asked)
            statuses = [each["error"] for each in json.loads(done.stdout)["offsets"]]
            assert (done.exit_code, statuses) == (1, ["GROUP_SUBSCRIBED_TO_TOPIC"])
            done = invoke("delete", group_id, *address, *dry_run)
            errors = [each["error"] for each in json.loads(done.stdout)["groups"]]
            assert (done.exit_code, errors) == (1, ["NON_EMPTY_GROUP"])


def test_each_group_has_a_line() -> None:
    left = DeletedGroup(group_id="h\x1b", **error_fields(ErrorCode.NON_EMPTY_GROUP))
    view = GroupDeletionView(groups=(DeletedGroup(group_id="g"), left))
    assert lines(render_deleted_groups(view)) == [
        "group 'g': deleted",
        "group 'h?': could not be deleted due to: NON_EMPTY_GROUP, the group has members: stop them"
        " first",
    ]


def test_each_offset_has_a_row_with_the_words_of_kafkas_tool() -> None:
    unknown = error_fields(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    offsets = (
        DeletedOffset(topic="flights", partition=0),
        DeletedOffset(topic="gone", partition=None, **unknown),
    )
    assert cells(render_deleted_offsets(OffsetDeletionView(group_id="g", offsets=offsets))) == [
        ["TOPIC", "PARTITION", "STATUS"],
        ["flights", "0", "Successful"],
        ["gone", "—", "Error: UNKNOWN_TOPIC_OR_PARTITION, create the topic, or correct its name"],
    ]


FIRST, SECOND = TopicPartition("flights", 0), TopicPartition("flights", 1)
GONE = TopicPartition("gone", -1)


def test_each_partition_has_its_answer() -> None:
    answer = OffsetDeletion(errors={FIRST: 0, SECOND: ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC})
    found = view_deleted([FIRST, SECOND], [GONE], answer)
    assert [(each.topic, each.partition, each.error) for each in found] == [
        ("flights", 0, None),
        ("flights", 1, "GROUP_SUBSCRIBED_TO_TOPIC"),
        ("gone", None, "UNKNOWN_TOPIC_OR_PARTITION"),
    ]
    assert found[1].remark == "members of the group subscribe to the topic: stop them first"
    assert not OffsetDeletionView(group_id="g", offsets=found).is_complete
    assert OffsetDeletionView(group_id="g", offsets=found[:1]).is_complete


def test_an_error_of_the_whole_request_is_one_of_each_partition() -> None:
    answer = OffsetDeletion(error_code=ErrorCode.GROUP_ID_NOT_FOUND)
    (only,) = view_deleted([FIRST], [], answer)
    assert (only.error, only.remark) == ("GROUP_ID_NOT_FOUND", "there is no such group")
    # A partition without a result may not have been deleted.
    (unanswered,) = view_deleted([FIRST], [], OffsetDeletion())
    assert unanswered.error == "UNKNOWN_SERVER_ERROR"


def test_a_group_that_is_left_makes_the_deletion_incomplete() -> None:
    gone = DeletedGroup(group_id="g")
    left = DeletedGroup(group_id="h", **error_fields(ErrorCode.NON_EMPTY_GROUP))
    assert GroupDeletionView(groups=(gone,)).is_complete
    view = GroupDeletionView(groups=(gone, left))
    assert not view.is_complete
    assert view.to_json()["groups"][1] == {
        "group_id": "h",
        "error": "NON_EMPTY_GROUP",
        "remark": "the group has members: stop them first",
    }


def test_a_topic_is_all_its_partitions_or_those_that_are_named() -> None:
    assert parse_topics(["flights:0, 2", "flights:1", "orders"]) == {
        "flights": frozenset({0, 1, 2}),
        "orders": None,
    }
    assert parse_topics(["flights:0", "flights"]) == {"flights": None}
    assert parse_topics(["flights", "flights:0"]) == {"flights": None}


@pytest.mark.parametrize("text", ["", ":0", "flights:", "flights:a", "flights:-1", "flights:0,"])
def test_a_malformed_topic_is_refused(text: str) -> None:
    with pytest.raises(OptionsError, match="is neither TOPIC nor TOPIC:0,1,2"):
        parse_topics([text])


def test_missing_partitions_are_separated() -> None:
    known = [TopicMetadata(FLIGHTS, "flights", 2)]
    there, missing = partitions_of({"flights": frozenset({1, 2}), "gone": None}, known)
    assert there == (TopicPartition("flights", 1),)
    assert missing == (TopicPartition("flights", 2), TopicPartition("gone", -1))
    assert partitions_of({"flights": None}, known)[0] == (
        TopicPartition("flights", 0),
        TopicPartition("flights", 1),
    )
