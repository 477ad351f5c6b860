"""`make chaos`: members of one group on a real broker, with faults drawn from a seed.

Queries at the level of their drivers (the package's own run and reader, called as Spark calls
them, with a checkpoint on disk), static members among them, and a plain Kafka consumer share two
topics that grow, while they are killed, stopped, stood still beyond their session, and killed
before and after everything that a batch writes. Spark applications, and consumers of the classic
protocol, can be members, too. Each batch goes to a file, and to tables of the
package (`--sinks`). In the end the faults stop, the group reads the rest, and all sinks are
compared with the produced rows. With `--brokers 3`, brokers are also killed, stopped and restarted,
one at a time. With `--faults network,disk,clock,retention`, the network between members and brokers
is cut or slow, disks of members and brokers become full, clocks of members jump, and records are
deleted before they are read. With `--faults resets`, all members end at times, and an operator
resets offsets, deletes them, replaces checkpoints and adds a topic; with `--faults cluster`,
connections lead to another cluster at times. With `--values avro`, all members are applications
that decode values, whose writers change their schema, into the columns of a Delta table. With
`--tables`, tables are partitioned, or there are a table with one row for each key, which is
compared with a replay of the log, and a table for each of 20 topics, filled by one route. The exit
status is 0 only if nothing is lost, nothing is doubled in a table, each table's fence is that of
its rows, and every double in the file has a cause.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import random
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Final

from confluent_kafka import KafkaException
from rich.console import Console

from demo.signals import interrupt_on_termination
from spark_groups.broker.embedded import EmbeddedKafka
from spark_groups.cli.table_names import TableKind
from spark_groups.errors import SparkGroupsError
from spark_groups.spark.reading.compiled import AVRO, NotCompiledError, prepare
from workshop.chaos.bounds import ChaosError, hard_end, run_directory
from workshop.chaos.faults.brokers import BrokerFaults, draw_for_brokers
from workshop.chaos.faults.clocks import ClockError, start_fork_server
from workshop.chaos.faults.disks import DiskError
from workshop.chaos.faults.machine import Disks
from workshop.chaos.faults.network import Network, NetworkFaults, running_kafka
from workshop.chaos.faults.optional_faults import OF_NETWORK, OptionalFaults
from workshop.chaos.faults.resets import AtHand
from workshop.chaos.faults.retention import Retention
from workshop.chaos.faults.schedule import (
    BrokerFault,
    Fault,
    FaultClass,
    FaultKind,
    draw_queries,
    with_a_clock,
    with_losses,
)
from workshop.chaos.members.checkpoint import Checkpoint
from workshop.chaos.members.ensemble import Ensemble, Outcome, prepare_to_fork
from workshop.chaos.members.journal import lines_of
from workshop.chaos.members.kinds import (
    MemberKind,
    Others,
    draw_faults_of_others,
    draw_others,
    draw_usual_faults,
)
from workshop.chaos.options import parse
from workshop.chaos.results import runs
from workshop.chaos.results.account import Account, Evidence, account
from workshop.chaos.results.facts import read_facts
from workshop.chaos.results.page import NAME, page_of
from workshop.chaos.results.recovery import recoveries
from workshop.chaos.results.report import (
    INCOMPLETE,
    Circumstances,
    as_plain,
    as_tables,
    exit_status,
)
from workshop.chaos.results.trial import shortfalls
from workshop.chaos.setting import Files, Setting
from workshop.chaos.systems import evolving
from workshop.chaos.systems.cluster import Broker, ClusterError, CommittedWatch
from workshop.chaos.systems.elsewhere import Elsewhere
from workshop.chaos.systems.found import Found
from workshop.chaos.systems.production import Production
from workshop.chaos.systems.record import Values, record_value
from workshop.chaos.systems.sinks import APPENDED, appended_rows
from workshop.chaos.systems.tables import USE_POSTGRES, Form, open_table
from workshop.parts.kafka_cluster import CLUSTER_SESSION_MS, EmbeddedCluster
from workshop.parts.postgres import PostgresError, running_postgres
from workshop.parts.schema_registry import Registry, RegistryError, running_registry

GROUP_ID: Final = "chaos"
NAMED_WAIT: Final = "waiting for the answer"
"""How a member's log begins to name what it waits for."""
TOPICS: Final = {"ants": 4, "bees": 3}
ROUTED: Final = TOPICS | {f"hive.{number}": 1 for number in range(len(TOPICS) + 1, 21)}
"""The topics of a run with a table for each."""
PARTITIONS_MAX: Final = 12
"""How many partitions a topic grows to, at most."""
SESSION_MS: Final = 10_000
HEARTBEAT_MS: Final = 2_000
REBALANCE_TIMEOUT_MS: Final = 60_000
BROKER_PROPERTIES: Final = {
    "group.consumer.session.timeout.ms": str(SESSION_MS),
    "group.consumer.heartbeat.interval.ms": str(HEARTBEAT_MS),
    "offsets.topic.num.partitions": "1",
}
BEGIN_S: Final = 180.0
"""How long it may take until every partition has a committed offset."""
EFFECT_S: Final = 60.0
"""How much longer faults are tried of a class that has had no effect when the time is over."""
DRAIN_S: Final = 420.0
"""How long the group may take to read the rest."""
STANDS: Final = 4
"""How many times as long as there are faults a run may take, as no member runs at times."""
SPARE_S: Final = BEGIN_S + EFFECT_S + 2 * DRAIN_S + 600.0
"""The run ends this long after the faults, in any case: later than all waits together."""
PROGRESS_S: Final = 5.0
LATER_PARTITIONS: Final = 2
"""How many partitions a topic has that appears while no member runs."""
RECORDS_S: Final = 30.0
"""How long it may take until each of them has a record."""
TICK_S: Final = 0.05


