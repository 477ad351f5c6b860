"""The size, settings and faults of a run, drawn from the seed: TigerBeetle's swarm testing.

Each run has some faults and not others, in different amounts: faults that are always present hide
bugs that only show without them.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, fields, replace
from enum import Enum
from typing import Final, TypeVar

from group_lab.sim.chance import Chance


class Deploy(Enum):
    """The pattern of a redeployment; the values are those of the command line."""

    NONE = "none"
    ROLLING = "rolling"
    ALL_AT_ONCE = "all-at-once"
    AUTOSCALE = "autoscale"


class Assignor(Enum):
    """Server-side assignors, by Kafka's names."""

    UNIFORM = "uniform"
    RANGE = "range"


class Faults(Enum):
    """The amount of faults; the values are those of the command line."""

    NONE = "none"
    SOME = "some"
    MANY = "many"


class GroupProtocol(Enum):
    """How the members of a group rebalance, oldest first; the values are those of the command line.

    Kafka's consumers never had the design for 0.9, nor the three policies of the incremental
    proposal.
    """

    DESIGN_0_9 = "design-0.9"
    CLASSIC_EAGER = "classic-eager"
    IMMEDIATE = "immediate"
    DELAYED = "delayed"
    INCREMENTAL = "incremental"
    CLASSIC_COOPERATIVE = "classic-cooperative"
    CONSUMER = "consumer"


