"""Property files as Java writes and reads them."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spark_groups.broker.java import find_java
from spark_groups.errors import OptionsError
from spark_groups.wire.properties_file import parse_properties, read_properties, render_properties

NAMES = st.text(st.characters(max_codepoint=0xFFFF, exclude_categories=["Cs"]), min_size=1)
VALUES = st.text(st.characters(max_codepoint=0xFFFF, exclude_categories=["Cs"]))


@given(st.dictionaries(NAMES, VALUES, max_size=4))
def test_rendered_properties_parse_back(properties: dict[str, str]) -> None:
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


READER = """
import java.io.*; import java.util.*;
public class Reader {
  public static void main(String[] a) throws Exception {
    Properties p = new Properties();
    try (InputStream in = new FileInputStream(a[0])) { p.load(in); }
    StringBuilder out = new StringBuilder();
    for (String k : new TreeSet<>(p.stringPropertyNames()))
      for (String s : new String[] {k, p.getProperty(k)}) {
        for (char c : s.toCharArray()) out.append(String.format("%04x", (int) c));
        out.append('\\n');
      }
    System.out.print(out);
  }
}
"""


def test_java_reads_rendered_properties(tmp_path: Path) -> None:
    written = {
        "plain": "value",
        "key with=signs:#!": " leading and trailing ",
        "ssl.keystore.key": "-----BEGIN\nline\\two\r\n\ttabbed\f-----END",
        "unicode": "grün \u4e2d \U0001f40d",
        "empty": "",
    }
    (tmp_path / "Reader.java").write_text(READER)
    (tmp_path / "test.properties").write_text(render_properties(written), encoding="latin-1")
    shown = subprocess.run(
        [find_java(), tmp_path / "Reader.java", tmp_path / "test.properties"],
        capture_output=True,
        text=True,
        timeout=800,
        check=False,
    )
    assert shown.returncode == 0, shown.stderr
    texts = [bytes.fromhex(line).decode("utf-16-be") for line in shown.stdout.split("\n")]
    assert dict(zip(texts[:-1:2], texts[1:-1:2], strict=True)) == written


@settings(max_examples=50, deadline=None)
@given(st.dictionaries(st.text(min_size=1), st.text()))
def test_a_property_is_one_printable_line(written: dict[str, str]) -> None:
    lines = render_properties(written).split("\n")
    assert len(lines) == len(written) + 1
    assert all(" " <= character <= "~" for line in lines for character in line)