FAILURES: Final = (
    *(SparkGroupsError, ChaosError, ClusterError, PostgresError, KafkaException),
    *(ClockError, DiskError, RegistryError),
)
"""Why a run could not be made."""


class Chaos:
    """One run.

    Args:
        console: Where progress is shown.
        kafka: The broker, or all of them.
        files: The files of the run.
        chosen: The options.
        disks: The disks that become full.
        postgres: How libpq reaches PostgreSQL, if a table needs it.
        network: The network that members reach the brokers over, if it has faults.
        registry: The registry with the schemas of values, if members decode them.
    """

    def __init__(
        self,
        console: Console,
        kafka: EmbeddedKafka | EmbeddedCluster,
        files: Files,
        chosen: argparse.Namespace,
        *,
        disks: Disks,
        postgres: str | None = None,
        network: Network | None = None,
        registry: Registry | None = None,
    ) -> None:
        self._console = console
        self._kafka = kafka
        self._files = files
        self._chosen = chosen
        self._postgres, self._registry = postgres, registry
        self._kinds: list[TableKind] = chosen.sinks
        cluster = kafka if isinstance(kafka, EmbeddedCluster) else None
        self._broker = Broker(kafka.bootstrap_servers, chosen.brokers)
        self._broker_faults = BrokerFaults(cluster, self._say, disks, network)
        self._network = network
        self._optional = OptionalFaults(
            chosen.seed,
            chosen.faults,
            duration_s=chosen.minutes * 60,
            disks=disks,
            retention=Retention(self._broker, GROUP_ID, self._say),
        )
        topics = ROUTED if Form.ROUTES in chosen.tables else TOPICS
        self._topics = topics | dict(self._optional.short_lived)
        self._counts = dict(self._topics)
        self._began_s = time.monotonic()
        self._began_at_s = self._faults_from_s = time.time()
        self._shown_s = 0.0
        self._loads: list[float] = []
        self._problems, self._shortfalls = list[str](), list[str]()

    def run(self) -> tuple[Circumstances, Account]:
        """Make the run, and compare the sinks with the records produced."""
        chosen = self._chosen
        chance = random.Random(chosen.seed)
        is_slow = self._kinds != [TableKind.SQLITE]
        fast = _has_fast_reader(self._console, is_avro=self._registry is not None)
        queries = draw_queries(chance, chosen.queries, fast=fast, is_slow=is_slow)
        queries = with_a_clock(queries, fast=fast and FaultClass.CLOCK in chosen.faults)
        queries = with_losses(queries) if FaultClass.RESETS in chosen.faults else queries
        self._others = others = draw_others(chosen, fast=fast, is_slow=is_slow)
        names = tuple(query.name for query in queries)
        self._network_faults = self._faults_of_network((*names, *others.names))
        self._setting = setting = Setting(
            bootstrap_servers=self._kafka.bootstrap_servers,
            sides=self._network_faults.servers(),
            group_id=GROUP_ID,
            topics=self._broker.create(self._topics),
            session_s=SESSION_MS / 1000,
            rebalance_timeout_ms=REBALANCE_TIMEOUT_MS,
            queries={each.name: each for each in (*queries, *others.applications)},
            sinks=tuple(each.value for each in self._kinds),
            postgres=self._postgres,
            is_slow=is_slow,
            plant=chosen.plant,
            short_lived=tuple(self._optional.short_lived),
            later=self._optional.later,
            registry=None if self._registry is None else self._registry.url,
            forms=tuple(each.value for each in chosen.tables),
        )
        self._files.make()
        self._optional.prepare(self._files)
        setting.save(self._files.directory)
        for kind in self._kinds:
            # Members that begin at once would all make the tables of Iceberg's catalog.
            open_table(kind, setting.places(self._files))
        times: dict[str, float] = {
            "duration_s": chosen.minutes * 60,
            "session_s": setting.session_s,
        }
        faults = draw_usual_faults(chance, others, names, tuple(TOPICS), **times)
        faults += draw_faults_of_others(chosen.seed, others, **times)
        broker_faults = draw_for_brokers(chance, chosen, CLUSTER_SESSION_MS / 1000)
        records = (self._topics, chosen.rows_per_second, chosen.seed)
        self._writers = self._begun_writers()
        value = self._writers or record_value
        self._production = Production(setting.bootstrap_servers, *records, value=value)
        other = self._network.elsewhere if self._network else None
        self._elsewhere = Elsewhere(other.bootstrap_servers, GROUP_ID, *records) if other else None
        self._ensemble = Ensemble(self._files, others.kinds(names), self._grow)
        self._optional.begin(self._at_hand(others.kinds(names)), self._ensemble.members, queries)
        for each in (*queries, *others.applications):
            self._say(f"  {each}")
        self._network_faults.draw(chosen.minutes * 60, setting.session_s)
        self._watch = CommittedWatch(self._broker, GROUP_ID)
        try:
            self._begin(names)
            self._work(sorted(faults, key=lambda each: each.at_s), broker_faults)
            drained_s = self._drain()
            self._ensemble.end()
        finally:
            self._watch.end()
            self._production.stop()
            if self._elsewhere is not None:
                self._problems += self._elsewhere.stop()
            self._ensemble.kill()
        return self._account(drained_s)

    def _faults_of_network(self, members: tuple[str, ...]) -> NetworkFaults:
        # Only the package tells clusters apart: consumers without it stay where they are.
        stay = self._others.consumers if FaultClass.CLUSTER in self._chosen.faults else ()
        return NetworkFaults(
            self._network,
            tuple(member for member in members if member not in stay),
            self._chosen.seed,
            self._say,
            classes=self._chosen.faults,
            may_move=self._know_their_cluster,
        )

    def _begun_writers(self) -> evolving.Writers | None:
        """Register the schema that readers have; return who writes values with other ones."""
        if self._registry is None:
            return None
        chosen = self._chosen
        register = partial(self._registry.register, evolving.SUBJECT)
        interval_s = chosen.minutes * 60 / evolving.VERSIONS
        return evolving.Writers(register, interval_s, chosen.seed, self._say)

    def _begin(self, queries: tuple[str, ...]) -> None:
        """Start the queries, and then all else: `latest` is where a topic ends when it is asked."""
        first = queries or self._others.names
        self._say("members join; nothing is produced before each partition has its start")
        self._ensemble.start(first)
        wanted = {(name, index) for name, count in self._topics.items() for index in range(count)}

        def has_begun() -> bool:
            return set(self._broker.committed(GROUP_ID)) >= wanted

        if not self._until(has_begun, BEGIN_S):
            raise ChaosError(f"not every partition has a start after {BEGIN_S:g} s")
        self._production.start()
        if self._elsewhere is not None:
            self._elsewhere.start()
        self._ensemble.start(name for name in self._others.names if name not in first)
        self._say(f"records are produced, and {self._chosen.minutes:g} minutes of faults begin")

    def _work(self, faults: list[Fault], broker_faults: list[BrokerFault]) -> None:
        began_s, duration_s = time.monotonic(), float(self._chosen.minutes) * 60
        self._faults_from_s = time.time()

        def is_over() -> bool:
            since_s = time.monotonic() - began_s - self._optional.stood_s
            while faults and faults[0].at_s <= since_s:
                self._ensemble.carry_out(faults.pop(0))
            while broker_faults and broker_faults[0].at_s <= since_s:
                self._broker_faults.carry_out(broker_faults.pop(0))
            self._network_faults.tick(since_s)
            self._optional.carry_out(since_s)
            is_tried = since_s >= duration_s and self._optional.has_effect
            is_late = since_s >= duration_s + EFFECT_S
            return is_tried or is_late or self._ensemble.is_extinct()

        self._until(is_over, STANDS * (duration_s + EFFECT_S), look_s=TICK_S)

    def _drain(self) -> float | None:
        """Let the group read the rest; return how long that took, None if it did not finish."""
        self._say("the faults stop, and the group reads the rest")
        self._broker_faults.settle()
        self._network_faults.settle()
        self._optional.settle()
        began_s = time.monotonic()
        if not self._until(lambda: not self._lasting(), DRAIN_S):
            self._shortfalls += [f"{each} after {DRAIN_S:g} s" for each in self._lasting()]
        self._production.stop()

        def is_drained() -> bool:
            self._ensemble.settle()
            ends, committed = self._broker.ends(self._counts), self._broker.committed(GROUP_ID)
            lags.append(sum(max(0, end - committed.get(e, 0)) for e, end in ends.items()))
            return lags[-1] == 0 or self._ensemble.is_extinct()

        lags: list[int] = []
        self._until(is_drained, DRAIN_S)
        took_s = time.monotonic() - began_s
        if lags[-1] == 0:
            return took_s
        self._problems.append(f"{lags[-1]} records were not committed {took_s:.0f} s after faults")
        return None

    def _lasting(self) -> list[str]:
        """Return the faults that are not over, or have not begun, when faults are to stop."""
        self._ensemble.settle()
        silent = self._ensemble.without_batch(self._files.journals, sum(self._counts.values()))
        return [
            *(["faults of brokers last"] if self._broker_faults.is_busy else []),
            *(["records are being deleted"] if self._optional.is_busy else []),
            *(f"{each} has no batch" for each in silent),
        ]

    def _until(self, condition: Callable[[], bool], timeout_s: float, look_s: float = 0.5) -> bool:
        """Keep everything going until a condition is met; False if that takes too long."""
        deadline_s = time.monotonic() + timeout_s
        look_at_s = 0.0
        while time.monotonic() < deadline_s:
            self._ensemble.tick()
            self._optional.tick()
            self._show_progress()
            if time.monotonic() >= look_at_s:
                if condition():
                    return True
                look_at_s = time.monotonic() + look_s
            time.sleep(TICK_S)
        return False

    def _grow(self, topic: str, more: int) -> bool:
        had = self._counts[topic]
        count = min(PARTITIONS_MAX, had + more)
        if count == had or self._broker_faults.is_busy:
            # New partitions need a broker for each replica.
            return False
        self._broker.grow(topic, count)
        self._counts[topic] = count
        self._production.add((topic, index) for index in range(had, count))
        return True

    def _know_their_cluster(self) -> bool:
        """Whether each query has a plan: a checkpoint without one accepts any cluster."""
        found = (Checkpoint(self._files.checkpoint(query)) for query in self._setting.queries)
        return all(each.last_plan() is not None for each in found)

    def _add_topic(self) -> str | None:
        """Create a topic that members subscribe to, with records; None: all are there."""
        topic = next((each for each in self._setting.later if each not in self._counts), None)
        if topic is None:
            return None
        topics = self._setting.topics | self._broker.create({topic: LATER_PARTITIONS})
        self._counts[topic] = LATER_PARTITIONS
        self._setting = replace(self._setting, topics=topics)
        self._setting.save(self._files.directory)
        self._production.add((topic, index) for index in range(LATER_PARTITIONS))
        own = {topic: LATER_PARTITIONS}
        # Records that are older than the first look at the topic are to be read, too.
        self._until(lambda: all(self._broker.ends(own).values()), RECORDS_S)
        return topic

    def _at_hand(self, kinds: Mapping[str, MemberKind]) -> AtHand:
        short_lived = self._optional.short_lived

        def is_quiet() -> bool:
            self._network_faults.settle()
            return not (self._broker_faults.is_busy or self._optional.is_busy)

        return AtHand(
            broker=self._broker,
            bootstrap_servers=self._kafka.bootstrap_servers,
            group_id=GROUP_ID,
            files=self._files,
            places=self._setting.places(self._files),
            tables=self._kinds,
            ensemble=self._ensemble,
            kinds=kinds,
            counts=lambda: {t: n for t, n in self._counts.items() if t not in short_lived},
            add_topic=self._add_topic,
            is_quiet=is_quiet,
            until=self._until,
            say=self._say,
        )

    def _show_progress(self) -> None:
        if time.monotonic() - self._shown_s < PROGRESS_S:
            return
        self._shown_s = time.monotonic()
        self._loads.append(os.getloadavg()[0])
        outcomes = self._ensemble.outcomes
        done = Counter({kind: outcomes[kind, Outcome.DONE] for kind in FaultKind})
        produced = self._production.acknowledged
        self._say(
            f"produced {produced:,}, committed {self._watch.committed:,} | "
            f"{self._ensemble.running()} of {len(self._ensemble.members)} run | "
            f"kills {done[FaultKind.KILL]}, crashes {done[FaultKind.CRASH]}, "
            f"freezes {done[FaultKind.FREEZE] + done[FaultKind.FREEZE_AT_POINT]}, "
            f"ends {done[FaultKind.TERMINATE]}, "
            f"of brokers {len(self._broker_faults.disruptions)}, "
            f"of the network {len(self._network_faults.troubles)} | load {self._loads[-1]:.1f}"
        )

    def _say(self, line: str) -> None:
        self._console.print(f"{time.monotonic() - self._began_s:4.0f} s  {line}", markup=False)

    def _account(self, drained_s: float | None) -> tuple[Circumstances, Account]:
        self._say("the sinks are compared with the records produced")
        evidence = Evidence(
            ends=self._broker.ends(self._counts),
            append=[
                row
                for path in sorted(self._files.appended.glob(APPENDED))
                for row in appended_rows(path)
            ],
            tables=self._found().evidence(
                self._kinds, self._setting.topics if Form.ROUTES in self._setting.forms else ()
            ),
            facts=read_facts(
                lines_of(self._files.journals),
                self._others.consumers,
                _finished_s(self._files, self._others),
            ),
            commits=self._broker.commit_history(GROUP_ID),
            session_s=SESSION_MS / 1000,
            rebalance_timeout_s=REBALANCE_TIMEOUT_MS / 1000,
            disruptions=tuple(self._broker_faults.disruptions),
            troubles=(*self._network_faults.troubles, *self._optional.troubles),
            deletions=self._optional.deletions,
            starts=self._broker.starts(self._optional.short_lived),
            short_lived=frozenset(self._optional.short_lived),
        )
        return self._circumstances(evidence, drained_s), account(evidence)

    def _found(self) -> Found:
        return Found(
            self._setting.places(self._files),
            GROUP_ID,
            self._setting.topics,
            has_fields=self._writers is not None,
        )

    def _circumstances(self, evidence: Evidence, drained_s: float | None) -> Circumstances:
        ends = evidence.ends
        produced, acknowledged = sum(ends.values()), self._production.acknowledged
        problems = [*self._problems, *self._production.problems[:5], *self._ensemble.hung]
        keys = 0
        if self._writers and Form.UPSERTS in self._setting.forms:
            keys, wrong = self._found().upserted(self._writers.log(ends), ends)
            problems += wrong
        if produced != acknowledged:
            problems.append(f"{acknowledged} records were acknowledged, the log has {produced}")
        faults = self._faults()
        missing = shortfalls(
            evidence,
            members=self._ensemble.members,
            asked=self._chosen.faults,
            brokers=self._chosen.brokers,
            done={kind: found[Outcome.DONE.value] for kind, found in faults.items()},
        )
        versions = self._writers.versions if self._writers else 0
        if self._writers and evidence.tables[TableKind.DELTA.value].entries:
            delta = self._setting.places(self._files).delta
            missing += evolving.unread_versions(delta, versions)
        died = (*self._broker_faults.problems, *self._optional.problems, *self._watch.problems)
        return Circumstances(
            command=self._chosen.command,
            seed=self._chosen.seed,
            began_s=self._began_at_s,
            faults_from_s=self._faults_from_s,
            minutes=self._chosen.minutes,
            kafka_version=self._kafka.version,
            session_s=SESSION_MS / 1000,
            cores=os.cpu_count() or 1,
            load_mean=sum(self._loads) / max(1, len(self._loads)),
            load_max=max(self._loads, default=0.0),
            partitions_first=sum(self._topics.values()),
            partitions_last=len(ends),
            processes=sum(member.number for member in self._ensemble.members.values()),
            batches=len(evidence.facts.batches),
            faults=faults,
            brokers=self._chosen.brokers,
            disruptions=evidence.disruptions,
            troubles=evidence.troubles,
            deletions=evidence.deletions,
            recoveries=recoveries(evidence),
            points=self._ensemble.points,
            drained_s=drained_s,
            problems=tuple(problems),
            shortfalls=(*died, *self._shortfalls, *missing),
            connections=self._network_faults.connections(),
            named_waits=sum(
                path.read_text(errors="replace").count(NAMED_WAIT)
                for path in self._files.logs.glob("*.log")
            ),
            schemas=versions,
            keys=keys,
        )

    def _faults(self) -> dict[str, dict[str, int]]:
        """Return how many faults of each kind had which outcome; kinds without any are left out."""
        found = (
            self._ensemble.outcomes,
            self._broker_faults.outcomes,
            self._network_faults.outcomes,
            self._optional.outcomes,
        )
        counts = {(kind.value, each): n for one in found for (kind, each), n in one.items()}
        kinds = dict.fromkeys(kind for kind, _ in counts)
        return {
            kind: {each.value: counts.get((kind, each), 0) for each in Outcome} for kind in kinds
        }


