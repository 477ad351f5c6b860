"""The compiled decoder beside a plain one: the same on valid and on broken input.

`python -m tests.records.test_arrow_batches FIRST LAST` plays seeds; NUMBA_BOUNDSCHECK=1 makes every
index that leaves its array an error.
"""

from __future__ import annotations

import os
import random
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spark_groups.records.arrow_batches import AbortedTransaction, RecordDecoder
from spark_groups.spark.reading.rows import ROW_SCHEMA
from spark_groups.types import RangeCursor
from workshop.parts.decoding import (
    END,
    TP,
    compiled_outcome,
    plain_outcome,
    random_batches,
    rows_of,
)
from workshop.parts.encoding import NONE, Batch, marker, plain

SEEDS = range(150)
MUTATION_SEEDS = range(1000)
CHECKED_SEEDS = (1000, 2500)
ROWS_MAX = (1, 3, 10_000)
BYTES_MAX = (1, 64, 5000, 1 << 20)


def encoded(batches: Sequence[Batch]) -> bytes:
    return b"".join(batch.encode() for batch in batches)


def random_log(chance: random.Random) -> tuple[list[Batch], list[AbortedTransaction]]:
    """Return batches of producers whose transactions overlap, and which of them were aborted."""
    batches: list[Batch] = []
    aborted: list[AbortedTransaction] = []
    open_at: dict[int, int] = {}
    offset = 0
    for batch in random_batches(chance, 12):
        producer_id = chance.choice((-1, 1, 2, 3))
        if producer_id in open_at and chance.random() < 0.4:
            is_abort = chance.random() < 0.5
            first_offset = open_at.pop(producer_id)
            aborted += [AbortedTransaction(producer_id, first_offset)] if is_abort else []
            next_batch = marker(offset, producer_id, is_abort=is_abort)
        else:
            is_transactional = producer_id > 0
            next_batch = replace(
                batch,
                base_offset=offset,
                producer_id=producer_id,
                is_transactional=is_transactional,
            )
            if is_transactional:
                open_at.setdefault(producer_id, offset)
        batches.append(next_batch)
        offset = next_batch.last_offset + chance.choice((1, 1, 3))
    # Open transactions are behind the last stable offset: a broker would not send them.
    stable = min(open_at.values(), default=END)
    return [batch for batch in batches if batch.base_offset < stable], aborted


@pytest.mark.parametrize("seed", SEEDS)
def test_random_ranges_have_the_same_rows(seed: int) -> None:
    chance = random.Random(seed)
    batches = random_batches(chance, chance.randint(0, 5))
    end = batches[-1].last_offset + 3 if batches else 9
    first = batches[0].base_offset if batches else 0
    next_offset = chance.choice((first, chance.randint(first, end)))
    until_offset = chance.choice((END, chance.randint(next_offset, end)))
    bounds = {"rows_max": chance.choice(ROWS_MAX), "bytes_max": chance.choice(BYTES_MAX)}
    response = encoded(batches)
    outcome = compiled_outcome(response, next_offset, until_offset, **bounds)
    assert not outcome.is_wrong
    assert outcome == plain_outcome(response, next_offset, until_offset)


@pytest.mark.parametrize("seed", SEEDS)
def test_random_transactions_have_the_same_rows(seed: int) -> None:
    chance = random.Random(seed)
    batches, aborted = random_log(chance)
    response = encoded(batches)
    for transactions in (aborted, ()):
        outcome = compiled_outcome(response, 0, END, transactions)
        assert not outcome.is_wrong
        assert outcome == plain_outcome(response, 0, END, transactions)


