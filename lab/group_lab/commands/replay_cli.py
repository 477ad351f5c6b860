"""`spark-groups replay`: the answers of the coordinator model to a transcript."""

from __future__ import annotations

import json
import random
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Annotated, Final

import typer

from group_lab.commands.simulate_cli import profile_option
from group_lab.coordinator.profile import KAFKA_4_3, PROFILES
from group_lab.sim.transcript_check import DRAWS, Answered, play_transcript
from group_lab.sim.transcripts import Step, TranscriptError, read_transcript
from spark_groups.cli.connecting import JsonFlag

_SHOWN_VALUE: Final = 300


def _steps(file: Path) -> tuple[Step, ...]:
    try:
        return read_transcript(file.read_text(encoding="utf-8"))
    except UnicodeDecodeError as error:
        raise typer.BadParameter(f"{file} is not UTF-8 text: {error}", param_hint="FILE") from error
    except (TranscriptError, OSError) as error:
        raise typer.BadParameter(f"{file}: {error}", param_hint="FILE") from error


def replay(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="JSON lines.", dir_okay=False)],
    profile: Annotated[
        str, typer.Option(metavar="PROFILE", help=f"One of {', '.join(PROFILES)}.")
    ] = KAFKA_4_3.name,
    check: Annotated[
        bool, typer.Option("--check", help="Compare with the recorded answers.")
    ] = False,
    as_json: JsonFlag = False,
) -> None:
    """Answer the requests of a transcript from the model of the coordinator, line by line.

    A search finds details missing from the recording, such as the order of the members' ids; the
    answers are those that agree longest with the recorded ones. Answers are JSON, one a line;
    --check prints JSON with --json.

    Example: spark-groups replay handover.jsonl --profile kafka-4.3 --check

    Exit code 1 if --check finds a difference, 2 if the file cannot be read or has no answers to
    compare with.
    """
    like = profile_option(profile)
    answered = play_transcript(_steps(file), like, map(random.Random, range(DRAWS)))
    if not check:
        for each in answered:
            typer.echo(_as_line(each))
        return
    unrecorded = [each.step.number for each in answered if each.is_unrecorded]
    if unrecorded and not any(each.is_compared for each in answered):
        raise typer.BadParameter(f"{file} has no recorded answers", param_hint="FILE")
    for line in (_as_json if as_json else _report)(answered, like.name, unrecorded):
        typer.echo(line)
    if any(each.differences for each in answered):
        raise typer.Exit(1)


def _as_line(answered: Answered) -> str:
    said: dict[str, object] = {"n": answered.step.number, "op": answered.step.operation}
    return json.dumps(said | {"resp": answered.answer})


def _as_json(answered: Iterable[Answered], profile: str, unrecorded: list[int]) -> Iterator[str]:
    """Yield the report as one JSON document."""
    steps = tuple(answered)
    differences = [difference for step in steps for difference in step.differences]
    document = {
        "profile": profile,
        "compared": sum(each.is_compared for each in steps),
        "differing": sum(bool(each.differences) for each in steps),
        "differences": [
            {
                "n": each.step.number,
                "op": each.step.operation,
                "field": each.field,
                "recorded": each.recorded,
                "model": each.model,
            }
            for each in differences
        ],
        "unrecorded": unrecorded,
    }
    yield json.dumps(document, indent=2)


def _report(answered: Iterable[Answered], profile: str, unrecorded: list[int]) -> Iterator[str]:
    """Yield the differences, and how many answers agree."""
    steps = tuple(answered)
    for each in (difference for step in steps for difference in step.differences):
        note = f" ({each.step.note})" if each.step.note else ""
        yield f"step {each.step.number} {each.step.operation}{note}: {each.field or 'answer'}"
        yield f"  recorded {_shown(each.recorded)}"
        yield f"  model    {_shown(each.model)}"
    if unrecorded:
        yield f"no recorded answer: {_numbers(unrecorded)}"
    differing = sum(bool(each.differences) for each in steps)
    compared = sum(each.is_compared for each in steps)
    yield f"{compared - differing} of {compared} recorded answers agree with {profile}"


def _numbers(steps: Iterable[int]) -> str:
    return f"step {', '.join(map(str, steps))}"


def _shown(value: object) -> str:
    text = json.dumps(value)
    return text if len(text) <= _SHOWN_VALUE else f"{text[:_SHOWN_VALUE]}..."
