"""The checks of `spark-groups preflight`, each by the facts that it judges."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from spark_groups.cli.preflight_checks import (
    CHECKS,
    CLASSIC_MAX_SIZE,
    CONSUMER_MAX_SIZE,
    MIGRATION_POLICY,
    REBALANCE_PROTOCOLS,
    GroupFacts,
    MemberFacts,
    MemberProtocol,
    TopicFacts,
    Verdict,
    check_group,
)
from spark_groups.cli.preflight_cli import render_preflight
from spark_groups.errors import ErrorCode
from spark_groups.group.member.grant_command import Identity
from spark_groups.observation.reading import GroupType
from spark_groups.wire.configuration import ConfigOrigin
from spark_groups.wire.group_settings import (
    HEARTBEAT_INTERVAL_MS,
    SESSION_TIMEOUT_MS,
    GroupSetting,
    GroupSettings,
)
from tests.cli.rendered import cells

OK, WARNING, UNKNOWN, BLOCKS = Verdict.OK, Verdict.WARNING, Verdict.UNKNOWN, Verdict.BLOCKS
SETTINGS = GroupSettings(
    settings=(
        GroupSetting(name=HEARTBEAT_INTERVAL_MS, value="5000", origin=ConfigOrigin.DEFAULT),
        GroupSetting(name=SESSION_TIMEOUT_MS, value="45000", origin=ConfigOrigin.DEFAULT),
    )
)
BROKER = {
    MIGRATION_POLICY: "BIDIRECTIONAL",
    CONSUMER_MAX_SIZE: "3",
    CLASSIC_MAX_SIZE: "3",
    REBALANCE_PROTOCOLS: "classic,consumer",
}
CLASSIC = MemberFacts(
    member_id="c1", subscription_version=3, assignment_version=3, user_data_bytes=0
)
CONSUMER = MemberFacts(member_id="m1", protocol=MemberProtocol.CONSUMER, member_epoch=4)
READABLE = frozenset({"READ", "DESCRIBE"})
FLIGHTS = TopicFacts(name="flights", operations=READABLE, committed=frozenset({0, 1}))
LIVE = GroupFacts(
    group_id="g",
    identity=Identity(principal="User:alice", bootstrap_servers=("b:9092",)),
    broker=BROKER,
    settings=SETTINGS,
    group_type=GroupType.CLASSIC,
    group_state="Stable",
    protocol_type="consumer",
    assignor_name="range",
    members=(CLASSIC, replace(CLASSIC, member_id="c2", subscription_version=1)),
    topics=(FLIGHTS,),
)
EMPTY = replace(LIVE, group_state="Empty", assignor_name="", members=())
MIXED = replace(LIVE, group_type=GroupType.CONSUMER, protocol_type="", members=(CLASSIC, CONSUMER))
COOPERATIVE = replace(LIVE, assignor_name="cooperative-sticky")
REBALANCING = replace(
    LIVE, group_state="PreparingRebalance", members=(MemberFacts(member_id="c1"),)
)


def with_broker(facts: GroupFacts, key: str, value: str) -> GroupFacts:
    return replace(facts, broker={**BROKER, key: value})


def with_topic(**changes: Any) -> GroupFacts:
    return replace(LIVE, topics=(replace(FLIGHTS, **changes),))


def with_member(facts: GroupFacts, **changes: Any) -> GroupFacts:
    first, *rest = facts.members
    return replace(facts, members=(replace(first, **changes), *rest))


def probed(code: ErrorCode, **changes: Any) -> GroupFacts:
    return replace(LIVE, probe_code=code, **changes)


STATIC = with_member(MIXED, instance_id="gate-1")
OUR_STATIC = replace(MIXED, members=(replace(CONSUMER, instance_id="gate-1"),))
DENIED = replace(EMPTY, group_type=GroupType.UNKNOWN, describe_code=30)
JOINING = replace(EMPTY, group_state="PreparingRebalance")
RETURNING = with_member(replace(OUR_STATIC, instance_id="gate-1"), member_epoch=-2)
DESCRIBED = (
    "group state",
    "migration policy",
    "downgrade",
    "assignor",
    "embedded versions",
    "instance ids",
    "group size",
)

CASES = [
    ("protocol", LIVE, OK, "group.version=1"),
    ("protocol", probed(ErrorCode.UNSUPPORTED_VERSION, group_version=0), BLOCKS, "at level 0"),
    ("protocol", probed(ErrorCode.UNSUPPORTED_VERSION), BLOCKS, "is classic,consumer"),
    ("group rights", LIVE, OK, "has READ"),
    ("group rights", probed(ErrorCode.UNKNOWN_MEMBER_ID), OK, "has READ"),
    (
        "group rights",
        probed(ErrorCode.GROUP_AUTHORIZATION_FAILED),
        BLOCKS,
        "may not join the group",
    ),
    (
        "group rights",
        probed(ErrorCode.UNSUPPORTED_VERSION),
        UNKNOWN,
        "speaks the consumer protocol",
    ),
    ("group rights", probed(ErrorCode.NOT_COORDINATOR), UNKNOWN, "NOT_COORDINATOR"),
    ("topic rights", LIVE, OK, "READ and DESCRIBE on flights"),
    ("topic rights", replace(LIVE, topics=()), WARNING, "not checked"),
    ("topic rights", with_topic(operations=frozenset({"DESCRIBE"})), BLOCKS, "read flights"),
    ("topic rights", with_topic(operations=None), UNKNOWN, "rights on flights"),
    ("topic rights", with_topic(error_code=29), BLOCKS, "read flights"),
    ("topic rights", with_topic(error_code=3), WARNING, "flights: UNKNOWN_TOPIC"),
    ("group type", LIVE, OK, "a classic group of 2 members"),
    ("group type", EMPTY, OK, "an empty classic group: the"),
    ("group type", replace(EMPTY, protocol_type=""), OK, "the first join converts it"),
    ("group type", MIXED, OK, "a consumer group of 2 members, 1 of them classic: any"),
    ("group type", replace(LIVE, group_type=None), OK, "no such group"),
    ("group type", DENIED, UNKNOWN, "may not describe"),
    ("group type", replace(DENIED, describe_code=69), UNKNOWN, "changed its type"),
    ("group type", JOINING, OK, "a classic group of 0 members"),
    ("group type", replace(JOINING, protocol_type="connect"), BLOCKS, "are not consumers"),
    ("group type", replace(LIVE, group_type=GroupType.SHARE), BLOCKS, "only share consumers"),
    ("group type", replace(LIVE, group_type=GroupType.STREAMS), BLOCKS, "only Kafka Streams app"),
    ("group type", replace(LIVE, protocol_type="connect"), BLOCKS, "protocol type is connect"),
    ("group type", replace(EMPTY, protocol_type="connect"), WARNING, "former members"),
    ("group state", LIVE, OK, "Stable"),
    ("group state", REBALANCING, UNKNOWN, "UNKNOWN_SERVER_ERROR"),
    ("group state", JOINING, UNKNOWN, "PreparingRebalance"),
    ("group state", replace(MIXED, group_state="Reconciling"), OK, "Reconciling"),
    ("group state", replace(EMPTY, group_type=None, group_state=""), OK, "no state"),
    ("migration policy", LIVE, OK, "policy=BIDIRECTIONAL"),
    ("migration policy", with_broker(LIVE, MIGRATION_POLICY, "upgrade"), OK, "upgrade"),
    ("migration policy", with_broker(LIVE, MIGRATION_POLICY, "downgrade"), BLOCKS, "downgrade"),
    ("migration policy", with_broker(LIVE, MIGRATION_POLICY, "disabled"), BLOCKS, "disabled"),
    ("migration policy", with_broker(MIXED, MIGRATION_POLICY, "disabled"), OK, "not matter"),
    ("migration policy", with_broker(EMPTY, MIGRATION_POLICY, "disabled"), OK, "not matter"),
    ("migration policy", with_broker(JOINING, MIGRATION_POLICY, "disabled"), BLOCKS, "disabled"),
    ("migration policy", replace(LIVE, broker={}, broker_reason="denied"), UNKNOWN, "denied"),
    ("downgrade", LIVE, OK, "becomes classic again"),
    ("downgrade", EMPTY, OK, "not matter"),
    ("downgrade", with_broker(MIXED, MIGRATION_POLICY, "upgrade"), WARNING, "not converted back"),
    ("downgrade", with_broker(LIVE, CLASSIC_MAX_SIZE, "1"), WARNING, "group.max.size=1"),
    ("downgrade", replace(LIVE, broker={}), WARNING, "did not report it"),
    ("assignor", LIVE, OK, "range, without user data"),
    ("assignor", COOPERATIVE, OK, "cooperative-sticky, without user data"),
    ("assignor", with_member(COOPERATIVE, assignment_version=0), WARNING, "next rebalance"),
    ("assignor", with_member(COOPERATIVE, user_data_bytes=8), BLOCKS, "librdkafka's"),
    ("assignor", with_member(LIVE, user_data_bytes=8), BLOCKS, "custom assignor range"),
    ("assignor", REBALANCING, UNKNOWN, "only of stable groups"),
    ("assignor", with_member(MIXED, user_data_bytes=8), OK, "not matter"),
    ("embedded versions", LIVE, OK, "subscriptions v1, v3, assignments v3"),
    ("embedded versions", with_member(LIVE, subscription_version=None), BLOCKS, "of c1 is malf"),
    ("embedded versions", with_member(LIVE, assignment_version=None), BLOCKS, "of c1 is malf"),
    ("embedded versions", REBALANCING, UNKNOWN, "only of stable groups"),
    ("instance ids", LIVE, OK, "no static members"),
    ("instance ids", STATIC, OK, "taken: gate-1"),
    ("instance ids", replace(STATIC, instance_id="gate-2"), OK, "gate-2 is free"),
    ("instance ids", replace(STATIC, instance_id="gate-1"), WARNING, "FENCED_INSTANCE_ID"),
    ("instance ids", replace(OUR_STATIC, instance_id="gate-1"), BLOCKS, "UNRELEASED_INSTANCE_ID"),
    (
        "instance ids",
        RETURNING,
        OK,
        "may return",
    ),
    ("group size", LIVE, OK, "2 members; group.consumer.max.size=3"),
    ("group size", EMPTY, OK, "no members"),
    ("group size", with_broker(LIVE, CONSUMER_MAX_SIZE, "2"), BLOCKS, "GROUP_MAX_SIZE_REACHED"),
    ("group size", with_broker(LIVE, CONSUMER_MAX_SIZE, "1"), BLOCKS, "GROUP_ID_NOT_FOUND"),
    ("group size", with_broker(MIXED, CONSUMER_MAX_SIZE, "1"), BLOCKS, "GROUP_MAX_SIZE_REACHED"),
    ("group size", with_broker(RETURNING, CONSUMER_MAX_SIZE, "1"), UNKNOWN, "before Kafka 4.4"),
    ("group size", replace(LIVE, broker={}), UNKNOWN, "did not report it"),
    ("offsets", LIVE, OK, "from 2 committed offsets"),
    ("offsets", with_topic(without_leader_epoch=frozenset({1})), OK, "1 without a leader epoch"),
    ("offsets", with_topic(committed=frozenset()), WARNING, "not where the members are"),
    ("offsets", replace(EMPTY, topics=()), OK, "startingOffsets decides"),
    ("offsets", with_topic(uncommitted=frozenset({2})), WARNING, "flights 2 have no committed"),
    (
        "offsets",
        with_topic(uncommitted=frozenset({2}), partition_count_at_start=2),
        OK,
        "2 committed",
    ),
    ("offsets", with_topic(out_of_range=frozenset({0})), WARNING, "failOnDataLoss=false"),
    ("offsets", replace(LIVE, offsets_problem="refused"), UNKNOWN, "refused"),
    (
        "offsets",
        with_topic(unknown={0: ("OffsetFetch", 88), 2: ("ListOffsets", 5)}, committed=frozenset()),
        UNKNOWN,
        "flights 2: ListOffsets returned LEADER_NOT_AVAILABLE; flights 0: OffsetFetch returned"
        " UNSTABLE_OFFSET_COMMIT",
    ),
    ("settings", LIVE, OK, "session timeout 45000 ms, heartbeat interval 5000 ms; classic"),
    ("settings", replace(LIVE, settings=GroupSettings(reason="denied")), WARNING, "denied"),
]


@pytest.mark.parametrize(("check", "facts", "verdict", "reason"), CASES)
def test_a_check_judges_the_facts(
    check: str, facts: GroupFacts, verdict: Verdict, reason: str
) -> None:
    found = CHECKS[check](facts)
    assert (found.verdict, reason in found.reason) == (verdict, True), found
    assert found.cure or verdict in {OK, UNKNOWN}


@pytest.mark.parametrize("check", CHECKS)
def test_each_check_has_cases_of_more_than_one_verdict(check: str) -> None:
    assert len({verdict for name, _, verdict, _ in CASES if name == check}) > 1


@pytest.mark.parametrize("check", DESCRIBED)
def test_nothing_is_ok_of_a_group_that_could_not_be_described(check: str) -> None:
    found = CHECKS[check](DENIED)
    assert found.verdict is UNKNOWN
    assert found.reason == "not checked: the principal may not describe the group"


def test_the_worst_finding_is_the_verdict() -> None:
    assert check_group(LIVE).verdict is OK
    warned = with_member(COOPERATIVE, assignment_version=0)
    assert check_group(warned).verdict is WARNING
    unknown = replace(warned, group_state="CompletingRebalance")
    assert check_group(unknown).verdict is UNKNOWN
    assert check_group(with_broker(unknown, CONSUMER_MAX_SIZE, "1")).verdict is BLOCKS


def test_the_document_names_verdicts_and_members_by_their_values() -> None:
    document = check_group(MIXED).to_json()
    assert (document["verdict"], document["group_type"]) == ("ok", "consumer")
    assert [each["protocol"] for each in document["members"]] == ["classic", "consumer"]
    assert [each["check"] for each in document["findings"]] == list(CHECKS)
    assert set(document["findings"][0]) == {"check", "verdict", "reason", "cure"}


def test_names_of_brokers_and_clients_are_printed_without_control_characters() -> None:
    hostile = replace(with_member(LIVE, member_id="\x1b[2Jc", user_data_bytes=1), group_id="g\x07")
    text = "\n".join("  ".join(row) for row in cells(render_preflight(check_group(hostile)), 400))
    assert "\x1b" not in text
    assert "\x07" not in text
    assert "blocks" in text


def test_a_rebalancing_member_shows_no_versions() -> None:
    rows = cells(render_preflight(check_group(REBALANCING)))
    (row,) = (row for row in rows if row[0] == "c1")
    assert row[-3:] == ["—", "—", "—"]


def test_checks_that_are_ok_are_left_out_but_what_must_be_known() -> None:
    rows = cells(render_preflight(check_group(MIXED)))
    assert [row[0] for row in rows[1:3]] == ["group type", "offsets"]
    assert rows[3] == [f"{len(CHECKS) - 2} other checks are ok: --all shows them"]
    every = [row[0] for row in cells(render_preflight(check_group(MIXED), every_check=True))]
    assert every[1 : len(CHECKS) + 1] == list(CHECKS)
    assert not any("--all" in each for each in every)


def test_checks_that_are_not_ok_are_shown_with_their_cures() -> None:
    denied = with_broker(LIVE, MIGRATION_POLICY, "disabled")
    rows = [row[0] for row in cells(render_preflight(check_group(denied)))]
    assert rows[1:5] == ["group type", "migration policy", "downgrade", "offsets"]
    assert any(each.startswith("migration policy: set group.consumer.migr") for each in rows)


def test_members_are_shown_where_some_are_classic() -> None:
    ours = replace(EMPTY, group_type=GroupType.CONSUMER, group_state="Stable", members=(CONSUMER,))
    assert not any("m1" in row for row in cells(render_preflight(check_group(ours))))
    assert any("m1" in row for row in cells(render_preflight(check_group(ours), every_check=True)))
    assert any("c1" in row for row in cells(render_preflight(check_group(LIVE))))


def test_the_last_line_answers() -> None:
    rows = cells(render_preflight(check_group(LIVE)))
    assert rows[-1] == ["group g: ok, a member of the consumer protocol can join now"]
