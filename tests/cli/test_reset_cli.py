"""`spark-groups reset-offsets`: the plan as text, and beside Kafka's own tool."""

from __future__ import annotations

import json
import re
import uuid
from dataclasses import replace
from pathlib import Path

import pytest
from confluent_kafka import TopicPartition as ConfluentPartition

from spark_groups.broker.embedded import EmbeddedKafka
from spark_groups.cli.reset_cli import (
    NOT_EXECUTED,
    Committed,
    counts_to_keep,
    parse_target,
    render_reset,
    reset_group_offsets,
)
from spark_groups.cli.reset_plan import ResetKind, ResetRow, ResetTarget, ResetView
from spark_groups.errors import OptionsError
from spark_groups.group.ledger.commit_metadata import commit_metadata
from spark_groups.group.ledger.starting import StartingPoint
from spark_groups.group.member.messages import OffsetAndMetadata
from spark_groups.types import TopicIdPartition, TopicPartition
from spark_groups.wire.cluster import Cluster
from spark_groups.wire.group_admin import commit_outside
from tests.cli.cli_setup import CONSUMER_GROUP_COMMAND
from tests.cli.commands import invoke
from tests.cli.rendered import cells, lines
from tests.cli.reset_cli_setup import written_checkpoint
from tests.runtime.members import committed, queries
from tests.wire.coordinator_connection_setup import topic_id
from workshop.parts.brokers import (
    ANSWER_S,
    Row,
    admin,
    create_topic,
    grow_topic,
    produce,
    unstable_offset,
)
from workshop.parts.waiting import wait_until

BASE_MS = 1_700_000_000_000
TOPIC = uuid.UUID(int=1)


def offsets(**counts: int | None) -> Committed:
    """Committed offsets of a topic, `p0=4` beside a count of 4, `p1=None` beside none."""
    return {
        TopicIdPartition(TOPIC, int(name[1:])): OffsetAndMetadata(
            5, "" if count is None else commit_metadata(count)
        )
        for name, count in counts.items()
    }


@pytest.mark.parametrize(
    ("committed", "taken_over", "reset", "kept"),
    [
        ({}, {}, (0, 1, 2, 3), 4),
        ({}, {}, (0,), 4),
        ({"p0": 2, "p1": 3}, {}, (0, 1), 2),
        ({"p0": 2, "p1": None}, {}, (1,), 2),
        ({}, {"p0": 2}, (0,), 2),
        ({"p0": 3}, {"p0": 2}, (0,), 2),
        ({"p0": None, "p1": None}, {}, (0, 1), 0),
        ({"p0": None, "p1": None}, {}, (2, 3), 4),
        ({"p0": None}, {}, (0, 1, 2, 3), 4),
        ({}, {"p0": None}, (0,), 0),
    ],
)
def test_a_reset_keeps_the_count_of_the_beginning(committed, taken_over, reset, kept) -> None:
    """A group without committed offsets starts now; 0 stands for unknown."""
    keys = [TopicIdPartition(TOPIC, each) for each in reset]
    found = counts_to_keep(offsets(**committed), offsets(**taken_over), keys, {TOPIC: 4})
    assert found == {TOPIC: kept}


def new_offsets(view) -> dict[int, int | None]:
    return {each.partition: each.new_offset for each in view.rows}


