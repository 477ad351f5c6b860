"""The model says what a broker of its version says, to requests that are drawn from a seed.

`CONFORMANCE_SEED=17 CONFORMANCE_STEPS=400` plays one script only; a difference says which.
Each seed is a script about groups of consumers, and one about groups with members of the classic
protocol. `CONFORMANCE_SEED=17 CONFORMANCE_REQUESTS=10000` plays so many requests on the oldest
version, the usual one and the newest, in scripts from that seed on (`make conformance-hunt`).
"""

from __future__ import annotations

import math
import os
import random
from collections.abc import Callable, Iterator
from dataclasses import asdict
from typing import Any

import pytest

from group_lab.coordinator.profile import PROFILES
from lab.tests.conformance.classic_pair import ClassicPair
from lab.tests.conformance.conformance_setup import SEEDS, SEEDS_ON_REQUEST, STEPS
from lab.tests.conformance.pair import INTERVAL, MARGIN_S, Pair
from lab.tests.conformance.script import REBALANCE_MS, Asked
from lab.tests.conformance.tally import PROPERTY, Played
from lab.tests.scenarios.broker_world import StartWorld
from spark_groups.errors import ErrorCode
from spark_groups.group.member import messages as m
from spark_groups.types import NO_PARTITIONS

IN_EVERY_RUN = ("4.3.1", "4.4.0")
ON_REQUEST = ("4.0.0", "4.1.2", "4.2.1")
HUNTED = ("4.0.0", "4.3.1", "4.4.0")
FRESH = -1
"""In the place of a seed: one that is drawn when the script begins."""
KINDS = {Pair: "consumer", ClassicPair: "classic"}
BY_HAND_MS = "10000"
"""Between two targets in a script by hand, which a slow broker answers within."""


class ByHand(Pair):
    """A pair that is asked by hand, about one group."""

    def begin(self) -> None:
        """Create two topics, and the group."""
        for name in self.topics.names[:2]:
            self._create(name)
        self._add_group()
        self._configure(self.groups[0].group_id, {INTERVAL: BY_HAND_MS})

    def beat(self, member_id: str, member_epoch: int, **fields: Any) -> m.HeartbeatResponse:
        """Compare the answers to a heartbeat; return the broker's."""
        group_id = self.groups[0].group_id
        request = m.HeartbeatRequest(
            group_id=group_id, member_id=member_id, member_epoch=member_epoch, **fields
        )
        answer = self._ask(self.groups[0], Asked(request, "by hand"))
        assert isinstance(answer, m.HeartbeatResponse)
        assert not self.given_up, "the broker was too slow to be compared"
        return answer

    def epoch(self, member_id: str) -> int:
        """Return the member epoch of the last answer."""
        return self.groups[0].members[member_id].epoch

    def settle(self, *member_ids: str) -> None:
        """Let members reach the target of the group's epoch."""
        self.await_interval()
        for _ in range(2):
            for each in member_ids:
                view = self.groups[0].members[each]
                self.beat(each, view.epoch, topic_partitions=view.assigned)

    def await_interval(self) -> None:
        """Wait for the end of the interval between two targets."""
        self.broker.sleep(int(BY_HAND_MS) / 1000 + MARGIN_S)


def scripts() -> Iterator[object]:
    """Every seed on every version; those on one version run in one worker, on one broker."""
    for pair in (Pair, ClassicPair):
        yield from _scripts(pair)


def _scripts(pair: type[Pair]) -> Iterator[object]:
    if "CONFORMANCE_REQUESTS" in os.environ:
        first = int(os.environ["CONFORMANCE_SEED"])
        count = math.ceil(int(os.environ["CONFORMANCE_REQUESTS"]) / STEPS)
        for version in HUNTED:
            for seed in range(first, first + count):
                yield _script(pair, seed, version)
        return
    for version in (*IN_EVERY_RUN, *ON_REQUEST):
        if "CONFORMANCE_SEED" in os.environ:
            yield _script(pair, int(os.environ["CONFORMANCE_SEED"]), version)
            continue
        for seed in (*SEEDS, *SEEDS_ON_REQUEST):
            yield _script(pair, seed, version, is_extra=seed in SEEDS_ON_REQUEST)
        yield _script(pair, FRESH, version)


def with_intervals() -> Iterator[object]:
    """Versions with an interval between targets, on the brokers of the drawn scripts."""
    for version in IN_EVERY_RUN:
        group = pytest.mark.xdist_group(f"scenarios on Kafka {version}")
        yield pytest.param(version, marks=[pytest.mark.broker, pytest.mark.long, group])


def _script(pair: type[Pair], seed: int, version: str, *, is_extra: bool = False) -> object:
    group = pytest.mark.xdist_group(f"scenarios on Kafka {version}")
    marks = [pytest.mark.broker, pytest.mark.long, group]
    if is_extra or version in ON_REQUEST:
        marks += [pytest.mark.all_versions, pytest.mark.slow]
    name = "fresh" if seed == FRESH else f"{seed}"
    return pytest.param(pair, seed, version, marks=marks, id=f"{KINDS[pair]}-{version}-seed-{name}")


@pytest.mark.parametrize(("kind", "seed", "version"), scripts())
def test_model_answers_as_the_broker(
    kind: type[Pair],
    seed: int,
    version: str,
    broker_world: StartWorld,
    record_property: Callable[[str, object], None],
) -> None:
    if seed == FRESH:
        seed = random.SystemRandom().randrange(1_000_000)
    steps = int(os.environ.get("CONFORMANCE_STEPS", STEPS))
    repeat = (
        f"CONFORMANCE_SEED={seed} CONFORMANCE_STEPS={steps}"
        f" .venv/bin/python -m pytest lab/tests/conformance -k {KINDS[kind]}-{version}"
    )
    # Pytest shows this beside any failure.
    print(f"seed {seed}, to play it again: {repeat}")
    world = broker_world(version)
    profile = PROFILES["kafka-" + version.rpartition(".")[0]]
    try:
        pair = kind(world, profile, seed, repeat)
        pair.play(steps)
    finally:
        world.end()
    played = Played(version, KINDS[kind], seed, pair.compared, len(pair.given_up))
    record_property(PROPERTY, asdict(played))


@pytest.mark.parametrize("version", with_intervals())
def test_member_that_drops_its_last_topic_before_the_target_is_computed(
    version: str, broker_world: StartWorld
) -> None:
    """Its next heartbeat at the epoch before is fenced, although it holds nothing."""
    world = broker_world(version)
    profile = PROFILES["kafka-" + version.rpartition(".")[0]]
    try:
        pair = ByHand(world, profile, 37, "")
        pair.begin()
        a, b = pair.topics.names[:2]
        whole: dict[str, Any] = {
            "rebalance_timeout_ms": REBALANCE_MS,
            "topic_partitions": NO_PARTITIONS,
        }
        pair.beat("s", 0, subscribed_topic_names=(a,), **whole)
        pair.beat("m", 0, subscribed_topic_regex="nothing", subscribed_topic_names=(), **whole)
        pair.settle("s", "m")
        before = pair.epoch("m")
        for names in ((a, b), (a,)):
            pair.beat("s", pair.epoch("s"), subscribed_topic_names=names)
        pair.await_interval()
        pair.beat("m", before)
        assert pair.epoch("m") > before
        pair.beat("m", pair.epoch("m"), subscribed_topic_names=(), subscribed_topic_regex="")
        late = pair.beat("m", before, topic_partitions=NO_PARTITIONS)
        assert late.error_code == ErrorCode.FENCED_MEMBER_EPOCH
    finally:
        world.end()
