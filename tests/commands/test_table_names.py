"""How commands name a table."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from spark_groups.commands.table_names import (
    TableKind,
    TableName,
    next_offsets,
    opened_table,
    parse_table,
)
from spark_groups.errors import OptionsError, TableError


def test_tables_are_parsed() -> None:
    assert parse_table("delta:s3a://b/t") == TableName(TableKind.DELTA, "s3a://b/t")
    assert parse_table("postgres:postgresql://h/db#public.rows") == TableName(
        TableKind.POSTGRES, "postgresql://h/db", "public.rows"
    )
    assert parse_table("iceberg:prod/air.flights") == TableName(
        TableKind.ICEBERG, "prod", "air.flights"
    )


@pytest.mark.parametrize("text", ["", "/data", "delta:", "hudi:/t", "postgres:dsn", "iceberg:x/"])
def test_another_form_is_refused(text: str) -> None:
    with pytest.raises(OptionsError, match="is not delta:PATH, postgres:DSN"):
        parse_table(text)


def test_kinds_without_commands_are_refused() -> None:
    with pytest.raises(OptionsError, match="support delta:PATH so far"):
        opened_table("iceberg:prod/air.flights")


def test_missing_table_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(TableError, match="there is no table"):
        next_offsets(f"delta:{tmp_path}/rows", "g")


def test_commands_for_delta_need_no_spark() -> None:
    program = (
        "import spark_groups.commands.table_cli, spark_groups.spark.tables.delta, sys;"
        "sys.exit('pyspark' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0
