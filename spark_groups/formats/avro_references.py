"""One Avro schema of a schema and those that it refers to by name."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final

from spark_groups.errors import SchemaError

_NAMED: Final = frozenset({"record", "error", "enum", "fixed"})
_PARTS: Final = ("items", "values", "type")
_PRIMITIVE: Final = frozenset(
    {"null", "boolean", "int", "long", "float", "double", "bytes", "string"}
)
_TEXT_MAX: Final = 16 * 1024 * 1024
"""The most characters of a schema with its references."""


def with_references(text: str, references: Mapping[str, str]) -> str:
    """Return a schema in which the first use of each referred name is its definition.

    Args:
        text: The schema, in JSON.
        references: The schemas that it and these refer to, in JSON, by full name.

    Raises:
        SchemaError: A text is not JSON, or is nested too deeply; or the result is too long.
    """
    if len(text) + sum(map(len, references.values())) > _TEXT_MAX:
        raise _too_long()
    try:
        parsed = {name: json.loads(each) for name, each in references.items()}
        inlined = json.dumps(_Inlining(parsed).schema(json.loads(text), ""))
    except (ValueError, RecursionError) as error:
        raise SchemaError(f"a schema with references is not JSON: {error}") from None
    if len(inlined) > _TEXT_MAX:
        raise _too_long()
    return inlined


def _too_long() -> SchemaError:
    return SchemaError(f"a schema with its references has more than {_TEXT_MAX >> 20} MiB")


class _Inlining:
    """One pass over a schema, in the order in which Avro reads definitions."""

    def __init__(self, references: Mapping[str, Any]) -> None:
        self._references = references
        self._defined: set[str] = set()
        self._inlined: set[str] = set()
        self._left = _TEXT_MAX

    def schema(self, given: Any, namespace: str) -> Any:
        """Return a schema, or the list of a union, with definitions."""
        if isinstance(given, str):
            return self._named(given, namespace)
        if isinstance(given, list):
            return [self.schema(each, namespace) for each in given]
        if not isinstance(given, dict):
            return given
        kind = given.get("type")
        if isinstance(kind, str) and kind in _NAMED:
            return self._definition(given, namespace)
        return {
            name: self.schema(part, namespace) if name in _PARTS else part
            for name, part in given.items()
        }

    def _named(self, name: str, namespace: str) -> Any:
        if name in _PRIMITIVE:
            return name
        full = self._full(name, namespace)
        if full in self._defined:
            return full
        # A reference that does not define its name is not read again: it could double each time.
        if full in self._inlined or full not in self._references:
            return name
        self._inlined.add(full)
        return self.schema(self._references[full], "")

    def _full(self, name: str, namespace: str) -> str:
        full = name if "." in name or not namespace else f"{namespace}.{name}"
        self._left -= len(full)
        if self._left < 0:
            raise _too_long()
        return full

    def _definition(self, given: dict[str, Any], namespace: str) -> dict[str, Any]:
        name, space = given.get("name"), given.get("namespace")
        if not isinstance(name, str) or not isinstance(space, str | None):
            raise SchemaError("a name and a namespace of a schema are texts")
        if "." in name:
            space = name.rpartition(".")[0]
        elif space is None:
            space = namespace
        full = self._full(name, space)
        self._defined.add(full)
        # A definition may now stand in another namespace.
        found = {**given, "name": name.rpartition(".")[2], "namespace": space}
        if isinstance(given.get("fields"), list):
            found["fields"] = [
                {**each, "type": self.schema(each["type"], space)}
                if isinstance(each, dict) and "type" in each
                else each
                for each in given["fields"]
            ]
        return found
