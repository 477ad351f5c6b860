"""The list of groups again and again, whatever the brokers answer."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import SimpleNamespace

from spark_groups.errors import BrokerUnreachableError
from spark_groups.kafka.groups import ListedGroup
from spark_groups.ops.group_list_watch import GroupListWatch

READERS = ListedGroup(
    group_id="flight-readers", protocol_type="consumer", group_state="Stable", group_type="Consumer"
)


@dataclass
class Cluster:
    """A cluster that can be lost and found again."""

    is_lost: bool = False
    times: Iterator[float] = field(default_factory=lambda: iter((1.0, 2.0, 3.0, 4.0)))

    @contextmanager
    def cluster(self) -> Iterator[SimpleNamespace]:
        if self.is_lost:
            raise BrokerUnreachableError("b:9092: refused")
        yield SimpleNamespace(list_groups=lambda: (READERS,))


def test_a_lost_broker_leaves_the_last_list_marked_stale() -> None:
    brokers = Cluster(is_lost=True)
    watch = GroupListWatch(brokers, lambda: next(brokers.times))  # type: ignore[arg-type]
    first = watch.look().to_json()
    brokers.is_lost = False
    found = watch.look().to_json()
    brokers.is_lost = True
    watch.look()
    lost = watch.look().to_json()
    assert first == {
        "at_s": 1.0,
        "seen_at_s": None,
        "stale": {"reason": "b:9092: refused", "since_s": 1.0},
        "groups": None,
    }
    assert (found["seen_at_s"], found["stale"]) == (2.0, None)
    assert [each["group_id"] for each in found["groups"]] == ["flight-readers"]
    assert lost["groups"] == found["groups"]
    assert (lost["at_s"], lost["seen_at_s"]) == (4.0, 2.0)
    assert lost["stale"] == {"reason": "b:9092: refused", "since_s": 3.0}
