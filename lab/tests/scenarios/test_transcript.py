"""Transcripts are read and written without loss, and versions that agree share a block."""

from __future__ import annotations

from pathlib import Path

import pytest

from lab.tests.scenarios.transcript import Transcript, TranscriptError, rewrite, spans, versions_of

TEXT = """\
Prose.

hb m1
describe
---- 4.0-4.2
m1: epoch 1
---- 4.3+
m1: epoch 2

More prose,
in two lines.

topic orders 1
----
"""


def written(folder: Path, text: str) -> Path:
    path = folder / "scenario.txt"
    path.write_text(text, encoding="utf-8")
    return path


def test_a_transcript_is_written_as_it_was_read(tmp_path: Path) -> None:
    transcript = Transcript.read(written(tmp_path, TEXT))
    assert transcript.text() == TEXT
    first, second = transcript.blocks
    assert (first.line, first.commands) == (3, ("hb m1", "describe"))
    assert first.expected["4.1"] == ("m1: epoch 1",)
    assert first.expected["4.4"] == ("m1: epoch 2",)
    assert second.expected == {}


def test_versions_that_agree_share_a_block(tmp_path: Path) -> None:
    path = written(tmp_path, TEXT)
    rewrite(path, "4.3", [("m1: epoch 1",), ()])
    assert "---- 4.0-4.3\nm1: epoch 1\n---- 4.4+\nm1: epoch 2\n" in path.read_text("utf-8")
    rewrite(path, "4.4", [("m1: epoch 1",), ()])
    assert "describe\n----\nm1: epoch 1\n\n" in path.read_text("utf-8")
    rewrite(path, None, [("nothing",), ("ok",)])
    assert path.read_text("utf-8").endswith("topic orders 1\n----\nok\n")


@pytest.mark.parametrize(
    ("text", "versions"),
    [
        ("", ("4.0", "4.1", "4.2", "4.3", "4.4")),
        ("4.0", ("4.0",)),
        ("4.0-4.1 4.3+", ("4.0", "4.1", "4.3", "4.4")),
        ("4.4+", ("4.4",)),
    ],
)
def test_spans_of_versions(text: str, versions: tuple[str, ...]) -> None:
    assert versions_of(text) == versions
    assert spans(versions) == text


@pytest.mark.parametrize(
    "text",
    ["----\nm1: epoch 1\n", "hb m1\n---- 3.9\nm1\n", "hb m1\n---- 4.0\na\n---- 4.0-4.1\nb\n"],
)
def test_an_error_names_the_line_that_cannot_be_read(tmp_path: Path, text: str) -> None:
    with pytest.raises(TranscriptError, match=r"scenario\.txt:\d"):
        Transcript.read(written(tmp_path, text))
