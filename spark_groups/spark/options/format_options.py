"""The options of formats: what becomes of the bytes of keys and values, and with which schemas."""

from __future__ import annotations

import base64
import binascii
import os
import re
from collections.abc import Iterator, Mapping
from functools import lru_cache, partial
from pathlib import Path
from stat import S_ISREG
from typing import Annotated, Any, Final
from urllib.parse import urlsplit

from pydantic import BeforeValidator, ConfigDict
from pydantic.dataclasses import dataclass

from spark_groups.spark.options.declaring import OnRestart, Text, option
from spark_groups.spark.options.option_values import one_of
from spark_groups.spark.schemas.row_formats import (
    TOPIC,
    ColumnFormat,
    Format,
    OnUndecodable,
    RegistryAccess,
    RowFormats,
    SchemaVersion,
)
from spark_groups.wire.security.config_references import Allowed, resolved

_PREFIX: Final = "schemaRegistry."
_URL: Final = "schemaRegistryUrl"
_LOGIN: Final = "basic.auth.user.info"
_FILES: Final = ("ssl.ca.location", "ssl.certificate.location", "ssl.key.location")
_SCHEMA_BYTES_MAX: Final = 4 * 1024 * 1024
_IS_REFERENCE: Final = re.compile(r"\$\{(env|file|directory):[^}]*\}")
_SETTINGS: Final[tuple[tuple[str, str], ...]] = (
    (
        _LOGIN,
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
    (f"{_PREFIX}{name}", "none", meaning) for name, meaning in _SETTINGS
)
"""Name, default and meaning of the registry's settings, as confluent-kafka's client names them."""


def _version(text: str) -> SchemaVersion:
    if text.strip().lower() == "latest":
        return SchemaVersion()
    found = re.fullmatch(r"(id:)?([1-9][0-9]{0,8})", text.strip().lower())
    if found is None:
        raise ValueError(
            f"{text!r} is neither latest nor the number of a version, nor id:N with a schema id"
        )
    number = int(found[2])
    return SchemaVersion(schema_id=number) if found[1] else SchemaVersion(version=number)


def _urls(text: str) -> tuple[str, ...]:
    urls = tuple(each.strip().rstrip("/") for each in text.split(",") if each.strip())
    for url in urls:
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ValueError("write http:// or https:// addresses, separated by commas")
        if parts.username or parts.password:
            raise ValueError(
                f"an address has a login, which Spark would print: set {_PREFIX}{_LOGIN}"
            )
    if not urls:
        raise ValueError("is empty")
    return urls


_Format = Annotated[Format, BeforeValidator(partial(one_of, Format))]
_Version = Annotated[SchemaVersion, BeforeValidator(_version)]


def _column(kind: str) -> dict[str, Any]:
    """Return the declarations of the options of one column, by what follows its name."""
    return {
        "Format": option(
            f"{kind}Format",
            f"What the column {kind} has: binary, the bytes; string, for UTF-8; or a struct that is"
            " decoded from avro, json or protobuf.",
            default=Format.BINARY,
            on_restart=OnRestart.COLUMNS,
        ),
        "Schema": option(
            f"{kind}Schema",
            f"The schema of the column {kind}: for avro its JSON, without it the registry's; for"
            " json Spark's DDL, such as `id bigint, name string`; for protobuf a descriptor set, in"
            " base64. For avro and protobuf it may be the path of a file on the driver's host.",
            default=None,
            on_restart=OnRestart.COLUMNS,
        ),
        "Message": option(
            f"{kind}Message",
            f"The full name of the message in {kind}Schema, for protobuf.",
            default=None,
            on_restart=OnRestart.COLUMNS,
        ),
        "Subject": option(
            f"{kind}Subject",
            f"The registry's subject with the schema of the column {kind}; {{topic}} stands for the"
            f" topic. With the subject name strategies: {{topic}}-{kind} (topic), com.shop.Order"
            " (record), {topic}-com.shop.Order (topic-record).",
            default=None,
            shown=f"{{topic}}-{kind}",
            on_restart=OnRestart.COLUMNS,
        ),
        "Version": option(
            f"{kind}SchemaVersion",
            f"The version of {kind}Subject whose schema rows have: latest, which is looked up when"
            " the query starts; its number; or id:N for the schema with the registry's id N.",
            default=SchemaVersion(),
            shown="latest",
            on_restart=OnRestart.COLUMNS,
        ),
    }


_KEY: Final = _column("key")
_VALUE: Final = _column("value")


@dataclass(frozen=True, slots=True, kw_only=True, config=ConfigDict(arbitrary_types_allowed=True))
class FormatOptions:
    """The validated options of formats."""

    value_format: _Format = _VALUE["Format"]
    value_schema: Text | None = _VALUE["Schema"]
    value_message: Text | None = _VALUE["Message"]
    value_subject: Text | None = _VALUE["Subject"]
    value_version: _Version = _VALUE["Version"]
    key_format: _Format = _KEY["Format"]
    key_schema: Text | None = _KEY["Schema"]
    key_message: Text | None = _KEY["Message"]
    key_subject: Text | None = _KEY["Subject"]
    key_version: _Version = _KEY["Version"]
    on_undecodable: Annotated[OnUndecodable, BeforeValidator(partial(one_of, OnUndecodable))] = (
        option(
            "onUndecodable",
            "Action for a record whose key or value cannot be decoded: fail; null, which makes that"
            " column null and adds the column undecodable with the bytes and the reason; or"
            " deadLetters, with emit=ranges, where on_error of `spark_groups.write_table` says what"
            " becomes of it.",
            default=OnUndecodable.FAIL,
            on_restart=OnRestart.COLUMNS,
        )
    )
    registry_urls: Annotated[tuple[str, ...], BeforeValidator(_urls)] | None = option(
        _URL,
        "Addresses of a schema registry that speaks Confluent's API, separated by commas. Records"
        " then begin with the id of their schema. Looking schemas up takes at most"
        " kafka.default.api.timeout.ms when a query starts, and kafkaConsumer.pollTimeoutMs in a"
        " task; a task waits for a registry only for a schema that it does not know.",
        default=None,
        on_restart=OnRestart.ROWS,
    )
    registry: tuple[tuple[str, str], ...] = ()

    def row_formats(self, topics: tuple[str, ...]) -> RowFormats | None:
        """Return the formats, with schemas that are still to be looked up; None: all are bytes.

        Args:
            topics: The topics that are read; with a pattern, none.
        """
        formats = RowFormats(
            key=self._column_format("key", topics),
            value=self._column_format("value", topics),
            registry=None
            if self.registry_urls is None
            else RegistryAccess(urls=self.registry_urls, settings=self.registry),
            on_undecodable=self.on_undecodable,
        )
        return formats if formats.by_column else None

    def _column_format(self, name: str, topics: tuple[str, ...]) -> ColumnFormat:
        given: Format = getattr(self, f"{name}_format")
        subject = getattr(self, f"{name}_subject") or f"{TOPIC}-{name}"
        schema = getattr(self, f"{name}_schema") or ""
        if schema and given in _IN_FILES:
            schema = _IN_FILES[given](schema)
        return ColumnFormat(
            format=given,
            schema=schema,
            message=getattr(self, f"{name}_message") or "",
            subject="" if schema else subject.replace(TOPIC, ",".join(topics)),
            version=getattr(self, f"{name}_version"),
        )

    def format_problems(self, topics: tuple[str, ...], *, emits_ranges: bool) -> Iterator[str]:
        """Yield a problem for each contradiction between these options.

        Args:
            topics: The topics that are read; with a pattern, none.
            emits_ranges: Whether `emit` is ranges.
        """
        formats = {"key": self.key_format, "value": self.value_format}
        for name, given in formats.items():
            yield from self._column_problems(name, given, topics)
        is_bytes = {*formats.values()} <= {Format.BINARY}
        if self.on_undecodable is not OnUndecodable.FAIL and is_bytes:
            yield "onUndecodable is set, but neither keyFormat nor valueFormat is"
        if self.on_undecodable is OnUndecodable.DEAD_LETTERS and not emits_ranges:
            yield (
                "onUndecodable is deadLetters, which spark_groups.write_table does for a stream"
                " with emit=ranges: set emit to ranges, or onUndecodable to null"
            )
        if self.registry_urls and {*formats.values()} <= {Format.BINARY, Format.STRING}:
            yield f"{_URL} is set, but neither keyFormat nor valueFormat has schemas"
        if self.registry and not self.registry_urls:
            yield f"{_PREFIX}{self.registry[0][0]} is set, but {_URL} is missing"

    def _column_problems(self, name: str, given: Format, topics: tuple[str, ...]) -> Iterator[str]:
        kind = f"{name}Format is {given.value}"
        has = {
            "Schema": getattr(self, f"{name}_schema") is not None,
            "Message": getattr(self, f"{name}_message") is not None,
            "Subject": getattr(self, f"{name}_subject") is not None,
            "SchemaVersion": getattr(self, f"{name}_version") != SchemaVersion(),
        }
        taken = {
            Format.AVRO: {"Schema", "Subject", "SchemaVersion"},
            Format.JSON: {"Schema"},
            Format.PROTOBUF: {"Schema", "Message"},
        }.get(given, set())
        for what, is_set in has.items():
            if is_set and what not in taken:
                yield f"{name}{what} is set, but {kind}"
            elif given in (Format.JSON, Format.PROTOBUF) and what in taken and not is_set:
                yield f"{name}{what} is missing, and {kind}"
        if has["Schema"] and given in _IN_FILES:
            try:
                _IN_FILES[given](getattr(self, f"{name}_schema"))
            except ValueError as error:
                yield f"{name}Schema: {error}"
        if given is not Format.AVRO:
            return
        if has["Schema"]:
            for what in ("Subject", "SchemaVersion"):
                if has[what]:
                    yield f"{name}{what} and {name}Schema are both set: remove one"
        elif not self.registry_urls:
            yield f"{kind}: set {_URL}, or {name}Schema for records without a schema id"
        elif self._needs_topic(name) and len(topics) != 1:
            yield (
                f"{name}Subject: the query may read several topics, and its rows have one schema:"
                " set the subject with that schema"
            )

    def _needs_topic(self, name: str) -> bool:
        version: SchemaVersion = getattr(self, f"{name}_version")
        return version.schema_id is None and TOPIC in (getattr(self, f"{name}_subject") or TOPIC)


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
        text = given.get(f"{_PREFIX}{name}".lower())
        if text is None:
            continue
        is_login = name == _LOGIN or (name == "proxy" and "@" in text)
        if is_login and not _IS_REFERENCE.fullmatch(text.strip()):
            problems.append(
                f"{_PREFIX}{name}: Spark prints options with query plans, and does not know that"
                " this one is a secret: set a reference such as ${env:NAME} or"
                " ${directory:PATH:FILE}"
            )
            continue
        try:
            value = _checked(name, text)
        except ValueError as error:
            problems.append(f"{_PREFIX}{name}: {error}")
        else:
            found.append((name, value))
    return tuple(found)


def _checked(name: str, text: str) -> str:
    allowed = Allowed.by(os.environ)
    value = resolved(text, allowed).strip()
    if name in _FILES:
        allowed.check_store(value)
    if name == _LOGIN and ":" not in value:
        raise ValueError("is not user:password")
    return value
