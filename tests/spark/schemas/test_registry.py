"""A schema registry that answers, is away, is slow, refuses, or answers rubbish."""

from __future__ import annotations

import base64
import builtins
import json
import logging
import pickle
import struct
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from spark_groups.cli.doctor_cli import Outcome, check_registry
from spark_groups.errors import NotInstalledError, SchemaLookupError, UnknownSchemaIdError
from spark_groups.formats.avro.schema import parse_schema
from spark_groups.spark.control.running_query import RunningQuery
from spark_groups.spark.options.packed import Load
from spark_groups.spark.reading import compiled
from spark_groups.spark.schemas import registry as registries
from spark_groups.spark.schemas.decoders import decoders_of, looked_up
from spark_groups.spark.schemas.registry import FoundSchema, SchemaRegistry, registry_of
from spark_groups.spark.schemas.row_formats import (
    ColumnFormat,
    Format,
    RegistryAccess,
    RowFormats,
    SchemaVersion,
)
from tests.spark.schemas.stub_registry import AVRO, Stub, running_stub, schema
from workshop.parts.messages import as_set, full_file
from workshop.parts.waiting import LONG_S, SOON_S

LATEST = SchemaVersion()
NONE = (404, {"error_code": 40403, "message": "none"})


@pytest.fixture
def stub() -> Iterator[Stub]:
    with running_stub() as running:
        yield running


@pytest.fixture
def registry(stub: Stub) -> SchemaRegistry:
    return SchemaRegistry(RegistryAccess(urls=(stub.url,)))


def test_schema_is_looked_up_once(stub: Stub, registry: SchemaRegistry) -> None:
    stub.answers["/schemas/ids/7"] = [(200, schema())]
    assert [json.loads(registry.schema_of_id(7, LONG_S)) for _ in range(3)] == [AVRO] * 3
    assert stub.asked == ["/schemas/ids/7"]


def test_version_of_a_subject_is_known_by_its_id_too(stub: Stub, registry: SchemaRegistry) -> None:
    found = schema(id=7, version=3, subject="t-value")
    stub.answers["/subjects/t-value/versions/latest"] = [(200, found)]
    text = json.dumps(AVRO)
    assert registry.schema_of_subject("t-value", LATEST, LONG_S) == FoundSchema(text, 7, 3)
    assert registry.schema_of_id(7, 0.0) == text


def test_schema_can_be_chosen_by_version_or_id(stub: Stub, registry: SchemaRegistry) -> None:
    stub.answers["/subjects/a%2Fb/versions/2"] = [(200, schema(id=5, version=2, subject="a/b"))]
    assert registry.schema_of_subject("a/b", SchemaVersion(version=2), LONG_S).schema_id == 5
    found = registry.schema_of_subject("any", SchemaVersion(schema_id=5), LONG_S)
    assert (found.schema_id, found.version) == (5, None)


