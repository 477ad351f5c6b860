"""Property files as Java writes and reads them."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark_groups.errors import OptionsError
from spark_groups.kafka.embedded_properties import render_properties
from spark_groups.kafka.properties_file import parse_properties, read_properties

NAMES = st.text(st.characters(max_codepoint=0xFFFF, exclude_categories=["Cs"]), min_size=1)
VALUES = st.text(st.characters(max_codepoint=0xFFFF, exclude_categories=["Cs"]))


@given(st.dictionaries(NAMES, VALUES, max_size=4))
def test_what_is_written_is_read(properties: dict[str, str]) -> None:
    assert parse_properties(render_properties(properties)) == properties


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a=1\nb:2\nc 3\nd = 4 \n", {"a": "1", "b": "2", "c": "3", "d": "4 "}),
        ("# a=1\n  ! b=2\n\n c=3", {"c": "3"}),
        ("a=one \\\n   two\\\\\nb=2", {"a": "one two\\", "b": "2"}),
        (r"a\=b=\u00e9\tx", {"a=b": "é\tx"}),
        (
            'jaas=x required \\\n  user="a" \\\n  # b;',
            {"jaas": 'x required user="a" # b;'},
        ),
        ("a=1\na=2", {"a": "2"}),
        ("a=", {"a": ""}),
        ("a=1\\", {"a": "1"}),
    ],
)
def test_java_rules(text: str, expected: dict[str, str]) -> None:
    assert parse_properties(text) == expected


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    path = tmp_path / "client.properties"
    with pytest.raises(OptionsError, match=r"client\.properties cannot be read: No such file"):
        read_properties(path)
    path.write_text("a=1", encoding="latin-1")
    assert read_properties(path) == {"a": "1"}
