"""`make load`: large groups, many partitions in one member, and many groups on one page.

    python -m workshop.benchmarks.load [--parts members,partitions,page] [--members 1000]
        [--partitions 10000] [--groups 200] [--page docs/benchmarks/load.md]

- `members`: light members in one group, beside a Spark member.
- `partitions`: a Spark member that is alone in its group, and owns every partition of a topic.
- `page`: groups with one light member each, in the list of `spark-groups serve`.

It keeps the results as JSON beside the page, and writes them into the page's section. Parts that
do not run keep their last results.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import pyspark
from rich.console import Console

from spark_groups.broker.embedded import EmbeddedKafka
from spark_groups.broker.kafka_jars import DEFAULT_VERSION
from spark_groups.group.member.messages import DescribeGroupRequest
from spark_groups.observation.observe import GroupObserver
from spark_groups.wire.cluster import Cluster
from workshop.benchmarks.figures import percentile
from workshop.benchmarks.heartbeats import coordinator_of
from workshop.benchmarks.light_members import LightMembers
from workshop.benchmarks.load_page import measure_page
from workshop.benchmarks.load_partitions import measure_partitions
from workshop.benchmarks.load_report import section
from workshop.benchmarks.load_spark import Query, notes_of, running
from workshop.benchmarks.member_watch import MemberWatch
from workshop.benchmarks.noted import write_section
from workshop.benchmarks.processes import usage_by_role, usage_of
from workshop.benchmarks.timed_commands import run_timed
from workshop.benchmarks.triggers import PATIENT
from workshop.parts.brokers import create_topic
from workshop.parts.waiting import wait_until

GROUP: Final = "load"
TOPIC: Final = "load"
PAGE: Final = Path(__file__).resolve().parents[2] / "docs" / "benchmarks" / "load.md"
WAIT_S: Final = 600.0
DESCRIBES: Final = 5
LOOK_S: Final = 0.5
ANSWER_S: Final = 60.0

console = Console(stderr=True)
Results = dict[str, Any]


class Group:
    """The group of the light members and the Spark member.

    Args:
        kafka: The broker.
        light: The light members.
        spark: The Spark member.
        partitions: How many partitions the members share.
    """

    def __init__(
        self, kafka: EmbeddedKafka, light: LightMembers, spark: MemberWatch, partitions: int
    ) -> None:
        self.light = light
        self.spark = spark
        self.steps: list[Results] = []
        self._servers = kafka.bootstrap_servers
        self._partitions = partitions

    def step(self, what: str, change: Callable[[], object]) -> None:
        """Change the members, and note how long the group takes, and how late heartbeats are.

        The group has taken until the last answer that changed a member: when a look finds it
        settled does not count.
        """
        before = self.light.epoch()
        began_at = time.monotonic()
        change()
        wait_until(lambda: self._has_settled(before), WAIT_S, what)
        settled_at = max(self.light.changed_at(), self.spark.changed_at)
        self._note(what, began_at, took_s=settled_at - began_at)

    def stay(self, seconds: float) -> None:
        """Note how late heartbeats are while no member changes."""
        began_at = time.monotonic()
        wait_until(lambda: time.monotonic() - began_at >= seconds, seconds + WAIT_S)
        self._note("steady", began_at, took_s=None)

    def _has_settled(self, above_epoch: int) -> bool:
        """Return whether every member has its whole target assignment."""
        is_spark_stable = self.spark.is_stable and self.spark.member_epoch == self.light.epoch()
        if not (self.light.are_stable(above_epoch) and is_spark_stable):
            return False
        # The coordinator is not to be busy with descriptions.
        time.sleep(LOOK_S)
        with Cluster(self._servers, request_timeout_s=ANSWER_S) as cluster:
            found = cluster.describe_group(DescribeGroupRequest(group_id=GROUP))
        owned = sum(len(member.assignment.partitions) for member in found.members)
        is_everyone = len(found.members) == len(self.light.all) + 1
        return is_everyone and owned == self._partitions and found.group_state == "Stable"

    def _note(self, what: str, began_at: float, *, took_s: float | None) -> None:
        ended_at = time.monotonic()
        self.steps.append(
            {
                "what": what,
                "took_s": took_s,
                "seconds": ended_at - began_at,
                "light_late_ms": late_ms(self.light.late_s(began_at, ended_at)),
                "spark_late_ms": late_ms(self.spark.late_s(began_at, ended_at)),
                "load_average": os.getloadavg()[0],
            }
        )
        console.print(self.steps[-1])


def late_ms(late_s: Iterator[float]) -> Results:
    """Return how many heartbeats there were, and how late they were: median, p99, greatest."""
    found = [each * 1000 for each in late_s]
    if not found:
        return {"count": 0, "p50": None, "p99": None, "max": None}
    return {
        "count": len(found),
        "p50": statistics.median(found),
        "p99": percentile(found, 99),
        "max": max(found),
    }


def measure_members(count: int, steady_s: float, directory: Path) -> Results:
    """Let light members join the group of a Spark member, one more join, and a tenth leave."""
    settings = {**PATIENT, "group.consumer.max.size": str(2 * count + 10)}
    with EmbeddedKafka(heap_mb=1024, server_properties=settings, start_timeout_s=WAIT_S) as kafka:
        # Enough that each member that joins gets a partition from another one.
        partitions = 2 * (count + 2)
        create_topic(kafka.bootstrap_servers, TOPIC, partitions)
        query = Query(str(directory), kafka.bootstrap_servers, GROUP, TOPIC)
        with (
            running(query) as process,
            MemberWatch(GROUP) as spark,
            LightMembers(coordinator_of(kafka, GROUP)) as light,
        ):
            wait_until(lambda: spark.is_stable and notes_of(query, "batch"), WAIT_S, "a batch")
            group = Group(kafka, light, spark, partitions)
            group.step(f"{count:,} members join", lambda: light.join([GROUP] * count, TOPIC))
            group.stay(steady_s)
            group.step("one member joins", lambda: light.join([GROUP], TOPIC))
            group.step("10 % leave", lambda: light.leave(light.all[: max(1, count // 10)]))
            group.step("they join again", lambda: light.join([GROUP] * max(1, count // 10), TOPIC))
            described = _describe(kafka.bootstrap_servers)
            assert kafka.pid is not None
            broker, own = usage_of(kafka.pid), usage_of(os.getpid())
            assert broker is not None
            assert own is not None
            return {
                "members": count,
                "partitions": partitions,
                "steps": group.steps,
                **described,
                "memory_mb": {
                    **{role: used.memory_mb for role, used in usage_by_role(process.pid).items()},
                    "broker": broker.memory_mb,
                    "light members": own.memory_mb,
                },
            }


def _describe(servers: str) -> Results:
    """Describe the group by a request, by the package's function, and by the command."""
    answers_s, views_s = [], []
    with (
        Cluster(servers, request_timeout_s=ANSWER_S) as cluster,
        GroupObserver(servers, timeout_s=ANSWER_S) as observer,
    ):
        for _ in range(DESCRIBES):
            began_at = time.monotonic()
            cluster.describe_group(DescribeGroupRequest(group_id=GROUP))
            answers_s.append(time.monotonic() - began_at)
            began_at = time.monotonic()
            observer.view(GROUP)
            views_s.append(time.monotonic() - began_at)
    command = ["describe", GROUP, "--json", "--bootstrap-server", servers]
    timed = run_timed([*command, "--timeout", f"{ANSWER_S:g}"])
    return {
        "describe_request_s": answers_s,
        "describe_view_s": views_s,
        "describe_command_s": timed.took_s,
        "describe_command_mb": timed.memory_mb,
        "describe_command_bytes": timed.output_bytes,
    }