def test_id_that_the_registry_does_not_know_is_not_asked_for_again(
    stub: Stub, registry: SchemaRegistry, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(registries, "_LATE_PAUSES_S", ())
    monkeypatch.setattr(registries, "UNKNOWN_S", LONG_S)
    for _ in range(3):
        with pytest.raises(UnknownSchemaIdError, match="has no schema id 9: none"):
            registry.schema_of_id(9, LONG_S)
    assert len(stub.asked) == 1


def test_id_that_a_follower_has_a_moment_later_is_found(
    stub: Stub, registry: SchemaRegistry
) -> None:
    stub.answers["/schemas/ids/7"] = [NONE, NONE, (200, schema())]
    assert json.loads(registry.schema_of_id(7, LONG_S)) == AVRO
    assert len(stub.asked) == 3


def test_id_that_stays_unknown_is_waited_for_once(
    stub: Stub, registry: SchemaRegistry, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(registries, "_LATE_PAUSES_S", (0.0, 0.0))
    monkeypatch.setattr(registries, "UNKNOWN_S", 0.0)
    for _ in range(3):
        with pytest.raises(UnknownSchemaIdError):
            registry.schema_of_id(9, LONG_S)
    assert len(stub.asked) == 3 + 1 + 1


def test_hostile_ids_make_few_requests(
    stub: Stub,
    registry: SchemaRegistry,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(registries, "UNKNOWN_IDS_MAX", 20)
    monkeypatch.setattr(registries, "UNKNOWN_IDS_S", LONG_S)
    monkeypatch.setattr(registries, "_LATE_PAUSES_S", (0.0, 0.0))
    with caplog.at_level(logging.WARNING):
        for schema_id in range(500):
            with pytest.raises(UnknownSchemaIdError):
                registry.schema_of_id(schema_id, LONG_S)
    assert len(stub.asked) == 20 + 3 * 2
    (line,) = [each.getMessage() for each in caplog.records if each.name == registries.__name__]
    assert line.startswith("20 schema ids of records were unknown to the schema registry")
    monkeypatch.setattr(registries, "UNKNOWN_IDS_S", 0.0)
    stub.answers["/schemas/ids/900"] = [(200, schema())]
    assert json.loads(registry.schema_of_id(900, LONG_S)) == AVRO, "later ones are asked for"


def test_task_that_runs_again_asks_again(stub: Stub, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registries, "_LATE_PAUSES_S", ())
    value = ColumnFormat(format=Format.AVRO, schema=json.dumps(AVRO))
    formats = RowFormats(value=value, registry=RegistryAccess(urls=(stub.url,)))
    records = pa.array([struct.pack(">bI", 0, 9) + b"\x02"], pa.binary())

    compiled.prepare(compiled.AVRO)

    def refused() -> int:
        decoders = decoders_of(formats, timeout_s=LONG_S, memory_bytes=1 << 28)
        return len(decoders["value"].decode(records).refused)

    assert refused() == 1
    stub.answers["/schemas/ids/9"] = [(200, schema())]
    assert refused() == 0


def test_id_is_that_of_the_context_of_the_subject(stub: Stub, registry: SchemaRegistry) -> None:
    other = {**AVRO, "name": "Other"}
    stub.answers["/schemas/ids/7"] = [(200, schema()), (200, schema(other))]
    assert json.loads(registry.schema_of_id(7, LONG_S, "t-value")) == AVRO
    for subject in (":.ctx:t-value", ":.ctx:u-value"):
        assert json.loads(registry.schema_of_id(7, LONG_S, subject)) == other
    assert stub.queries == ["", "subject=%3A.ctx%3At-value"]


def test_schema_of_another_format_is_none_of_avro(stub: Stub, registry: SchemaRegistry) -> None:
    stub.answers["/schemas/ids/7"] = [(200, schema("syntax = 'proto3';", schemaType="PROTOBUF"))]
    with pytest.raises(UnknownSchemaIdError, match="schema id 7 is of PROTOBUF, not of AVRO"):
        registry.schema_of_id(7, LONG_S)


def test_schemas_of_protobuf_tell_which_message_a_frame_names(stub: Stub) -> None:
    texts = {7: "package t; message M {}", 8: "package t; message N {}", 9: "message M {}"}
    for schema_id, text in texts.items():
        stub.answers[f"/schemas/ids/{schema_id}"] = [(200, schema(text, schemaType="PROTOBUF"))]
    stub.answers["/schemas/ids/6"] = [(200, schema())]
    descriptors = as_set(full_file("proto3"))
    value = ColumnFormat(
        format=Format.PROTOBUF, schema=base64.b64encode(descriptors).decode(), message="t.M"
    )
    formats = RowFormats(value=value, registry=RegistryAccess(urls=(stub.url,)))
    decoder = decoders_of(formats, timeout_s=LONG_S, memory_bytes=1 << 28)["value"]
    found = decoder.decode(pa.array([bytes((0, 0, 0, 0, each, 0)) for each in range(5, 10)]))
    assert [each is not None for each in found.values.to_pylist()] == [False, False, True] + [
        False
    ] * 2
    assert "has no schema id 5" in found.refused[0].reason
    assert "schema id 6 is of AVRO, not of PROTOBUF" in found.refused[1].reason
    for row in (3, 4):
        assert found.refused[row].reason == (
            "it is no message t.M: the schema id and message indexes in its frame name another one"
        )


def test_registry_that_comes_back_is_waited_for_and_the_wait_is_logged(
    stub: Stub, registry: SchemaRegistry, caplog: pytest.LogCaptureFixture
) -> None:
    stub.answers["/schemas/ids/7"] = [(503, b"away"), (500, b"{}"), (200, schema())]
    with caplog.at_level(logging.WARNING):
        assert json.loads(registry.schema_of_id(7, LONG_S)) == AVRO
    (line,) = [each.getMessage() for each in caplog.records if each.name == registries.__name__]
    assert line.startswith(
        f"waiting up to 300 s more for schema id 7 from the schema registry {stub.url}"
    )


def test_registry_that_is_away_has_a_deadline() -> None:
    registry = SchemaRegistry(RegistryAccess(urls=("http://127.0.0.1:1", "http://127.0.0.1:2")))
    began_s = time.monotonic()
    with pytest.raises(
        SchemaLookupError, match=r"did not return schema id 7 within 3 s: .*refused"
    ):
        registry.schema_of_id(7, 3.0)
    assert time.monotonic() - began_s < SOON_S
    registry.learn(8, "text")
    assert registry.schema_of_id(8, 0.0) == "text", "a known schema needs no registry"


def test_registry_that_is_slow_has_a_deadline(stub: Stub, registry: SchemaRegistry) -> None:
    stub.may_answer.clear()
    with pytest.raises(SchemaLookupError, match="did not return schema id 7 within 1 s"):
        registry.schema_of_id(7, 1.0)


def test_deadline_is_that_of_each_look_up(stub: Stub, registry: SchemaRegistry) -> None:
    stub.answers["/schemas/ids/7"] = [(200, schema())]
    registry.schema_of_id(7, LONG_S)
    stub.may_answer.clear()
    began_s = time.monotonic()
    with pytest.raises(SchemaLookupError, match="did not return schema id 8 within 1 s"):
        registry.schema_of_id(8, 1.0)
    assert time.monotonic() - began_s < SOON_S


def test_answer_in_small_pieces_has_a_deadline(stub: Stub, registry: SchemaRegistry) -> None:
    long = {**AVRO, "doc": "x" * 1_000}
    stub.answers["/schemas/ids/7"] = [(200, schema(long))]
    stub.pause_s = 0.2
    began_s = time.monotonic()
    with pytest.raises(SchemaLookupError, match="did not return schema id 7 within 3 s: the whole"):
        registry.schema_of_id(7, 3.0)
    assert time.monotonic() - began_s < SOON_S
    stub.pause_s = 0.0
    assert json.loads(registry.schema_of_id(7, LONG_S)) == long


def test_second_address_is_asked_if_the_first_does_not_answer(stub: Stub) -> None:
    stub.answers["/schemas/ids/7"] = [(200, schema())]
    registry = SchemaRegistry(RegistryAccess(urls=("http://127.0.0.1:1", stub.url)))
    assert json.loads(registry.schema_of_id(7, LONG_S)) == AVRO


@pytest.mark.parametrize("status", [401, 403])
def test_refused_login_is_not_repeated(stub: Stub, registry: SchemaRegistry, status: int) -> None:
    stub.answers["/schemas/ids/7"] = [(status, {"error_code": status, "message": "no"})]
    with pytest.raises(SchemaLookupError, match=r"refuses .* Check schemaRegistry\.basic\.auth"):
        registry.schema_of_id(7, LONG_S)
    assert len(stub.asked) == 1


@pytest.mark.parametrize(
    ("status", "body"),
    [
        (200, b"<html>welcome</html>"),
        (200, b"[1, 2]"),
        (200, b"7"),
        (200, b""),
        (200, {"id": 7}),
        (200, {"schema": 7}),
        (404, b"<html>not here</html>"),
        (301, b""),
        (418, {"error_code": 418}),
    ],
)
def test_answer_that_is_no_schema_is_refused_at_once(
    stub: Stub, registry: SchemaRegistry, status: int, body: Any
) -> None:
    stub.answers["/schemas/ids/7"] = [(status, body)]
    with pytest.raises(SchemaLookupError, match="is not that of a schema registry") as raised:
        registry.schema_of_id(7, LONG_S)
    assert not isinstance(raised.value, UnknownSchemaIdError)
    assert len(stub.asked) == 1


def test_login_is_sent_and_never_shown(stub: Stub) -> None:
    access = RegistryAccess(
        urls=(stub.url,), settings=(("basic.auth.user.info", "alice:hidden-word"),)
    )
    stub.answers["/schemas/ids/7"] = [(401, {"error_code": 1, "message": "not hidden-word"})]
    with pytest.raises(SchemaLookupError) as raised:
        SchemaRegistry(access).schema_of_id(7, LONG_S)
    assert stub.logins == ["Basic YWxpY2U6aGlkZGVuLXdvcmQ="]
    assert "hidden-word" not in str(raised.value) + repr(access)


def test_token_needs_no_more_settings(stub: Stub) -> None:
    access = RegistryAccess(urls=(stub.url,), settings=(("bearer.auth.token", "abc"),))
    stub.answers["/schemas/ids/7"] = [(200, schema())]
    SchemaRegistry(access).schema_of_id(7, LONG_S)
    assert stub.logins == ["Bearer abc"]


def test_schemas_that_a_schema_refers_to_are_part_of_it(
    stub: Stub, registry: SchemaRegistry
) -> None:
    def refers(name: str) -> dict[str, Any]:
        return {"name": name, "subject": name, "version": 1}

    def record(name: str, field_type: Any) -> dict[str, Any]:
        return {"type": "record", "name": name, "fields": [{"name": "f", "type": field_type}]}

    stub.answers["/schemas/ids/7"] = [
        (200, schema(record("x.A", ["null", "y.B"]), references=[refers("y.B")]))
    ]
    of_b = schema(record("y.B", "C"), id=2, version=1, references=[refers("y.C")])
    stub.answers["/subjects/y.B/versions/1"] = [(200, of_b)]
    of_c = schema({"type": "enum", "name": "y.C", "symbols": ["S"]}, id=3, version=1)
    stub.answers["/subjects/y.C/versions/1"] = [(200, of_c)]
    (field,) = getattr(parse_schema(registry.schema_of_id(7, LONG_S)), "fields", ())
    inner = field.type.branches[1]
    assert (inner.name, inner.fields[0].type.symbols) == ("y.B", ("S",))


def test_deleted_schema_that_a_schema_refers_to_is_still_found(
    stub: Stub, registry: SchemaRegistry
) -> None:
    reference = {"name": "y.B", "subject": "y.B", "version": 1}
    refers = {**AVRO, "fields": [{"name": "f", "type": "y.B"}]}
    stub.answers["/schemas/ids/7"] = [(200, schema(refers, references=[reference]))]
    with pytest.raises(SchemaLookupError, match=r"has no version 1 of subject y\.B, to") as raised:
        registry.schema_of_id(7, LONG_S)
    assert not isinstance(raised.value, UnknownSchemaIdError)
    of_b = schema({"type": "enum", "name": "y.B", "symbols": ["S"]}, id=2, version=1)
    stub.answers["/subjects/y.B/versions/1"] = [(200, of_b)]
    assert "symbols" in registry.schema_of_id(7, LONG_S)
    assert stub.queries[-1].lower() == "deleted=true"


def test_reference_whose_name_is_no_text_is_refused(stub: Stub, registry: SchemaRegistry) -> None:
    refers = {"name": ["x.A"], "subject": "a", "version": 1}
    stub.answers["/schemas/ids/7"] = [(200, schema("string", references=[refers]))]
    with pytest.raises((SchemaLookupError, UnknownSchemaIdError)):
        registry.schema_of_id(7, LONG_S)


def test_processes_memory_of_schemas_has_a_limit(
    registry: SchemaRegistry, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(registries, "IDS_MAX", 3)
    for schema_id in range(5):
        registry.learn(schema_id, "text")
    assert [schema_id for _, schema_id in registry._texts] == [2, 3, 4]
    monkeypatch.setattr(registries, "KEPT_BYTES_MAX", 1_000)
    for schema_id in (5, 6, 6):
        registry.learn(schema_id, "x" * 600)
    assert [schema_id for _, schema_id in registry._texts] == [6]


def test_schema_that_is_too_long_is_not_kept(stub: Stub, registry: SchemaRegistry) -> None:
    stub.answers["/schemas/ids/7"] = [(200, schema({**AVRO, "doc": "x" * (1 << 20)}))]
    with pytest.raises(UnknownSchemaIdError, match="schema id 7 has more than 1048576 bytes"):
        registry.schema_of_id(7, LONG_S)


def test_missing_extra_is_named(registry: SchemaRegistry, monkeypatch: pytest.MonkeyPatch) -> None:
    real = builtins.__import__

    def without(name: str, *rest: Any, **more: Any) -> Any:
        if name == "confluent_kafka.schema_registry":
            raise ImportError("No module named 'httpx'")
        return real(name, *rest, **more)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(NotInstalledError, match=r"install spark-groups\[avro\]"):
        registry.schema_of_id(7, LONG_S)


def test_doctor_resolves_a_login_as_a_query_does(
    stub: Stub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("REGISTRY_LOGIN", "alice:pw")
    file = tmp_path / "client.properties"
    file.write_text("schemaRegistry.basic.auth.user.info=${env:REGISTRY_LOGIN}\n")
    stub.answers["/subjects"] = [(200, [])]
    assert check_registry(stub.url, None, file)[0].outcome is Outcome.OK
    assert stub.logins == ["Basic YWxpY2U6cHc="]
    file.write_text("schemaRegistry.basic.auth.user.info=${env:NO_SUCH_LOGIN}\n")
    (refused,) = check_registry(stub.url, None, file)
    assert refused.outcome is Outcome.FAILED
    assert "NO_SUCH_LOGIN" in refused.found


def test_each_start_meets_the_registry_of_its_time(stub: Stub) -> None:
    value = ColumnFormat(format=Format.AVRO, subject="t-value", version=SchemaVersion(schema_id=7))
    formats = RowFormats(value=value, registry=RegistryAccess(urls=(stub.url,)))
    for each in (AVRO, {**AVRO, "name": "Other"}):
        stub.answers["/schemas/ids/7"] = [(200, schema(each))]
        found, _ = looked_up(formats, LONG_S)
        assert json.loads(found.value.schema) == each
        assert found.registry is not None
        of_a_task = pickle.loads(pickle.dumps(found)).registry
        assert registry_of(of_a_task) is registry_of(found.registry)


def test_each_run_of_many_looks_its_schema_up_once(stub: Stub) -> None:
    path = "/subjects/t-value/versions/latest"
    stub.answers[path] = [(200, schema(id=7, version=3, subject="t-value"))]
    given = {
        "kafka.bootstrap.servers": "localhost:9092",
        "kafka.group.id": "g",
        "subscribe": "t",
        "valueFormat": "avro",
        "schemaRegistryUrl": stub.url,
    }
    runs = [
        RunningQuery(tuple(given.items()), f"run {place}", (), (), (), is_as_loaded=True)
        for place in range(20)
    ]
    for _ in range(2):
        for run in runs:
            assert run.reading_settings().formats is not None
    assert stub.asked == [path] * len(runs)


def test_log_of_a_start_names_the_version_and_how_to_keep_it(stub: Stub) -> None:
    found = schema(id=7, version=3, subject="t-value")
    stub.answers["/subjects/t-value/versions/latest"] = [(200, found)]
    stub.answers["/subjects/t-value/versions/3"] = [(200, found)]
    given = {
        "kafka.bootstrap.servers": "localhost:9092",
        "subscribe": "t",
        "valueFormat": "avro",
        "schemaRegistryUrl": stub.url,
    }
    (note,) = Load.of(given).notes
    assert note.startswith("the column value has the schema of version 3 of t-value, schema id 7")
    assert note.endswith("set valueSchemaVersion to 3 to keep these")
    pinned = Load.of({**given, "valueSchemaVersion": "3"})
    assert "latest" not in pinned.notes[0]
    assert pinned.columns.startswith("key binary, value struct<a:int>, topic string")
