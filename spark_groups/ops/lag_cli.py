"""`spark-groups lag`: how far behind groups are, and whether they keep up."""

from __future__ import annotations

import time
from typing import Annotated, Final

import typer

from spark_groups.errors import SparkGroupsError
from spark_groups.observation.observe import GroupObserver
from spark_groups.observation.views import GroupView
from spark_groups.ops.connecting import (
    Brokers,
    EveryPartitionFlag,
    GroupArguments,
    JsonFlag,
    connects,
)
from spark_groups.ops.lag_rules import Verdict
from spark_groups.ops.lag_views import LagView, judge_group_lag, view_group_lag
from spark_groups.ops.output import output_for
from spark_groups.ops.render_lag import render_lag

SAMPLES: Final = 6
INTERVAL_S: Final = 5.0


@connects
def lag(  # noqa: PLR0917
    groups: GroupArguments,
    brokers: Brokers,
    check: Annotated[
        bool, typer.Option("--check", help="Take several samples and say whether they keep up.")
    ] = False,
    samples: Annotated[
        int, typer.Option(metavar="NUMBER", min=2, help="How many samples --check takes.")
    ] = SAMPLES,
    interval: Annotated[
        float, typer.Option(metavar="SECONDS", min=0.0, help="Seconds between two of them.")
    ] = INTERVAL_S,
    allowed_lag: Annotated[
        int, typer.Option(metavar="OFFSETS", min=0, help="Up to which lag a partition keeps up.")
    ] = 0,
    as_json: JsonFlag = False,
    every_partition: EveryPartitionFlag = False,
) -> None:
    """Show how far behind groups are, in each partition and in all.

    --check judges by the rules of Burrow: a partition that lags is in error if its committed
    offset stands still, stops moving or went back, and a warning if its lag never falls. Samples
    have to span several commits: those of a query come once in a batch.

    Example: spark-groups lag flight-readers --check --interval 10

    Exit code of --check: 0 OK, 1 WARN (also where too little is known), 2 ERR (also where groups
    cannot be read). Without it: 1 if there is no such group or no broker answers.
    """
    output = output_for(as_json=as_json, every_partition=every_partition)
    try:
        with brokers.observer() as observer:
            view = _judged(observer, groups, samples, interval, allowed_lag) if check else None
            view = view or LagView(
                groups=tuple(view_group_lag(observer.view(each)) for each in groups)
            )
    except SparkGroupsError as error:
        if not check:
            raise
        typer.echo(f"spark-groups: {error}", err=True)
        raise typer.Exit(Verdict.ERR.value) from error
    output.show(view, lambda room: render_lag(view, room.max_partition_rows))
    if check:
        raise typer.Exit(view.verdict.value)


def _judged(
    observer: GroupObserver,
    group_ids: list[str],
    samples: int,
    interval_s: float,
    allowed_lag: int,
) -> LagView:
    taken: dict[str, list[tuple[float, GroupView]]] = {each: [] for each in group_ids}
    began_s = time.monotonic()
    for number in range(samples):
        time.sleep(max(0.0, began_s + number * interval_s - time.monotonic()))
        for group_id, found in taken.items():
            found.append((time.monotonic(), observer.view(group_id)))
    return LagView(
        groups=tuple(judge_group_lag(each, allowed_lag) for each in taken.values()),
        window_s=round(time.monotonic() - began_s, 3),
    )
