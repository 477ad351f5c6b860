"""Where a dead letter is sent: it is repaired, then written to the topic that its headers name.

Any producer that may write to the dead-letter topic can write the headers, so a letter is sent only
to the topic that its dead-letter topic is named after, or to one that the operator lists.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Final

from spark_groups.spark.processing.by_value import sent_by_value
from spark_groups.spark.processing.kafka_record import Record
from spark_groups.spark.processing.letters import Letter, origin_of, replayed
from spark_groups.spark.processing.record_writer import LetterRoute
from spark_groups.spark.processing.strategies import DEAD_LETTER_TOPIC, named_topic

NO_ORIGIN: Final = "no header names its original topic"
NOT_REPAIRED: Final = "the repair returned None"

Repair = Callable[[Record], Record | None]
"""Returns the record to send for a letter, or None if it cannot repair the letter."""


def replay_route(
    retry_topic: str | None = None,
    repair: str | None = None,
    topics: Collection[str] = (),
    dead_letter_topic: str = DEAD_LETTER_TOPIC,
) -> LetterRoute:
    """Return the route of dead letters; executors need not have the module of the repair.

    They need the modules that it imports.

    Args:
        retry_topic: The template of the retry topic; None: their original topic and partition.
        repair: The name of a `Repair`, as `module:function`; None: letters are not changed.
        topics: Topics to which any letter may be sent.
        dead_letter_topic: The template of the dead-letter topics: a letter may be sent to the topic
            that this template makes the letter's topic of, with the group in its headers.

    Raises:
        ImportError: The module of the repair cannot be imported.
        OptionsError: The repair cannot be sent to executors.
        ValueError: The module has no such function.
    """
    function = _unchanged if repair is None else sent_by_value(repair, "replay.repair")

    def route(letter: Record) -> Letter | str:
        origin = origin_of(letter)
        if not origin.group_id:
            return NO_ORIGIN
        retry = retry_topic and named_topic(retry_topic, origin.topic, origin.group_id)
        is_own = named_topic(dead_letter_topic, origin.topic, origin.group_id) == letter.topic
        wanted = retry or origin.topic
        if not is_own and wanted not in topics:
            return (
                f"its headers name the topic {wanted}, which is not in replay.topics, and"
                f" {letter.topic} is not the dead-letter topic of {origin.topic} and the group"
                f" {origin.group_id}"
            )
        repaired = function(letter)
        return NOT_REPAIRED if repaired is None else replayed(repaired, retry) or NO_ORIGIN

    return route


def _unchanged(letter: Record) -> Record:
    return letter
