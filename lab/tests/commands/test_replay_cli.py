"""`spark-groups replay`, as somebody types it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tests.cli.commands import Run, invoke

TRANSCRIPTS = Path(__file__).parents[1] / "transcripts"
HANDOVER = TRANSCRIPTS / "4.3.1" / "s02_handover.jsonl"


def lines_of(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def test_answers_are_given_line_by_line(command: Run) -> None:
    done = command("replay", str(HANDOVER))
    assert (done.returncode, done.stderr) == (0, "")
    answers = [json.loads(line) for line in done.stdout.splitlines()]
    recorded = lines_of(HANDOVER)
    assert [each["n"] for each in answers] == [each["n"] for each in recorded]
    heartbeats = [number for number, each in enumerate(recorded) if each["op"] == "hb"]
    assert len(heartbeats) == 18
    for number in heartbeats:
        assert answers[number]["resp"] == recorded[number]["resp"]


def test_replay_counts_the_answers_that_agree() -> None:
    done = invoke("replay", str(HANDOVER), "--profile", "kafka-4.3", "--check")
    assert (done.exit_code, done.stderr) == (0, "")
    assert done.stdout == "51 of 51 recorded answers agree with kafka-4.3\n"


def test_difference_is_shown_with_its_step_and_field(tmp_path: Path) -> None:
    lines = lines_of(HANDOVER)
    assert lines[20]["note"] == "ack"
    lines[20]["resp"]["epoch"] = 9
    changed = tmp_path / "changed.jsonl"
    changed.write_text("".join(json.dumps(each) + "\n" for each in lines), encoding="utf-8")
    done = invoke("replay", str(changed), "--check")
    assert done.exit_code == 1
    assert done.stdout.splitlines() == [
        "step 21 hb (ack): epoch",
        "  recorded 9",
        "  model    3",
        "50 of 51 recorded answers agree with kafka-4.3",
    ]


def test_members_of_the_classic_protocol_are_compared() -> None:
    path = TRANSCRIPTS / "4.4.0" / "s15_consumer_then_classic.jsonl"
    done = invoke("replay", str(path), "--profile", "kafka-4.4", "--check")
    assert done.exit_code == 0
    assert done.stdout.splitlines() == ["23 of 23 recorded answers agree with kafka-4.4"]
    (line,) = [
        each for each in invoke("replay", str(path)).stdout.splitlines() if '"n": 11' in each
    ]
    answer = {"err": "NONE", "protocol": "cooperative-sticky", "asg": {"foo": [2, 3]}}
    assert json.loads(line) == {"n": 11, "op": "sync-group", "resp": answer}


def test_what_cannot_be_read_is_a_mistake_of_the_caller(tmp_path: Path) -> None:
    bad = tmp_path / "bad.jsonl"
    bad.write_text('{"op": "hbx"}\n', encoding="utf-8")
    binary, empty = tmp_path / "binary.jsonl", tmp_path / "empty.jsonl"
    binary.write_bytes(b"\x7fELF\xff\xd0")
    empty.touch()
    for arguments, text in (
        ((str(bad),), "line 1: unknown op 'hbx'"),
        ((str(binary),), "binary.jsonl is not UTF-8 text"),
        ((str(empty),), "empty.jsonl: there is no step in it"),
        ((str(tmp_path),), "is a directory"),
        ((str(tmp_path / "nothing"),), "nothing"),
        ((str(HANDOVER), "--profile", "kafka-3.9"), "'kafka-3.9' is none of kip-848, kafka-4.0"),
    ):
        done = invoke("replay", *arguments, COLUMNS="200")
        assert done.exit_code == 2
        assert text in done.stderr


def test_profile_is_named_as_people_name_versions() -> None:
    done = invoke("replay", str(HANDOVER), "--profile", "4.3.1", "--check")
    assert done.stdout == "51 of 51 recorded answers agree with kafka-4.3\n"


def test_recording_without_answers_cannot_be_checked(tmp_path: Path) -> None:
    """One that asks nothing agrees: recordings of 4.0 say that there is no batching."""
    lines = [{**each, "resp": None} for each in lines_of(HANDOVER)]
    asked = tmp_path / "asked.jsonl"
    asked.write_text("\n".join(map(json.dumps, lines)), encoding="utf-8")
    done = invoke("replay", str(asked), "--check", COLUMNS="200")
    assert done.exit_code == 2
    assert "asked.jsonl has no recorded answers" in done.stderr
    assert invoke("replay", str(asked)).exit_code == 0
    nothing = TRANSCRIPTS / "4.0.0" / "s12_batching.jsonl"
    done = invoke("replay", str(nothing), "--check")
    assert (done.exit_code, done.stdout) == (0, "0 of 0 recorded answers agree with kafka-4.3\n")


def test_steps_without_an_answer_are_named(tmp_path: Path) -> None:
    lines = lines_of(HANDOVER)
    del lines[3]["resp"], lines[5]["resp"]
    partly = tmp_path / "partly.jsonl"
    partly.write_text("\n".join(map(json.dumps, lines)), encoding="utf-8")
    done = invoke("replay", str(partly), "--check")
    assert done.exit_code == 0
    assert done.stdout.splitlines() == [
        "no recorded answer: step 4, 6",
        "49 of 49 recorded answers agree with kafka-4.3",
    ]


def test_check_as_json(tmp_path: Path) -> None:
    lines = lines_of(HANDOVER)
    lines[20]["resp"]["epoch"] = 9
    changed = tmp_path / "changed.jsonl"
    changed.write_text("\n".join(map(json.dumps, lines)), encoding="utf-8")
    done = invoke("replay", str(changed), "--check", "--json")
    assert done.exit_code == 1
    assert json.loads(done.stdout) == {
        "profile": "kafka-4.3",
        "compared": 51,
        "differing": 1,
        "differences": [{"n": 21, "op": "hb", "field": "epoch", "recorded": 9, "model": 3}],
        "unrecorded": [],
    }
