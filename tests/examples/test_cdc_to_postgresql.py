"""A copy in PostgreSQL follows a compacted topic, although its application is killed."""

from __future__ import annotations

from pathlib import Path

import psycopg
import pytest

from chaos.systems.postgres import running_postgres
from spark_groups.lab.broker.embedded import EmbeddedKafka
from tests.documents import blocks_of
from tests.examples.played import EXAMPLES, play

pytestmark = [
    pytest.mark.broker,
    pytest.mark.spark,
    pytest.mark.long,
    pytest.mark.timeout(900),
]

NAME = "cdc_to_postgresql"


def test_copy_equals_the_table(tmp_path: Path) -> None:
    with EmbeddedKafka() as kafka, running_postgres() as dsn:
        server = psycopg.conninfo.conninfo_to_dict(dsn)
        variables = {"PGHOST": str(server["host"]), "PGUSER": str(server["user"])}
        printed = play(NAME, tmp_path, kafka.bootstrap_servers, timeout_s=800, variables=variables)
    text = (EXAMPLES / NAME / "README.md").read_text(encoding="utf-8")
    [shown] = [each.text for each in blocks_of(text) if each.language == "text"]
    assert shown in printed
    assert "exit code 143" in printed
    assert "records are left after compaction" in printed