@pytest.mark.broker
@pytest.mark.parametrize("version", ["4.3.1", "4.0.0", "4.4.0"])
def test_a_group_without_members_is_set_to_the_planned_offsets(
    kafka_version, version, topic_name, group_id
) -> None:
    servers = kafka_version(version).bootstrap_servers
    create_topic(servers, topic_name, 2)
    rows = [Row(b"x", partition=0, timestamp_ms=BASE_MS + each) for each in range(10)]
    produce(servers, topic_name, rows)
    chosen = {topic_name: None}
    with Cluster(servers) as cluster:

        def planned(kind: ResetKind, number: int = 0, other: str = "") -> dict[int, int | None]:
            target = ResetTarget(kind, number, other)
            return new_offsets(
                reset_group_offsets(cluster, group_id, target, chosen, execute=False)
            )

        assert planned(ResetKind.TO_EARLIEST) == {0: 0, 1: 0}
        assert planned(ResetKind.TO_LATEST) == {0: 10, 1: 0}
        assert planned(ResetKind.TO_DATETIME, BASE_MS + 4) == {0: 4, 1: 0}
        assert planned(ResetKind.TO_DATETIME, BASE_MS + 99) == {0: 10, 1: 0}
        assert planned(ResetKind.SHIFT_BY, 1) == {0: None, 1: None}
        assert cluster.fetch_all_offsets(group_id) == {}

        to = ResetTarget(ResetKind.TO_OFFSET, 7)
        done = reset_group_offsets(cluster, group_id, to, chosen, execute=True)
        assert (done.group_state, done.is_complete, new_offsets(done)) == (
            "Dead",
            True,
            {0: 7, 1: 0},
        )
        back = ResetTarget(ResetKind.SHIFT_BY, -3)
        shifted = reset_group_offsets(cluster, group_id, back, None, execute=True)
        assert (shifted.group_state, new_offsets(shifted)) == ("Empty", {0: 4, 1: 0})
        key = TopicIdPartition(topic_id(cluster, topic_name), 0)
        kept = cluster.fetch_all_offsets(group_id)[key]
        assert (kept.committed_offset, kept.metadata) == (4, '{"partitions":2,"reset":true}')

        grow_topic(servers, topic_name, 3)
        over = ResetTarget(ResetKind.FROM_GROUP, group_id=group_id)
        whole = {topic_name: None}
        named = reset_group_offsets(cluster, f"{group_id}-named", over, whole, execute=True)
        assert (named.is_complete, new_offsets(named)) == (True, {0: 4, 1: 0, 2: None})
        copied = reset_group_offsets(cluster, f"{group_id}-copy", over, None, execute=True)
        assert (copied.is_complete, new_offsets(copied)) == (True, {0: 4, 1: 0})
        assert f"--table TABLE --from-group {group_id} --execute`" in copied.next_start
        kept = cluster.fetch_all_offsets(f"{group_id}-copy")[key]
        assert kept.metadata == '{"partitions":2,"reset":true}'


@pytest.mark.broker
def test_a_group_with_members_is_not_touched(
    kafka: EmbeddedKafka, topic_name: str, group_id: str
) -> None:
    servers = kafka.bootstrap_servers
    create_topic(servers, topic_name)
    target = ResetTarget(ResetKind.TO_EARLIEST)
    with queries(servers, group_id, topic_name) as start, Cluster(servers) as cluster:
        query = start()
        wait_until(lambda: (query.run(), query.assigned)[1], what="an assignment")
        view = reset_group_offsets(cluster, group_id, target, {topic_name: None}, execute=True)
        assert f"but the current state is {view.group_state}. Stop its members: " in view.refusal
        assert query.member_id in view.refusal
    assert (view.is_executed, new_offsets(view)) == (False, {0: 0})


@pytest.mark.broker
def test_what_does_not_exist_spoils_the_plan(
    kafka: EmbeddedKafka, topic_name: str, group_id: str
) -> None:
    servers = kafka.bootstrap_servers
    create_topic(servers, topic_name)
    target = ResetTarget(ResetKind.TO_EARLIEST)
    with Cluster(servers) as cluster:
        key = TopicIdPartition(topic_id(cluster, topic_name), 0)
        commit_outside(cluster, group_id, {key: 0})
        meant = f"{topic_name}x"
        topics = {meant: None, "~": None}
        view = reset_group_offsets(cluster, group_id, target, topics, execute=False)
        assert [each.remark for each in view.rows] == [
            f"the topic does not exist (did you mean '{topic_name}'?)",
            "the topic does not exist",
        ]
        topics = {topic_name: frozenset({0, 5}), "~": None}
        view = reset_group_offsets(cluster, group_id, target, topics, execute=True)
    assert [(each.topic, each.partition, each.remark) for each in view.rows] == [
        (topic_name, 0, ""),
        (topic_name, 5, "the partition does not exist"),
        ("~", None, "the topic does not exist"),
    ]
    assert view.refusal.startswith("2 of 3 partitions have no new offset")


