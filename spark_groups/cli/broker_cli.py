"""`spark-groups broker`: a real Apache Kafka that runs until it is stopped."""

from __future__ import annotations

import dataclasses
import json
import time
from datetime import timedelta
from pathlib import Path
from typing import Annotated

import typer

from spark_groups.broker.embedded import EmbeddedKafka, answers
from spark_groups.broker.kafka_jars import DEFAULT_VERSION
from spark_groups.broker.started_broker import (
    StartedBroker,
    forget_started,
    locked_state,
    running_broker,
    state_dir,
    stop_broker,
    write_started,
)

broker_app = typer.Typer(
    help="A real single-node Apache Kafka on this machine.", no_args_is_help=True
)

_KAFKA_RETENTION_MS = 7 * 24 * 3600 * 1000
"""Kafka's default: a broker that keeps running must not fill the disk."""

JsonFlag = Annotated[bool, typer.Option("--json", help="Print JSON.")]


@broker_app.command()
def start(
    version: Annotated[str, typer.Option(help="Release of Apache Kafka 4.")] = DEFAULT_VERSION,
    port: Annotated[int, typer.Option(help="Port on 127.0.0.1.", min=1, max=65535)] = 9092,
    log_dir: Annotated[
        Path | None, typer.Option(help="Folder for topics and logs, kept.", file_okay=False)
    ] = None,
    settings: Annotated[
        list[str] | None, typer.Option("--set", help="Broker property key=value; repeatable.")
    ] = None,
    as_json: JsonFlag = False,
) -> None:
    """Start a broker that runs until `spark-groups broker stop`.

    Example: spark-groups broker start --port 9092
    """
    properties = {"log.retention.ms": str(_KAFKA_RETENTION_MS), **_parse_settings(settings or [])}
    with locked_state():
        running = running_broker()
        if running is not None:
            typer.echo(
                f"a broker runs already on {running.bootstrap_servers} (pid {running.pid}):"
                " spark-groups broker stop",
                err=True,
            )
            raise typer.Exit(1)
        kafka = EmbeddedKafka(
            version,
            port=port,
            log_dir=log_dir or state_dir() / f"kafka-{version}",
            server_properties=properties,
            outlives_owner=True,
        )
        kafka.start()
        pid = kafka.pid
        assert pid is not None
        broker = StartedBroker(
            pid=pid,
            version=version,
            bootstrap_servers=kafka.bootstrap_servers,
            log_dir=str(kafka.log_dir),
            started_s=time.time(),
        )
        write_started(broker)
    _show(broker, as_json)


@broker_app.command()
def status(as_json: JsonFlag = False) -> None:
    """Show the running broker; exit code 1 if none runs."""
    broker = running_broker()
    if broker is None:
        typer.echo(json.dumps({"running": False}) if as_json else "no broker runs")
        raise typer.Exit(1)
    _show(broker, as_json)


@broker_app.command()
def stop(
    timeout: Annotated[float, typer.Option(help="Seconds before it is killed.", min=0.0)] = 30.0,
    as_json: JsonFlag = False,
) -> None:
    """Stop the broker and keep its topics; exit code 1 if none runs."""
    with locked_state():
        broker = running_broker()
        if broker is None:
            forget_started()
            typer.echo(json.dumps({"stopped": False}) if as_json else "no broker runs")
            raise typer.Exit(1)
        in_order = stop_broker(broker, timeout)
        forget_started()
    if as_json:
        typer.echo(json.dumps({"stopped": True, "killed": not in_order, "pid": broker.pid}))
    else:
        how = "stopped" if in_order else f"killed, it did not stop within {timeout:g} s"
        typer.echo(f"broker (pid {broker.pid}) {how}; topics kept in {broker.log_dir}")


def _show(broker: StartedBroker, as_json: bool) -> None:
    uptime_s = max(0, round(time.time() - broker.started_s))
    answering = answers(int(broker.bootstrap_servers.rpartition(":")[2]))
    if as_json:
        shown = dataclasses.asdict(broker) | {"uptime_s": uptime_s, "answers": answering}
        typer.echo(json.dumps({"running": True} | shown))
        return
    rows = {
        "Apache Kafka": broker.version,
        "bootstrap.servers": broker.bootstrap_servers,
        "pid": broker.pid,
        "uptime": timedelta(seconds=uptime_s),
        "answers": "yes" if answering else f"no, see {broker.log_dir}/broker.log",
        "log dir": broker.log_dir,
    }
    for name, value in rows.items():
        typer.echo(f"{name:<18} {value}")


def _parse_settings(settings: list[str]) -> dict[str, str]:
    """Return the broker properties of `--set`; report all mistakes in one error."""
    wrong = [setting for setting in settings if not setting.partition("=")[0].strip()]
    wrong += [setting for setting in settings if "=" not in setting]
    if wrong:
        raise typer.BadParameter(f"not key=value: {', '.join(dict.fromkeys(wrong))}")
    pairs = (setting.split("=", 1) for setting in settings)
    return {key.strip(): value for key, value in pairs}
