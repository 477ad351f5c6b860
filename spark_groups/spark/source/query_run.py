"""One run of a query, in its runner: passes what Spark's calls prove to the group member."""

from __future__ import annotations

import base64
import hmac
import logging
import os
import pickle
import threading
import time
import uuid
from typing import Any, Final

from spark_groups.group.batches.plan_limit import PlanLimit
from spark_groups.group.batches.proofs import PlanJson, Proof, Proofs
from spark_groups.group.ledger.checkpoint_refusals import CheckpointOwner
from spark_groups.group.ledger.plan_text import offset_text
from spark_groups.group.member.subscription import surprising
from spark_groups.runtime.driver import GroupDriver
from spark_groups.spark.control.control_messages import BatchAsked, BatchRunning
from spark_groups.spark.control.runner_control import RunnerControl
from spark_groups.spark.options.option_values import Emit
from spark_groups.spark.options.source_options import SourceOptions
from spark_groups.spark.source.application import (
    Application,
    application_name,
    as_client_id,
    restart_s,
    session_began_at,
)
from spark_groups.types import BatchPlan
from spark_groups.wire.security.security import warn_of_open_secrets

logger = logging.getLogger(__name__)

LAST_COMMIT_TIMEOUT_S: Final = 30.0
JVM_DYING_S: Final = 0.3
LAST_REPORT_TIMEOUT_S: Final = 3.0
"""How long the end of a run waits for the report of its last batch."""
WARM_REPORT_TIMEOUT_S: Final = 0.25
"""How long the first plan waits for the report of the warm-up, which tells the trigger interval."""
WARM_UP_TASKS_MAX: Final = 1_000


