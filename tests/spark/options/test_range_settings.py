"""What executors need to know to read ranges."""

from __future__ import annotations

import logging
import socket
import uuid
from dataclasses import replace

import pytest

from spark_groups.errors import DataLossError, OptionsError
from spark_groups.spark.options.range_settings import RangeSettings, lose, rounds
from spark_groups.types import OffsetRange
from spark_groups.wire.security.sasl import Mechanism, PasswordLogin
from spark_groups.wire.security.security import Security


def test_errors_about_missing_rights_know_who_reads_and_where() -> None:
    login = PasswordLogin(Mechanism.SCRAM_SHA_512, "alice", "hush-123456")
    settings = RangeSettings(
        bootstrap_servers=("a:9092", "b:9092"),
        group_id="g",
        security=Security("SASL_SSL", login=login),
    )
    assert settings.identity.principal == "User:alice"
    assert settings.identity.bootstrap_servers == ("a:9092", "b:9092")
    assert "hush" not in repr(settings.identity)


def test_the_rack_comes_from_the_environment_of_the_process() -> None:
    settings = RangeSettings(bootstrap_servers=("b:1",), group_id="g", rack="eu-${env:ZONE}")
    assert settings.in_process({"ZONE": "a"}).rack == "eu-a"
    assert settings.in_process({"ZONE": "b"}) != settings.in_process({"ZONE": "a"})
    literal = replace(settings, rack="eu-1")
    assert literal.in_process({}) == literal
    # Nothing is no rack, for an executor whose zone is unknown.
    assert replace(settings, rack="${env:ZONE}").in_process({"ZONE": ""}).rack is None


def test_a_rack_without_its_variable_is_an_error_that_names_both() -> None:
    settings = RangeSettings(
        bootstrap_servers=("b:1",), group_id="g", rack="${env:REGION}-${env:ZONE}"
    )
    with pytest.raises(OptionsError, match=r"kafka.client.rack is .* but ZONE is not set") as found:
        settings.in_process({"REGION": "eu"})
    assert socket.gethostname() in str(found.value)


TOPIC_ID = uuid.UUID(int=7)


def piece(index: int, first: int, until: int) -> OffsetRange:
    return OffsetRange(TOPIC_ID, "t", index, first, until)


def test_pieces_of_a_partition_come_one_after_the_other() -> None:
    given = [piece(0, 30, 40), piece(1, 0, 5), piece(0, 0, 10), piece(0, 20, 20), piece(0, 10, 15)]
    assert list(rounds(given)) == [
        [piece(0, 0, 10), piece(1, 0, 5)],
        [piece(0, 10, 15)],
        [piece(0, 30, 40)],
    ]
    assert list(rounds([piece(0, 3, 3)])) == []


def test_loss_is_an_error_or_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    settings = RangeSettings(bootstrap_servers=("b:1",), group_id="g")
    with pytest.raises(DataLossError, match="all is gone; set failOnDataLoss to false"):
        lose(settings, "all is gone")
    forgiving = RangeSettings(bootstrap_servers=("b:1",), group_id="g", fail_on_data_loss=False)
    with caplog.at_level(logging.WARNING, "spark_groups"):
        lose(forgiving, "all is gone")
    assert "all is gone; continuing, because failOnDataLoss is false" in caplog.text
