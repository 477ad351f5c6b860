"""Records of Avro with a registry, over a change of their schema."""

from __future__ import annotations

import io
from dataclasses import dataclass
from typing import Any

import fastavro

from workshop.parts.brokers import Row, produce
from workshop.parts.schema_registry import Registry


def order(*fields: dict[str, Any]) -> dict[str, Any]:
    """Return the schema of an order."""
    return {"type": "record", "name": "Order", "namespace": "shop", "fields": [*fields]}


FIRST = order(
    {"name": "id", "type": "int"},
    {"name": "note", "type": "string", "default": ""},
    {"name": "amount", "type": "double"},
)
SECOND = order(
    {"name": "id", "type": "long"},
    {"name": "amount", "type": "double"},
    {"name": "currency", "type": "string", "default": "EUR"},
)
"""A field is promoted, one is removed, and one is added with a default."""
THIRD = order(*SECOND["fields"], {"name": "paid", "type": "boolean", "default": False})


def framed(schema_id: int, schema: dict[str, Any], value: dict[str, Any]) -> bytes:
    """Return a value as Confluent's serializer writes it."""
    out = io.BytesIO()
    out.write(b"\0" + schema_id.to_bytes(4, "big"))
    fastavro.schemaless_writer(out, fastavro.parse_schema(schema), value)
    return out.getvalue()


@dataclass(frozen=True)
class Orders:
    """A topic with orders of several schemas.

    Args:
        registry: The registry.
        bootstrap_servers: The broker.
        topic: The topic.
    """

    registry: Registry
    bootstrap_servers: str
    topic: str

    def produce(self, schema: dict[str, Any], ids: range) -> None:
        """Register a schema, and write orders with it."""
        self.write(*(self.value_of(schema, each) for each in ids))

    def value_of(self, schema: dict[str, Any], order_id: int) -> bytes:
        """Register a schema, and return an order with it."""
        schema_id = self.registry.register(f"{self.topic}-value", schema)
        usual = {"id": order_id, "note": "n", "amount": 0.5, "currency": "USD", "paid": True}
        names = [each["name"] for each in schema["fields"]]
        return framed(schema_id, schema, {name: usual[name] for name in names})

    def write(self, *values: bytes | None) -> None:
        """Write values as they are."""
        produce(self.bootstrap_servers, self.topic, [Row(each, key=b"k") for each in values])
