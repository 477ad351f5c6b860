"""Texts that decide where something goes: headers of letters, names of tables, allow-lists."""

from __future__ import annotations

import contextlib
from typing import Final

from spark_groups.cli.table_names import parse_table
from spark_groups.errors import OptionsError
from spark_groups.masking import masked, without_logins
from spark_groups.spark.processing.kafka_record import Record
from spark_groups.spark.processing.letters import Letter, origin_of, own_origin
from spark_groups.spark.processing.replay import replay_route
from spark_groups.wire.security.config_references import Allowed, resolved

_TOPIC: Final = "flights"
_LETTERS: Final = "flights.readers.dead-letter"
_SECRET: Final = "hush 123+456/é"
_VARIABLES: Final = (
    *("SPARK_GROUPS_CONFIG_PROVIDERS", "SPARK_GROUPS_ALLOWED_PATHS", "SPARK_GROUPS_ALLOWED_URLS"),
    *("SPARK_GROUPS_ALLOWED_TOKEN_PROVIDERS", "SPARK_GROUPS_ALLOWED_TOKEN_SETTINGS"),
    *("SPARK_GROUPS_ALLOWED_BROKERS", "SPARK_JOB_ARTIFACT_UUID"),
)


def letters() -> list[bytes]:
    """Return headers of letters: a name and a value in each two lines."""
    names = ("original.topic", "original.partition", "original.offset", "original.timestamp")
    return [
        "\n".join(
            line
            for name, value in zip((*names, "group", "retries"), values, strict=True)
            for line in (f"spark-groups.{name}", value)
        ).encode()
        for topic in ("flights", "payments", "__consumer_offsets", "flights.readers.dead-letter")
        for values in (
            (topic, "3", "17", "1000", "readers", "1"),
            (topic, "9" * 18, "-1", "x", "others", "9" * 30),
            (topic, "", "0", "0", "", "0"),
        )
    ]


def feed_letter(data: bytes) -> None:
    """Ask where a letter with any headers may go.

    Args:
        data: Names and values in turns, each in a line.
    """
    lines = data.split(b"\n")
    headers = tuple(
        (name.decode("utf-8", "replace"), value or None)
        for name, value in zip(lines[::2], lines[1::2], strict=False)
    )
    for topic in (_TOPIC, f"{_TOPIC}.readers.retry"):
        record = Record(b"k", b"v", topic, 3, 17, 1_000, headers)
        assert own_origin(record, _TOPIC).topic in {topic, _TOPIC}
    letter = Record(b"k", b"v", _LETTERS, 0, 1, 2, headers)
    origin_of(letter)
    for retry, wanted in ((None, _TOPIC), ("{topic}.{group}.retry", f"{_TOPIC}.readers.retry")):
        found = replay_route(retry)(letter)
        assert isinstance(found, str) or (isinstance(found, Letter) and found.topic == wanted)


def names() -> list[bytes]:
    """Return names of tables, and connection strings."""
    login = f"me:{_SECRET}"
    return [
        each.encode()
        for each in (
            *("delta:/t", "delta:s3://bucket/t", f"delta:s3://{login}@bucket/t", "hudi:/t"),
            *("sqlite:f.db#t", "iceberg:prod/air.flights", f"postgres:postgresql://{login}@h/d#t"),
            f"postgres:host=h password='{_SECRET}' dbname=d#s.t",
            f"postgres:postgresql://h/d?password={_SECRET}#t",
            *("postgres:postgresql://u:p@ss@h/d#t", "postgres:#t", "iceberg:x/", ":", "é" * 300),
        )
    ]


def feed_name(data: bytes) -> None:
    """Parse the name of a table, open it if it is of PostgreSQL, and mask secrets in it.

    Args:
        data: The name.
    """
    from spark_groups.spark.tables.postgres import postgres_table  # noqa: PLC0415

    text = data.decode("utf-8", "replace")
    assert _SECRET not in masked(text, [_SECRET])
    without_logins(text)
    with contextlib.suppress(OptionsError):
        named = parse_table(text)
        str(postgres_table(named.place, named.name or "t"))


def allow_lists() -> list[bytes]:
    """Return an environment, then settings to check against it, each in a line."""
    values = ("env,file", "/run/secrets", "https://a.example/t", "msk", "scope=a", "*.b:1", "id")
    settings = ("${env:A}", "${file:/run/secrets/../../etc/passwd:root}", "x.b:1", "file:///a")
    return [
        "\n".join((*values[:count], *[""] * (len(values) - count), *settings)).encode()
        for count in range(len(values) + 1)
    ] + ["\n".join((each,) * 11).encode() for each in ("", "none", "/", "\0", "*.", ",,", "a:b")]


def feed_allow_list(data: bytes) -> None:
    """Check settings against allow-lists: each is allowed, or refused by a ValueError.

    Args:
        data: The variables of the driver, then a setting in each line.
    """
    lines = data.decode("utf-8", "replace").split("\n")
    environ = dict(zip(_VARIABLES, lines, strict=False))
    try:
        allowed = Allowed.by(environ)
    except ValueError:
        return
    for text in lines[len(_VARIABLES) :][:20]:
        for check in (
            lambda each: resolved(each, allowed),
            allowed.check_store,
            allowed.check_url,
            allowed.check_token_provider,
            allowed.check_brokers,
            lambda each: allowed.check_token_setting("scope", each),
            lambda each: masked(each, [each]),
        ):
            with contextlib.suppress(ValueError):
                check(text)
