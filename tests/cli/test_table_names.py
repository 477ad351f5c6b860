"""The names of tables in commands."""

from __future__ import annotations

import subprocess
import sys
from contextlib import AbstractContextManager
from pathlib import Path

import pytest

from spark_groups.cli.table_names import (
    TableKind,
    TableName,
    next_offsets,
    opened_table,
    parse_table,
    reached,
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


def test_unknown_catalog_is_refused() -> None:
    with pytest.raises(OptionsError, match="the Iceberg catalog 'prod' is not known"):
        opened_table("iceberg:prod/air.flights")


def test_error_about_the_name_of_a_database_omits_the_password() -> None:
    with pytest.raises(OptionsError) as refused:
        parse_table("postgres:postgresql://u:secret@h/db")
    assert "secret" not in str(refused.value)


@pytest.mark.parametrize("text", ["postgresql://me:hush@db/lake#t", "x://me:hu@sh@db"])
def test_error_about_another_form_omits_logins(text: str) -> None:
    with pytest.raises(OptionsError, match=r"://\*\*\*@db") as refused:
        parse_table(text)
    assert "sh@" not in str(refused.value)


def test_name_of_a_delta_table_omits_the_login_of_its_address() -> None:
    table = opened_table("delta:s3://key:hush@nowhere/flights")
    assert str(table) == "the Delta table s3://***@nowhere/flights"


@pytest.mark.parametrize("module", ["deltalake", "psycopg", "pyiceberg"])
def test_missing_library_is_named_with_its_extra(module: str) -> None:
    kind, text = {
        "deltalake": ("delta", "delta:/t"),
        "psycopg": ("postgres", "postgres:dbname=x#t"),
        "pyiceberg": ("iceberg", "iceberg:prod/air.flights"),
    }[module]
    program = (
        f"import sys; sys.modules[{module!r}] = None\n"
        f"from spark_groups.cli.main import main; sys.argv[1:] = ['table', 'vacuum', {text!r}]\n"
        "main()"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], check=False, capture_output=True, text=True
    )
    assert done.returncode == 2
    assert f"install spark-groups[{kind}]" in " ".join(done.stderr.replace("│", " ").split())
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("text", ["delta:{}/rows", "sqlite:{}/rows.db#rows"])
def test_missing_table_is_an_error(text: str, tmp_path: Path) -> None:
    with pytest.raises(TableError, match="there is no table"):
        next_offsets(text.format(tmp_path), "g")


def test_database_that_cannot_be_reached_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(TableError, match="PostgreSQL cannot be reached"):
        next_offsets(f"postgres:host={tmp_path} dbname=x#rows", "g")


def test_error_of_a_store_becomes_an_error_of_the_table() -> None:
    with pytest.raises(TableError, match=r"^the lake cannot be reached: no route to host$"):
        fail_in(reached("the lake"))


def fail_in(context: AbstractContextManager[None]) -> None:
    with context:
        raise OSError("no route\n  to host")


@pytest.mark.parametrize("kind", TableKind)
def test_commands_need_no_spark(kind: TableKind) -> None:
    program = (
        f"import spark_groups.cli.table_cli, spark_groups.spark.tables.{kind.value}, sys;"
        "sys.exit('pyspark' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0
