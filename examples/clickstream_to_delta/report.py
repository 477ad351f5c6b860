"""Compares the table with the topic, offset by offset, and counts the clicks of each page.

    python report.py

Exit code 1 if the offsets of the table are not those of the topic, each once. `--wait-for 5000`
only waits until the table has so many rows.
"""

from __future__ import annotations

import argparse
import time
from collections import Counter
from typing import Any

from confluent_kafka import Consumer, TopicPartition
from deltalake import DeltaTable
from deltalake.exceptions import TableNotFoundError

TOPIC = "clicks"
TABLE = "table"
COLUMNS = ("partition", "offset", "page", "unreadable")
ANSWER_S = 30.0


def main() -> None:
    """Wait for rows, or print the comparison."""
    parser = argparse.ArgumentParser(
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("--bootstrap-servers", default="localhost:9092")
    parser.add_argument("--wait-for", type=int, metavar="ROWS", help="Only wait.")
    parser.add_argument(
        "--timeout", type=float, default=300.0, metavar="SECONDS", help="Of that wait."
    )
    given = parser.parse_args()
    rows = read_table()
    if given.wait_for is not None:
        deadline_s = time.monotonic() + given.timeout
        while len(rows) < given.wait_for:
            if time.monotonic() > deadline_s:
                raise SystemExit(f"the table has only {len(rows)} rows: see clicks-*.log")
            time.sleep(1)
            rows = read_table()
        print(f"{len(rows)} rows in the table")
        return
    found = Counter((row["partition"], row["offset"]) for row in rows)
    written = {
        (partition, offset)
        for partition, (first, end) in log_ends(given.bootstrap_servers).items()
        for offset in range(first, end)
    }
    missing = len(written - found.keys())
    doubled = sum(count - 1 for count in found.values())
    foreign = len(found.keys() - written)
    print(f"{len(written)} records in the topic, {len(rows)} rows in the table")
    print(f"{missing} missing, {doubled} twice, {foreign} of another topic")
    for page, count in Counter(row["page"] for row in rows if row["page"]).most_common():
        print(f"{count:>8} {page}")
    print(f"{sum(row['unreadable'] is not None for row in rows):>8} unreadable")
    if missing or doubled or foreign:
        raise SystemExit(1)


def read_table() -> list[dict[str, Any]]:
    """Return the rows of the table; none before the first batch."""
    try:
        dataset = DeltaTable(TABLE).to_pyarrow_dataset()
    except TableNotFoundError:
        return []
    # With threads, a program that ends soon after reading is often aborted (delta-rs issue 2184).
    found = dataset.to_table(columns=list(COLUMNS), use_threads=False)
    rows: list[dict[str, Any]] = found.to_pylist()
    return rows


def log_ends(bootstrap_servers: str) -> dict[int, tuple[int, int]]:
    """Return the first offset and the end of each partition of the topic."""
    consumer = Consumer({"bootstrap.servers": bootstrap_servers, "group.id": "report"})
    try:
        partitions = consumer.list_topics(TOPIC, ANSWER_S).topics[TOPIC].partitions
        return {
            each: consumer.get_watermark_offsets(TopicPartition(TOPIC, each), ANSWER_S)
            for each in partitions
        }
    finally:
        consumer.close()


if __name__ == "__main__":
    main()
