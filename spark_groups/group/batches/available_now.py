"""Decides whether an AvailableNow query has read everything."""

from __future__ import annotations

from dataclasses import dataclass, field

from spark_groups.errors import AvailableNowError
from spark_groups.group.batches.available_now_wait import AvailableNowWait, WhenUnsettled
from spark_groups.group.batches.next_batch import NextBatch
from spark_groups.group.ledger.events import AvailableNowUnsettled, NothingMatches
from spark_groups.group.member.near_names import hint
from spark_groups.group.requests.metadata import AbsentTopics


@dataclass(slots=True)
class AvailableNowEnd:
    """Decides whether to wait, to end, or to fail once there is nothing left to read."""

    wait: AvailableNowWait
    next_batch: NextBatch
    absent: AbsentTopics
    _said_nothing_matches: bool = field(default=False, init=False)

    def prepare(self) -> None:
        """Read each partition up to its end at the time of its assignment, and no further."""
        planner = self.next_batch.planner
        planner.warm_up.tasks = 0
        planner.prepare_available_now()
        self.absent.is_wanted = True

    @property
    def is_in_doubt(self) -> bool:
        """Whether a named topic may not exist, or may not have been assigned by the group yet."""
        return not self.absent.in_doubt <= self.next_batch.target.planned_topics

    def check(self) -> None:
        """Raise if it is useless to begin.

        Raises:
            AvailableNowError: A named topic does not exist.
        """
        absent = self.absent
        if absent.is_wanted and absent.missing:
            missing = (f"{name}{hint(name, absent.near)}" for name in absent.missing)
            raise AvailableNowError(
                "subscribe names topics that do not exist or that this user may not describe:"
                f" {', '.join(missing)}. AvailableNow would end without reading them:"
                " correct the names, create the topics, or leave them out"
            )

    def is_over(self, waited_s: float, now: float) -> bool:
        """Return whether to end, now that nothing is left to read; reports unread partitions.

        Args:
            waited_s: How long nothing could be read, in seconds.

        Raises:
            AvailableNowError: Partitions are missing, and `availableNowUnsettled` is not `warn`.
        """
        if self.next_batch.is_settled:
            self._look_for_a_match(now)
            return True
        wait, positions = self.wait, self.next_batch.positions
        found = self._unsettled(waited_s, now)
        assumed_ms = positions.member.config.session_timeout_ms
        session_ms = self.next_batch.session.session_timeout_ms or assumed_ms
        limit_s = wait.timeout_s if found.is_harmless else wait.limit_s(session_ms)
        if waited_s < limit_s:
            return False
        if wait.when_unsettled is WhenUnsettled.WARN or found.is_harmless:
            positions.emit(found)
            return True
        raise AvailableNowError(found.text(positions.topics.name))

    def _unsettled(self, waited_s: float, now: float) -> AvailableNowUnsettled:
        positions, target = self.next_batch.positions, self.next_batch.target
        pending, offsets = positions.still_pending(target.pending), self.next_batch.pending_offsets
        offsets.look_again(now)
        withheld = offsets.withheld(pending)
        return AvailableNowUnsettled(
            now,
            waited_s=waited_s,
            withheld=withheld,
            unresolved=len(pending) - len(withheld),
            holders=tuple(sorted({target.holders.get(key, "") for key in pending} - {""})),
            unready=tuple(sorted(positions.ledger.unready())),
            waits_for=tuple(sorted(set(map(str, positions.waits().values())))),
            is_target_known=bool(pending) or target.settled(positions.member.member_epoch),
            has_waited=self.wait.when_unsettled is WhenUnsettled.WAIT,
        )

    def _look_for_a_match(self, now: float) -> None:
        """Report, once, that a pattern matches no topic of the whole group."""
        positions, names = self.next_batch.positions, self.next_batch.target.planned_topics
        member, pattern = positions.member, positions.member.config.subscription.topic_regex
        if pattern is None or member.assigned or self._said_nothing_matches:
            return
        if not any(map(member.config.subscription.matches, names)):
            self._said_nothing_matches = True
            positions.emit(NothingMatches(now, pattern))
