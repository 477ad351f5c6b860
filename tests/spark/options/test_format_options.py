"""Options of formats: what they mean, and what contradicts."""

from __future__ import annotations

import base64
import pickle
from pathlib import Path

import pytest

from spark_groups.errors import OptionsError
from spark_groups.spark.options.packed import Load
from spark_groups.spark.options.source_options import SourceOptions
from spark_groups.spark.schemas.row_formats import (
    ColumnFormat,
    Format,
    OnUndecodable,
    RowFormats,
    SchemaVersion,
)

GIVEN = {
    "kafka.bootstrap.servers": "localhost:9092",
    "kafka.group.id": "g",
    "subscribe": "orders",
}
URL = {"schemaRegistryUrl": "http://one:8081/, https://two/registry"}
AVRO = {"valueFormat": "avro", **URL}


def formats(**options: str) -> RowFormats | None:
    return SourceOptions.of({**GIVEN, **options}).range_settings().formats


def refused(**options: str) -> str:
    with pytest.raises(OptionsError) as raised:
        SourceOptions.of({**GIVEN, **options})
    return str(raised.value).partition("\n  - ")[2]


def test_bytes_are_the_default() -> None:
    assert formats() is None
    assert formats(valueFormat="Binary") is None


def test_subject_is_that_of_the_topic_and_version_the_latest() -> None:
    found = formats(**AVRO, keyFormat="string")
    assert found is not None
    assert found.registry is not None
    assert found.registry.urls == ("http://one:8081", "https://two/registry")
    assert found.value == ColumnFormat(format=Format.AVRO, subject="orders-value")
    assert found.key.format is Format.STRING
    assert found.value.needs_lookup
    assert not found.key.needs_lookup


@pytest.mark.parametrize(
    ("subject", "meant"),
    [("shop.Order", "shop.Order"), ("{topic}-shop.Order", "orders-shop.Order")],
)
def test_subject_of_each_strategy_can_be_named(subject: str, meant: str) -> None:
    found = formats(**AVRO, valueSubject=subject)
    assert found is not None
    assert found.value.subject == meant


@pytest.mark.parametrize(
    ("options", "version"),
    [
        ({"valueSchemaVersion": "latest"}, SchemaVersion()),
        ({"valueSchemaVersion": "3"}, SchemaVersion(version=3)),
        ({"valueSchemaId": "17"}, SchemaVersion(schema_id=17)),
    ],
)
def test_version_is_latest_or_a_number_or_the_schema_has_an_id(
    options: dict[str, str], version: SchemaVersion
) -> None:
    found = formats(**AVRO, **options)
    assert found is not None
    assert found.value.version == version


def test_own_schema_needs_no_registry() -> None:
    found = formats(valueFormat="json", valueSchema="id bigint", onUndecodable="NULL")
    assert found is not None
    assert found.value.schema == "id bigint"
    assert not found.value.needs_lookup
    assert found.on_undecodable is OnUndecodable.NULL


def test_descriptor_set_is_base64_or_a_file(tmp_path: Path) -> None:
    file = tmp_path / "orders.desc"
    file.write_bytes(b"\n\x04abcd")
    text = base64.b64encode(file.read_bytes()).decode()
    for given in (text, str(file)):
        found = formats(valueFormat="protobuf", valueSchema=given, valueMessageName="shop.Order")
        assert found is not None
        assert found.value.schema == text


def test_avro_schema_is_json_or_a_file(tmp_path: Path) -> None:
    text = '{"type": "record", "name": "Order", "fields": []}'
    file = tmp_path / "order.avsc"
    file.write_text(text)
    for given in (text, f" {text}", str(file)):
        found = formats(valueFormat="avro", valueSchema=given)
        assert found is not None
        assert found.value.schema.strip() == text
    problem = refused(valueFormat="avro", valueSchema=f"{file}.gone")
    assert problem.startswith(f"valueSchema: '{file}.gone' is neither the path of a file nor the J")
    file.write_bytes(b"x" * (4 * 1024 * 1024 + 1))
    assert "order.avsc is larger than 4 MiB" in refused(valueFormat="avro", valueSchema=str(file))


def test_descriptor_set_of_a_file_that_was_replaced_is_read_again(tmp_path: Path) -> None:
    file = tmp_path / "orders.desc"
    for content in (b"\n\x04abcd", b"\n\x06abcdef"):
        file.write_bytes(content)
        found = formats(
            valueFormat="protobuf", valueSchema=str(file), valueMessageName="shop.Order"
        )
        assert found is not None
        assert base64.b64decode(found.value.schema) == content


