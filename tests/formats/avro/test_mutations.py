"""Bytes that are nearly right: compiled code and plain Python make the same of them."""

from __future__ import annotations

import pytest

from workshop.fuzz import avro
from workshop.fuzz.mutation import drawn


@pytest.mark.parametrize("seed", range(4))
def test_mutated_records_have_the_same_values_and_the_same_refusals(seed: int) -> None:
    corpus = avro.records()
    for number in range(400):
        avro.feed_record(drawn(seed, "Avro records", number, corpus))


@pytest.mark.parametrize("seed", range(2))
def test_mutated_schemas_are_used_or_refused(seed: int) -> None:
    corpus = avro.schemas()
    for number in range(300):
        avro.feed_schema(drawn(seed, "Avro schemas", number, corpus))
