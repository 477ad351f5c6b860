"""Sends dead letters back to the topics they came from, and ends.

    spark-submit jobs/replay_dead_letters.py --config conf/replay_dead_letters.toml --dry-run

It reads a dead-letter topic as a member of a group of its own, so a second run sends what has come
since. Where a letter goes is for its headers to say: to its first topic and partition, or to the
topic for retries of the group that put it aside, which disturbs no other group. Counts of retries
begin anew. Letters that do not say where they came from are logged and left where they are. It is
at least once. --dry-run shows what would be sent, and neither writes nor commits anything.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from pyspark.sql import DataFrame, SparkSession

from spark_groups.errors import printable
from spark_groups.spark.jobs.job_options import ReplayOptions, connected
from spark_groups.spark.jobs.run import main, run_job
from spark_groups.spark.jobs.unread import unread
from spark_groups.spark.options.source_options import SourceOptions
from spark_groups.spark.processing.letters import ERROR, Letter, origin_of, replayed
from spark_groups.spark.processing.record import Record
from spark_groups.spark.processing.record_writer import Route, send_records
from spark_groups.spark.processing.strategies import named_topic

DRY_RUN = {"--dry-run": ("replay.dryRun", "Show what would be sent.")}


def run(spark: SparkSession, options: ReplayOptions) -> None:
    """Send each batch before it ends; or only show what there is."""
    template = options.retry_topic if options.to == "retry" else None

    def back(record: Record) -> Letter | None:
        if template is None:
            return replayed(record)
        origin = origin_of(record)
        return replayed(record, named_topic(template, origin.topic, origin.group_id))

    connection = connected(options.source)

    def send(batch: DataFrame, _: int) -> None:
        send_records(batch, back, connection)

    if options.dry_run:
        show(unread(SourceOptions.of(options.source)), back)
    else:
        run_job(spark, options, lambda rows: rows.writeStream.foreachBatch(send))


def show(letters: Iterable[Record], back: Route) -> None:
    """Print how many letters would go where, and why they were put aside."""
    found = Counter(_line(each, back(each)) for each in letters)
    for line, count in sorted(found.items()):
        print(f"{count} {line}")
    print(f"{sum(found.values())} dead letters; nothing was sent, and nothing committed")


def _line(record: Record, letter: Letter | None) -> str:
    error = dict(record.headers).get(ERROR) or b"no error is told"
    where = "nowhere (its headers do not say where from)" if letter is None else letter.topic
    return printable(f"to {where}: {error.decode(errors='replace')}")


if __name__ == "__main__":
    main(__doc__, ReplayOptions, run, flags=DRY_RUN)