CONVERTIBLE: Final = frozenset(
    {GroupProtocol.CLASSIC_EAGER, GroupProtocol.CLASSIC_COOPERATIVE, GroupProtocol.CONSUMER}
)
"""The protocols of Kafka, whose members share groups: the coordinator converts between them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Swarm:
    """The parts of one run; the defaults are a calm one.

    Args:
        queries: Streaming queries in the group.
        consumers: Plain consumers in the group.
        classic: Consumers in the group whose protocol is `classic_protocol`.
        classic_protocol: Any but consumer.
        rebalance_delay_s: How long a leader of the delayed and incremental policies waits for a
            member that is gone (`scheduled.rebalance.max.delay.ms`).
        first_delay_s: How long such a leader of a new group waits for more members.
        moves_max: How many partitions a leader of the incremental policy moves at a time.
        move_interval_s: The time between two such moves.
        initial_delay_s: `group.initial.rebalance.delay.ms`, for classic groups.
        topics: Subscribed topics.
        partitions: Initial partitions of each topic.
        from_latest: Whether `startingOffsets` is latest; else it is earliest.
        named: 1 if `startingOffsets` names some partitions, as JSON.
        by_pattern: Whether queries subscribe by a pattern.
        static: How many of the queries are static members.
        batch_s: The longest batch.
        trigger_s: The longest wait between two triggers.
        rate: Records written to each partition in a second, about.
        listener: 1 if a listener reports the end of a batch at once.
        log_every_s: With asynchronous progress tracking: seconds between two entries in Spark's
            offset log; 0 without it.
        max_offsets: `maxOffsetsPerTrigger` of some triggers; 0 for no limit.
        min_offsets: `minOffsetsPerTrigger`; 0 for none.
        max_delay_s: `maxTriggerDelay`.
        available_now: How many queries are AvailableNow jobs, restarted until the faults end.
        read_committed: 1 if queries read with read_committed.
        transactions: How often a transaction is open in a partition for a while.
        strict: 1 if `failOnDataLoss` is true also in runs that lose data.
        heartbeat_s: The group's heartbeat interval.
        session_s: The group's session timeout.
        rebalance_s: How long the coordinator waits for a revocation.
        replication_s: The longest replication of a coordinator record.
        undescribed: 1 if describing the group is not authorized.
        holds: 1 if a rebalance listener holds each revocation for a while.
        starts_s: Within how many seconds the members start.
        chaos_s: How long faults happen.
        deploy: How the applications are redeployed meanwhile.
        deploy_every_s: Seconds between two steps of it.
        restart_s: How long a redeployed application is away, from its leave on.
        assignor: Which assignor the queries ask for.
        warm: 1 if queries warm up before they join.
        planned: 1 for a run for capacity planning: an even write rate, known end offsets,
            batches of nearly the longest duration, triggers at multiples of `trigger_s`, and a
            deployment that begins after the start-up and continues when the group is stable.
        stops: How often a query leaves the group and comes back.
        growth: How often a topic gets one more partition.
        vanishings: How often a topic is deleted and, later, created again.
        elections: How often a partition gets another leader that has the whole log.
        moves: How often the coordinator moves to another node in good order.
        loss: Chance that a connection breaks under a request.
        delay: Chance that an answer takes long.
        duplicates: Chance that a request arrives twice.
        errors: Chance that a broker refuses with a retriable error.
        partitionings: How often a member is cut off from a node.
        deafenings: How often a member's requests arrive and no answer comes back, for a while.
        denials: How often a right is missing for a while.
        coordinator_crashes: How often the node of the coordinator dies.
        failed_appends: How often appends to the coordinator's log fail for a moment.
        crashes: How often a query is killed and started again from its checkpoint.
        forgetting: Chance that it starts with a new checkpoint.
        failures: How often a batch fails and the query is started again.
        pauses: How often a query freezes, at times for longer than its session.
        zombies: How often a query freezes, is replaced, and wakes up.
        truncations: How often a partition gets a leader that lacks the end of its log.
        retentions: How often the beginning of a log is dropped.
        resets: How often all queries end and an operator resets committed offsets.
        deletions: How often all queries end and an operator deletes committed offsets.
        turns: 1 if after a reset or a deletion each query may run alone for a while, one after the
            other.
        skew: The largest clock drift; 0.001 is one second in 1,000.
        late: 1 if a request may arrive after its sender stopped waiting.
        table: What all queries write to: 0 nothing that is played, 1 a database, 2 a table with
            versions.
        table_errors: Chance that a table refuses a commit, or that its answer is lost, and that
            tasks fail; commits may then take long.
        restores: Chance that a query that is killed starts from an older checkpoint, or from a
            copy of another query's.
        migrations: How often all members of one protocol leave for a while.
        computing: 1 if members have client-side assignors and compute the targets of the group;
            only the profile kip-848 has them.
    """

    queries: int = 2
    consumers: int = 0
    classic: int = 0
    classic_protocol: GroupProtocol = GroupProtocol.CLASSIC_EAGER
    rebalance_delay_s: float = 20.0
    first_delay_s: float = 0.0
    moves_max: int = 1
    move_interval_s: float = 5.0
    initial_delay_s: float = 3.0
    topics: int = 1
    partitions: int = 4
    from_latest: int = 1
    named: int = 0
    by_pattern: int = 0
    static: int = 0
    batch_s: float = 1.0
    trigger_s: float = 0.5
    rate: float = 6.0
    listener: int = 0
    log_every_s: float = 0.0
    max_offsets: int = 0
    min_offsets: int = 0
    max_delay_s: float = 5.0
    available_now: int = 0
    read_committed: int = 0
    transactions: int = 0
    strict: int = 0
    heartbeat_s: float = 2.0
    session_s: float = 12.0
    rebalance_s: float = 60.0
    replication_s: float = 0.004
    undescribed: int = 0
    holds: int = 0
    starts_s: float = 10.0
    chaos_s: float = 60.0
    deploy: Deploy = Deploy.NONE
    deploy_every_s: float = 5.0
    restart_s: float = 6.0
    assignor: Assignor = Assignor.UNIFORM
    warm: int = 0
    planned: int = 0
    stops: int = 0
    growth: int = 0
    vanishings: int = 0
    elections: int = 0
    moves: int = 0
    loss: float = 0.0
    delay: float = 0.0
    duplicates: float = 0.0
    errors: float = 0.0
    partitionings: int = 0
    deafenings: int = 0
    denials: int = 0
    coordinator_crashes: int = 0
    failed_appends: int = 0
    crashes: int = 0
    forgetting: float = 0.0
    failures: int = 0
    pauses: int = 0
    zombies: int = 0
    truncations: int = 0
    retentions: int = 0
    resets: int = 0
    deletions: int = 0
    turns: int = 0
    skew: float = 0.0
    late: int = 0
    table: int = 0
    table_errors: float = 0.0
    restores: float = 0.0
    migrations: int = 0
    computing: int = 0

    @property
    def faults(self) -> dict[str, float]:
        """The amount of every fault, by name."""
        return {name: getattr(self, name) for name in FAULTS}

    @property
    def is_calm(self) -> bool:
        """True if nothing goes wrong: then nothing is read twice, and no member waits for long.

        Members release partitions at nine tenths of the rebalance timeout: slower replication than
        the remaining tenth is a fault.
        """
        is_timely = self.replication_s < 0.1 * self.rebalance_s
        return is_timely and not any(self.faults.values())

    @property
    def text(self) -> str:
        """The differences from a calm run of the default size, as `parse` reads them."""
        named = {field_.name: getattr(self, field_.name) for field_ in fields(self)}
        return ",".join(
            f"{name}={value.value if isinstance(value, Enum) else value}"
            for name, value in named.items()
            if value != getattr(CALM, name)
        )

    @classmethod
    def parse(cls, text: str) -> Swarm:
        """Read the output of `text`.

        Raises:
            ValueError: A name or a value is unknown.
        """
        known = {field_.name: type(getattr(CALM, field_.name)) for field_ in fields(cls)}
        read: dict[str, object] = {}
        for each in filter(None, text.split(",")):
            name, _, value = each.partition("=")
            if name not in known:
                raise ValueError(f"{name!r} is not a part of a swarm; there are {', '.join(known)}")
            read[name] = known[name](value)
        return replace(CALM, **read)  # type: ignore[arg-type]


CALM: Final = Swarm()
PLANNED: Final = Swarm(listener=1, planned=1)
"""A calm run for capacity planning."""
VERSIONS: Final = 2
"""The value of `table` for one with versions."""
FAULTS: Final = (
    *("loss", "delay", "duplicates", "errors", "partitionings", "deafenings", "denials"),
    *("coordinator_crashes", "failed_appends", "crashes", "forgetting", "failures", "pauses"),
    *("zombies", "truncations", "retentions", "resets", "deletions", "skew"),
    *("late", "vanishings", "consumers", "classic", "moves", "table_errors", "restores"),
)
"""The fields that are faults, for the promise that a calm run reads nothing twice.

