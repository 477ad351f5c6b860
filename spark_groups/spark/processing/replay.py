"""Where a dead letter is sent: it is repaired, then written to the topic that its headers name."""

from __future__ import annotations

import sys
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


def replay_route(retry_topic: str | None = None, repair: str | None = None) -> Route:
    """Return the route of dead letters; executors need not have the module of the repair.

    They need the modules that it imports.

    Args:
        retry_topic: The template of the retry topic; None: their original topic and partition.
        repair: `module:function`, which takes a record and returns the record to send, or None.

    Raises:
        ImportError: The module of the repair cannot be imported.
        OptionsError: The repair cannot be sent to executors.
        ValueError: The module has no such function.
    """
    function = None if repair is None else named_function(repair)
    pickling: Any = cloudpickle
    if repair is not None:
        pickling.register_pickle_by_value(sys.modules[repair.partition(":")[0]])

    def route(letter: Record) -> Letter | str:
        repaired = letter if function is None else function(letter)
        if repaired is None:
            return NOT_REPAIRED
        origin = origin_of(letter)
        topic = retry_topic and named_topic(retry_topic, origin.topic, origin.group_id)
        return replayed(repaired, topic) or NO_ORIGIN

    try:
        pickling.dumps(route)
    except Exception as error:
        raise OptionsError(
            f"replay.repair: {repair!r} cannot be sent to executors, because it uses a value that"
            f" cannot be pickled: {type(error).__name__}: {error}"
        ) from error
    return route
