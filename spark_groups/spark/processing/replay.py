"""The way of a dead letter back: repaired, and sent to the topic that its headers name."""

from __future__ import annotations

import sys
from typing import Any, Final

from pyspark import cloudpickle

from spark_groups.spark.processing.letters import Letter, origin_of, replayed
from spark_groups.spark.processing.record import Record
from spark_groups.spark.processing.record_writer import Route
from spark_groups.spark.processing.strategies import named_topic
from spark_groups.wire.named_functions import named_function

NO_ORIGIN: Final = "no header names its original topic"
NOT_REPAIRED: Final = "the repair returned None"


def way_back(retry_topic: str | None = None, repair: str | None = None) -> Route:
    """Return the route of dead letters; executors need not have the module of the repair.

    Args:
        retry_topic: The template of the retry topic; None: their original topic and partition.
        repair: `module:function`, which takes a record and returns the record to send, or None.

    Raises:
        ImportError: The module of the repair cannot be imported.
        ValueError: It has no such function.
    """
    repaired_by = None if repair is None else named_function(repair)
    if repair is not None:
        register: Any = cloudpickle.register_pickle_by_value
        register(sys.modules[repair.partition(":")[0]])

    def back(record: Record) -> Letter | str:
        repaired = record if repaired_by is None else repaired_by(record)
        if repaired is None:
            return NOT_REPAIRED
        origin = origin_of(record)
        topic = retry_topic and named_topic(retry_topic, origin.topic, origin.group_id)
        return replayed(repaired, topic) or NO_ORIGIN

    return back
