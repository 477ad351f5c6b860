"""Where a dead letter is sent: it is repaired, then written to the topic that its headers name."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any, Final

from pyspark import cloudpickle

from spark_groups.errors import OptionsError
from spark_groups.spark.processing.letters import Letter, origin_of, replayed
from spark_groups.spark.processing.record import Record
from spark_groups.spark.processing.record_writer import Route
from spark_groups.spark.processing.strategies import named_topic
from spark_groups.wire.named_functions import named_function

NO_ORIGIN: Final = "no header names its original topic"
NOT_REPAIRED: Final = "the repair returned None"

Repair = Callable[[Record], Record | None]
"""Returns the record to send for a letter, or None if it cannot repair the letter."""


def replay_route(retry_topic: str | None = None, repair: str | None = None) -> Route:
    """Return the route of dead letters; executors need not have the module of the repair.

    They need the modules that it imports.

    Args:
        retry_topic: The template of the retry topic; None: their original topic and partition.
        repair: The name of a `Repair`, as `module:function`; None: letters are not changed.

    Raises:
        ImportError: The module of the repair cannot be imported.
        OptionsError: The repair cannot be sent to executors.
        ValueError: The module has no such function.
    """
    function = _unchanged if repair is None else _sent_by_value(repair)

    def route(letter: Record) -> Letter | str:
        repaired = function(letter)
        if repaired is None:
            return NOT_REPAIRED
        origin = origin_of(letter)
        topic = retry_topic and named_topic(retry_topic, origin.topic, origin.group_id)
        return replayed(repaired, topic) or NO_ORIGIN

    return route


def _unchanged(letter: Record) -> Record:
    return letter


def _sent_by_value(name: str) -> Repair:
    """Return the function of that name; Spark sends its module to executors as part of it."""
    function = named_function(name)
    pickling: Any = cloudpickle
    pickling.register_pickle_by_value(sys.modules[name.partition(":")[0]])
    try:
        pickling.dumps(function)
    except Exception as error:
        raise OptionsError(
            f"replay.repair: {name!r} cannot be sent to executors, because it uses a value that"
            f" cannot be pickled: {type(error).__name__}: {error}"
        ) from error
    return function
