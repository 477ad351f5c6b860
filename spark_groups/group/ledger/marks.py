"""Marks: which commit an offset in Kafka is.

A committed offset alone does not show which commit it was: an operator may set it back to where a
batch began, and another member may read the same range again. So each commit of a query carries a
mark in its metadata, and each range of a plan the mark of the commit on which it stands. A plan's
end mark follows from the plan: a restart computes it from the plan in the checkpoint.

A mark is a hash of the member id, the member epoch, the range and the mark before it. So two
commits have one mark only if both end the same batch after the same commits (decision 0015).
"""

from __future__ import annotations

import base64
import re
from hashlib import blake2b
from typing import Final

from spark_groups.types import BatchPlan, OffsetRange, TopicIdPartition

NO_MARK: Final = ""
"""In place of the mark of a commit of another client, or of a version without marks."""
MARK: Final = re.compile(r"[\w-]{1,64}", re.ASCII)
"""The text of a mark: it stands in a plan, so the metadata of other clients must not spoil that."""
_MARK_BYTES: Final = 6


def mark_at_end(plan: BatchPlan, each: OffsetRange, mark_at_start: str) -> str:
    """Return the mark of the commit at the end of a range.

    Args:
        mark_at_start: The mark of the commit on which the range stands.
    """
    by = (plan.member_id, plan.member_epoch, each.key, each.from_offset, each.until_offset)
    return _mark(*by, mark_at_start)


def mark_of_position(run_id: str, tenure: int, key: TopicIdPartition, position: int) -> str:
    """Return the mark of a commit that no batch ends: a starting position, or a truncation.

    Args:
        run_id: Differs between the runs of all queries.
        tenure: The number of the tenure, which occurs once in a run.
    """
    return _mark(run_id, tenure, key, position)


def _mark(*parts: object) -> str:
    text = "\n".join(map(str, parts))
    digest = blake2b(text.encode(), digest_size=_MARK_BYTES).digest()
    return base64.urlsafe_b64encode(digest).rstrip(b"=").decode("ascii")