def test_login_of_a_proxy_is_a_reference(monkeypatch: pytest.MonkeyPatch) -> None:
    name, proxy = "schemaRegistry.proxy", "http://alice:hidden-word@proxy:3128"
    problem = refused(**AVRO, **{name: proxy})
    assert problem.startswith(f"{name}: Spark prints options with query plans")
    assert "hidden-word" not in problem
    monkeypatch.setenv("REGISTRY_PROXY", proxy)
    for given in ("${env:REGISTRY_PROXY}", "http://proxy:3128"):
        assert formats(**AVRO, **{name: given}) is not None


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"valueFormat": "xml"}, "valueFormat: 'xml' is neither binary nor string"),
        ({"valueFormat": "avro"}, "valueFormat is avro: set schemaRegistryUrl, or valueSchema"),
        ({"valueFormat": "protobuf", **URL}, "valueSchema is missing, and valueFormat is protobuf"),
        ({**AVRO, "valueSchemaVersion": "2", "valueSchemaId": "7"}, "valueSchemaVersion and value"),
        ({**AVRO, "valueSchemaId": "id:7"}, "valueSchemaId: "),
        ({"valueFormat": "json"}, "valueSchema is missing, and valueFormat is json"),
        ({"valueFormat": "protobuf", "valueSchema": "AAAA"}, "valueMessageName is missing"),
        (
            {"keyFormat": "protobuf", "keySchema": "?", "keyMessageName": "m"},
            "keySchema: '?' is neit",
        ),
        ({"valueSchema": "id int"}, "valueSchema is set, but valueFormat is binary"),
        ({"keyFormat": "string", "keySubject": "s"}, "keySubject is set, but keyFormat is string"),
        ({**AVRO, "valueMessageName": "m"}, "valueMessageName is set, but valueFormat is avro"),
        ({**AVRO, "valueSchema": "{}", "valueSubject": "s"}, "valueSubject and valueSchema are"),
        ({**AVRO, "valueSchema": "{}", "valueSchemaVersion": "2"}, "valueSchemaVersion and value"),
        ({**AVRO, "valueSchemaVersion": "newest"}, "valueSchemaVersion: 'newest' is neither"),
        ({**AVRO, "valueSchemaVersion": "0"}, "valueSchemaVersion: '0' is neither"),
        ({**AVRO, "subscribe": "a,b"}, "valueSubject: the query may read several topics"),
        ({**AVRO, "subscribe": "a,b", "valueSubject": "{topic}-x"}, "valueSubject: the query may"),
        (URL, "schemaRegistryUrl is set, but neither keyFormat nor valueFormat has schemas"),
        ({**AVRO, "schemaRegistryUrl": "one:8081"}, "schemaRegistryUrl: write http:// or https://"),
        (
            {**AVRO, "schemaRegistryUrl": "http://a:b@c"},
            "schemaRegistryUrl: an address has a login",
        ),
        ({"onUndecodable": "null"}, "onUndecodable is set, but neither keyFormat nor valueFormat"),
        ({**AVRO, "onUndecodable": "deadLetters"}, "onUndecodable is deadLetters, which spark_gro"),
        (
            {"schemaRegistry.proxy": "http://p"},
            "schemaRegistry.proxy is set, but schemaRegistryUrl",
        ),
        ({**AVRO, "schemaRegistry.proxi": "x"}, "schemaRegistry.proxi is not an option of this"),
    ],
)
def test_contradictions_are_refused(options: dict[str, str], problem: str) -> None:
    assert refused(**options).startswith(problem)


def test_several_topics_have_one_schema_if_its_subject_is_named() -> None:
    found = formats(**{**AVRO, "subscribe": "a,b"}, valueSubject="shop.Order")
    assert found is not None
    assert found.value.subject == "shop.Order"


def test_login_of_the_registry_is_a_reference_and_is_never_shown(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("REGISTRY_LOGIN", "alice:hidden-word")
    name = "schemaRegistry.basic.auth.user.info"
    found = formats(**AVRO, **{name: "${env:REGISTRY_LOGIN}"})
    assert found is not None
    assert found.registry is not None
    assert found.registry.settings == (("basic.auth.user.info", "alice:hidden-word"),)
    assert "hidden-word" not in repr(found)
    problem = refused(**AVRO, **{name: "alice:hidden-word"})
    assert problem.startswith(f"{name}: Spark prints options with query plans")
    assert "hidden-word" not in problem
    assert "no such variable" in refused(**AVRO, **{name: "${env:NONE_SUCH}"})


def test_all_problems_are_listed_at_once() -> None:
    problems = refused(valueFormat="avro", keyFormat="json", onUndecodable="deadLetters")
    assert len(problems.split("\n  - ")) == 3


def test_ranges_look_no_schema_up_in_load() -> None:
    load = Load.of({**GIVEN, **AVRO, "schemaRegistryUrl": "http://127.0.0.1:1", "emit": "ranges"})
    assert load.notes == ()
    assert pickle.loads(pickle.dumps(load)).range_settings == load.range_settings
