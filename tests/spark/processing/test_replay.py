"""Where dead letters go: back to their topic, to a retry topic, or nowhere."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from pyspark import cloudpickle

from spark_groups.errors import OptionsError
from spark_groups.spark.processing.kafka_record import Record
from spark_groups.spark.processing.letters import Letter, dead_letter, origin_of
from spark_groups.spark.processing.replay import NO_ORIGIN, NOT_REPAIRED, replay_route
from workshop.parts.processes import environment

OWN = (("trace", b"1"),)
REPAIR = """
from dataclasses import replace
import threading
COMMA = b","
LOCK = threading.Lock()
def locked(letter):
    with LOCK:
        return letter
def repair_order(letter):
    if letter.value is None:
        return None
    return replace(letter, value=letter.value.replace(COMMA, b"."))
"""
UNPICKLE = """
import pickle, sys
from spark_groups.spark.processing.kafka_record import Record
route, letter = pickle.load(sys.stdin.buffer)
print(route(letter).value)
"""


LETTERS = "orders.billing.dead-letter"


def read_letter(value: bytes | None = b"12,50", topic: str = LETTERS) -> Record:
    record = Record(b"k", value, "orders", 1, 17, 1_000, OWN)
    written = dead_letter(
        record, replace(origin_of(record), group_id="billing"), "ValueError: x", "-"
    )
    return Record(written.key, written.value, topic, 0, 3, 2_000, written.headers)


@pytest.fixture
def repair(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """The name of a function in a module that only this process has."""
    (tmp_path / "comma_repairs.py").write_text(REPAIR)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "comma_repairs", raising=False)
    return "comma_repairs:repair_order"


def test_letter_goes_back_to_its_partition() -> None:
    assert replay_route()(read_letter()) == Letter("orders", b"k", b"12,50", OWN, 1)


def test_letter_goes_to_the_retry_topic_of_its_group() -> None:
    letter = replay_route("{topic}.{group}.retry")(read_letter())
    assert isinstance(letter, Letter)
    assert (letter.topic, letter.partition) == ("orders.billing.retry", None)


@pytest.mark.parametrize(
    "topic",
    ["payments.billing.dead-letter", "orders.others.dead-letter", "orders", "letters", "-"],
)
def test_letter_that_names_another_topic_than_its_own_stays(topic: str) -> None:
    letter = read_letter(topic=topic)
    for retry, wanted in ((None, "orders"), ("{topic}.{group}.retry", "orders.billing.retry")):
        refused = replay_route(retry)(letter)
        assert isinstance(refused, str)
        assert f"its headers name the topic {wanted}, which is not in replay.topics" in refused
        sent = replay_route(retry, topics=(wanted,))(letter)
        assert isinstance(sent, Letter)
        assert sent.topic == wanted


def test_dead_letter_topics_may_have_names_of_their_own() -> None:
    route = replay_route(dead_letter_topic="bad-{topic}")
    assert isinstance(route(read_letter(topic="bad-orders")), Letter)
    assert isinstance(route(read_letter(topic="bad-payments")), str)


def test_record_that_is_no_letter_stays() -> None:
    assert replay_route()(Record(b"k", b"v", "orders", 1, 17, 1_000)) == NO_ORIGIN


def test_letter_is_repaired_or_stays(repair: str) -> None:
    route = replay_route(repair=repair)
    assert route(read_letter()) == Letter("orders", b"k", b"12.50", OWN, 1)
    assert route(read_letter(None)) == NOT_REPAIRED


def test_executors_need_no_module_of_the_repair(repair: str) -> None:
    pickled = cloudpickle.dumps((replay_route(repair=repair), read_letter()))
    elsewhere = subprocess.run(
        [sys.executable, "-c", UNPICKLE],
        input=pickled,
        capture_output=True,
        env=environment(),
        timeout=800,
        check=False,
    )
    assert elsewhere.stdout == b"b'12.50'\n", elsewhere.stderr.decode()


def test_repair_that_cannot_be_pickled_is_refused_at_once(repair: str) -> None:
    name = repair.replace("repair_order", "locked")
    with pytest.raises(OptionsError, match="'comma_repairs:locked' cannot be sent"):
        replay_route(repair=name)
