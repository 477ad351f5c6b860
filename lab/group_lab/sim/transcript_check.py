"""Compares the model's answers with those of a transcript, field by field.

Recordings have names in place of the random UUIDs of members and topics. The order in which Java
iterates over a hash map of those ids, now lost, decides which member keeps a surplus partition. So
the search draws ids until all answers agree: the model could have given the recording. It also
draws how many requests were answered before a change of topics was known. If no draw agrees, the
result is the draw that agrees longest.

Only numbers drawn before a difference can cause it, so the search redraws a few of those and keeps
the others. A draw that agrees at least as long as the previous one replaces it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from math import inf
from typing import Final

from group_lab.coordinator.profile import Profile
from group_lab.sim.chance import Bits
from group_lab.sim.transcript_replay import TranscriptReplay, broker_of
from group_lab.sim.transcripts import Step

_PLACE_BITS: Final = 32
_RESTART_BITS: Final = 4
"""One in 16 draws keeps no numbers, so that the search does not get stuck."""
_MORE_BITS: Final = 1
"""One or two numbers are redrawn."""


@dataclass
class Redrawn:
    """Numbers of an earlier draw, some of them redrawn.

    Args:
        kept: The numbers of the earlier draw.
        redrawn: The places of those that are not kept.
    """

    chance: Bits
    kept: Sequence[int] = ()
    redrawn: frozenset[int] = frozenset()
    drawn: list[int] = field(default_factory=list)

    def getrandbits(self, k: int, /) -> int:
        """Return a number of so many bits; places ask for as many in every draw."""
        place = len(self.drawn)
        is_kept = place < len(self.kept) and place not in self.redrawn
        self.drawn.append(self.kept[place] if is_kept else self.chance.getrandbits(k))
        return self.drawn[place]


@dataclass
class Draw:
    """The agreement of a draw with the recording.

    Args:
        differing: The places of the steps that differ.
        drawn_before: How many numbers were drawn before each of them.
    """

    numbers: Redrawn
    differing: list[int] = field(default_factory=list)
    drawn_before: list[int] = field(default_factory=list)

    @property
    def can_be_better(self) -> bool:
        """Whether a drawn number may have caused a difference."""
        return any(self.drawn_before)

    @property
    def agreement(self) -> tuple[float, ...]:
        """A key: greater means longer agreement."""
        return (*self.differing, inf)

    def note_difference(self, place: int) -> None:
        """Record a step that differs."""
        self.differing.append(place)
        self.drawn_before.append(len(self.numbers.drawn))

    def is_behind(self, other: Draw) -> bool:
        """Return whether it agrees less long than another draw, which is complete."""
        return (*self.differing,) < other.agreement[: len(self.differing)]

    def changed(self, chance: Bits) -> Draw:
        """Return another draw, with new numbers before a difference."""
        if not chance.getrandbits(_RESTART_BITS):
            return Draw(Redrawn(chance))
        counts = [count for count in self.drawn_before if count]
        count = counts[chance.getrandbits(_PLACE_BITS) % len(counts)]
        more = range(1 + chance.getrandbits(_MORE_BITS))
        redrawn = frozenset(chance.getrandbits(_PLACE_BITS) % count for _ in more)
        return Draw(Redrawn(chance, self.numbers.drawn, redrawn))


DRAWS: Final = 3000
"""The most draws of a search."""
DRAWS_IN_A_ROW: Final = 300
"""Draws before the search restarts, in case it is stuck in a local optimum."""
SAME_ENDS: Final = 3
"""Searches with the same result that end the whole: no draw removes those differences."""

MODELLED_CONFIG: Final = "consumer."
"""The model has the settings of consumer groups, not those of share and streams groups."""
ABSENT: Final = "(absent)"


@dataclass(frozen=True, slots=True)
class Difference:
    """One field in which the model differs.

    Args:
        field: Its path in the answer.
    """

    step: Step
    field: str
    recorded: object
    model: object


@dataclass(frozen=True, slots=True)
class Answered:
    """One step as the model answered it.

    Args:
        answer: The answer, as a transcript writes it.
    """

    step: Step
    answer: object = None
    differences: tuple[Difference, ...] = ()

    @property
    def is_compared(self) -> bool:
        return None not in (self.answer, self.step.response)

    @property
    def is_unrecorded(self) -> bool:
        """Whether the recording has no answer to compare with the model's."""
        return self.answer is not None and self.step.response is None


