"""How fast records of fetch responses become Arrow record batches, in one thread, from memory.

    python -m workshop.benchmarks.decode [--repeats 9] [--batch-bytes 16384]

A response of 8 MiB is decoded again and again, and each record batch released at once, as Spark's
workers do. Time is the thread's own, so that neighbours on the machine count little.
"""

from __future__ import annotations

import argparse
import random
import statistics
import time

from rich.console import Console
from rich.table import Table

from spark_groups.spark.reading.compiled import prepare
from spark_groups.spark.reading.rows import ROW_SCHEMA
from spark_groups.types import TopicPartition
from workshop.parts.encoding import LZ4, NONE, SNAPPY, ZSTD, Batch, Record

RESPONSE_BYTES = 8 * 1024 * 1024
CODECS = {"none": NONE, "lz4": LZ4, "snappy": SNAPPY, "zstd": ZSTD}
WORDS = [random.Random(word).randbytes(random.Random(word).randint(2, 9)) for word in range(500)]
TP = TopicPartition("bench", 0)


def value_of(chance: random.Random, size: int) -> bytes:
    """Return bytes that compress about as text does: words of a list, in any order."""
    value = b""
    while len(value) < size:
        value += chance.choice(WORDS)
    return value[:size]


def response_of(value_bytes: int, codec: int, batch_bytes: int) -> tuple[bytes, int]:
    """Return the bytes of batches, and how many records they hold.

    Args:
        value_bytes: Size of a value; keys have 8 bytes.
        codec: How each batch is compressed.
        batch_bytes: About how large a batch is before that.
    """
    chance = random.Random(1)
    rows = max(1, batch_bytes // (value_bytes + 18))
    count = max(1, RESPONSE_BYTES // (rows * (value_bytes + 18)))
    response, offset = bytearray(), 0
    for _ in range(count):
        records = tuple(
            Record(index, index, b"%08d" % index, value_of(chance, value_bytes))
            for index in range(rows)
        )
        response += Batch(offset, records, codec=codec, is_xerial=True).encode()
        offset += rows
    return bytes(response), offset


def measure(response: bytes, rows: int, repeats: int, *, check_crcs: bool) -> list[float]:
    """Return how many million rows each second a response was decoded in, by repeat."""
    from spark_groups.records.arrow_batches import RecordDecoder  # noqa: PLC0415
    from spark_groups.types import RangeCursor  # noqa: PLC0415

    decoder = RecordDecoder(ROW_SCHEMA, check_crcs=check_crcs)
    rates = []
    for _ in range(repeats):
        found = 0
        began_s = time.thread_time()
        for batch in decoder.decode(response, RangeCursor(TP, 0, rows)):
            found += len(batch)
        rest = decoder.take()
        found += len(rest) if rest is not None else 0
        took_s = time.thread_time() - began_s
        if found != rows:
            raise SystemExit(f"{found} rows instead of {rows}")
        rates.append(rows / took_s / 1e6)
    return rates[1:]


def main() -> None:
    """Measure what the command line asks for, and print it as a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=9)
    parser.add_argument("--batch-bytes", type=int, default=16 * 1024)
    arguments = parser.parse_args()
    began_s = time.perf_counter()
    prepare()
    console = Console()
    console.print(
        f"numba and the compiled code were there after {time.perf_counter() - began_s:.2f} s"
    )
    table = Table("value", "codec", "CRC-32C", "M rows/s, median", "best", "response GB/s")
    for value_bytes in (100, 1000):
        for name, codec in CODECS.items():
            response, rows = response_of(value_bytes, codec, arguments.batch_bytes)
            for check_crcs in (False, True):
                rates = measure(response, rows, arguments.repeats + 1, check_crcs=check_crcs)
                median = statistics.median(rates)
                table.add_row(
                    f"{value_bytes} B",
                    name,
                    "on" if check_crcs else "off",
                    f"{median:.1f}",
                    f"{max(rates):.1f}",
                    f"{median * len(response) / rows / 1e3:.2f}",
                )
    console.print(table)


if __name__ == "__main__":
    main()
