"""What a user plans a group with: the options of `simulate`, with their meaning and limits."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final

from group_lab.sim.swarm import PLANNED, Swarm
from spark_groups.errors import OptionsError


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanOption:
    """One option.

    Args:
        swarm_field: The field of a swarm that it becomes.
        text: Its meaning.
        least: Its least value; None if it is no number.
        most: Its greatest value, if any.
    """

    swarm_field: str
    text: str
    least: float | None = None
    most: float | None = None


OPTIONS: Final[Mapping[str, PlanOption]] = {
    "members": PlanOption(swarm_field="queries", least=1, text="Queries in the group."),
    "partitions": PlanOption(swarm_field="partitions", least=1, text="Partitions of the topic."),
    "batch_length": PlanOption(
        swarm_field="batch_s",
        least=0.02,
        text="Seconds a batch takes at most; it takes four fifths of it at least.",
    ),
    "trigger": PlanOption(
        swarm_field="trigger_s",
        least=0.0,
        text="Seconds of the processing-time trigger; 0 begins a batch when the last one ends.",
    ),
    "records_per_second": PlanOption(
        swarm_field="rate",
        least=0.01,
        most=1000.0,
        text="Records that are written to each partition in a second.",
    ),
    "assignor": PlanOption(
        swarm_field="assignor",
        text="Who assigns partitions in the consumer protocol: uniform or range.",
    ),
    "static": PlanOption(
        swarm_field="static",
        least=0,
        text="How many of the queries have instance ids: within the session such a query gets its"
        " partitions back.",
    ),
    "pattern": PlanOption(
        swarm_field="by_pattern",
        text="Queries subscribe by a pattern, which the coordinator resolves; others by name.",
    ),
    "growth": PlanOption(
        swarm_field="growth", least=0, text="How many times one partition is added to the topic."
    ),
    "heartbeat_interval": PlanOption(
        swarm_field="heartbeat_s", least=0.1, text="Seconds of the group's heartbeat interval."
    ),
    "session_timeout": PlanOption(
        swarm_field="session_s", least=1.0, text="Seconds of the group's session timeout."
    ),
    "rebalance_timeout": PlanOption(
        swarm_field="rebalance_s",
        least=1.0,
        text="Seconds that a member may take to revoke partitions.",
    ),
    "initial_rebalance_delay": PlanOption(
        swarm_field="initial_delay_s",
        least=0.0,
        text="Seconds that the coordinator of an empty classic group waits for more members"
        " (group.initial.rebalance.delay.ms).",
    ),
    "rebalance_delay": PlanOption(
        swarm_field="rebalance_delay_s",
        least=0.0,
        text="Seconds that a leader waits for a member that is gone, with the protocols delayed and"
        " incremental (scheduled.rebalance.max.delay.ms).",
    ),
    "first_delay": PlanOption(
        swarm_field="first_delay_s",
        least=0.0,
        text="Seconds that a leader of a new group waits for more members, with the protocols"
        " delayed and incremental.",
    ),
    "moves_per_round": PlanOption(
        swarm_field="moves_max",
        least=1,
        text="How many partitions the protocol incremental moves at a time.",
    ),
    "move_interval": PlanOption(
        swarm_field="move_interval_s", least=0.1, text="Seconds between two such moves."
    ),
    "client_assignors": PlanOption(
        swarm_field="computing",
        text="Members compute the targets of the group, as in KIP-848; needs the profile kip-848.",
    ),
    "deploy": PlanOption(
        swarm_field="deploy",
        text="The pattern of the redeployment.",
    ),
    "restart_time": PlanOption(
        swarm_field="restart_s",
        least=1.0,
        text="Seconds from the leave of an application until its next run joins the group: the end"
        " of its JVM, the start of the next one, of Spark and of the query.",
    ),
    "duration": PlanOption(
        swarm_field="chaos_s",
        least=10.0,
        text="Seconds to count from the end of the start-up; more if the deployment takes longer.",
    ),
}
"""By the name on the command line; in Python, seconds end with _s."""


def planned(given: Mapping[str, object]) -> Swarm:
    """Return the group that options describe.

    Args:
        given: Values by the name of the option, also with _s at the end; others are ignored.

    Raises:
        OptionsError: A number is out of range.
    """
    values: dict[str, object] = {}
    for name, value in given.items():
        option = OPTIONS.get(name.removesuffix("_s"))
        if option is None:
            continue
        if option.least is not None:
            _check(name, value, option)
        values[option.swarm_field] = int(value) if isinstance(value, bool) else value
    swarm = replace(PLANNED, **values)  # type: ignore[arg-type]
    if swarm.static > swarm.queries:
        raise OptionsError(f"static is {swarm.static}: there are {swarm.queries} members")
    if swarm.heartbeat_s >= swarm.session_s:
        raise OptionsError(
            f"the heartbeat interval is {swarm.heartbeat_s:g} s: it must be less than the session"
            f" timeout, {swarm.session_s:g} s"
        )
    return swarm


def _check(name: str, value: object, option: PlanOption) -> None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise OptionsError(f"{name} is {value!r}: it must be a number")
    if not value >= (option.least or 0):
        raise OptionsError(f"{name} is {value!r}: it must be at least {option.least:g}")
    if option.most is not None and value > option.most:
        raise OptionsError(f"{name} is {value!r}: it must be at most {option.most:g}")
