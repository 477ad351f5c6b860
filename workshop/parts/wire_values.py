"""Hypothesis strategies for the tables, and the same values as kio has them."""

from __future__ import annotations

import dataclasses
import datetime
import importlib
import io
import typing
import uuid
from typing import Any

from hypothesis import strategies as st

from spark_groups.errors import printable
from spark_groups.wire.schemas.wire_messages import (
    API_VERSIONS_V0,
    API_VERSIONS_V3,
    API_VERSIONS_V4,
    CONSUMER_GROUP_DESCRIBE,
    CONSUMER_GROUP_HEARTBEAT,
    DELETE_GROUPS,
    DESCRIBE_CONFIGS,
    DESCRIBE_GROUPS,
    FETCH,
    FIND_COORDINATOR,
    INCREMENTAL_ALTER_CONFIGS,
    LEAVE_GROUP,
    LIST_GROUPS,
    LIST_OFFSETS,
    METADATA,
    OFFSET_COMMIT_V9,
    OFFSET_COMMIT_V10,
    OFFSET_DELETE,
    OFFSET_FETCH_V9,
    OFFSET_FETCH_V10,
    OFFSET_FOR_LEADER_EPOCH,
    SASL_AUTHENTICATE,
    SASL_HANDSHAKE,
    Field,
    Message,
    Primitive,
    Struct,
)

KIO_MODULES: dict[Message, str] = {
    API_VERSIONS_V0: "api_versions.v0",
    API_VERSIONS_V3: "api_versions.v3",
    API_VERSIONS_V4: "api_versions.v4",
    FIND_COORDINATOR: "find_coordinator.v4",
    CONSUMER_GROUP_HEARTBEAT: "consumer_group_heartbeat.v1",
    CONSUMER_GROUP_DESCRIBE: "consumer_group_describe.v1",
    LIST_GROUPS: "list_groups.v5",
    OFFSET_COMMIT_V9: "offset_commit.v9",
    OFFSET_COMMIT_V10: "offset_commit.v10",
    OFFSET_FETCH_V9: "offset_fetch.v9",
    OFFSET_FETCH_V10: "offset_fetch.v10",
    METADATA: "metadata.v12",
    LIST_OFFSETS: "list_offsets.v7",
    OFFSET_FOR_LEADER_EPOCH: "offset_for_leader_epoch.v4",
    FETCH: "fetch.v16",
    DESCRIBE_CONFIGS: "describe_configs.v4",
    INCREMENTAL_ALTER_CONFIGS: "incremental_alter_configs.v1",
    LEAVE_GROUP: "leave_group.v5",
    DESCRIBE_GROUPS: "describe_groups.v6",
    DELETE_GROUPS: "delete_groups.v2",
    OFFSET_DELETE: "offset_delete.v0",
    SASL_HANDSHAKE: "sasl_handshake.v1",
    SASL_AUTHENTICATE: "sasl_authenticate.v2",
}
MESSAGES = tuple(KIO_MODULES)

_PRIMITIVES = {
    Primitive.INT8: st.integers(-(2**7), 2**7 - 1),
    Primitive.INT16: st.integers(-(2**15), 2**15 - 1),
    Primitive.INT32: st.integers(-(2**31), 2**31 - 1),
    Primitive.INT64: st.integers(-(2**63), 2**63 - 1),
    Primitive.UUID: st.uuids(),
    Primitive.BOOL: st.booleans(),
    Primitive.BYTES: st.binary(max_size=300),
    Primitive.RECORDS: st.binary(max_size=300),
}
# Lengths around 127 need a second byte of the varint.
_STRINGS = st.one_of(st.text(max_size=8), st.sampled_from(["x" * 126, "x" * 127, "é" * 200]))
# kio returns a text as it came; both agree on printable ones.
_PRIMITIVES[Primitive.TEXT] = _STRINGS.map(printable)


def values_of(schema: Struct) -> st.SearchStrategy[dict[str, Any]]:
    """Generate values of every field of a table but the tagged ones."""
    return st.fixed_dictionaries({e.name: _field(e) for e in schema.fields if e.tag is None})


def _field(spec: Field) -> st.SearchStrategy[Any]:
    one = _one(spec)
    if spec.array:
        one = st.lists(one, max_size=3).map(tuple)
    return st.none() | one if spec.nullable else one


def _one(spec: Field) -> st.SearchStrategy[Any]:
    kind = spec.kind
    if isinstance(kind, Struct):
        return values_of(kind)
    if spec.name == "error_code":
        return st.sampled_from([-1, 0, 3, 16, 25, 35, 100, 110, 113])
    if spec.name == "session_lifetime_ms":
        return st.integers(0, 2**45)  # kio has a timedelta, which ends before 64 bits do.
    return _PRIMITIVES.get(kind, _STRINGS)


def kio_entity_type(message: Message, part: str) -> type:
    """Return kio's class of a request or response."""
    module = importlib.import_module(f"kio.schema.{KIO_MODULES[message]}.{part}")
    return getattr(module, f"{message.name}{part.capitalize()}")


def to_kio(entity_type: type, values: dict[str, Any], schema: Struct) -> Any:
    """Build kio's entity from our values."""
    hints = typing.get_type_hints(entity_type)
    by_name = {field_.name: field_ for field_ in schema.fields if field_.tag is None}
    arguments = {}
    for each in dataclasses.fields(entity_type):
        ours = each.name if each.name in by_name else f"{each.name}_ms"
        if ours not in by_name:
            assert "tag" in each.metadata, f"{schema.name} lacks {each.name}"
            continue
        spec = by_name.pop(ours)
        arguments[each.name] = _to_kio(values[ours], spec, hints[each.name], each.metadata)
    assert not by_name, f"{schema.name} has more than kio: {by_name}"
    return entity_type(**arguments)


def _to_kio(value: Any, spec: Field, hint: Any, metadata: Any) -> Any:
    null_uuid = spec.kind is Primitive.UUID and value == uuid.UUID(int=0)
    if value is None or null_uuid:
        return None
    if isinstance(spec.kind, Struct):
        inner = _entity_in(hint)
        if spec.array:
            return tuple(to_kio(inner, each, spec.kind) for each in value)
        return to_kio(inner, value, spec.kind)
    if metadata.get("kafka_type") in ("timedelta_i32", "timedelta_i64"):
        return datetime.timedelta(milliseconds=value)
    if metadata.get("kafka_type") == "error_code":
        return importlib.import_module("kio.schema.errors").ErrorCode(value)
    return value


def _entity_in(hint: Any) -> type:
    if dataclasses.is_dataclass(hint):
        return hint
    for argument in typing.get_args(hint):
        if argument is not type(None) and argument is not Ellipsis:
            return _entity_in(argument)
    raise AssertionError(f"no entity in {hint}")


def kio_bytes(entity: Any) -> bytes:
    """Write kio's entity."""
    from kio.serial import entity_writer

    buffer = io.BytesIO()
    entity_writer(type(entity))(buffer, entity)
    return buffer.getvalue()
