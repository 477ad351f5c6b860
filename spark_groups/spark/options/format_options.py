"""The options of formats: what becomes of the bytes of keys and values, and with which schemas."""

from __future__ import annotations

import base64
import binascii
import os
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache, partial
from pathlib import Path
from stat import S_ISREG
from typing import Any, Final, NamedTuple
from urllib.parse import urlsplit

from spark_groups.spark.options.declaring import OnRestart, option
from spark_groups.spark.options.option_values import one_of, parse_text, whole_number
from spark_groups.spark.schemas.registry_settings import LOGIN, PREFIX, setting_of
from spark_groups.spark.schemas.row_formats import (
    TOPIC,
    ColumnFormat,
    Format,
    OnUndecodable,
    RegistryAccess,
    RowFormats,
    SchemaVersion,
)
from spark_groups.wire.security.config_references import Allowed

_URL: Final = "schemaRegistryUrl"
_SCHEMA_BYTES_MAX: Final = 4 * 1024 * 1024
_IS_REFERENCE: Final = re.compile(r"\$\{(env|file|directory):[^}]*\}")
_SETTINGS: Final[tuple[tuple[str, str], ...]] = (
    (
        LOGIN,
        "The login, as user:password. Spark prints options with query plans, and does not know that"
        " this one is a secret, so it has to be a reference such as `${env:NAME}`.",
    ),
    (
        "bearer.auth.credentials.source",
        "Where bearer tokens come from: STATIC_TOKEN, OAUTHBEARER or OAUTHBEARER_AZURE_IMDS.",
    ),
    ("bearer.auth.token", "The token of STATIC_TOKEN."),
    ("bearer.auth.issuer.endpoint.url", "The token endpoint of OAUTHBEARER."),
    ("bearer.auth.client.id", "The client id for the token endpoint."),
    ("bearer.auth.client.secret", "The client secret for the token endpoint."),
    ("bearer.auth.scope", "The scope of the token."),
    ("bearer.auth.logical.cluster", "The logical cluster of the registry (Confluent Cloud)."),
    ("bearer.auth.identity.pool.id", "The identity pool (Confluent Cloud)."),
    ("ssl.ca.location", "A PEM file with the trusted authorities, on the driver and executors."),
    ("ssl.certificate.location", "A PEM file with the client's certificate, on all hosts."),
    ("ssl.key.location", "A PEM file with the client's key, on all hosts."),
    ("ssl.key.password", "The password of the client's key."),
    ("proxy", "An HTTP proxy. One with a login has to be a reference, as the login above."),
)
REGISTRY_OPTIONS: Final[tuple[tuple[str, str, str], ...]] = tuple(
    (f"{PREFIX}{name}", "none", meaning) for name, meaning in _SETTINGS
)
"""Name, default and meaning of the registry's settings, as confluent-kafka's client names them."""


def _version(text: str) -> int | None:
    given = text.strip().lower()
    if given == "latest":
        return None
    if re.fullmatch(r"[1-9][0-9]{0,8}", given):
        return int(given)
    raise ValueError(f"{text!r} is neither latest nor the number of a version")


def _urls(text: str) -> tuple[str, ...]:
    urls = tuple(each.strip().rstrip("/") for each in text.split(",") if each.strip())
    for url in urls:
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ValueError("write http:// or https:// addresses, separated by commas")
        if parts.username or parts.password:
            raise ValueError(
                f"an address has a login, which Spark would print: set {PREFIX}{LOGIN}"
            )
    if not urls:
        raise ValueError("is empty")
    return urls


_PARTS: Final[Mapping[str, tuple[Callable[[str], Any], str, str | None]]] = {
    "Format": (
        partial(one_of, Format),
        "What the column COLUMN has: binary, the bytes; string, for UTF-8; or a struct that is"
        " decoded from avro, json or protobuf.",
        "binary",
    ),
    "Schema": (
        parse_text,
        "The schema of the column COLUMN: for avro its JSON, without it the registry's; for json"
        " Spark's DDL, such as `id bigint, name string`; for protobuf a descriptor set, in base64."
        " For avro and protobuf it may be the path of a file on the driver's host.",
        None,
    ),
    "MessageName": (
        parse_text,
        "The full name of the message in COLUMNSchema, for protobuf.",
        None,
    ),
    "Subject": (
        parse_text,
        "The registry's subject with the schema of the column COLUMN; {topic} stands for the topic."
        " With the subject name strategies: {topic}-COLUMN (topic), com.shop.Order (record),"
        " {topic}-com.shop.Order (topic-record).",
        "{topic}-COLUMN",
    ),
    "SchemaVersion": (
        _version,
        "The version of COLUMNSubject whose schema rows have: latest, which is looked up when the"
        " query starts, or its number.",
        "latest",
    ),
    "SchemaId": (
        whole_number(1),
        "The registry's id of the schema that rows have, in place of COLUMNSchemaVersion.",
        None,
    ),
}
"""Parser, meaning and shown default of the options of one column, by what follows its name."""