def _finished_s(files: Files, others: Others) -> dict[tuple[str, int], float]:
    return {
        (application.name, number): at_s
        for application in others.applications
        for number, at_s in Checkpoint(files.checkpoint(application.name)).finished_s().items()
    }


def _has_fast_reader(console: Console, *, is_avro: bool) -> bool:
    try:
        # Once for all: members are not to wait for it while faults are due.
        prepare()
        if is_avro:
            prepare(AVRO)
    except NotCompiledError as error:
        console.print(f"all ranges are read by librdkafka: {error}", markup=False)
        return False
    return True


def main(arguments: list[str] | None = None) -> int:
    """Make a run; the exit status is 0 only if all is well."""
    chosen = parse(arguments, __doc__)
    console = Console(stderr=chosen.json, highlight=False, soft_wrap=not sys.stdout.isatty())
    interrupt_on_termination()
    console.print(f"seed {chosen.seed}, {chosen.minutes:g} minutes")
    prepare_to_fork(sink.value for sink in chosen.sinks)
    chosen.line = runs.started(chosen) if chosen.record else {}
    try:
        return _run(console, chosen)
    except KeyboardInterrupt:
        console.print("\nstopped; nothing is left running")
        return 130
    except Exception as error:
        console.print(f"\nthe run could not be made: {error}", markup=False, style="red")
        if not isinstance(error, FAILURES):
            console.print_exception()
        if chosen.record:
            runs.note({**chosen.line, "exit_status": INCOMPLETE})
        return INCOMPLETE