class QueryRun:
    """The group member of a stream reader, and the last plan that Spark received.

    Args:
        spark_passes_start: Whether Spark passes the end of the last batch to `latestOffset`; Spark
            4.0 and 4.1 do not.
        key: What a function knows that may learn the batch and the options; empty: none may.
    """

    def __init__(
        self, options: SourceOptions, *, spark_passes_start: bool = True, key: str = ""
    ) -> None:
        options.check_stream()
        self._options = options
        self._key = key
        self._run_id = uuid.uuid4().hex
        self._batch: tuple[PlanJson, PlanJson] | None = None
        """Where the batch that Spark runs begins and ends; None: it runs none."""
        self._jvm_pid = os.getppid()
        self.application = Application(
            jvm_pid=self._jvm_pid,
            subscription=options.subscription,
            instance_id=options.instance_id,
            client_id=options.client_id,
        )
        self._is_ending = False
        self.driver = GroupDriver(
            options.client_config(restart_s(self._jvm_pid, os.getpid(), session_began_at())),
            bootstrap_servers=options.bootstrap_servers,
            client_id=options.range_settings().client_id,
            security=options.security,
            api_timeout_s=options.api_timeout_ms / 1000,
            timeouts=options.timeouts,
        )
        owner = CheckpointOwner(
            options.group_id,
            options.subscription,
            ",".join(options.bootstrap_servers),
            options.command_options(),
        )
        self.control = RunnerControl(
            self.driver,
            Proofs(owner, passes_start=spark_passes_start),
            group_id=options.group_id,
            move_with_state=options.move_with_state,
            answer=self.answer,
            key=key,
        )
        self._limit = options.plan_limit()
        warn_of_open_secrets(options.security)
        hint = surprising(options.subscription.topic_regex or "")
        if hint is not None:
            logger.warning("%s", hint)
        self._available_now = False
        self._has_started = False
        self._leaving = threading.Lock()
        self._has_logged_drain = False

    def snapshot(self) -> dict[str, Any]:
        """Return the state of the member and its application as plain values."""
        view = {**self.driver.snapshot().as_plain(), **self.application.as_plain()}
        return {**view, "spark_ui": self.control.spark_ui, "is_ending": self._is_ending}

    def prepare_available_now(self) -> None:
        """End after reading the offsets that exist when each partition is assigned."""
        self._available_now = True
        self.driver.prepare_available_now()

    def latest_offset(self, start: PlanJson | None, *, everything: bool = False) -> PlanJson:
        """Finish the batch that Spark has run, and plan the next.

        Args:
            start: The end of the last batch; None on Spark 4.0 and 4.1.
            everything: Whether this is the query's only batch, which has no limit.

        Returns:
            The next plan, or `start` if there is nothing to read.

        Raises:
            SparkGroupsError: The query fails.
        """
        self._batch = None
        self.control.check()
        with self.control.changing() as proofs:
            proof = proofs.asked(start)
        if proof.is_new:
            self._prove(proof, may_warm_up=start is not None)
        planned = None if self._must_drain() else self._next_plan(everything=everything)
        if planned is None:
            if self._available_now and not self.driver.await_commits(LAST_COMMIT_TIMEOUT_S):
                logger.warning(
                    "the last offsets were not committed within %g s; the next run from this"
                    " checkpoint commits them",
                    LAST_COMMIT_TIMEOUT_S,
                )
            return proof.offset
        with self.control.changing() as proofs:
            return proofs.planned(planned)

    def _prove(self, proof: Proof, *, may_warm_up: bool) -> None:
        """Start the member in the first call, and finish the proven batch."""
        plan, tasks = proof.plan, self._tasks() if may_warm_up else 0
        self._start(plan, warm_up_tasks=tasks)
        if plan is not None:
            self.driver.finish(plan)
            if plan.warm_up_tasks and self.control.is_reported_to:
                # The member joins meanwhile.
                self.control.await_report(WARM_REPORT_TIMEOUT_S)
        with self.control.changing() as proofs:
            proofs.proven(proof)

    def _start(self, checkpointed: BatchPlan | None, *, warm_up_tasks: int = 0) -> None:
        """Start the member in the first call, under the name of the Spark application."""
        if self._has_started:
            return
        client_id = self._options.client_id
        if client_id is None:
            name = self.control.application_name or application_name(self._jvm_pid)
            client_id = as_client_id(name)
        self.driver.start(checkpointed, warm_up_tasks=warm_up_tasks, client_id=client_id)
        self._has_started = True

    def _tasks(self) -> int:
        """Return the number of tasks that read at once."""
        if self._options.emit is Emit.RANGES:
            return 1
        known = self.control.default_parallelism or self._options.min_partitions
        return min(known or os.cpu_count() or 1, WARM_UP_TASKS_MAX)

    def _next_plan(self, *, everything: bool) -> BatchPlan | None:
        if everything:
            return self.driver.plan(PlanLimit())
        interval_s = self.control.trigger_interval_s
        return self.driver.plan(self._limit, tasks=self._tasks(), trigger_interval_s=interval_s)

    def batch(self, start: PlanJson, end: PlanJson) -> BatchPlan | None:
        """Return the plan of a batch, even of partitions that moved away; None: it reads nothing.

        If this run did not make the plan, Spark is running a batch again.

        Raises:
            CheckpointError: The checkpoint belongs to another group or cluster, on Spark 4.0 or
                4.1; or the batch to run again reads none of this stream's topics.
        """
        self._batch = (start, end)
        with self.control.changing() as proofs:
            run = proofs.batch_to_run(start, end)
        self._start(run.checkpointed)
        if run.plan is not None and run.is_replay:
            self.driver.replay(run.plan)
            with self.control.changing() as proofs:
                proofs.replayed(end, run.plan)
        if run.unsubscribed:
            logger.warning(
                "running the unfinished last batch of the checkpoint again; it also reads %s, which"
                " the query no longer subscribes to: these offsets are not committed, so the next"
                " subscriber of this group reads their rows again",
                ", ".join(run.unsubscribed),
            )
        return run.plan

    def answer(self, asked: BatchAsked) -> BatchRunning | None:
        """Return the batch that Spark runs, for a function that has the load's key; else None."""
        batch = self._batch
        is_known = bool(self._key) and hmac.compare_digest(self._key, asked.key)
        if not is_known or batch is None or self._is_ending:
            return None
        return BatchRunning(
            number=asked.number,
            run_id=self._run_id,
            start=offset_text(batch[0]),
            end=offset_text(batch[1]),
            options=base64.b64encode(pickle.dumps(self._options)).decode("ascii"),
        )

    def note_end(self) -> None:
        """Note that this run is ending, and answer no function any more: another run may."""
        self._is_ending = True
        self.driver.note_end()

    def await_last_report(self, timeout_s: float = LAST_REPORT_TIMEOUT_S) -> None:
        """Wait for a listening driver's report of the last batch."""
        self.note_end()
        if not self.control.await_report(timeout_s):
            logger.warning(
                "the offsets of the last batch are not committed, because it may be unfinished: the"
                " next run from this checkpoint commits them if it is assigned the partitions;"
                " otherwise their rows are read again%s",
                "" if self.control.is_reported_to else ". spark_groups.listen(spark) avoids this",
            )

    def leave(self, timeout_s: float = 5.0) -> None:
        """Commit finished batches and leave the group; idempotent."""
        # An application that crashed will return.
        will_return = not self._options.leave_on_stop or self._jvm_is_gone()
        # Spark's call and its signal lead here on two threads: the later one ends the process, and
        # must not do so before the other has sent the last line.
        with self._leaving:
            self.control.close(self.driver.leave(timeout_s, will_return=will_return))

    def _jvm_is_gone(self) -> bool:
        """Return whether the JVM died; its connections end shortly before it."""
        deadline_s = time.monotonic() + JVM_DYING_S
        while os.getppid() == self._jvm_pid and time.monotonic() < deadline_s:
            time.sleep(JVM_DYING_S / 10)
        return os.getppid() != self._jvm_pid

    def _must_drain(self) -> bool:
        is_requested = self.control.is_draining
        if is_requested and not self._has_logged_drain:
            self._has_logged_drain = True
            logger.info("the driver is ending the query: planning no more batches")
        return is_requested