def _of_column(column: str, part: str, default: Format | None = None) -> Any:
    parse, meaning, shown = _PARTS[part]
    return option(
        f"{column}{part}",
        parse,
        meaning.replace("COLUMN", column),
        default=default,
        shown=shown and shown.replace("COLUMN", column),
        on_restart=OnRestart.COLUMNS,
    )


class _Column(NamedTuple):
    """The options of one column."""

    name: str
    format: Format
    schema: str | None
    message_name: str | None
    subject: str | None
    schema_version: int | None
    schema_id: int | None

    def row_format(self, topics: tuple[str, ...]) -> ColumnFormat:
        schema = self.schema or ""
        if schema and self.format in _IN_FILES:
            schema = _IN_FILES[self.format](schema)
        subject = self.subject or f"{TOPIC}-{self.name}"
        return ColumnFormat(
            format=self.format,
            schema=schema,
            message=self.message_name or "",
            subject="" if schema else subject.replace(TOPIC, ",".join(topics)),
            version=SchemaVersion(self.schema_version, self.schema_id),
        )

    def problems(self, topics: tuple[str, ...], *, has_registry: bool) -> Iterator[str]:
        name, kind = self.name, f"{self.name}Format is {self.format.value}"
        parts = [*_PARTS][1:]
        has = {part for part, value in zip(parts, self[2:], strict=True) if value is not None}
        taken = _TAKEN.get(self.format, ())
        yield from (f"{name}{part} is set, but {kind}" for part in parts if part in has - {*taken})
        if self.schema and self.format in _IN_FILES:
            try:
                _IN_FILES[self.format](self.schema)
            except ValueError as error:
                yield f"{name}Schema: {error}"
        if self.format is not Format.AVRO:
            yield from (f"{name}{part} is missing, and {kind}" for part in taken if part not in has)
        elif self.schema:
            for part in taken[1:]:
                if part in has:
                    yield f"{name}{part} and {name}Schema are both set: remove one"
        elif not has_registry:
            yield f"{kind}: set {_URL}, or {name}Schema for records without a schema id"
        elif self.schema_version and self.schema_id:
            yield f"{name}SchemaVersion and {name}SchemaId are both set: remove one"
        elif not self.schema_id and TOPIC in (self.subject or TOPIC) and len(topics) != 1:
            yield (
                f"{name}Subject: the query may read several topics, and its rows have one schema:"
                " set the subject with that schema"
            )