@pytest.mark.broker
def test_an_offset_that_is_unknown_is_not_taken_for_one_that_is_missing(
    kafka: EmbeddedKafka, topic_name: str, group_id: str
) -> None:
    """The end of the log in its place would skip what the aborted transaction has not read."""
    servers = kafka.bootstrap_servers
    create_topic(servers, topic_name, 2)
    produce(servers, topic_name, [Row(b"x", partition=each % 2) for each in range(40)])
    with Cluster(servers) as cluster:
        topic = topic_id(cluster, topic_name)
        commit_outside(cluster, group_id, {TopicIdPartition(topic, each): 5 for each in range(2)})
    address = ("--bootstrap-server", servers, "--execute")
    other_id = f"{group_id}-other"
    ways = [
        (group_id, "--topic", topic_name, "--to-current"),
        (group_id, "--topic", f"{topic_name}:1", "--to-earliest"),
        (group_id, "--all-topics", "--to-current"),
        (other_id, "--topic", topic_name, "--from-group", group_id),
        (other_id, "--all-topics", "--from-group", group_id),
    ]
    with unstable_offset(servers, group_id, topic_name, 0, 10) as abort:
        for way in ways:
            refused = invoke("reset-offsets", *way, *address, "--json")
            view = json.loads(refused.stdout)
            assert (refused.exit_code, view["is_executed"]) == (1, False), way
            unknown = f"offset of group {group_id!r} is unknown for {topic_name} 0: UNSTABLE_OFFSET"
            assert unknown in view["refusal"]
            assert "let the producer end it, or wait" in view["refusal"], "the cure"
        abort()
        assert committed(servers, group_id) == {(topic_name, each): 5 for each in range(2)}
        assert committed(servers, other_id) == {}
    done = invoke("reset-offsets", *ways[0], *address)
    assert done.exit_code == 0, done.output
    with queries(servers, group_id, topic_name) as start:
        plan = start().plan_rows()
    assert {(each.from_offset, each.until_offset) for each in plan.ranges} == {(5, 20)}


@pytest.mark.broker
@pytest.mark.long
def test_the_plan_is_that_of_kafkas_own_tool_and_executed_on_demand(
    kafka: EmbeddedKafka, topic_name: str, group_id: str, tmp_path: Path
) -> None:
    servers = kafka.bootstrap_servers
    create_topic(servers, topic_name, 2)
    produce(servers, topic_name, [Row(b"x", partition=0)] * 5)
    address = ("--bootstrap-server", servers)
    where = ("--topic", topic_name, "--to-offset", "3")
    planned = invoke("reset-offsets", group_id, *where, *address)
    done = invoke("reset-offsets", group_id, *where, *address, "--execute")
    asked = ("--reset-offsets", "--group", group_id, *where, "--dry-run")
    theirs = kafka.run_tool(CONSUMER_GROUP_COMMAND, *address, *asked)
    again = ("reset-offsets", group_id, "--topic", "~", "--to-latest", "--execute")
    refused = invoke(*again, *address)
    not_planned = invoke(*again[:-1], *address)
    file = tmp_path / "offsets.csv"
    file.write_text(f"{group_id},{topic_name},0,2\n")
    from_file = invoke("reset-offsets", group_id, "--from-file", str(file), *address, "--execute")
    current = ("--all-topics", "--to-current", *address)
    to_current = invoke("reset-offsets", group_id, *current)
    asked = ("--reset-offsets", "--group", group_id, "--from-file", str(file), "--dry-run")
    their_file = kafka.run_tool(CONSUMER_GROUP_COMMAND, *address, *asked)
    by_duration = ("--topic", topic_name, "--by-duration", "PT1H")
    back = invoke("reset-offsets", group_id, *by_duration, *address)
    asked = ("--reset-offsets", "--group", group_id, *by_duration, "--dry-run")
    their_back = kafka.run_tool(CONSUMER_GROUP_COMMAND, *address, *asked)

    def plan(text: str) -> set[tuple[str, str, str]]:
        rows = (line.split() for line in text.splitlines() if line.startswith(group_id))
        # Ours has the current offset before the new one, and remarks behind it.
        return {(row[1], row[2], row[4] if len(row) > 4 else row[3]) for row in rows}

    expected = {(topic_name, "0", "3"), (topic_name, "1", "0")}
    assert plan(planned.stdout) == plan(done.stdout) == plan(theirs) == expected
    assert "No action is performed: --execute is missing." in planned.stdout
    assert plan(from_file.stdout) == plan(their_file) == {(topic_name, "0", "2")}
    assert plan(to_current.stdout) == {(topic_name, "0", "2"), (topic_name, "1", "0")}
    assert plan(back.stdout) == plan(their_back) == {(topic_name, "0", "0"), (topic_name, "1", "0")}
    assert (planned.exit_code, done.exit_code, refused.exit_code) == (0, 0, 1)
    assert not_planned.exit_code == 1, "what says Error has an error's exit code"
    assert "Error: 1 of 1 partitions have no new offset: no offset is reset." in refused.stdout


