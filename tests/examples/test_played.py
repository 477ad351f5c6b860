"""Each example is played as its README describes it; what its commands print is compared."""

from __future__ import annotations

import re
from pathlib import Path

import psycopg
import pytest

from spark_groups.broker.embedded import EmbeddedKafka
from tests.examples.played import play
from tests.monitoring.scraping import free_port
from workshop.parts.postgres import running_postgres

pytestmark = [
    pytest.mark.broker,
    pytest.mark.spark,
    pytest.mark.long,
    pytest.mark.timeout(1_000),
]


def test_every_click_is_in_the_table_once_although_a_writer_is_killed(tmp_path: Path) -> None:
    with EmbeddedKafka() as kafka:
        printed = play("clickstream_to_delta", tmp_path, kafka.bootstrap_servers)
    assert "Killed" in printed
    assert "exit code 143" in printed


def test_copy_equals_the_shops_table_also_if_it_begins_again(tmp_path: Path) -> None:
    with EmbeddedKafka() as kafka, running_postgres() as dsn:
        server = psycopg.conninfo.conninfo_to_dict(dsn)
        variables = {"PGHOST": str(server["host"]), "PGUSER": str(server["user"])}
        printed = play("cdc_to_postgresql", tmp_path, kafka.bootstrap_servers, variables=variables)
    assert re.search(r"^\d+ of \d+ records are left after compaction$", printed, re.MULTILINE)
    assert "Killed" in printed
    compared = re.findall(r"^\d+\n\d+\n\d+$", printed.partition("total lag 0")[2], re.MULTILINE)
    assert compared == ["1823\n0\n0"] * 2


def test_every_order_is_in_the_service_once_although_the_application_is_killed(
    tmp_path: Path,
) -> None:
    with EmbeddedKafka() as kafka:
        port = {"SERVICE_PORT": str(free_port())}
        printed = play("rest_sink", tmp_path, kafka.bootstrap_servers, variables=port)
    assert "Killed" in printed
    before, after = re.findall(r"^(\d+) orders, (\d+) of them different$", printed, re.MULTILINE)
    assert 1_000 <= int(before[0]) < 10_000
    assert before[0] == before[1]
    assert after == ("10000", "10000")


def test_orders_are_booked_after_a_repair(tmp_path: Path) -> None:
    with EmbeddedKafka() as kafka:
        printed = play("dead_letters", tmp_path, kafka.bootstrap_servers)
    counts = [line for line in printed.splitlines() if line.endswith("orders are booked")]
    assert counts == ["976 of 1000 orders are booked", "996 of 1000 orders are booked"]
    kept = re.findall(
        r"^orders\.billing\.dead-letter-0@\d+ is not sent: the repair returned None$",
        printed,
        re.MULTILINE,
    )
    assert len(kept) == 4
