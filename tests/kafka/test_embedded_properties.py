"""The broker's configuration, as Java reads it."""

from __future__ import annotations

import subprocess
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from spark_groups.kafka.embedded_properties import (
    BrokerFiles,
    broker_properties,
    random_cluster_id,
    render_properties,
)
from spark_groups.kafka.java import find_java

PORTS = {"CLIENT": 1001, "SECURE": 1002, "CONTROLLER": 1003}


def properties(**overrides: str) -> dict[str, str]:
    return broker_properties(
        ports=PORTS,
        protocols={"SECURE": "SASL_SSL"},
        logs=Path("/logs"),
        server_properties={name.replace("_", "."): value for name, value in overrides.items()},
    )


def test_listeners_are_local() -> None:
    made = properties()
    assert made["listeners"] == (
        "CLIENT://127.0.0.1:1001,SECURE://127.0.0.1:1002,CONTROLLER://127.0.0.1:1003"
    )
    assert made["advertised.listeners"] == "CLIENT://127.0.0.1:1001,SECURE://127.0.0.1:1002"
    assert made["listener.security.protocol.map"] == (
        "CLIENT:PLAINTEXT,SECURE:SASL_SSL,CONTROLLER:PLAINTEXT"
    )


def test_kafka_s_own_heartbeat_and_session_are_left_alone() -> None:
    made = properties()
    assert "group.consumer.heartbeat.interval.ms" not in made
    assert "group.consumer.session.timeout.ms" not in made
    assert made["group.initial.rebalance.delay.ms"] == "0"


def test_anything_can_be_overridden() -> None:
    assert properties(node_id="7", listeners="X://:1")["node.id"] == "7"
    assert properties(node_id="7", listeners="X://:1")["listeners"] == "X://:1"


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


def test_java_reads_what_was_written(tmp_path: Path) -> None:
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
        timeout=60,
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


def test_cluster_ids_are_never_options() -> None:
    ids = {random_cluster_id() for _ in range(500)}
    assert len(ids) == 500
    assert all(len(each) == 22 and not each.startswith("-") for each in ids)


def test_the_files_are_in_one_folder(tmp_path: Path) -> None:
    files = BrokerFiles(tmp_path / "broker")
    files.write(properties())
    assert {path.name for path in files.directory.iterdir()} == {
        "server.properties",
        "log4j2.properties",
        "tool-log4j2.properties",
    }
    assert "node.id=1\n" in files.properties.read_text()
