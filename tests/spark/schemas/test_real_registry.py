"""A real registry: what it answers, and that a paused one is waited for."""

from __future__ import annotations

import json
import threading

import pytest

from spark_groups.errors import SchemaLookupError, UnknownSchemaIdError
from spark_groups.formats.protobuf_schemas import index_prefixes
from spark_groups.spark.schemas.registry import SchemaRegistry
from spark_groups.spark.schemas.row_formats import RegistryAccess, SchemaVersion
from tests.spark.schemas.stub_registry import AVRO
from workshop.parts.schema_registry import Registry

pytestmark = pytest.mark.broker


def test_real_registry_is_understood(registry: Registry, topic_name: str) -> None:
    asked = SchemaRegistry(RegistryAccess(urls=(registry.url,)))
    schema_id = registry.register(topic_name, AVRO)
    assert json.loads(asked.schema_of_id(schema_id, 20.0)) == AVRO
    latest = asked.schema_of_subject(topic_name, SchemaVersion(), 20.0)
    assert (latest.schema_id, latest.version) == (schema_id, 1)
    with pytest.raises(UnknownSchemaIdError, match="has no schema id 99999"):
        asked.schema_of_id(99_999, 20.0)
    with pytest.raises(SchemaLookupError, match="has no version latest of subject none-such"):
        asked.schema_of_subject("none-such", SchemaVersion(), 20.0)
    with pytest.raises(SchemaLookupError, match=f"has no version 7 of subject {topic_name}"):
        asked.schema_of_subject(topic_name, SchemaVersion(version=7), 20.0)
    other = SchemaRegistry(RegistryAccess(urls=(registry.url.partition("/apis")[0],)))
    with pytest.raises(SchemaLookupError, match="may need a path"):
        other.schema_of_id(schema_id, 20.0)


def test_references_of_a_real_registry_are_resolved(registry: Registry, topic_name: str) -> None:
    money = {"type": "record", "name": "m.Money", "fields": [{"name": "cents", "type": "long"}]}
    registry.register(f"{topic_name}-money", money)
    order = {"type": "record", "name": "Order", "fields": [{"name": "price", "type": "m.Money"}]}
    refers = {"name": "m.Money", "subject": f"{topic_name}-money", "version": 1}
    schema_id = registry.register(topic_name, order, [refers])
    text = SchemaRegistry(RegistryAccess(urls=(registry.url,))).schema_of_id(schema_id, 20.0)
    found = json.loads(text)
    assert found["schema"]["fields"] == order["fields"]
    assert found["references"]["m.Money"]["fields"] == money["fields"]


def test_texts_of_protobuf_are_those_of_a_real_registry(
    registry: Registry, topic_name: str
) -> None:
    asked = SchemaRegistry(RegistryAccess(urls=(registry.url,)), "PROTOBUF")
    text = """syntax = "proto3"; package t; import "google/protobuf/timestamp.proto";
        message Other { int32 x = 1; } message Order { google.protobuf.Timestamp at = 1; }"""
    found = asked.schema_of_id(registry.register(topic_name, text), 20.0)
    assert index_prefixes(found, "t.Order") == (b"\2\2",)
    with pytest.raises(UnknownSchemaIdError, match="is of AVRO, not of PROTOBUF"):
        asked.schema_of_id(registry.register(f"{topic_name}-avro", AVRO), 20.0)


def test_paused_registry_is_waited_for(registry: Registry, topic_name: str) -> None:
    schema_id = registry.register(topic_name, {**AVRO, "name": "Paused"})
    asked = SchemaRegistry(RegistryAccess(urls=(registry.url,)))
    registry.pause()
    timer = threading.Timer(1.0, registry.resume)
    timer.start()
    try:
        assert "Paused" in asked.schema_of_id(schema_id, 60.0)
    finally:
        timer.join()
        registry.resume()
