"""What proves that Spark has finished a batch: its next call, or an earlier report.

`latestOffset(start)` proves that the batch that ended at `start` is in the sink, one trigger before
Spark calls `commit`. Spark 4.0 and 4.1 pass no start; there the next call proves the last plan.
With `spark_groups.listen`, the driver reports a batch as soon as it has ended; without it, a
function of this package that Spark itself has called does, such as that of `write_table`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from typing import Any, Final, TypeAlias

from spark_groups.group.ledger.checkpoint_refusals import CheckpointOwner
from spark_groups.group.ledger.plan_text import (
    NOTHING_PLANNED,
    offset_text,
    plan_as_json,
    plan_from_json,
    plan_text,
)
from spark_groups.types import BatchPlan
from spark_groups.values import dataclass

PlanJson: TypeAlias = Mapping[str, Any]
"""What Spark calls an offset: a plan as JSON."""

MAX_RECENT: Final = 16
"""How many plans of a run a late report may be about."""


@dataclass(frozen=True, slots=True)
class Proof:
    """What a call of `latestOffset` proves.

    Args:
        offset: Where the proven batch ended, which is where the next one begins.
        plan: The plan of that batch; None: nothing was planned yet.
        is_new: Whether no earlier call has proven it.
    """

    offset: PlanJson
    plan: BatchPlan | None
    is_new: bool


@dataclass(frozen=True, slots=True)
class BatchToRun:
    """A batch that Spark runs.

    Args:
        plan: What it reads; None: nothing.
        checkpointed: The plan at its end.
        is_replay: Whether another run of the query planned it.
        unsubscribed: Topics that it reads again although the query no longer subscribes to them.
    """

    plan: BatchPlan | None
    checkpointed: BatchPlan | None
    is_replay: bool = False
    unsubscribed: tuple[str, ...] = ()


class Proofs:
    """The proofs of the batches of one run of a query; without a lock.

    Args:
        passes_start: Whether Spark passes the end of the last batch to `latestOffset`.
    """

    def __init__(self, owner: CheckpointOwner, *, passes_start: bool = True) -> None:
        self.unproven: BatchPlan | None = None
        """The last plan that Spark received, until its batch is proven."""
        self.query_id: str | None = None
        """Spark's query ID; None before the first report."""
        self.is_query_over = False
        """Whether no report can follow, because the query has ended."""
        self._owner = owner
        self._passes_start = passes_start
        self._unproven_text = ""
        self._handed_out: PlanJson | None = None
        self._proven: PlanJson | None = None
        self._known: tuple[PlanJson, BatchPlan | None] = (NOTHING_PLANNED, None)
        """The last offset and its plan, a cache: Spark passes it several times."""
        self._recent: deque[int] = deque(maxlen=MAX_RECENT)
        """Hashes of the texts of the last plans."""

    # Calls of Spark.

    def asked(self, start: PlanJson | None) -> Proof:
        """Return what a call of `latestOffset` proves; call `proven` once it is acted on.

        Args:
            start: The end of the last batch; None on Spark 4.0 and 4.1.

        Raises:
            CheckpointError: The offset is not one of this source.
        """
        offset = start if start is not None else (self._handed_out or NOTHING_PLANNED)
        return Proof(offset, self._plan_of(offset), is_new=offset != self._proven)

    def proven(self, proof: Proof) -> None:
        """Note that a new proof was acted on: no report of its batch is needed."""
        self._proven = proof.offset
        self.expect_no_report()

    def expect_no_report(self) -> None:
        """Note that no report is waited for: the last plan is proven, or the run fails."""
        self._expect(None, "")

    def planned(self, plan: BatchPlan) -> PlanJson:
        """Return the offset with which Spark receives a plan; its batch is yet to be proven."""
        self._handed_out = plan_as_json(plan)
        self._known = (self._handed_out, plan)
        self._expect(plan, offset_text(self._handed_out))
        return self._handed_out

    def batch_to_run(self, start: PlanJson, end: PlanJson) -> BatchToRun:
        """Return what a batch reads that Spark runs, even of partitions that moved away.

        Call `replayed` once the member knows of a replay.

        Raises:
            CheckpointError: The checkpoint belongs to another group or cluster, on Spark 4.0 or
                4.1; or the batch to run again reads none of this stream's topics.
        """
        if not self._passes_start:
            # Spark 4.2 passes the start to `latestOffset`, before the member joins.
            self._owner.refuse_sparks_source(start)
            self._owner.refuse_another_former_plan(plan_from_json(start), self._plan_of(end))
        plan = self._plan_of(end)
        if start == end or plan is None:
            self._handed_out = self._handed_out or end
            return BatchToRun(None, plan)
        if end == self._handed_out:
            return BatchToRun(plan, plan)
        return BatchToRun(plan, plan, is_replay=True, unsubscribed=self._owner.unsubscribed(plan))

    def replayed(self, end: PlanJson, plan: BatchPlan) -> None:
        """Note that the member knows of a batch that runs again; it is yet to be proven.

        Args:
            end: Where the batch ends.
        """
        self._handed_out = end
        self._expect(plan, plan_text(plan))

    # Reports of listeners.

    @property
    def has_planned(self) -> bool:
        """Whether this run has made or repeated a plan."""
        return bool(self._recent)

    def is_own(self, text: str) -> bool:
        """Return whether one of this run's last plans has this text."""
        return hash(text) in self._recent

    def reported(self, text: str, query_id: str | None) -> BatchPlan | None:
        """Return the plan whose batch a report proves; then finish it, and call `finished`.

        A late report proves nothing that is not proven, but names the query.

        Args:
            text: The end of the finished batch, as in the checkpoint.
            query_id: Spark's query ID; None: a function reports, which does not know it.
        """
        if not self.is_own(text):
            return None
        self.query_id = query_id or self.query_id
        return self.unproven if text == self._unproven_text else None

    def finished(self, plan: BatchPlan) -> None:
        """Note that a reported plan was finished."""
        if self.unproven is plan:
            self.expect_no_report()

    def query_ended(self, query_id: str, *, had_reports: bool) -> None:
        """Note that a query of the application has ended.

        Args:
            query_id: Its ID; empty: all queries have ended.
            had_reports: Whether any batch of it was reported.
        """
        is_this_query = query_id in ("", self.query_id)
        # If neither query was ever reported, the one that ended may be this one.
        may_be_this_query = self.query_id is None and not had_reports
        self.is_query_over = self.is_query_over or is_this_query or may_be_this_query

    def _expect(self, plan: BatchPlan | None, text: str) -> None:
        self.unproven, self._unproven_text = plan, text
        # The query that was reported as ended is another one, because this one continues.
        self.is_query_over = False
        if plan is not None:
            # A late report finishes nothing, but still contains the properties of the query.
            self._recent.append(hash(text))

    def _plan_of(self, offset: PlanJson) -> BatchPlan | None:
        if offset != self._known[0]:
            self._owner.refuse_sparks_source(offset)
            self._known = (offset, plan_from_json(offset))
        return self._known[1]
