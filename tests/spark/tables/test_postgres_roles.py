"""Roles that may create objects in a schema on the path of the writer's role."""

from __future__ import annotations

import uuid
from collections.abc import Iterator

import psycopg
import pytest

import spark_groups
from spark_groups.errors import TableError
from spark_groups.spark.tables.table import PREFIX
from tests.spark.tables.batches_setup import reads
from tests.spark.tables.places import PostgresPlace, Writer

FUNCTIONS = (
    *("hashtextextended(text, integer)", "starts_with(name, text)", "to_regclass(text)"),
    *("set_config(text, text, boolean)", "current_setting(text)", "obj_description(oid, text)"),
    *("pg_has_role(oid, text)", "coalesced(bigint, integer)", "pg_total_relation_size(oid)"),
)


@pytest.fixture
def roles(postgres: str, on_postgres: PostgresPlace) -> Iterator[tuple[str, str]]:
    """Return two roles, each alone, that may create objects in the schema of the table."""
    names = (f"r{uuid.uuid4().hex[:12]}", f"r{uuid.uuid4().hex[:12]}")
    with psycopg.connect(postgres, autocommit=True) as connection:
        for each in names:
            connection.execute(f"CREATE ROLE {each}")
            connection.execute(f"GRANT CREATE, USAGE ON SCHEMA {on_postgres.schema} TO {each}")
        yield names
        for each in names:
            connection.execute(f"DROP OWNED BY {each} CASCADE")
            connection.execute(f"DROP ROLE {each}")


def test_functions_operators_and_types_of_a_schema_on_the_path_are_not_taken_for_postgresqls(
    on_postgres: PostgresPlace, postgres: str
) -> None:
    other = PostgresPlace(postgres)
    other.run("CREATE TABLE called (name text)")
    for each in FUNCTIONS:
        name, arguments = each.removesuffix(")").split("(")
        returned = {"hashtextextended": "bigint", "starts_with": "boolean"}.get(name, "text")
        other.run(
            f"CREATE FUNCTION {other.schema}.{name}({arguments}) RETURNS {returned} LANGUAGE sql AS"
            f" 'INSERT INTO {other.schema}.called VALUES ($${name}$$) RETURNING NULL::{returned}'"
        )
    other.run(
        f"CREATE FUNCTION {other.schema}.same(text, text) RETURNS boolean LANGUAGE sql AS 'INSERT"
        f" INTO {other.schema}.called VALUES ($$=$$) RETURNING true';"
        f"CREATE OPERATOR {other.schema}.= (LEFTARG = text, RIGHTARG = text, FUNCTION ="
        f" {other.schema}.same); CREATE DOMAIN {other.schema}.text AS pg_catalog.text CHECK (false)"
    )
    path = f"{on_postgres.schema},{other.schema},pg_catalog"
    writer = Writer(on_postgres)
    writer.table = spark_groups.postgres_table(f"{postgres} options=-csearch_path={path}", "rows")
    writer.write(reads(0, 10))
    writer.write(reads(10, 20))
    writer.table.remove(writer.table.orphans(0))
    assert on_postgres.offsets() == list(range(20))
    assert other.run(f"SELECT * FROM {other.schema}.called") == []


def test_trigger_of_the_table_finds_tables_on_the_path_of_the_role(
    on_postgres: PostgresPlace,
) -> None:
    writer = Writer(on_postgres)
    writer.write(reads(0, 10))
    on_postgres.run(
        "CREATE TABLE audit (at bigint); CREATE FUNCTION noted() RETURNS trigger LANGUAGE plpgsql"
        ' AS $$BEGIN INSERT INTO audit VALUES (NEW."offset"); RETURN NEW; END$$;'
        " CREATE TRIGGER noted BEFORE INSERT ON rows FOR EACH ROW EXECUTE FUNCTION noted()"
    )
    writer.write(reads(10, 20))
    assert on_postgres.run("SELECT * FROM audit ORDER BY 1") == [(each,) for each in range(10, 20)]


@pytest.mark.parametrize("kind", ["TABLE", "VIEW"])
def test_fence_of_another_role_is_refused(
    on_postgres: PostgresPlace, postgres: str, roles: tuple[str, str], kind: str
) -> None:
    own, other = roles
    schema = on_postgres.schema
    options = f"-csearch_path={schema} -crole={own}".replace(" ", "\\ ")
    dsn = f"{postgres} options='{options}'"
    writer = Writer(on_postgres)
    writer.table = spark_groups.postgres_table(dsn, "rows")
    on_postgres.run(
        f"SET ROLE {other}; CREATE {kind} {schema}.spark_groups_fence AS"
        " SELECT 'rows'::text AS table_name, 0 AS partition"
    )
    problem = f"belongs to the role {other}" if kind == "TABLE" else "is a view"
    with pytest.raises(TableError, match=problem):
        writer.write(reads(0, 10))
    on_postgres.run(f"DROP {kind} spark_groups_fence")
    writer.write(reads(0, 10))
    assert on_postgres.offsets() == list(range(10))


def test_comments_of_other_roles_do_not_stop_a_vacuum(
    on_postgres: PostgresPlace, roles: tuple[str, str]
) -> None:
    writer = Writer(on_postgres)
    writer.write(reads(0, 10))
    writer.look(reads(10, 20))
    writer.stage()
    (staged,) = on_postgres.staged()
    comments = (
        *('{"table"', '{"table": "rows"}', '{"table": "rows", "staged_at": "yesterday"}'),
        *('{"table": "rows", "staged_at": 7}', "[" * 100_000, '{"table": {}}'),
    )
    for number, comment in enumerate(comments):
        name = f'{on_postgres.schema}."{PREFIX}{number}"'
        on_postgres.run(f"SET ROLE {roles[0]}; CREATE TABLE {name} ()")
        on_postgres.run(f"COMMENT ON TABLE {name} IS '{comment}'")
    assert [each.name for each in on_postgres.fenced().orphans(0)] == [staged]