@contextmanager
def noted(name: str, results: dict[str, Results]) -> Iterator[Results]:
    """Note where and when a part was measured, and what it left."""
    found: Results = {
        "measured_at": time.strftime("%Y-%m-%d", time.gmtime()),
        "processors": os.cpu_count(),
        "python": platform.python_version(),
        "spark": pyspark.__version__,
        "kafka": DEFAULT_VERSION,
        "load_average": [os.getloadavg()[0]],
    }
    yield found
    found["load_average"].append(os.getloadavg()[0])
    results[name] = found


def main() -> None:
    """Measure the chosen parts, and write the results and the page."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--parts", default="members,partitions,page")
    parser.add_argument("--members", type=int, default=1_000)
    parser.add_argument("--steady-s", type=float, default=60.0)
    parser.add_argument("--partitions", type=int, default=10_000)
    parser.add_argument("--batches", type=int, default=20)
    parser.add_argument("--groups", type=int, default=200)
    parser.add_argument("--refreshes", type=int, default=45)
    parser.add_argument("--page", type=Path, default=PAGE)
    given = parser.parse_args()
    parts: Mapping[str, Callable[[Path], Results]] = {
        "members": lambda place: measure_members(given.members, given.steady_s, place),
        "partitions": lambda place: measure_partitions(given.partitions, given.batches, place),
        "page": lambda _: measure_page(given.groups, given.refreshes),
    }
    kept = given.page.with_suffix(".json")
    results = json.loads(kept.read_text(encoding="utf-8")) if kept.exists() else {}
    for name in given.parts.split(","):
        with tempfile.TemporaryDirectory(prefix="load-") as directory, noted(name, results) as part:
            part.update(parts[name](Path(directory)))
        lines = (f"{json.dumps(result)}: {json.dumps(part)}" for result, part in results.items())
        kept.write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8")
        write_section(given.page, "load", section(results))
    console.print(f"written into {given.page}")


if __name__ == "__main__":
    main()
