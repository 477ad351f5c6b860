"""The network between members and brokers: arrivals, failures and their times."""

from __future__ import annotations

from random import Random

import pytest

from group_lab.sim.network import ANY_BROKER, FARTHEST_S, Network, Reply
from group_lab.sim.schedule import Schedule
from group_lab.sim.swarm import Swarm
from spark_groups.group.member import messages as m
from spark_groups.group.requests.channels import Channel, Outgoing

NODE = m.Node(1, "broker", 9092)
FIND = Outgoing(Channel.SEARCH, m.FindCoordinatorRequest(group_id="g"))
DESCRIBE = Outgoing(Channel.OFFSETS, m.DescribeGroupRequest(group_id="g"), NODE)
RESPONSE = m.FindCoordinatorResponse(coordinator=NODE)


class Wire:
    """A network with one broker, which answers unless it is dead."""

    def __init__(self, swarm: Swarm, seed: int = 1) -> None:
        self.schedule = Schedule()
        self.is_dead = False
        self.arrived: list[float] = []
        self.answered: list[float] = []
        self.failed: list[tuple[float, m.RequestFailed]] = []
        self.network = Network(self.schedule, Random(seed), swarm, self._serve, self._serve)

    def _serve(self, _outgoing: Outgoing, reply: Reply) -> None:
        self.arrived.append(self.schedule.now)
        reply(None if self.is_dead else RESPONSE)

    def send(self, outgoing: Outgoing = FIND) -> None:
        self.network.send(
            "q1",
            outgoing,
            lambda _: self.answered.append(self.schedule.now),
            lambda failed: self.failed.append((self.schedule.now, failed)),
        )

    def send_all(self, count: int, outgoing: Outgoing = FIND) -> None:
        """Send so many requests, one after the other, and wait for each result."""
        for _ in range(count):
            self.send(outgoing)
            self.schedule.run_until(self.schedule.now + 60.0)


def test_without_faults_everything_is_answered_at_once() -> None:
    wire = Wire(Swarm())
    wire.send()
    wire.schedule.run_until(2 * FARTHEST_S)
    assert (len(wire.arrived), len(wire.answered), wire.failed) == (1, 1, [])
    assert 0 < wire.arrived[0] < wire.answered[0]


def test_each_request_is_answered_or_failed_exactly_once() -> None:
    wire = Wire(Swarm(loss=0.4, delay=0.4, duplicates=0.4))
    wire.send_all(300)
    assert len(wire.answered) + len(wire.failed) == 300
    assert 80 < len(wire.failed) < 160
    assert len(wire.arrived) > len(wire.answered), "some arrived without an answer"


def test_what_did_not_arrive_may_be_called_so_but_what_did_never() -> None:
    wire = Wire(Swarm(loss=1.0))
    for _ in range(100):
        before = len(wire.arrived)
        wire.send_all(1)
        if not wire.failed[-1][1].may_have_arrived:
            assert len(wire.arrived) == before
    assert 20 < len(wire.arrived) < 80


@pytest.mark.parametrize("late", [0, 1])
def test_nothing_arrives_after_its_sender_gave_up_unless_it_may(late: int) -> None:
    wire = Wire(Swarm(loss=1.0, late=late))
    is_late = False
    for _ in range(100):
        before = len(wire.arrived)
        wire.send_all(1)
        is_late |= any(at > wire.failed[-1][0] for at in wire.arrived[before:])
    assert is_late == bool(late)


def test_a_request_that_arrives_twice_arrives_twice_at_once() -> None:
    wire = Wire(Swarm(duplicates=1.0))
    wire.send()
    wire.schedule.run_until(60.0)
    assert len(set(wire.arrived)) == 1
    assert (len(wire.arrived), len(wire.answered)) == (2, 1)


def test_a_cut_lets_nothing_through_until_it_is_over() -> None:
    wire = Wire(Swarm())
    wire.network.cut("q1", NODE.node_id, 30.0)
    wire.send_all(1, DESCRIBE)
    assert (wire.arrived, len(wire.failed)) == ([], 1)
    wire.network.cut("q1", NODE.node_id, 30.0)
    wire.send_all(1, FIND)
    assert len(wire.answered) == 1, "other brokers are still there"
    wire.send_all(1, DESCRIBE)
    assert len(wire.answered) == 2, "the cut is over"
    wire.network.cut("q1", ANY_BROKER, 30.0)
    wire.send_all(1, FIND)
    assert len(wire.failed) == 2


def test_a_deaf_client_sends_but_receives_nothing() -> None:
    wire = Wire(Swarm())
    wire.network.deafen("q1", NODE.node_id, 30.0)
    wire.send_all(1, DESCRIBE)
    assert (len(wire.arrived), wire.answered) == (1, [])
    assert [failed.may_have_arrived for _, failed in wire.failed] == [True]
    wire.send_all(1, DESCRIBE)
    assert len(wire.answered) == 1, "it is over"


def test_the_answer_of_a_node_that_died_is_a_failure_that_may_have_arrived() -> None:
    wire = Wire(Swarm())
    wire.is_dead = True
    wire.send_all(1)
    assert [failed.may_have_arrived for _, failed in wire.failed] == [True]


def test_nothing_goes_wrong_any_more_when_faults_are_over() -> None:
    wire = Wire(Swarm(loss=1.0, delay=1.0, duplicates=1.0))
    wire.network.is_faulty = False
    wire.send_all(20)
    assert (len(wire.arrived), len(wire.answered), wire.failed) == (20, 20, [])
