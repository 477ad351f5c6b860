"""Shared by test_report.py and other tests."""

from __future__ import annotations

from collections import Counter

from workshop.chaos.faults.network_schedule import NetworkFaultKind
from workshop.chaos.faults.schedule import (
    BrokerFaultKind,
    FaultClass,
    FaultKind,
    MachineFaultKind,
    Point,
)
from workshop.chaos.results.account import Account
from workshop.chaos.results.facts import Deletion, Disruption, End, Trouble
from workshop.chaos.results.recovery import FaultRecovery, Pause, Recoveries, Recovery
from workshop.chaos.results.report import (
    Circumstances,
)
from workshop.tests.chaos.stories import Story


def circumstances(*problems: str) -> Circumstances:
    return Circumstances(
        command="python -m workshop.chaos.run --minutes 2 --seed 7",
        seed=7,
        began_s=1000.0,
        faults_from_s=1004.0,
        minutes=2.0,
        kafka_version="4.3.1",
        session_s=10.0,
        cores=2,
        load_mean=1.25,
        load_max=3.5,
        partitions_first=7,
        partitions_last=9,
        processes=12,
        batches=345,
        faults={
            FaultKind.KILL.value: {"done": 4, "skipped": 1},
            BrokerFaultKind.KILL.value: {"done": 3, "skipped": 2},
            NetworkFaultKind.CUT.value: {"done": 5, "skipped": 6},
        },
        brokers=3,
        disruptions=(Disruption("a kind", 2, 1.0, 1.1, 4.0, 6.5, (("ants", 0),), True),),
        troubles=(Trouble(FaultClass.CLOCK, MachineFaultKind.JUMP.value, ("q1",), 2.0, 3.0),),
        deletions=(Deletion(2.0, ("wasps", 0), 5),),
        recoveries=Recoveries(
            (
                FaultRecovery("a kind", "broker 2", 1010.0, 9.5, 11.5),
                FaultRecovery("a kind", "q1.1", 1020.0, None, None),
            ),
            (Recovery("a kind", 3, 1, 4.25, 9.5, 5.0, 11.5),),
            Pause(2.25, ("ants", 0), "q1.1", 1003.0),
            Pause(),
        ),
        points=Counter({Point.IN_COMMIT: 2}),
        drained_s=12.0,
        problems=problems,
    )


def replayed() -> Account:
    story = Story()
    story.plan("q1.1", 0)
    story.write("q1.1", 0, range(5))
    story.ends("q1.1", End.KILLED)
    story.write("q1.2", 0, range(5), plan="plan 0 of q1.1", is_replay=True)
    return story.account()
