"""`spark-groups serve`: the groups of a cluster as a page in a browser."""

from __future__ import annotations

import signal
from contextlib import AbstractContextManager, closing
from typing import Annotated, Final

import typer

from spark_groups.monitoring.limited_server import is_loopback
from spark_groups.observation.frames import GroupWatch
from spark_groups.ops.connecting import Brokers, connects
from spark_groups.ops.feeds import Feeds, Watch
from spark_groups.ops.group_list_watch import GroupListWatch
from spark_groups.ops.page_server import GROUP_LIST, PageServer
from spark_groups.ops.watch_cli import INTERVAL_S

HOST: Final = "127.0.0.1"
PORT: Final = 8848
POLL_S: Final = 0.2
WATCHED_MAX: Final = 32
"""Each has a thread, connections and a history of its own."""


@connects
def serve(
    brokers: Brokers,
    host: Annotated[
        str, typer.Option(metavar="ADDRESS", help="Where to listen; whoever gets there may look.")
    ] = HOST,
    port: Annotated[
        int, typer.Option(min=0, max=65535, help="The port; 0: one that is free.")
    ] = PORT,
    interval: Annotated[
        float, typer.Option(metavar="SECONDS", min=0.1, help="Seconds between two looks.")
    ] = INTERVAL_S,
    watch: Annotated[
        list[str] | None,
        typer.Option(
            metavar="GROUP",
            help="A group that is looked at also while nobody looks at its page, so that what"
            " happened meanwhile is there; repeatable.",
        ),
    ] = None,
) -> None:
    """Show the groups of the cluster, and each as it changes, on a page that only reads.

    A group is looked at while somebody looks at its page, once for all of them, and from the start
    on if it is named with --watch. Then its page reaches back over the last 300 events, the last 3
    to 50 owners of each partition, and a day of lag. What cannot be read leaves the last good view,
    marked stale.

    Example: spark-groups serve --port 8848 --watch flight-readers

    Runs until Ctrl-C or SIGTERM, which is exit code 0; 1 if it cannot listen there.
    """

    def open_watch(group_id: str) -> AbstractContextManager[Watch]:
        if group_id == GROUP_LIST:
            return closing(GroupListWatch(brokers))
        return closing(GroupWatch(brokers.observer(), group_id))

    kept = tuple(dict.fromkeys(watch or ()))
    if "" in kept or len(kept) > WATCHED_MAX:
        raise typer.BadParameter(f"name 1 to {WATCHED_MAX} groups", param_hint="--watch")
    feeds = Feeds(open_watch, interval, kept)
    try:
        server = PageServer(host, port, feeds)
    except OSError as error:
        feeds.close()
        typer.echo(f"spark-groups: cannot listen on {host}:{port}: {error}", err=True)
        raise typer.Exit(1) from error
    if not is_loopback(host):
        typer.echo(
            f"spark-groups: {host} is no loopback address: whoever reaches it sees the groups,"
            " without a login",
            err=True,
        )
    signal.signal(signal.SIGTERM, _interrupt)
    try:
        typer.echo(f"the groups of {brokers.bootstrap_servers}: {server.url}")
        server.serve_forever(POLL_S)
    except KeyboardInterrupt:
        typer.echo("ended")
    finally:
        feeds.close()
        server.server_close()


def _interrupt(*_: object) -> None:
    raise KeyboardInterrupt
