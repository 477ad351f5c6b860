"""`spark-groups reset-offsets` beside Kafka's own tool."""

from __future__ import annotations

import pytest

from spark_groups.errors import OptionsError
from spark_groups.kafka.embedded import EmbeddedKafka
from spark_groups.ops.reset_cli import parse_target
from spark_groups.ops.reset_plan import ResetKind, ResetTarget
from tests.brokers import Row, create_topic, produce
from tests.ops.commands import invoke
from tests.ops.test_cli import CONSUMER_GROUP_COMMAND


@pytest.mark.broker
@pytest.mark.long
def test_the_plan_is_that_of_kafkas_own_tool_and_executed_on_demand(
    kafka: EmbeddedKafka, topic_name: str, group_id: str
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

    def plan(text: str) -> set[tuple[str, str, str]]:
        rows = (line.split() for line in text.splitlines() if line.startswith(group_id))
        # Ours has the current offset before the new one, and remarks behind it.
        return {(row[1], row[2], row[4] if len(row) > 4 else row[3]) for row in rows}

    expected = {(topic_name, "0", "3"), (topic_name, "1", "0")}
    assert plan(planned.stdout) == plan(done.stdout) == plan(theirs) == expected
    assert "No action is performed: --execute is missing." in planned.stdout
    assert (planned.exit_code, done.exit_code, refused.exit_code) == (0, 0, 1)
    assert "Error: 1 of 1 partitions have no new offset: nothing can be reset." in refused.stdout


def test_exactly_one_target_is_chosen() -> None:
    nothing = dict.fromkeys(ResetKind)
    assert parse_target(nothing | {ResetKind.SHIFT_BY: -2}) == ResetTarget(ResetKind.SHIFT_BY, -2)
    other = nothing | {ResetKind.FROM_GROUP: "h"}
    assert parse_target(other) == ResetTarget(ResetKind.FROM_GROUP, group_id="h")
    late = nothing | {ResetKind.TO_DATETIME: "1970-01-01T00:00:01.000"}
    assert parse_target(late) == ResetTarget(ResetKind.TO_DATETIME, 1_000)
    with pytest.raises(OptionsError, match="choose one of --to-earliest, --to-latest"):
        parse_target(nothing)
    with pytest.raises(OptionsError, match=r"choose one of --to-latest, --shift-by$"):
        parse_target(nothing | {ResetKind.TO_LATEST: 0, ResetKind.SHIFT_BY: 1})


@pytest.mark.parametrize("scope", [(), ("--topic", "flights", "--all-topics")])
def test_topics_are_named_or_all(scope: tuple[str, ...]) -> None:
    address = ("--bootstrap-server", "localhost:1")
    done = invoke("reset-offsets", "g", "--to-latest", *scope, *address)
    assert (done.exit_code, done.stdout) == (2, "")
    assert "choose one of --topic and --all-topics" in done.stderr