def _run(console: Console, chosen: argparse.Namespace) -> int:
    with (
        run_directory(console, chosen.keep) as (directory, keep),
        tempfile.TemporaryDirectory(prefix="chaos-") as sockets,
    ):
        with (
            _postgres(chosen) as postgres,
            _registry(chosen) as registry,
            Disks(chosen.faults) as disks,
            running_kafka(
                chosen.brokers,
                BROKER_PROPERTIES,
                None if OF_NETWORK.isdisjoint(chosen.faults) else chosen.seed,
                disks.of_brokers(directory, range(1, chosen.brokers + 1)),
                has_other=FaultClass.CLUSTER in chosen.faults,
            ) as (kafka, network),
        ):
            if FaultClass.CLOCK in chosen.faults:
                start_fork_server()
            files = Files(directory, Path(sockets))
            chaos = Chaos(
                *(console, kafka, files, chosen),
                disks=disks,
                postgres=postgres,
                network=network,
                registry=registry,
            )
            with hard_end(chosen.minutes * 60 * STANDS + SPARE_S):
                circumstances, found = chaos.run()
        report = json.dumps(as_plain(circumstances, found), indent=2)
        (directory / "report.json").write_text(report + "\n", encoding="utf-8")
        if chosen.json:
            sys.stdout.write(report + "\n")
        else:
            console.print(as_tables(circumstances, found))
        status = exit_status(circumstances, found)
        if chosen.record:
            noted = runs.result(circumstances, found)
            runs.note({**chosen.line, **noted, "exit_status": status})
        if status:
            keep()
            console.print(f"play it again: {chosen.command}", markup=False)
        page = page_of(directory)
        for path in filter(None, (directory / NAME, chosen.page)):
            path.write_text(page, encoding="utf-8")
        return status


def _postgres(chosen: argparse.Namespace) -> AbstractContextManager[str | None]:
    if any(sink in USE_POSTGRES for sink in chosen.sinks):
        return running_postgres()
    return contextlib.nullcontext()


def _registry(chosen: argparse.Namespace) -> AbstractContextManager[Registry | None]:
    return running_registry() if chosen.values is Values.AVRO else contextlib.nullcontext()


if __name__ == "__main__":
    sys.exit(main())
