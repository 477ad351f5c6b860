"""`spark-groups describe` on real groups, as somebody types it."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import time
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest

from spark_groups.broker.embedded import EmbeddedKafka, free_ports
from spark_groups.group.member.messages import HeartbeatRequest
from spark_groups.runtime.snapshot_sockets import SnapshotPublisher
from spark_groups.types import NO_PARTITIONS, BatchPlan
from tests.cli.cli_setup import as_kafka_writes, kafkas_own
from tests.cli.commands import Run, invoke
from tests.runtime.members import QueryLike, heartbeat, queries
from tests.wire.listener import await_end, listening
from workshop.parts.brokers import Row, create_topic, produce
from workshop.parts.waiting import SOON_S, wait_until


def described(command: Run, kafka: EmbeddedKafka, group_id: str) -> dict[str, Any]:
    """Return what `describe --json` says."""
    done = command("describe", group_id, "--bootstrap-server", kafka.bootstrap_servers, "--json")
    assert done.returncode == 0, done.stderr
    (plain,) = json.loads(done.stdout)
    return dict(plain)


def table_rows(text: str, topic: str) -> dict[int, list[str]]:
    """Return the cells behind the partition of each row of the partition table."""
    rows = (re.split(r" {2,}", line.strip()) for line in text.splitlines())
    return {int(row[1]): row[2:] for row in rows if row[0] == topic and len(row) > 2}


def commit_one_batch(query: QueryLike) -> BatchPlan:
    plan = query.plan_rows()
    query.commit_all()
    return plan


@pytest.mark.broker
def test_numbers_are_those_of_kafkas_own_tool(
    kafka: EmbeddedKafka, command: Run, topic_name: str, group_id: str
) -> None:
    servers = kafka.bootstrap_servers
    create_topic(servers, topic_name, 4)
    produce(servers, topic_name, [Row(b"x", partition=each % 3) for each in range(90)])
    with queries(servers, group_id, topic_name) as start:
        query = start()
        commit_one_batch(query)
        produce(servers, topic_name, [Row(b"y", partition=1)] * 7)
        plain = described(command, kafka, group_id)
        expected = kafkas_own(kafka, group_id)
        text = command("describe", group_id, "--bootstrap-server", servers).stdout
        member_id = query.member_id
    shown = {
        each["partition"]: tuple(
            as_kafka_writes(each[name])
            for name in ("committed_offset", "log_end_offset", "lag", "owner")
        )
        for each in plain["partitions"]
    }
    assert shown == expected
    assert shown[1] == ("30", "37", "7", member_id)
    assert (plain["group_state"], plain["totals"]["lag"]) == ("Stable", 7)
    # A table row ends with: owner, log start, committed, log end, lag.
    assert {
        partition: (committed, end, lag, owner.split()[-1])
        for partition, (owner, _, committed, end, lag) in table_rows(text, topic_name).items()
    } == expected


@pytest.mark.broker
def test_epochs_and_members_are_shown_and_json_has_what_the_table_has(
    kafka: EmbeddedKafka, command: Run, topic_name: str, group_id: str
) -> None:
    create_topic(kafka.bootstrap_servers, topic_name, 2)
    with queries(kafka.bootstrap_servers, group_id, topic_name) as start:
        query = start(member={"instance_id": "gate-1"})
        wait_until(lambda: (query.run(), len(query.assigned) == 2)[1], what="an assignment")
        plain = described(command, kafka, group_id)
        text = command("describe", group_id, "--bootstrap-server", kafka.bootstrap_servers).stdout
        snapshot = query.driver.snapshot()
    (member,) = plain["members"]
    assert (member["member_id"], member["instance_id"]) == (snapshot.member_id, "gate-1")
    assert (member["client_id"], member["client_host"]) == ("query-like", "127.0.0.1")
    assert (member["member_type"], member["member_epoch"]) == ("consumer", snapshot.member_epoch)
    assert member["current"] == member["target"] == {topic_name: [0, 1]}
    assert member["pending"] == member["revoking"] == {}
    assert plain["group_epoch"] == plain["assignment_epoch"] == snapshot.member_epoch
    assert plain["coordinator"].startswith(kafka.bootstrap_servers)
    assert "\x1b" not in text
    assert f"group epoch {plain['group_epoch']}   assignment epoch" in text
    assert f"group {group_id}  Stable  {plain['state_meaning']}" in text
    assert f"coordinator {plain['coordinator']}   assignor {plain['assignor_name']}" in text
    for part in (f"query-like {member['member_id']}", "gate-1", f"{topic_name} 0-1"):
        assert part in text


@pytest.mark.broker
def test_a_partition_whose_owner_withholds_it_is_shown_as_moving(
    kafka: EmbeddedKafka, command: Run, topic_name: str, group_id: str
) -> None:
    servers = kafka.bootstrap_servers
    create_topic(servers, topic_name, 2)
    produce(servers, topic_name, [Row(b"x", partition=each % 2) for each in range(20)])
    with queries(servers, group_id, topic_name) as start:
        owner = start()
        batch = owner.plan_rows()
        assert len(batch.ranges) == 2
        # The batch is not finished, so nothing that it reads may be given up.
        joiner = start()

        def moving() -> dict[str, Any] | None:
            plain = described(command, kafka, group_id)
            return plain if plain["totals"]["moving_partitions"] else None

        plain = wait_until(moving, what="a partition on its way")
        text = command("describe", group_id, "--bootstrap-server", servers).stdout
        (moves,) = (each for each in plain["partitions"] if each["moves_to"])
        assert plain["group_state"] == "Reconciling"
        assert (moves["owner"], moves["moves_to"]) == (owner.member_id, joiner.member_id)
        members = {each["member_id"]: each for each in plain["members"]}
        pending = {topic_name: [moves["partition"]]}
        assert members[joiner.member_id]["pending"] == pending
        assert members[joiner.member_id]["current"] == {}
        assert members[owner.member_id]["revoking"] == pending
        assert plain["totals"]["assigned_partitions"] == 2
        row = table_rows(text, topic_name)[moves["partition"]]
        assert row[0].endswith(owner.member_id)
        assert row[1].endswith(joiner.member_id)

        owner.finish()
        wait_until(
            lambda: described(command, kafka, group_id)["group_state"] == "Stable",
            what="the end of the move",
        )
    (moved,) = (
        each
        for each in described(command, kafka, group_id)["partitions"]
        if each["partition"] == moves["partition"]
    )
    assert (moved["committed_offset"], moved["lag"], moved["owner"]) == (10, 0, None)


@pytest.mark.broker
def test_a_partition_without_a_committed_offset_lags_from_the_log_start(
    kafka: EmbeddedKafka, command: Run, topic_name: str, group_id: str
) -> None:
    servers = kafka.bootstrap_servers
    create_topic(servers, topic_name, 2)
    produce(servers, topic_name, [Row(b"x", partition=0)] * 3)
    # This member joins and reads nothing, so that nothing is ever committed.
    heartbeat(
        servers,
        HeartbeatRequest(
            group_id=group_id,
            member_id="only-heartbeats",
            member_epoch=0,
            rebalance_timeout_ms=5_000,
            subscribed_topic_names=(topic_name,),
            topic_partitions=NO_PARTITIONS,
        ),
    )
    try:
        plain = described(command, kafka, group_id)
        text = command("describe", group_id, "--bootstrap-server", servers).stdout
    finally:
        leaving = HeartbeatRequest(group_id=group_id, member_id="only-heartbeats", member_epoch=-1)
        heartbeat(servers, leaving)
    first = plain["partitions"][0]
    assert (first["committed_offset"], first["lag"]) == (None, 3)
    assert first["lag_origin"] == "log start offset"
    assert table_rows(text, topic_name)[0][-4:] == ["0", "none", "3", "3*"]
    assert "* no committed offset (2 of 2 partitions): lag counts from the log start" in text


@pytest.mark.broker
def test_a_member_on_this_machine_is_asked_too(
    kafka: EmbeddedKafka, command: Run, tmp_path: Path, topic_name: str, group_id: str
) -> None:
    servers = kafka.bootstrap_servers
    create_topic(servers, topic_name)
    produce(servers, topic_name, [b"x"] * 3)
    with queries(servers, group_id, topic_name) as start:
        query = start()
        query.plan_rows()
        publisher = SnapshotPublisher(
            lambda: query.driver.snapshot().as_plain(), tmp_path / "spark-groups"
        )
        publisher.start()
        try:
            asked = ("describe", group_id, "--bootstrap-server", servers)
            message = (
                rf"query-like {query.member_id}, on this machine: STABLE, batch running for"
                r" [0-9.]+ s \(partitions: 1, offsets: 3\)"
            )

            def is_shown() -> bool:
                done = command(*asked, XDG_RUNTIME_DIR=str(tmp_path))
                return re.search(message, " ".join(done.stdout.split())) is not None

            # A member that is late to answer is left out.
            wait_until(is_shown, what=message)
        finally:
            publisher.close()


@pytest.mark.broker
def test_a_group_whose_members_left_is_still_shown(
    kafka: EmbeddedKafka, command: Run, topic_name: str, group_id: str
) -> None:
    create_topic(kafka.bootstrap_servers, topic_name)
    produce(kafka.bootstrap_servers, topic_name, [b"x"] * 3)
    with queries(kafka.bootstrap_servers, group_id, topic_name) as start:
        commit_one_batch(start())
    text = command("describe", group_id, "--bootstrap-server", kafka.bootstrap_servers).stdout
    assert "Empty  The group has no members; its committed offsets are kept." in text
    assert table_rows(text, topic_name) == {0: ["no member", "0", "3", "3", "0"]}


@pytest.mark.broker
def test_a_group_that_is_not_there_is_exit_code_1(
    kafka: EmbeddedKafka, command: Run, group_id: str
) -> None:
    servers = kafka.bootstrap_servers
    missing = command("describe", group_id, "--bootstrap-server", servers, "--json")
    assert (missing.returncode, missing.stdout) == (1, "")
    assert missing.stderr.startswith(f"spark-groups: there is no group '{group_id}'")


def test_a_broker_that_does_not_answer_is_named_with_exit_code_1(command: Run) -> None:
    (port,) = free_ports(1)
    closed = command("describe", "g", "--bootstrap-server", f"127.0.0.1:{port}", "--timeout", "0.5")
    assert closed.returncode == 1
    assert f"127.0.0.1:{port}" in closed.stderr
    assert "Traceback" not in closed.stderr
    with listening(await_end) as silent_port:
        address = f"127.0.0.1:{silent_port}"
        began_s = time.monotonic()
        silent = command("describe", "g", "--bootstrap-server", address, "--timeout", "1")
        assert time.monotonic() - began_s < SOON_S
    assert silent.returncode == 1
    assert address in silent.stderr


@pytest.mark.broker
def test_the_address_comes_from_the_option_the_environment_or_the_started_broker(
    command: Run, tmp_path: Path, topic_name: str, group_id: str
) -> None:
    (port,) = free_ports(1)
    assert command("broker", "start", "--port", str(port)).returncode == 0
    address = f"127.0.0.1:{port}"
    try:
        create_topic(address, topic_name)
        with queries(address, group_id, topic_name) as start:
            start().plan()
            by_state = command("describe", group_id)
            assert by_state.returncode == 0, by_state.stderr
            assert f"group {group_id}" in by_state.stdout
            wrong = {"SPARK_GROUPS_BOOTSTRAP_SERVERS": f"127.0.0.1:{free_ports(1)[0]}"}
            by_variable = command("describe", group_id, "--timeout", "0.5", **wrong)
            assert by_variable.returncode == 1
            assert wrong["SPARK_GROUPS_BOOTSTRAP_SERVERS"] in by_variable.stderr
            by_option = command("describe", group_id, "--bootstrap-server", address, **wrong)
            assert by_option.returncode == 0, by_option.stderr
    finally:
        command("broker", "stop", "--timeout", "60")


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (("describe",), "GROUP"),
        (("describe", "g"), "--bootstrap-server"),
        (("describe", "g", "--bootstrap-server", "localhost"), "not host:port"),
        (("describe", "g", "--bootstrap-server", "localhost:1", "--timeout", "0"), "--timeout"),
        (("describe", "g", "--bootstrap", "localhost:1"), "--bootstrap-server"),
        (("descrive", "g"), "describe"),
    ],
)
def test_wrong_usage_is_exit_code_2_with_the_reason(args: tuple[str, ...], message: str) -> None:
    done = invoke(*args, COLUMNS="200")
    assert (done.exit_code, done.stdout) == (2, "")
    assert message in done.stderr


def test_version_is_the_distributions(command: Run) -> None:
    done = command("--version")
    assert (done.returncode, done.stdout) == (0, f"spark-groups {version('spark-groups')}\n")


@pytest.mark.parametrize(
    ("args", "example"),
    [
        (("--help",), "spark-groups describe flight-readers --bootstrap-server localhost:9092"),
        (("describe", "--help"), "spark-groups describe flight-readers --bootstrap-server"),
        (("groups", "--help"), "spark-groups groups --type consumer --state stable,reconciling"),
    ],
)
def test_help_has_an_example(args: tuple[str, ...], example: str) -> None:
    done = invoke(*args, COLUMNS="200")
    assert done.exit_code == 0
    assert example in done.stdout


def test_commands_need_no_package_of_an_extra() -> None:
    extras = ("numpy", "pandas", "pyspark", "numba", "deltalake", "pyiceberg", "psycopg")
    program = (
        f"import sys; sys.modules.update(dict.fromkeys({extras!r}));"
        "from spark_groups.cli.main import app; app(['--help'])"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=800, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "describe" in done.stdout