@pytest.mark.broker
def test_a_group_takes_over_from_a_checkpoint_of_sparks_own_source(
    kafka: EmbeddedKafka, topic_name: str, group_id: str, tmp_path: Path
) -> None:
    """Partition 2 was added after the last batch; retention has deleted what 1 has not read."""
    servers = kafka.bootstrap_servers
    create_topic(servers, topic_name, 3)
    produce(servers, topic_name, [Row(b"x", partition=each % 3) for each in range(30)])
    client, cut = admin(servers), ConfluentPartition(topic_name, 1, 6)
    client.delete_records([cut])[cut].result(ANSWER_S)
    first, second = (
        json.dumps({topic_name: {"0": ends[0], "1": ends[1]}}) for ends in ((7, 4), (9, 4))
    )
    place = written_checkpoint(tmp_path / "cp", first, second, commits=1)
    from_it = ("reset-offsets", group_id, "--from-checkpoint")
    address = ("--bootstrap-server", servers)
    planned = invoke(*from_it, str(place), *address)
    assert planned.exit_code == 0, planned.output
    rows = [re.split(r" {2,}", line.rstrip()) for line in planned.stdout.splitlines()]
    gone = "the query has not read 2 offsets from 4 on, which retention has deleted: using the"
    new = "the checkpoint has no offset here: it is read from its beginning"
    assert rows[:4] == [
        [*HEADER, "SOURCE", "REMARK"],
        [group_id, topic_name, "0", "—", "7", "0"],
        [group_id, topic_name, "1", "—", "6", "0", f"{gone} start of the log"],
        [group_id, topic_name, "2", "—", "—", "—", new],
    ]
    assert "NEW-OFFSET is the end of batch 0, the last committed in " in planned.stdout
    assert "Batch 1 is planned, but not committed: its 2 offsets" in planned.stdout
    assert committed(servers, group_id) == {}

    done = invoke(*from_it, f"file:{place}", *address, "--execute", "--json")
    shown = json.loads(done.stdout)
    assert (shown["is_executed"], shown["checkpoint"]["planned_batch_id"]) == (True, 1)
    assert committed(servers, group_id) == {(topic_name, 0): 7, (topic_name, 1): 6}
    expected = [(topic_name, 0, 7, 10), (topic_name, 1, 6, 10), (topic_name, 2, 0, 10)]
    with queries(servers, group_id, topic_name) as start:
        query = start(start=StartingPoint.LATEST)
        wait_until(lambda: (query.run(), len(query.ranges) >= 3)[1], what="three ranges")
        assert sorted(query.ranges) == expected


@pytest.mark.broker
def test_a_checkpoint_of_another_topic_is_refused(
    kafka: EmbeddedKafka, topic_name: str, group_id: str, tmp_path: Path
) -> None:
    """The topic was created again: it is shorter, and has fewer partitions."""
    servers = kafka.bootstrap_servers
    create_topic(servers, topic_name, 1)
    produce(servers, topic_name, [Row(b"x")] * 3)
    text = json.dumps({topic_name: {"0": 7, "1": 2}, "gone~": {"0": 5}})
    place = written_checkpoint(tmp_path / "cp", text, commits=1)
    address = ("--bootstrap-server", servers, "--execute", "--json")
    from_it = ("reset-offsets", group_id, "--from-checkpoint", str(place))
    done = invoke(*from_it, *address)
    view = json.loads(done.stdout)
    assert (done.exit_code, view["is_executed"]) == (1, False)
    assert [(each["partition"], each["remark"][:45]) for each in view["rows"]] == [
        (None, "the topic does not exist"),
        (0, "the checkpoint's offset (7) is beyond the end"),
        (1, "the partition does not exist"),
    ]
    one = json.loads(invoke(*from_it, "--topic", f"{topic_name}:1", *address).stdout)
    assert [each["partition"] for each in one["rows"]] == [1]
    assert committed(servers, group_id) == {}
    both = invoke(*from_it, "--topic", topic_name, "--all-topics", *address)
    assert (both.exit_code, "choose one of --topic and --all-topics" in both.stderr) == (2, True)


def target(given: dict[ResetKind, int | str | Path | None]) -> ResetTarget:
    return parse_target(given, "g", now_ms=100_000)


