"""`spark-groups serve`: the live page of all groups of a cluster."""

from __future__ import annotations

import signal
from contextlib import AbstractContextManager, closing
from typing import Annotated, Final

import typer

from spark_groups.cli.connecting import (
    AlertHours,
    Brokers,
    IsolationLevel,
    IsolationLevelOption,
    connects,
)
from spark_groups.cli.feeds import Feeds, Watch
from spark_groups.cli.group_list_watch import GroupListWatch
from spark_groups.cli.page_server import GROUP_LIST, PageServer
from spark_groups.cli.watch_cli import INTERVAL_S
from spark_groups.monitoring.limited_server import is_loopback
from spark_groups.observation.frames import GroupWatch
from spark_groups.observation.lag_times import ALERT_HOURS

HOST: Final = "127.0.0.1"
PORT: Final = 8848
POLL_S: Final = 0.2
WATCHED_MAX: Final = 32
"""Each watched group has its own thread, connections and history."""


@connects
def serve(  # noqa: PLR0917
    brokers: Brokers,
    host: Annotated[
        str,
        typer.Option(
            metavar="ADDRESS",
            help="Listen address; every client that can connect can read the page.",
        ),
    ] = HOST,
    port: Annotated[
        int, typer.Option(min=0, max=65535, help="Listen port; 0: any free port.")
    ] = PORT,
    interval: Annotated[
        float, typer.Option(metavar="SECONDS", min=0.1, help="Seconds between polls.")
    ] = INTERVAL_S,
    watch: Annotated[
        list[str] | None,
        typer.Option(
            metavar="GROUP",
            help="Watch this group even while its page is closed, to keep its history; repeatable.",
        ),
    ] = None,
    alert_hours: AlertHours = ALERT_HOURS,
    isolation_level: IsolationLevelOption = IsolationLevel.READ_UNCOMMITTED,
) -> None:
    """Serve a read-only page of all groups in the cluster, and of each group as it changes.

    A group is polled while its page is open in any browser, and from the start if it is given with
    --watch. The page then shows the last 300 events, the last 3 to 50 owners of each partition, and
    a day of lag. While brokers do not answer, it shows the last view, marked stale.

    Example: spark-groups serve --port 8848 --watch flight-readers

    Runs until Ctrl-C or SIGTERM: exit code 0. Exit code 1 if the address cannot be bound.
    """

    def open_watch(group_id: str) -> AbstractContextManager[Watch]:
        if group_id == GROUP_LIST:
            return closing(GroupListWatch(brokers))
        observer = brokers.observer(isolation_level)
        return closing(GroupWatch(observer, group_id, alert_hours=alert_hours))

    kept = tuple(dict.fromkeys(watch or ()))
    if "" in kept or len(kept) > WATCHED_MAX:
        raise typer.BadParameter(f"give 1 to {WATCHED_MAX} group ids", param_hint="--watch")
    feeds = Feeds(open_watch, interval, kept)
    try:
        server = PageServer(host, port, feeds)
    except OSError as error:
        feeds.close()
        typer.echo(f"spark-groups: cannot listen on {host}:{port}: {error}", err=True)
        raise typer.Exit(1) from error
    if not is_loopback(host):
        typer.echo(
            f"spark-groups: {host} is not a loopback address: every client that can connect can"
            " read the page without a login",
            err=True,
        )
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        typer.echo(f"serving the groups of {brokers.bootstrap_servers} at {server.url}")
        server.serve_forever(POLL_S)
    except KeyboardInterrupt:
        typer.echo("stopped")
    finally:
        feeds.close()
        server.server_close()