Consumers beside the queries commit when they please, and a deleted topic takes its records with it:
that is no fault, but the promise does not hold beside them.
"""


def drawn(
    chance: Chance, protocols: Collection[GroupProtocol] = (GroupProtocol.CONSUMER,)
) -> Swarm:
    """Draw a swarm; about one run in four has no faults.

    Args:
        protocols: Those of the members; with others than consumer each group has classic members.
    """
    swarm = _drawn(chance)
    classic = [each for each in protocols if each is not GroupProtocol.CONSUMER]
    if not classic:
        return _with_table(swarm, chance)
    is_mixed = GroupProtocol.CONSUMER in protocols and chance.random() < MIXED
    protocol = chance.choice(classic)
    is_mixed = is_mixed and protocol in CONVERTIBLE
    return _with_classic(swarm, chance, protocol, is_mixed=is_mixed)


def _with_table(swarm: Swarm, chance: Chance) -> Swarm:
    """Draw a table, after all else: the schedules without one do not change."""
    table = chance.choice((0, 0, 0, 1, 1, VERSIONS))
    errors = chance.choice((0.03, 0.1, 0.3))
    retentions, restores = chance.choice((0, 3, 6)), chance.choice((0.0, 0.5))
    # What a plain consumer reads is missing in a table.
    if not table or swarm.consumers:
        return swarm
    # Spark has no asynchronous progress tracking with foreachBatch.
    found = replace(swarm, table=table, log_every_s=0.0)
    if swarm.is_calm:
        return found
    return replace(
        found,
        table_errors=errors,
        retentions=max(retentions, swarm.retentions),
        restores=restores,
    )


MIXED: Final = 0.7
"""The share of groups with classic members that have queries as well."""


def _with_classic(
    swarm: Swarm, chance: Chance, protocol: GroupProtocol, *, is_mixed: bool
) -> Swarm:
    pick = chance.choice
    if protocol not in CONVERTIBLE:
        # The designs know no instance ids.
        swarm = replace(swarm, static=0, rebalance_delay_s=pick((5.0, 20.0, 60.0)))
    mixed = replace(
        swarm,
        classic=pick((1, 2, 2, 3)),
        classic_protocol=protocol,
        # These consumers detect no truncation, no recreated topic, and no operator's reset.
        truncations=0,
        vanishings=0,
        resets=0,
        deletions=0,
        denials=0,
        late=0,
        computing=swarm.computing if is_mixed else 0,
        # Nor does a static leader that returns notice partitions added in its absence (KIP-814).
        growth=0 if swarm.static else swarm.growth,
        # A broker answers only the last of two equal JoinGroup requests.
        duplicates=0.0,
        migrations=pick((0, 1, 2)) if is_mixed else 0,
    )
    return mixed if is_mixed else replace(mixed, queries=0, consumers=0, available_now=0)


def with_protocol(swarm: Swarm, protocol: GroupProtocol) -> Swarm:
    """Return a swarm whose queries are applications of a protocol, to plan with."""
    if protocol is GroupProtocol.CONSUMER:
        return swarm
    static = swarm.static if protocol in CONVERTIBLE else 0
    return replace(
        swarm, queries=0, classic=swarm.queries, classic_protocol=protocol, static=static
    )


def _drawn(chance: Chance) -> Swarm:
    pick = chance.choice
    queries = pick((1, 2, 2, 3, 3, 4))
    calm = Swarm(
        queries=queries,
        topics=pick((1, 1, 1, 2)),
        partitions=chance.randint(1, 6),
        from_latest=pick((0, 1)),
        named=pick((0, 0, 0, 1)),
        by_pattern=pick((0, 0, 0, 1)),
        static=pick((0, 0, 0, queries, chance.randint(0, queries))),
        batch_s=pick((0.05, 1.0, 6.0, 20.0, 40.0)),
        trigger_s=pick((0.05, 0.5, 2.0)),
        rate=pick((0.5, 6.0, 30.0)),
        listener=pick((0, 1)),
        max_offsets=pick((0, 10, 60)),
        min_offsets=pick((0, 0, 0, 40)),
        max_delay_s=pick((2.0, 8.0)),
        available_now=pick((0, 0, 0, 1, queries)),
        read_committed=pick((0, 0, 1)),
        transactions=pick((0, 0, 3, 8)),
        strict=pick((0, 0, 1)),
        session_s=pick((6.0, 12.0, 12.0)),
        rebalance_s=pick((5.0, 10.0, 30.0, 120.0)),
        replication_s=pick((0.004, 0.004, 0.3, 1.0)),
        undescribed=pick((0, 0, 0, 1)),
        holds=pick((0, 0, 1)),
        chaos_s=pick((20.0, 40.0, 60.0)),
        deploy=pick((Deploy.NONE, Deploy.NONE, *Deploy)),
        stops=chance.randint(0, 6),
        growth=chance.randint(0, 2),
        elections=pick((0, 0, 3, 10)),
        moves=pick((0, 0, 1)),
    )
    swarm = calm if chance.random() < 0.25 else _with_faults(calm, chance)
    log_every_s = pick((0.0, 0.0, 0.001, 1.0, 5.0))
    warm = pick((0, 1))
    # Drawn last: the runs of seeds before do not change.
    swarm = replace(swarm, warm=warm, log_every_s=log_every_s, computing=pick((0, 0, 0, 1)))
    may_end = not (swarm.is_calm or swarm.consumers)
    return replace(swarm, turns=pick((0, 1, 1)), deletions=pick((0, 0, 0, 1)) if may_end else 0)


def _with_faults(calm: Swarm, chance: Chance) -> Swarm:
    pick = chance.choice
    consumers = pick((0, 0, 0, 1, 2))
    return replace(
        calm,
        consumers=consumers,
        vanishings=pick((0, 0, 0, 1, 2)),
        moves=chance.randint(0, 3),
        loss=pick((0.0, 0.02, 0.1, 0.3)),
        delay=pick((0.0, 0.05, 0.3)),
        duplicates=pick((0.0, 0.0, 0.05, 0.3)),
        errors=pick((0.0, 0.02, 0.2)),
        partitionings=pick((0, 1, 3, 6)),
        deafenings=pick((0, 2, 5)),
        # A plain consumer does not recover from an authorization error.
        denials=0 if consumers else pick((0, 0, 2)),
        coordinator_crashes=pick((0, 0, 1, 4)),
        failed_appends=pick((0, 0, 3)),
        crashes=chance.randint(0, 5),
        forgetting=pick((0.0, 0.0, 0.3)),
        failures=pick((0, 0, 3)),
        pauses=chance.randint(0, 4),
        zombies=pick((0, 0, 2)),
        # A plain consumer does not detect truncation.
        truncations=0 if consumers else pick((0, 0, 2, 8)),
        retentions=pick((0, 0, 3)),
        # A plain consumer never ends, and an operator is refused while there are members.
        resets=0 if consumers else pick((0, 0, 2)),
        skew=pick((0.0, 0.0, 0.001, 0.01)),
        late=pick((0, 0, 1)),
    )


def with_faults(swarm: Swarm, faults: Faults) -> Swarm:
    """Return a swarm with a fixed amount of faults, to plan with."""
    match faults:
        case Faults.NONE:
            return swarm
        case Faults.SOME:
            return replace(swarm, loss=0.01, delay=0.02, crashes=1, moves=1, pauses=1)
        case Faults.MANY:
            return replace(
                swarm,
                loss=0.1,
                delay=0.1,
                duplicates=0.05,
                errors=0.05,
                partitionings=2,
                coordinator_crashes=2,
                crashes=3,
                moves=2,
                pauses=3,
                zombies=1,
            )


F = TypeVar("F")

LEAST: Final = {"queries": 1, "partitions": 1, "topics": 1, "chaos_s": 10.0}
"""Lower limits of the parts that a run needs."""
KEPT: Final = frozenset(
    {
        *("heartbeat_s", "session_s", "rebalance_s", "replication_s", "trigger_s", "starts_s"),
        *("restart_s", "rebalance_delay_s", "first_delay_s", "moves_max", "move_interval_s"),
        "initial_delay_s",
    }
)
"""Settings that do not change the size of a run."""


def shrunk(swarm: Swarm, fails: Callable[[Swarm], F | None]) -> F | None:
    """Return the failure of the smallest failing swarm found; None if the first does not fail.

    Args:
        fails: Tries a swarm; returns its failure, or None.
    """
    found, smallest = fails(swarm), swarm
    while found is not None:
        for smaller in _smaller(smallest):
            again = fails(smaller)
            if again is not None:
                found, smallest = again, smaller
                break
        else:
            return found
    return found


def _smaller(swarm: Swarm) -> Iterator[Swarm]:
    """Yield swarms with less of one part: none, half, one less."""
    for field_ in fields(swarm):
        name, value = field_.name, getattr(swarm, field_.name)
        if name in KEPT:
            continue
        if isinstance(value, Enum):
            steps: list[object] = [getattr(CALM, name)]
        else:
            least = LEAST.get(name, 0)
            if name == "queries" and swarm.classic:
                least = 0
            if name == "classic" and not swarm.queries:
                least = 1
            halved = value // 2 if isinstance(value, int) else value / 2
            steps = [least, halved, value - 1] if isinstance(value, int) else [least, halved]
            steps = [step for step in steps if isinstance(step, int | float) and step >= least]
        if name in ("batch_s", "rate"):
            steps = [getattr(CALM, name)]
        for step in dict.fromkeys(steps):
            smaller = replace(swarm, **{name: step})  # type: ignore[arg-type]
            if step != value and _is_worth_it(value, step):
                yield smaller


def _is_worth_it(value: object, step: object) -> bool:
    """Return whether a step is large enough: chances can be halved forever."""
    if isinstance(value, float) and isinstance(step, float):
        return step == 0.0 or abs(value - step) > 0.005
    return True
