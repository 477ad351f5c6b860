"""Transcripts are read strictly: unknown keys are refused, missing ones are absent."""

from __future__ import annotations

import json

import pytest

from group_lab.sim.transcripts import OPERATIONS, Step, TranscriptError, read_transcript


def test_line_becomes_a_step() -> None:
    line = {
        "n": 7,
        "op": "hb",
        "req": {"member": "m1", "epoch": 2, "regex": None},
        "resp": {"err": "NONE", "epoch": 2, "asg": None},
        "note": "plain",
        "_t": 0.5,
    }
    (step,) = read_transcript(json.dumps(line))
    request = {"member": "m1", "epoch": 2}
    assert step == Step(7, "hb", request, line["resp"], "plain", 0.5)


def test_everything_but_the_operation_may_be_left_out() -> None:
    lines = '{"op": "note"}\n\n{"op": "describe"}\n'
    assert read_transcript(lines) == (Step(1, "note", {}), Step(2, "describe", {}))


def test_null_takes_a_setting_away() -> None:
    (step,) = read_transcript('{"op": "alter-group-config", "req": {"a": null}}')
    assert step.request == {"a": None}


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("", "there is no step in it"),
        (" \n\n", "there is no step in it"),
        ("{", "line 1: not JSON: Expecting"),
        ("[]", "line 1: not a JSON object"),
        ('{"n": 1}', "unknown op 'None'; known are create-topics"),
        ('{"op": "hbx"}', "unknown op 'hbx'; known are create-topics"),
        ('{"op": "hb", "request": {}}', "the line has unknown fields request; known: _t, n, note"),
        ('{"op": "hb", "n": "1"}', "the line: n is not a whole number: '1'"),
        ('{"op": "hb", "n": true}', "the line: n is not a whole number: True"),
        ('{"op": "hb", "req": []}', r"req of hb is not an object: \[\]"),
        ('{"op": "hb", "req": {"epochs": 1}}', "req of hb has unknown fields epochs; known: ass"),
        ('{"op": "hb", "req": {"epoch": "1"}}', "req of hb: epoch is not a whole number: '1'"),
        ('{"op": "hb", "req": {"topics": "foo"}}', "topics is not a list of texts: 'foo'"),
        ('{"op": "hb", "req": {"owned": {"foo": 1}}}', "owned is not lists of partitions by topic"),
        ('{"op": "commit", "req": {"offsets": {"foo": 1}}}', "offsets is not offsets by partition"),
        ('{"op": "hb", "resp": []}', r"resp of hb is not an object: \[\]"),
        ('{"op": "hb", "resp": {"error": 1}}', "resp of hb has unknown fields error; known: asg"),
        ('{"op": "create-topics", "req": {"foo": "2"}}', "foo is not a whole number: '2'"),
        ('{"op": "delete-topics", "req": {"foo": 2}}', "req of delete-topics is not a list of"),
        ('{"op": "describe-group-config", "req": {"a": 1}}', "unknown fields a; known: none"),
    ],
)
def test_what_cannot_be_read_is_refused_with_its_place(line: str, said: str) -> None:
    with pytest.raises(TranscriptError, match=said):
        read_transcript(line)


def test_place_is_the_line_of_the_file() -> None:
    with pytest.raises(TranscriptError, match=r"^line 3: "):
        read_transcript('{"op": "note"}\n\n{"op": "nothing"}')


@pytest.mark.parametrize("operation", OPERATIONS)
def test_every_operation_refuses_unknown_keys(operation: str) -> None:
    with pytest.raises(TranscriptError, match="unknown fields why"):
        read_transcript(json.dumps({"op": operation, "why": ""}))
