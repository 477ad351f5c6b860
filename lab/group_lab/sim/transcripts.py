"""Recorded requests and answers of a broker: one JSON object a line, read strictly.

Keys of a line are `n` (the step), `op` (the operation), `req` (the fields that were set), `resp`
(the normalised answer), `note` (the purpose of the step) and `_t` (seconds since the recording
began). A missing or null key is absent; an unknown one is refused.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final


class TranscriptError(ValueError):
    """A transcript cannot be read; the message has the line and the reason."""


@dataclass(frozen=True, slots=True)
class Step:
    """One line of a transcript.

    Args:
        request: The fields that were set; names of topics for `delete-topics`.
        response: The normalised answer; None if there is none.
        at: Seconds since the recording began; None if the line has none.
    """

    number: int
    operation: str
    request: Mapping[str, object] | tuple[str, ...]
    response: object = None
    note: str = ""
    at: float | None = None


@dataclass(frozen=True, slots=True)
class _Kind:
    """A kind of value: its name, and whether a value is one."""

    name: str
    accepts: Callable[[object], bool]


def _is_whole(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _is_text(value: object) -> bool:
    return isinstance(value, str)


def _is_by_name(value: object, accepts: Callable[[object], bool]) -> bool:
    return isinstance(value, dict) and all(accepts(each) for each in value.values())


def _is_list(value: object, accepts: Callable[[object], bool]) -> bool:
    return isinstance(value, list) and all(accepts(each) for each in value)


_PARTITION: Final = re.compile(r".+-\d+")
_ANYTHING: Final = _Kind("anything", lambda _: True)
_NUMBER: Final = _Kind("a whole number", _is_whole)
_TEXT: Final = _Kind("a text", _is_text)
_TEXTS: Final = _Kind("a list of texts", lambda each: _is_list(each, _is_text))
_PARTITIONS: Final = _Kind(
    "lists of partitions by topic",
    lambda each: _is_by_name(each, lambda indexes: _is_list(indexes, _is_whole)),
)
_ASSIGNMENTS: Final = _Kind(
    "lists of partitions by topic, by member",
    lambda each: _is_by_name(each, _PARTITIONS.accepts),
)
_OFFSETS: Final = _Kind(
    "offsets by partition, like foo-0",
    lambda each: (
        isinstance(each, dict)
        and all(map(_PARTITION.fullmatch, each))
        and _is_by_name(each, _is_whole)
    ),
)
_SECONDS: Final = _Kind("seconds", lambda each: isinstance(each, (int, float)))


@dataclass(frozen=True, slots=True)
class _Operation:
    """The fields that the lines of one operation may have.

    Args:
        request: Fields of the request; a single kind applies to any name.
        answers: Fields of the answer; None if the answer has no fixed fields.
    """

    request: Mapping[str, _Kind] | _Kind
    answers: frozenset[str] | None = None


_HEARTBEAT: Final = _Operation(
    {
        "group": _TEXT,
        "member": _TEXT,
        "epoch": _NUMBER,
        "topics": _TEXTS,
        "regex": _TEXT,
        "owned": _PARTITIONS,
        "inst": _TEXT,
        "rack": _TEXT,
        "rebal": _NUMBER,
        "assignor": _TEXT,
        "v": _NUMBER,
    },
    frozenset({"err", "msg", "member", "epoch", "hb_ms", "asg"}),
)
_CLASSIC: Final = {"member": _TEXT, "inst": _TEXT, "generation": _NUMBER}
_MEMBER: Final = {"group": _TEXT, "member": _TEXT, "epoch": _NUMBER, "v": _NUMBER}

OPERATIONS: Final[Mapping[str, _Operation]] = {
    "create-topics": _Operation(_NUMBER),
    "create-partitions": _Operation(_NUMBER),
    "delete-topics": _Operation(_ANYTHING),
    "hb": _HEARTBEAT,
    "hb-until": _HEARTBEAT,
    "commit": _Operation({**_MEMBER, "inst": _TEXT, "offsets": _OFFSETS}),
    "fetch": _Operation({**_MEMBER, "parts": _PARTITIONS}, frozenset({"err", "msg", "offsets"})),
    "describe": _Operation(
        {"group": _TEXT},
        frozenset(
            {"err", "msg", "state", "group_epoch", "assignment_epoch", "assignor", "members"}
        ),
    ),
    "list": _Operation({"types": _TEXTS, "states": _TEXTS}, frozenset({"err", "msg", "groups"})),
    "alter-group-config": _Operation(_TEXT, frozenset({"err", "msg"})),
    "describe-group-config": _Operation({}, frozenset({"err", "msg", "configs"})),
    "sleep": _Operation({"seconds": _SECONDS}),
    "note": _Operation(_ANYTHING),
    "join-group": _Operation(
        {
            **_CLASSIC,
            "session": _NUMBER,
            "rebal": _NUMBER,
            "protocols": _TEXTS,
            "topics": _TEXTS,
            "owned": _PARTITIONS,
        },
        frozenset({"err", "member", "generation", "protocol", "leader", "members"}),
    ),
    "sync-group": _Operation(
        {**_CLASSIC, "protocol": _TEXT, "assignments": _ASSIGNMENTS},
        frozenset({"err", "protocol", "asg"}),
    ),
    "heartbeat": _Operation(_CLASSIC, frozenset({"err"})),
    "leave-group": _Operation({"members": _TEXTS}, frozenset({"err", "members"})),
}
"""All operations of a transcript."""

_KEYS: Final[Mapping[str, _Kind]] = {
    "n": _NUMBER,
    "op": _TEXT,
    "req": _ANYTHING,
    "resp": _ANYTHING,
    "note": _TEXT,
    "_t": _SECONDS,
}


def read_transcript(text: str) -> tuple[Step, ...]:
    """Read the lines of a transcript.

    Args:
        text: JSON objects, one a line; empty lines are skipped.

    Raises:
        TranscriptError: A line is not a JSON object or has unknown content, or there is no line.
    """
    steps: list[Step] = []
    for line_number, line in enumerate(text.splitlines(), start=1):
        if line.strip():
            try:
                steps.append(_read_line(line, len(steps) + 1))
            except ValueError as error:
                raise TranscriptError(f"line {line_number}: {error}") from error
    if not steps:
        raise TranscriptError("there is no step in it")
    return tuple(steps)


def _read_line(line: str, number: int) -> Step:
    try:
        said = json.loads(line)
    except ValueError as error:
        raise TranscriptError(f"not JSON: {error}") from error
    if not isinstance(said, dict):
        raise TranscriptError("not a JSON object")
    _check_fields("the line", said, _KEYS)
    operation = str(said.get("op"))
    if operation not in OPERATIONS:
        raise TranscriptError(f"unknown op {operation!r}; known are {', '.join(OPERATIONS)}")
    known = OPERATIONS[operation]
    return Step(
        number=said.get("n", number),
        operation=operation,
        request=_request(operation, said.get("req", {}), known.request),
        response=_response(operation, said.get("resp"), known.answers),
        note=said.get("note", ""),
        at=said.get("_t"),
    )


def _request(
    operation: str, said: object, known: Mapping[str, _Kind] | _Kind
) -> Mapping[str, object] | tuple[str, ...]:
    if operation == "delete-topics":
        if not _TEXTS.accepts(said):
            raise TranscriptError(f"req of delete-topics is not {_TEXTS.name}: {said!r}")
        assert isinstance(said, list)
        return tuple(said)
    if known is _ANYTHING:
        return {}
    if operation == "sleep" and _SECONDS.accepts(said):
        said = {"seconds": said}
    if not isinstance(said, dict):
        raise TranscriptError(f"req of {operation} is not an object: {said!r}")
    kinds = dict.fromkeys(said, known) if isinstance(known, _Kind) else known
    _check_fields(f"req of {operation}", said, kinds)
    if operation == "alter-group-config":
        return said
    return {name: value for name, value in said.items() if value is not None}


def _response(operation: str, said: object, known: frozenset[str] | None) -> object:
    if said is None or known is None:
        return said
    if not isinstance(said, dict):
        raise TranscriptError(f"resp of {operation} is not an object: {said!r}")
    _check_fields(f"resp of {operation}", said, dict.fromkeys(known, _ANYTHING))
    return said


def _check_fields(where: str, said: Mapping[str, object], kinds: Mapping[str, _Kind]) -> None:
    unknown = sorted(set(said) - set(kinds))
    if unknown:
        known = ", ".join(sorted(kinds)) or "none"
        raise TranscriptError(f"{where} has unknown fields {', '.join(unknown)}; known: {known}")
    for name, value in said.items():
        # null stands for an absent field.
        if value is not None and not kinds[name].accepts(value):
            raise TranscriptError(f"{where}: {name} is not {kinds[name].name}: {value!r}")
