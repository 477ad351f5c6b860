"""Members on this machine, by their snapshots."""

from __future__ import annotations

from typing import Any

import pytest

from spark_groups.group.client import GroupClient
from spark_groups.group.client_config import ClientConfig
from spark_groups.group.client_parts import ClientParts
from spark_groups.group.ledger.events import WithheldRange
from spark_groups.group.ledger.starting import StartingOffsets
from spark_groups.group.member.member_config import MemberConfig
from spark_groups.group.member.subscription import Subscription
from spark_groups.group.snapshot import take_snapshot
from spark_groups.observation.local_members import LocalMember, parse_local_members
from spark_groups.types import TopicPartition
from tests.observation.groups import ONE, TWO
from tests.observation.local_members_setup import PENDING_RANGES, SNAPSHOT


def test_withheld_ranges_are_read() -> None:
    waiting = SNAPSHOT | {"pending_ranges": PENDING_RANGES}
    assert parse_local_members([waiting], "flight-readers")[ONE].withheld == (
        WithheldRange("flights", 1, 10, 25),
        WithheldRange("orders", 7, None, None),
    )


@pytest.mark.parametrize(
    ("address", "kept"),
    [
        ("http://driver-1.example:4040", True),
        ("https://10.0.0.7:4440", True),
        ("http://[fd00::1]:4040", True),
        ("http://driver-1", True),
        ("http://driver-1:4040/proxy/app", False),
        ("http://me:secret@driver-1:4040", False),
        ("javascript:alert(1)", False),
        ("http://driver-1:4040\n", False),
        (4040, False),
        (None, False),
    ],
)
def test_the_spark_ui_is_an_address_and_nothing_else(address: object, kept: bool) -> None:
    found = parse_local_members([SNAPSHOT | {"spark_ui": address}], "flight-readers")[ONE]
    assert found.spark_ui == (address if kept else None)


def test_a_snapshot_is_read_in_full() -> None:
    assert parse_local_members([SNAPSHOT], "flight-readers") == {
        ONE: LocalMember(
            state="RECONCILING",
            last_heartbeat_age_s=0.3,
            last_call_age_s=4.5,
            revocation_age_s=2.0,
            revocation_timeout_s=300.0,
            revoking=(TopicPartition("flights", 1), TopicPartition("old-flights", 10)),
            in_flight_partitions=2,
            in_flight_offsets=20,
            commits_refused=2,
            session_timeout_ms=45_000,
            batch_age_s=12.3,
            idle_limit_s=600.0,
        )
    }


def test_members_of_other_groups_and_without_an_id_are_left_out() -> None:
    unborn = {"group": "flight-readers", "state": "UNSUBSCRIBED"}
    assert not parse_local_members([SNAPSHOT], "other")
    assert not parse_local_members([unborn], "flight-readers")


@pytest.mark.parametrize(
    "strange",
    [
        {"in_flight": [{"topic": "flights"}]},
        {"revoking": ["flights"]},
        {"revoking": 3},
        {"pending_ranges": [{}]},
    ],
)
def test_a_snapshot_of_another_version_is_left_out(strange: dict[str, Any]) -> None:
    other = SNAPSHOT | {"member_id": TWO} | strange
    assert list(parse_local_members([other, SNAPSHOT], "flight-readers")) == [ONE]


def test_what_a_client_really_writes_can_be_read() -> None:
    config = ClientConfig(
        member=MemberConfig(
            group_id="flight-readers", subscription=Subscription.of_names("flights")
        ),
        starting_offsets=StartingOffsets(),
    )
    client = GroupClient(ClientParts(config, new_member_id=lambda: ONE))
    client.start(1.0)
    found = parse_local_members([take_snapshot(client, 2.0).as_plain()], "flight-readers")
    assert found == {ONE: LocalMember(state="JOINING", idle_limit_s=600.0)}
