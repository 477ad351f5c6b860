"""DDL and JSON documents as Spark itself reads them."""

from __future__ import annotations

import json
import random
import re
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

from spark_groups.errors import SchemaError
from spark_groups.formats.ddl import ddl_of, parse_ddl
from spark_groups.formats.json_values import JsonDecoder
from workshop.fuzz.json_and_protobuf import DDL, document

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

DDLS = (
    *("a boolean, b tinyint, c byte, d smallint, e short, f int, g integer, h bigint, i long",),
    *("a float, b real, c double, d date, e timestamp, f timestamp_ltz, g timestamp_ntz",),
    *("a string, b binary, c decimal, d dec(5), e numeric(38,38), f decimal( 10 , 2 )",),
    *("`a b` int, `a``b` int, `x:y` int, 1a int, _a int, struct int, date date, select int",),
    *("a int not null comment 'it''s', b int comment \"x\", c INT NOT NULL",),
    "a struct<x:int not null comment 'k', y map<string,struct<z:decimal(3,1)>>>",
    "a array<array<int>>",
    *("struct<a:int,b:string comment 'x'>", "array<int>", "map < string , int >", "bigint"),
    "a\tint\n,b\nint",
)
WRONG = (
    *("", "a", "a int b", "a-b int", "a.b int", "a int,", "1 int", "ä int", "a char"),
    *("a decimal(39,1)", "a decimal(3,5)", "a decimal(10,2,1)", "a decimal(10,-2)", "a map<int>"),
    *("a array<>", "a struct<x:int,>", "a bool", "a text", "a int(3)", "struct<a:int", "a int)"),
    *("a bigint comment 'x' not null", "a int comment b", "a 'x", "a `int`"),
)
CASES = {
    '{"i":1,"i":2}': {"i": 2},
    '{"s":true,"st":{"x":1},"st":{"s":"b"}}': {"s": "true", "st": {"x": None, "s": "b", "t": None}},
    '{"s":{"a" : [1, 2.0,null, "é\\n"]}}': {"s": '{"a":[1,2.0,null,"é\\n"]}'},
    '{"f":1e300,"d":1e400}': {"f": float("inf"), "d": float("inf")},
    '{"d":"-INF"}': {"d": float("-inf")},
    '{"de":"1.235"}': {},
    '{"t":"2020-1-1 1:2:3.123456789+02"}': {},
    '{"t":1.0}': None,
    '{"da":"2020-1-1T00:00:00"}': {},
    '{"n":"2020-01-01T00:00:00Z"}': None,
    '{"t":"2020-01-01T24:00:00Z"}': None,
    '{"bi":"YWJ"}': None,
    '{"ar":{"a":1}}': None,
    '{"i":01}': None,
    '{"i":1,}': None,
    "[]": None,
    "5": None,
}


def test_spark_reads_each_ddl_as_the_same_type(spark: SparkSession) -> None:
    from pyspark.sql.pandas.types import to_arrow_type
    from pyspark.sql.types import _parse_datatype_string

    for ddl in DDLS:
        expected = to_arrow_type(_parse_datatype_string(ddl), timezone="UTC")
        assert ddl_of(parse_ddl(ddl)) == ddl_of(expected), ddl
        again = to_arrow_type(_parse_datatype_string(ddl_of(parse_ddl(ddl))), timezone="UTC")
        assert ddl_of(again) == ddl_of(expected), ddl


def test_spark_refuses_each_wrong_ddl(spark: SparkSession) -> None:
    from pyspark.errors import PySparkException

    from_ddl = spark._jvm.org.apache.spark.sql.types.DataType.fromDDL
    for ddl in WRONG:
        with pytest.raises(SchemaError):
            parse_ddl(ddl)
        with pytest.raises(PySparkException):
            from_ddl(ddl)


@pytest.mark.parametrize("ddl", [DDL, f"{DDL}, labels MAP<STRING, INT>"], ids=["all", "map"])
def test_from_json_gives_the_same_rows(spark: SparkSession, ddl: str) -> None:
    from pyspark.sql.functions import from_json

    texts = list(CASES)
    for seed in range(400):
        drawn = document(random.Random(seed))
        # Spark writes numbers in its own form into a column of strings.
        if isinstance(drawn.get("s", ""), str) and isinstance(drawn.get("st", {}), dict):
            text = json.dumps(drawn, ensure_ascii=bool(seed % 2))
            # Spark takes no time zone behind an hour alone.
            if not re.search(r"T\d\d(?:Z|[+-])", text):
                texts.append(text)
    rows = spark.createDataFrame(list(enumerate(texts)), "k INT, text STRING")
    parsed = from_json("text", f"{ddl}, _corrupt_record STRING").alias("row")
    table = rows.select("k", parsed).sort("k").toArrow()
    expected = table["row"].combine_chunks().to_pylist()
    decoder = JsonDecoder(ddl, bytes_max=1 << 28)
    found = decoder.decode(pa.array([each.encode() for each in texts], pa.binary()))
    different = []
    for number, (text, row) in enumerate(zip(texts, expected, strict=True)):
        is_wrong = row.pop("_corrupt_record") is not None
        own = found.values[number].as_py() or {}
        fault = found.refused.get(number)
        if is_wrong != (fault is not None) or (not is_wrong and repr(own) != repr(row)):
            parts = {name for name in row if repr(row[name]) != repr(own.get(name))}
            parsed_text = json.loads(text)
            shown = {name: (parsed_text.get(name), own.get(name), row[name]) for name in parts}
            different.append((fault and fault.reason, shown))
        assert text not in CASES or (CASES[text] is None) == is_wrong
        assert is_wrong or (CASES.get(text) or {}).items() <= row.items()
    assert not different
