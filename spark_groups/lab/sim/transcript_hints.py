"""What the notes and the answers of a recording tell that its requests do not."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Final

from spark_groups.errors import ErrorCode
from spark_groups.lab.coordinator.settings import BrokerSettings
from spark_groups.lab.sim.transcripts import Step

RECORDED: Final = BrokerSettings(
    session_timeout_s=4.0,
    min_session_timeout_s=1.0,
    heartbeat_interval_s=0.5,
    min_heartbeat_interval_s=0.1,
    assignment_interval_s=0.0,
)
"""How the brokers of the recordings were configured, but for the size of groups."""

NO_GROUP: Final = ""

_MAX_SIZE: Final = re.compile(r"maximum capacity of (\d+) members|\bof max (\d+)")
_COUNTED: Final = re.compile(r"(\d+) heartbeats")
_UNKNOWN_GROUP: Final = re.compile(r"\bunknown group\b")
_NAMED_GROUP: Final = re.compile(
    r"[Gg]roup (\S+) (?:not found|is not a consumer group)\.|is not a member of group (\S+)\."
)


def broker_of(steps: Iterable[Step]) -> BrokerSettings:
    """Return how the broker of a recording was configured; only a full group tells its size.

    Args:
        steps: The transcript.
    """
    for step in steps:
        if found := _MAX_SIZE.search(_message(step)) or _MAX_SIZE.search(step.note):
            return replace(RECORDED, max_size=int(found[1] or found[2]))
    return RECORDED


def heartbeats(step: Step) -> int | None:
    """Return how often a heartbeat was repeated, None if the note does not say."""
    counted = _COUNTED.search(step.note)
    return int(counted[1]) if counted else None


def named_group(step: Step) -> str | None:
    """Return the group that an answer names, `NO_GROUP` if none was given, None if none is named.

    Without an answer the note counts.
    """
    message, codes = _message(step), set(_codes(step))
    has_none = "GroupId can't be empty." in message or "INVALID_GROUP_ID" in codes
    if has_none or (step.response is None and "empty group" in step.note):
        return NO_GROUP
    found = _NAMED_GROUP.search(message)
    return found[1] or found[2] if found else None


def is_about_another_group(step: Step) -> bool:
    """Tell whether a request is about a group that was not there, whatever it is called."""
    not_found = ErrorCode.GROUP_ID_NOT_FOUND.name in _codes(step)
    return not_found or bool(_UNKNOWN_GROUP.search(step.note))


def metadata_of(step: Step, partition: str) -> str:
    """Return metadata for a commit: too long where the broker said so, as recordings have none."""
    too_large = ErrorCode.OFFSET_METADATA_TOO_LARGE.name
    answer = step.response if isinstance(step.response, Mapping) else {}
    is_too_long = answer.get(partition) == too_large
    return " " * (RECORDED.offset_metadata_max_bytes + 1) if is_too_long else ""


def _message(step: Step) -> str:
    answer = step.response if isinstance(step.response, Mapping) else {}
    return str(answer.get("msg") or "")


def _codes(step: Step) -> Iterator[str]:
    """Yield the error codes of an answer: its own, or those of partitions."""
    if isinstance(step.response, Mapping):
        yield from (each for each in step.response.values() if isinstance(each, str))