@settings(max_examples=150, deadline=None)
@given(
    values=st.lists(st.none() | st.binary(max_size=60), max_size=40),
    sizes=st.lists(st.integers(0, 400), min_size=1, max_size=8),
    rows_max=st.sampled_from(ROWS_MAX),
    bytes_max=st.sampled_from(BYTES_MAX),
)
def test_responses_that_end_anywhere_continue_where_they_ended(
    values: list[bytes | None], sizes: list[int], rows_max: int, bytes_max: int
) -> None:
    """A response is cut off somewhere; the next one begins at the batch of the next offset."""
    batches = [plain(3 * index, values[3 * index :][:3]) for index in range(-(-len(values) // 3))]
    decoder = RecordDecoder(ROW_SCHEMA, rows_max=rows_max, bytes_max=bytes_max)
    position, found = RangeCursor(TP, 0, len(values)), []
    for size in [*sizes, 10_000]:
        rest = [batch for batch in batches if batch.last_offset >= position.next_offset]
        found += list(decoder.decode(encoded(rest)[:size], position))
    last = decoder.take()
    found += [last] if last is not None else []
    assert [row[1:3] for row in rows_of(found)] == [(value, n) for n, value in enumerate(values)]
    assert position.has_arrived


@settings(max_examples=300, deadline=None)
@given(octets=st.binary(max_size=300), check_crcs=st.booleans())
def test_any_bytes_end_in_rows_or_an_error(octets: bytes, check_crcs: bool) -> None:
    # Where the format is v2, the rest is looked at.
    response = octets[:16] + b"\x02" + octets[17:]
    outcome = compiled_outcome(response, check_crcs=check_crcs)
    assert outcome == plain_outcome(response, check_crcs=check_crcs) or outcome.is_wrong


def mutated(chance: random.Random, response: bytes) -> bytes:
    """Return a response in which something was changed, left out or put in."""
    octets = bytearray(response)
    for _ in range(chance.choice((1, 1, 2, 5))):
        if not octets:
            break
        # Half of it hits the first batch's header and first record.
        end = len(octets) if chance.random() < 0.5 else min(70, len(octets))
        at = chance.randrange(end)
        match chance.randrange(5):
            case 0:
                octets[at] ^= 1 << chance.randrange(8)
            case 1:
                octets[at] = chance.choice((0, 1, 0x7F, 0x80, 0xFF))
            case 2:
                del octets[at : at + chance.randint(1, 9)]
            case 3:
                octets[at:at] = chance.randbytes(chance.randint(1, 9))
            case _:
                # The largest number that a length can say.
                octets[at : at + 10] = b"\xff" * 9 + b"\x01"
    return bytes(octets)


def play(seed: int) -> bool:
    """Decode a response that was tampered with; return whether it was refused."""
    chance = random.Random(seed)
    batches = random_batches(chance, chance.randint(1, 2))
    if chance.random() < 0.8:
        # What decompresses decides on its own what it takes.
        batches = [replace(batch, codec=NONE) for batch in batches]
    response = mutated(chance, encoded(batches))
    first = batches[0].base_offset
    bounds = {"rows_max": chance.choice(ROWS_MAX), "bytes_max": chance.choice(BYTES_MAX)}
    outcome = compiled_outcome(response, first, check_crcs=False, **bounds)
    if not any(batch.codec for batch in batches):
        plain_one = plain_outcome(response, first, check_crcs=False)
        assert outcome == plain_one, f"seed {seed}"
    return outcome.is_wrong


def test_tampered_responses_are_refused_or_read_as_the_plain_decoder_does() -> None:
    refused = sum(map(play, MUTATION_SEEDS))
    assert 0.3 * len(MUTATION_SEEDS) < refused < 0.9 * len(MUTATION_SEEDS)


@pytest.mark.long
def test_no_index_ever_leaves_its_array(tmp_path: Path) -> None:
    """Compile with checks of every index, which raise, and tamper again."""
    first, last = CHECKED_SEEDS
    played = subprocess.run(
        [sys.executable, "-m", "tests.records.test_arrow_batches", str(first), str(last)],
        env={**os.environ, "NUMBA_BOUNDSCHECK": "1", "SPARK_GROUPS_CACHE_DIR": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
        timeout=800,
    )
    assert played.returncode == 0, played.stderr
    assert played.stdout.startswith(f"{last - first} responses, ")


if __name__ == "__main__":
    chosen = range(int(sys.argv[1]), int(sys.argv[2]))
    print(f"{len(chosen)} responses, {sum(map(play, chosen))} refused")
