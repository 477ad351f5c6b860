"""`spark_groups.figures(query)`: what a query's group members say of themselves, on the driver.

Spark 4.2 asks a source in Python for no metrics: `sources[].metrics` of its progress stays empty,
and observed metrics are computed from rows. So the figures come from where they are kept, the
query's runner, over the socket that it publishes its snapshot on.
"""

from __future__ import annotations

from typing import Any

from pyspark.sql.streaming.query import StreamingQuery

from spark_groups.client.health import assess
from spark_groups.offsets.plan_text import planner_of
from spark_groups.runtime.snapshots import read_snapshots


def figures(query: StreamingQuery) -> list[dict[str, Any]]:
    """Return the snapshot of each member that reads for a query, with its `health`.

    Returns:
        One for each kafka-group source; none before the first batch was reported, or where the
        runner is another machine's.
    """
    progress = query.lastProgress
    ends = [] if progress is None else [str(source.endOffset) for source in progress.sources]
    member_ids = {planner_of(end) for end in ends} - {None}
    return [
        {**view, "health": assess(view).as_plain()}
        for view in read_snapshots()
        # A batch may have been planned under an id that was lost since.
        if member_ids & {*view.get("tally", {}).get("joined_as", ())}
    ]
