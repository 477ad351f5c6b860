"""Where dead letters go: back to their topic, to a retry topic, or nowhere."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from pyspark import cloudpickle

from spark_groups.spark.processing.letters import Letter, dead_letter, origin_of
from spark_groups.spark.processing.record import Record
from spark_groups.spark.processing.replay import NO_ORIGIN, NOT_REPAIRED, way_back
from tests.processes import environment

OWN = (("trace", b"1"),)
REPAIR = """
from dataclasses import replace
COMMA = b","
def repaired(letter):
    if letter.value is None:
        return None
    return replace(letter, value=letter.value.replace(COMMA, b"."))
"""
UNPICKLE = """
import pickle, sys
from spark_groups.spark.processing.record import Record
back, letter = pickle.load(sys.stdin.buffer)
print(back(letter).value)
"""


def read_letter(value: bytes | None = b"12,50") -> Record:
    record = Record(b"k", value, "orders", 1, 17, 1_000, OWN)
    written = dead_letter(
        record, replace(origin_of(record), group_id="billing"), "ValueError: x", "-"
    )
    return Record(written.key, written.value, "-", 0, 3, 2_000, written.headers)


@pytest.fixture
def repair(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """The name of a function in a module that only this process has."""
    (tmp_path / "comma_repairs.py").write_text(REPAIR)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "comma_repairs", raising=False)
    return "comma_repairs:repaired"


def test_letter_goes_back_to_its_partition() -> None:
    assert way_back()(read_letter()) == Letter("orders", b"k", b"12,50", OWN, 1)


def test_letter_goes_to_the_retry_topic_of_its_group() -> None:
    letter = way_back("{topic}.{group}.retry")(read_letter())
    assert isinstance(letter, Letter)
    assert (letter.topic, letter.partition) == ("orders.billing.retry", None)


def test_record_that_is_no_letter_stays() -> None:
    assert way_back()(Record(b"k", b"v", "orders", 1, 17, 1_000)) == NO_ORIGIN


def test_letter_is_repaired_or_stays(repair: str) -> None:
    back = way_back(repair=repair)
    assert back(read_letter()) == Letter("orders", b"k", b"12.50", OWN, 1)
    assert back(read_letter(None)) == NOT_REPAIRED


def test_executors_need_no_module_of_the_repair(repair: str) -> None:
    dumps = cloudpickle.dumps
    pickled = dumps((way_back(repair=repair), read_letter()))
    elsewhere = subprocess.run(
        [sys.executable, "-c", UNPICKLE],
        input=pickled,
        capture_output=True,
        env=environment(),
        timeout=120,
        check=False,
    )
    assert elsewhere.stdout == b"b'12.50'\n", elsewhere.stderr.decode()
