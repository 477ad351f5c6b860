"""Sends dead letters back to their original topics, and ends.

    spark-submit jobs/replay_dead_letters.py --config conf/replay_dead_letters.toml --dry-run
    python -m spark_groups.jobs.replay_dead_letters --config conf/replay_dead_letters.toml

The job reads a dead-letter topic as a member of its own group, so a second run sends only the
letters that have arrived since. A letter's headers name its destination: its original topic and
partition, or the retry topic of its group, which disturbs no other group. They are believed only
for the topic that the dead-letter topic is named after, and for those of `replay.topics`. Other
letters are logged and stay. Retry counts restart. Delivery is at least once. `replay.repair` names
a function that changes letters before they are sent.
--dry-run shows what would be sent, and neither writes nor commits anything.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import replace

from pyspark.sql import DataFrame, SparkSession

from spark_groups.errors import printable
from spark_groups.spark.jobs.job_options import ReplayOptions, connected
from spark_groups.spark.jobs.run import main, run_job
from spark_groups.spark.options.range_settings import ReaderChoice
from spark_groups.spark.options.source_options import SourceOptions
from spark_groups.spark.processing.kafka_record import Record, records_of
from spark_groups.spark.processing.letters import ERROR, Letter
from spark_groups.spark.processing.record_writer import WRITERS, LetterRoute, send_records
from spark_groups.spark.processing.replay import replay_route
from spark_groups.spark.reading.reader import read_ranges
from spark_groups.spark.source.batch_read import read_backlog
from spark_groups.wire.cluster_identity import ClusterIdentity

DRY_RUN = {"--dry-run": ("replay.dryRun", "Show what would be sent.")}


def run(spark: SparkSession, options: ReplayOptions) -> None:
    """Send each batch before it ends, or show the unread letters."""
    retry = options.retry_topic if options.to == "retry" else None
    route = replay_route(retry, options.repair, options.topics, options.dead_letter_topic)
    connection = connected(options.source)

    def send(batch: DataFrame, _: int) -> None:
        send_records(batch, route, connection, is_replay=True)

    if options.dry_run:
        source = SourceOptions.of(options.source)
        # The driver reads these itself: for a few records, compiling the fast reader takes longer.
        settings = replace(source.range_settings(), reader=ReaderChoice.LIBRDKAFKA)
        identity = ClusterIdentity()
        backlog = read_backlog(source, identity, may_be_new=True)
        settings = replace(settings, cluster_id=identity.cluster_id)
        with WRITERS.borrow(connection) as writer:
            show(records_of(read_ranges(settings, backlog)), writer.route(route))
    else:
        run_job(spark, options, lambda rows: rows.writeStream.foreachBatch(send))


def show(letters: Iterable[Record], route: LetterRoute) -> None:
    """Print how many letters would go to each topic, by their errors."""
    found = Counter(_line(letter, route(letter)) for letter in letters)
    for line, count in sorted(found.items()):
        print(f"{count} {line}")
    print(f"{sum(found.values())} dead letters; nothing was sent or committed")


def _line(record: Record, letter: Letter | str) -> str:
    error = dict(record.headers).get(ERROR) or b"no error recorded"
    fate = f"not sent ({letter})" if isinstance(letter, str) else f"to {letter.topic}"
    return printable(f"{fate}: {error.decode(errors='replace')}")


if __name__ == "__main__":
    main(__doc__, ReplayOptions, run, flags=DRY_RUN)