def play_transcript(
    steps: Iterable[Step], profile: Profile, chances: Iterable[Bits]
) -> tuple[Answered, ...]:
    """Answer a transcript from the model, with the draw that agrees longest.

    Args:
        chances: Sources of randomness, one for each draw; at least one.
    """
    wanted = tuple(steps)
    broker = broker_of(wanted)
    ended: list[_Played] = []
    best: _Played | None = None
    for number, chance in enumerate(chances):
        if best and number % DRAWS_IN_A_ROW == 0:
            ended.append(best)
            if sum(best.draw.differing == each.draw.differing for each in ended) == SAME_ENDS:
                break
            best = None
        draw = best.draw.changed(chance) if best else Draw(Redrawn(chance))
        replay = TranscriptReplay(profile, draw.numbers, broker)
        best = _played(wanted, replay, draw, best.draw if best else None) or best
        if best and not best.draw.can_be_better:
            break
    return max([*ended, best] if best else ended, key=lambda each: each.draw.agreement).answered


@dataclass(frozen=True, slots=True)
class _Played:
    """A draw and its answers."""

    draw: Draw
    answered: tuple[Answered, ...]


def _played(
    steps: tuple[Step, ...], replay: TranscriptReplay, draw: Draw, best: Draw | None
) -> _Played | None:
    """Play a draw; None once it falls behind the best one."""
    answered: list[Answered] = []
    for each in _answers(steps, replay):
        if each.differences:
            draw.note_difference(len(answered))
            if best and draw.is_behind(best):
                return None
        answered.append(each)
    return _Played(draw, tuple(answered))


def _answers(steps: Iterable[Step], replay: TranscriptReplay) -> Iterator[Answered]:
    for step in steps:
        answer = replay.play(step)
        yield Answered(step, answer, tuple(differing_fields(step, answer)))


def differing_fields(step: Step, answer: object) -> Iterator[Difference]:
    """Compare an answer with the recorded one."""
    if step.response is None or answer is None:
        return
    for name, recorded, model in _differing_values("", _comparable(step.response), answer):
        yield Difference(step, name, recorded, model)


def _comparable(response: object) -> object:
    """Return a recorded answer without fields that the model cannot know.

    Subscribed names have the order of a Java set of names that recordings replaced.
    """
    if not isinstance(response, Mapping):
        return response
    kept = dict(response)
    if "configs" in kept:
        kept["configs"] = {
            name: value
            for name, value in kept["configs"].items()
            if name.startswith(MODELLED_CONFIG)
        }
    if isinstance(kept.get("members"), list):
        kept["members"] = [
            {**each, "names": sorted(each["names"])} if "names" in each else each
            for each in kept["members"]
        ]
    return kept


def _differing_values(
    where: str, recorded: object, model: object
) -> Iterator[tuple[str, object, object]]:
    match recorded, model:
        case Mapping(), Mapping():
            # Recorded messages may lack fields; mappings by topic or partition are complete.
            names = recorded if _is_message(recorded) else dict.fromkeys((*recorded, *model))
            for name in names:
                inner = f"{where}.{name}" if where else str(name)
                pair = recorded.get(name, ABSENT), model.get(name, ABSENT)
                yield from _differing_values(inner, *pair)
        case list(), list() if len(recorded) == len(model) and all(map(_is_message, recorded)):
            for number, pair in enumerate(zip(recorded, model, strict=True), start=1):
                yield from _differing_values(f"{where}[{number}]", *pair)
        case _ if recorded != model:
            yield where, recorded, model


def _is_message(value: object) -> bool:
    return isinstance(value, Mapping) and ("err" in value or "member" in value)
