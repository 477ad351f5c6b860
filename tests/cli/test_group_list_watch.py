"""Polling the list of groups, with failures and timeouts of brokers."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import count
from types import SimpleNamespace

from spark_groups.cli.group_list_watch import (
    DETAILS_EACH_LOOK,
    DETAILS_PAUSE_S,
    GroupListFrame,
    GroupListWatch,
)
from spark_groups.errors import BrokerUnreachableError, ProtocolError
from spark_groups.group.member.messages import Node
from spark_groups.observation.reading import GroupReading
from spark_groups.wire.cluster import ListedGroup
from tests.observation.groups import ONE, TWO, member, read

READING = read(
    member(ONE, [0]), member(TWO, [1]), partitions=3, committed={0: 5}, ends={0: 12, 1: 3}
)


def listed(group_id: str, group_state: str = "Stable", group_type: str = "Consumer") -> ListedGroup:
    return ListedGroup(
        group_id=group_id,
        protocol_type="consumer",
        group_state=group_state,
        group_type=group_type,
    )


@dataclass
class Cluster:
    """A cluster that can be lost and found again, and reads groups in no time."""

    groups: tuple[ListedGroup, ...] = (listed("flight-readers"),)
    is_lost: bool = False
    timeout_s: float = 10.0
    cluster_id: str = "the-cluster"
    times: Iterator[float] = field(default_factory=lambda: map(float, count(1)))
    clock_s: float = 0.0
    takes_s: float = 0.0
    refused: dict[str, Exception] = field(default_factory=dict)
    read: list[str] = field(default_factory=list)
    limits_s: list[float] = field(default_factory=list)
    closed: int = 0

    @contextmanager
    def cluster(self) -> Iterator[SimpleNamespace]:
        if self.is_lost:
            raise BrokerUnreachableError("b:9092: refused")
        yield SimpleNamespace(list_groups=lambda: self.groups, nodes=lambda: (Node(1, "b", 9092),))

    def observer(self) -> Cluster:
        return self

    def observe(self, group_id: str, *, timeout_s: float | None = None) -> GroupReading:
        assert timeout_s is not None
        self.read.append(group_id)
        self.limits_s.append(timeout_s)
        self.clock_s += self.takes_s
        if group_id in self.refused:
            raise self.refused[group_id]
        return READING

    def close(self) -> None:
        self.closed += 1


def watching(brokers: Cluster) -> GroupListWatch:
    return GroupListWatch(
        brokers,  # type: ignore[arg-type]
        lambda: next(brokers.times),
        monotonic=lambda: brokers.clock_s,
    )


def rows(frame: GroupListFrame) -> dict[str, dict[str, object]]:
    return {each["group_id"]: each for each in frame.to_json()["groups"]}


def test_a_lost_broker_leaves_the_last_list_marked_stale() -> None:
    brokers = Cluster(is_lost=True)
    watch = watching(brokers)
    first = watch.look().to_json()
    brokers.is_lost = False
    found = watch.look().to_json()
    brokers.is_lost = True
    watch.look()
    lost = watch.look().to_json()
    assert first == {
        "at_s": 1.0,
        "seen_at_s": None,
        "stale": {"reason": "b:9092: refused", "since_s": 1.0, "is_missing": False},
        "cluster_id": None,
        "brokers": [],
        "groups": None,
    }
    assert (found["seen_at_s"], found["stale"]) == (2.0, None)
    assert [each["group_id"] for each in found["groups"]] == ["flight-readers"]
    assert lost["groups"] == found["groups"]
    assert (lost["at_s"], lost["seen_at_s"]) == (4.0, 2.0)
    assert lost["stale"] == {"reason": "b:9092: refused", "since_s": 3.0, "is_missing": False}
    watch.close()
    assert brokers.closed == 1


def test_the_list_names_the_cluster_and_its_brokers() -> None:
    found = watching(Cluster()).look().to_json()
    assert (found["cluster_id"], found["brokers"]) == ("the-cluster", ["b:9092 (id 1)"])


def test_a_row_tells_members_lag_topics_and_since_when_the_group_is_in_its_state() -> None:
    brokers = Cluster((listed("a"), listed("s", group_type="Share")))
    watch = watching(brokers)
    first = rows(watch.look())
    assert first["a"]["details"] == {
        "read_at_s": 1.0,
        "members": 2,
        "lag": 7,
        "unknown_lag_partitions": 2,
        "topics": ("flights",),
        "topic_count": 1,
    }
    assert (first["a"]["state_since_s"], first["a"]["state_began_earlier"]) == (1.0, True)
    assert first["s"]["details"] is None
    brokers.groups = (listed("a", "Reconciling"), listed("b"))
    second = rows(watch.look())
    assert (second["a"]["state_since_s"], second["a"]["state_began_earlier"]) == (2.0, False)
    assert (second["b"]["state_since_s"], second["b"]["state_began_earlier"]) == (2.0, False)
    third = rows(watch.look())
    assert third["a"]["state_since_s"] == third["b"]["state_since_s"] == 2.0
    assert "s" not in third


def test_a_look_reads_a_few_groups_and_all_of_them_in_turn() -> None:
    names = [f"g{each:02}" for each in range(3 * DETAILS_EACH_LOOK)]
    brokers = Cluster(tuple(map(listed, names)))
    watch = watching(brokers)
    known = []
    for _ in range(4):
        found = rows(watch.look())
        known.append(sum(each["details"] is not None for each in found.values()))
    assert known == [5, 10, 15, 15]
    # No group is read again before the pause is over.
    assert brokers.read == names
    while len(brokers.read) == len(names):
        frame = watch.look()
    assert brokers.read[len(names) :] == names[:DETAILS_EACH_LOOK]
    assert frame.at_s == 1.0 + DETAILS_PAUSE_S


def test_a_look_keeps_its_deadline() -> None:
    brokers = Cluster(tuple(map(listed, "abcde")), takes_s=4.0)
    watch = watching(brokers)
    found = rows(watch.look())
    assert brokers.limits_s == [10.0, 6.0, 2.0]
    assert [name for name, each in found.items() if each["details"]] == ["a", "b", "c"]
    watch.look()
    assert brokers.read == list("abcde")


def test_an_unreadable_group_does_not_delay_the_others() -> None:
    refused = {"a": ProtocolError("not authorized"), "c": BrokerUnreachableError("b: too late")}
    brokers = Cluster(tuple(map(listed, "abcd")), refused=refused)
    watch = watching(brokers)
    watch.look()
    assert brokers.read == ["a", "b", "c"]
    found = rows(watch.look())
    assert brokers.read == ["a", "b", "c", "d"]
    assert [name for name, each in found.items() if each["details"]] == ["b", "d"]
