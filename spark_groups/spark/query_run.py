"""One run of a query, in its runner: what Spark's calls prove and want, told to the group member.

`latestOffset(start)` proves that the batch which ended at `start` is in Spark's commit log, so the
batch is finished there, one trigger earlier than Spark's own `commit` would say so. On Spark 4.0
and 4.1, which pass no start, the next call proves the last plan.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping
from typing import Any, Final

from spark_groups.kafka.driver import GroupDriver
from spark_groups.offsets.plan_text import (
    NOTHING_PLANNED,
    parse_plan_text,
    plan_as_json,
    plan_from_json,
)
from spark_groups.spark.drain import DrainNotes
from spark_groups.spark.options import SourceOptions
from spark_groups.types import BatchPlan, OffsetRange

logger = logging.getLogger(__name__)

Offset = Mapping[str, Any]
LAST_COMMIT_TIMEOUT_S: Final = 30.0


class QueryRun:
    """The live side of a stream reader: a group member, and the last plan handed to Spark.

    Args:
        options: The options of the load.
    """

    def __init__(self, options: SourceOptions) -> None:
        self.driver = GroupDriver(
            options.client_config(),
            bootstrap_servers=options.bootstrap_servers,
            client_id=options.client_id,
            security=options.security(),
            api_timeout_s=options.api_timeout_ms / 1000,
            request_timeout_s=options.request_timeout_ms / 1000,
        )
        self._limit = options.plan_limit()
        self._will_return = options.instance_id is not None
        self._notes = DrainNotes(os.getppid())
        self._handed_out: Offset | None = None
        self._proven: Offset | None = None
        self._available_now = False
        self._said_drain = False

    def prepare_available_now(self) -> None:
        """Read what is there when each partition becomes ours, then end."""
        self._available_now = True
        self.driver.prepare_available_now()

    def latest_offset(self, start: Offset | None) -> Offset:
        """Finish the batch that Spark has proven, and plan the next.

        Args:
            start: Where the last batch ended; None on Spark 4.0 and 4.1.

        Returns:
            The next plan, or `start` itself if there is nothing to read.
        """
        proven = start if start is not None else (self._handed_out or NOTHING_PLANNED)
        if proven != self._proven:
            plan = plan_from_json(proven)
            self.driver.start(checkpointed=plan)
            if plan is not None:
                self.driver.finish(plan)
            self._proven = proven
        planned = None if self._must_drain() else self.driver.plan(self._limit)
        if planned is None:
            if self._available_now and not self.driver.await_commits(LAST_COMMIT_TIMEOUT_S):
                logger.warning(
                    "the last offsets were not accepted within %g s; the next run of this"
                    " checkpoint commits them",
                    LAST_COMMIT_TIMEOUT_S,
                )
            return proven
        self._handed_out = plan_as_json(planned)
        return self._handed_out

    def ranges(self, start: Offset, end: Offset) -> tuple[OffsetRange, ...]:
        """Return what the batch from `start` to `end` reads: what its plan says, whoever owns it.

        A plan that this run did not make is one that Spark runs again.
        """
        plan = plan_from_json(end)
        self.driver.start(checkpointed=plan)
        if start == end or plan is None:
            self._handed_out = self._handed_out or end
            return ()
        if end != self._handed_out:
            self.driver.replay(plan)
            self._handed_out = end
        return plan.ranges

    def leave(self, timeout_s: float = 5.0) -> None:
        """Commit what is known to be finished and leave the group; a second call does nothing."""
        if self._handed_out is not None:
            last = plan_from_json(self._handed_out)
            if last is not None and last in self._announced():
                self.driver.finish(last)
        self.driver.leave(timeout_s, will_return=self._will_return)

    def _must_drain(self) -> bool:
        """Whether the driver asked for an end; says so the first time."""
        is_requested = self._notes.is_requested()
        if is_requested and not self._said_drain:
            self._said_drain = True
            logger.info("the driver asked for an end: this run plans nothing more")
        return is_requested

    def _announced(self) -> list[BatchPlan | None]:
        try:
            return [parse_plan_text(text) for text in self._notes.finished()]
        except ValueError:
            logger.warning("a note of finished plans could not be read and is ignored")
            return []