def test_exactly_one_target_is_chosen() -> None:
    nothing = dict.fromkeys(ResetKind)
    assert target(nothing | {ResetKind.SHIFT_BY: -2}) == ResetTarget(ResetKind.SHIFT_BY, -2)
    other = nothing | {ResetKind.FROM_GROUP: "h"}
    assert target(other) == ResetTarget(ResetKind.FROM_GROUP, group_id="h")
    late = nothing | {ResetKind.TO_DATETIME: "1970-01-01T00:00:01.000"}
    assert target(late) == ResetTarget(ResetKind.TO_DATETIME, 1_000)
    back = nothing | {ResetKind.BY_DURATION: "PT1M30S"}
    assert target(back) == ResetTarget(ResetKind.BY_DURATION, 10_000)
    with pytest.raises(OptionsError, match="choose one of --to-earliest, --to-latest"):
        target(nothing)
    with pytest.raises(OptionsError, match=r"choose one of --to-latest, --shift-by$"):
        target(nothing | {ResetKind.TO_LATEST: 0, ResetKind.SHIFT_BY: 1})


def test_a_file_names_the_partitions(tmp_path: Path) -> None:
    file = tmp_path / "offsets.csv"
    file.write_text('g,flights,0,7\nother,flights,1,8\n\n"a,b",2,9\n')
    found = target(dict.fromkeys(ResetKind) | {ResetKind.FROM_FILE: file})
    assert found.offsets == {TopicPartition("flights", 0): 7, TopicPartition("a,b", 2): 9}
    address = ("--bootstrap-server", "localhost:1")
    done = invoke("reset-offsets", "g", "--from-file", str(file), "--all-topics", *address)
    assert (done.exit_code, "selects the partitions" in done.stderr) == (2, True)


@pytest.mark.parametrize("scope", [(), ("--topic", "flights", "--all-topics")])
def test_topics_are_named_or_all(scope: tuple[str, ...]) -> None:
    address = ("--bootstrap-server", "localhost:1")
    done = invoke("reset-offsets", "g", "--to-latest", *scope, *address)
    assert (done.exit_code, done.stdout) == (2, "")
    assert "choose one of --topic and --all-topics" in done.stderr


PLAN = ResetView(
    group_id="g",
    group_state="Empty",
    rows=(
        ResetRow(topic="flights", partition=0, committed_offset=7, new_offset=5),
        ResetRow(topic="gone", partition=None, remark="the topic does not exist"),
    ),
)
HEADER = ["GROUP", "TOPIC", "PARTITION", "CURRENT-OFFSET", "NEW-OFFSET"]


def test_a_plan_says_that_nothing_was_done() -> None:
    shown = cells(render_reset(PLAN))
    assert (shown[:3], shown[-1]) == (
        [
            [*HEADER, "REMARK"],
            ["g", "flights", "0", "7", "5"],
            ["g", "gone", "—", "—", "—", "the topic does not exist"],
        ],
        [NOT_EXECUTED],
    )


def test_the_next_start_is_described_before_and_after() -> None:
    for is_executed, first in ((False, "With --execute the next"), (True, "The next")):
        text = " ".join(lines(render_reset(replace(PLAN, is_executed=is_executed))))
        assert (
            f"{first} start of a query continues from NEW-OFFSET, not from its checkpoint" in text
        )
        assert "2 offsets are read again; a table of write_table skips those that it has." in text


def test_a_refusal_stands_below_the_plan() -> None:
    assert cells(render_reset(replace(PLAN, refusal="no")))[-1] == ["Error: no"]


def test_what_failed_says_why() -> None:
    done = replace(PLAN, rows=PLAN.rows[:1], is_executed=True)
    assert cells(render_reset(done))[:2] == [HEADER, ["g", "flights", "0", "7", "5"]]
    failed = replace(done, rows=(replace(PLAN.rows[0], error="UNKNOWN_MEMBER_ID"),))
    assert cells(render_reset(failed))[1][-1] == "Error: UNKNOWN_MEMBER_ID"


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "utf-16-be"])
def test_file_of_offsets_may_begin_with_a_byte_order_mark(tmp_path: Path, encoding: str) -> None:
    file = tmp_path / "offsets.csv"
    mark = b"\xfe\xff" if encoding == "utf-16-be" else b""
    file.write_bytes(mark + "g,flüge,0,2\r\ng,flüge,1,3\r\n".encode(encoding))
    target = parse_target({ResetKind.FROM_FILE: file}, "g", now_ms=0)
    assert target.offsets == {TopicPartition("flüge", 0): 2, TopicPartition("flüge", 1): 3}


def test_file_of_offsets_in_another_encoding_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "offsets.csv"
    file.write_bytes("g,flüge,0,2".encode("latin-1"))
    with pytest.raises(OptionsError, match=r"offsets\.csv is neither UTF-8 nor UTF-16"):
        parse_target({ResetKind.FROM_FILE: file}, "g", now_ms=0)
