"""`spark-groups replay`: what the model of the coordinator answers to a transcript."""

from __future__ import annotations

import json
import random
from collections.abc import Iterable, Iterator
from itertools import groupby
from pathlib import Path
from typing import Annotated, Final

import typer

from spark_groups.coordinator.profile import KAFKA_4_3, PROFILES, Profile
from spark_groups.sim.transcript_check import DRAWS, Answered, play_transcript
from spark_groups.sim.transcripts import TranscriptError, read_transcript

_SHOWN_VALUE: Final = 300


def _profile(name: str) -> Profile:
    if name not in PROFILES:
        raise typer.BadParameter(f"{name!r} is none of {', '.join(PROFILES)}")
    return PROFILES[name]


def replay(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="JSON lines.", dir_okay=False)],
    profile: Annotated[
        str, typer.Option(metavar="PROFILE", help=f"One of {', '.join(PROFILES)}.")
    ] = KAFKA_4_3.name,
    check: Annotated[
        bool, typer.Option("--check", help="Compare with the recorded answers.")
    ] = False,
) -> None:
    """Answer the requests of a transcript from the model of the coordinator, line by line.

    What a recording does not tell, like the order of the members' ids, is looked for: the answers
    are those that agree best with the recorded ones. Steps that need members of the classic
    protocol are left out, and said to be.

    Example: spark-groups replay handover.jsonl --profile kafka-4.3 --check

    Exit code 1 if --check finds a difference, 2 if the file cannot be read.
    """
    try:
        steps = read_transcript(file.read_text(encoding="utf-8"))
    except (TranscriptError, OSError, UnicodeDecodeError) as error:
        raise typer.BadParameter(str(error), param_hint="FILE") from error
    answered = play_transcript(steps, _profile(profile), map(random.Random, range(DRAWS)))
    for line in _report(answered, profile) if check else map(_as_line, answered):
        typer.echo(line)
    if check and any(each.differences for each in answered):
        raise typer.Exit(1)


def _as_line(answered: Answered) -> str:
    said: dict[str, object] = {"n": answered.step.number, "op": answered.step.operation}
    if answered.left_out:
        return json.dumps(said | {"left_out": answered.left_out})
    return json.dumps(said | {"resp": answered.answer})


def _report(answered: Iterable[Answered], profile: str) -> Iterator[str]:
    """Say what differs, what was left out and why, and how much agrees."""
    steps = tuple(answered)
    for each in (difference for step in steps for difference in step.differences):
        note = f" ({each.step.note})" if each.step.note else ""
        yield f"step {each.step.number} {each.step.operation}{note}: {each.field or 'answer'}"
        yield f"  recorded {_shown(each.recorded)}"
        yield f"  model    {_shown(each.model)}"
    for reason, group in groupby(steps, key=lambda each: each.left_out):
        if reason:
            numbers = ", ".join(str(each.step.number) for each in group)
            yield f"left out: step {numbers}: {reason}"
    differing = sum(bool(each.differences) for each in steps)
    compared = sum(each.is_compared for each in steps)
    yield f"{compared - differing} of {compared} recorded answers agree with {profile}"


def _shown(value: object) -> str:
    text = json.dumps(value)
    return text if len(text) <= _SHOWN_VALUE else f"{text[:_SHOWN_VALUE]}..."