_TAKEN: Final = {
    Format.AVRO: ("Schema", "Subject", "SchemaVersion", "SchemaId"),
    Format.JSON: ("Schema",),
    Format.PROTOBUF: ("Schema", "MessageName"),
}
"""What may follow the name of a column; all of it must, unless it is of Avro."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FormatOptions:
    """The validated options of formats."""

    value_format: Format = _of_column("value", "Format", Format.BINARY)
    value_schema: str | None = _of_column("value", "Schema")
    value_message_name: str | None = _of_column("value", "MessageName")
    value_subject: str | None = _of_column("value", "Subject")
    value_schema_version: int | None = _of_column("value", "SchemaVersion")
    value_schema_id: int | None = _of_column("value", "SchemaId")
    key_format: Format = _of_column("key", "Format", Format.BINARY)
    key_schema: str | None = _of_column("key", "Schema")
    key_message_name: str | None = _of_column("key", "MessageName")
    key_subject: str | None = _of_column("key", "Subject")
    key_schema_version: int | None = _of_column("key", "SchemaVersion")
    key_schema_id: int | None = _of_column("key", "SchemaId")
    on_undecodable: OnUndecodable = option(
        "onUndecodable",
        partial(one_of, OnUndecodable),
        "Action for a record whose key or value cannot be decoded: fail; null, which makes that"
        " column null and adds the column undecodable with the bytes and the reason; or"
        " deadLetters, with emit=ranges, where on_error of `spark_groups.write_table` says what"
        " becomes of it.",
        default=OnUndecodable.FAIL,
        on_restart=OnRestart.COLUMNS,
    )
    registry_urls: tuple[str, ...] | None = option(
        _URL,
        _urls,
        "Addresses of a schema registry that speaks Confluent's API, separated by commas. Records"
        " then begin with the id of their schema. Looking schemas up takes at most"
        " kafka.default.api.timeout.ms when a query starts, and kafkaConsumer.pollTimeoutMs in a"
        " task; a task waits for a registry only for a schema that it does not know.",
        on_restart=OnRestart.ROWS,
    )
    registry: tuple[tuple[str, str], ...] = ()

    def row_formats(self, topics: tuple[str, ...]) -> RowFormats | None:
        """Return the formats, with schemas that are still to be looked up; None: all are bytes.

        Args:
            topics: The topics that are read; with a pattern, none.
        """
        key, value = (each.row_format(topics) for each in self._columns())
        formats = RowFormats(
            key=key,
            value=value,
            registry=None
            if self.registry_urls is None
            else RegistryAccess(urls=self.registry_urls, settings=self.registry),
            on_undecodable=self.on_undecodable,
        )
        return formats if formats.by_column else None

    def _columns(self) -> tuple[_Column, ...]:
        parts = _Column._fields[1:]
        return tuple(
            _Column(name, *(getattr(self, f"{name}_{part}") for part in parts))
            for name in ("key", "value")
        )

    def format_problems(self, topics: tuple[str, ...], *, emits_ranges: bool) -> Iterator[str]:
        """Yield a problem for each contradiction between these options.

        Args:
            topics: The topics that are read; with a pattern, none.
            emits_ranges: Whether `emit` is ranges.
        """
        for column in self._columns():
            yield from column.problems(topics, has_registry=self.registry_urls is not None)
        formats = {self.key_format, self.value_format}
        is_bytes = formats <= {Format.BINARY}
        if self.on_undecodable is not OnUndecodable.FAIL and is_bytes:
            yield "onUndecodable is set, but neither keyFormat nor valueFormat is"
        if self.on_undecodable is OnUndecodable.DEAD_LETTERS and not emits_ranges:
            yield (
                "onUndecodable is deadLetters, which spark_groups.write_table does for a stream"
                " with emit=ranges: set emit to ranges, or onUndecodable to null"
            )
        if self.registry_urls and formats <= {Format.BINARY, Format.STRING}:
            yield f"{_URL} is set, but neither keyFormat nor valueFormat has schemas"
        if self.registry and not self.registry_urls:
            yield f"{PREFIX}{self.registry[0][0]} is set, but {_URL} is missing"


def _avro_schema(text: str) -> str:
    """Return Avro's JSON, from a file if the text is the path of one.

    Raises:
        ValueError: It is neither, or the file cannot be read.
    """
    if text.lstrip()[:1] in {"{", "[", '"'}:
        return text
    found = _file(text)
    if found is None:
        raise ValueError(f"{_shown(text)} is neither the path of a file nor the JSON of a schema")
    return found.decode()


def _descriptor_set(text: str) -> str:
    """Return a descriptor set in base64, from a file if the text is the path of one.

    Raises:
        ValueError: It is neither, or the file cannot be read.
    """
    if (found := _file(text)) is not None:
        return base64.b64encode(found).decode()
    try:
        base64.b64decode(text, validate=True)
    except binascii.Error as error:
        raise ValueError(
            f"{_shown(text)} is neither the path of a file nor base64: {error}"
        ) from None
    return text


_IN_FILES: Final = {Format.AVRO: _avro_schema, Format.PROTOBUF: _descriptor_set}


def _file(text: str) -> bytes | None:
    """Return what a file has; None: the text is not the path of one.

    Raises:
        ValueError: The file cannot be read.
    """
    try:
        status = os.stat(text)
    except (OSError, ValueError):
        return None
    return _read(text, status.st_mtime_ns, status.st_size) if S_ISREG(status.st_mode) else None


@lru_cache(maxsize=8)
def _read(path: str, _: int, size: int) -> bytes:
    """Return what a file has; again, if its time or its size is another."""
    Allowed.by(os.environ).check_store(path)
    if size > _SCHEMA_BYTES_MAX:
        raise ValueError(f"{path} is larger than {_SCHEMA_BYTES_MAX >> 20} MiB")
    try:
        return Path(path).read_bytes()
    except OSError as error:
        raise ValueError(f"{path} cannot be read: {error}") from None


def _shown(text: str) -> str:
    return repr(text if len(text) <= 100 else f"{text[:100]}...")


def read_registry(given: Mapping[str, str], problems: list[str]) -> tuple[tuple[str, str], ...]:
    """Return the settings of the registry's client, with references resolved.

    Args:
        given: Texts by name in lower case.
        problems: Gets the problems, which never contain secrets.
    """
    found = []
    for name, _ in _SETTINGS:
        text = given.get(f"{PREFIX}{name}".lower())
        if text is None:
            continue
        is_login = name == LOGIN or (name == "proxy" and "@" in text)
        if is_login and not _IS_REFERENCE.fullmatch(text.strip()):
            problems.append(
                f"{PREFIX}{name}: Spark prints options with query plans, and does not know that"
                " this one is a secret: set a reference such as ${env:NAME} or"
                " ${directory:PATH:FILE}"
            )
            continue
        try:
            value = setting_of(name, text)
        except ValueError as error:
            problems.append(f"{PREFIX}{name}: {error}")
        else:
            found.append((name, value))
    return tuple(found)
