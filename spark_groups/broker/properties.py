"""The configuration of the embedded broker: properties, logging and JVM flags."""

from __future__ import annotations

import base64
import uuid
from collections.abc import Mapping
from pathlib import Path

from spark_groups.wire.properties_file import render_properties

LISTENER = "CLIENT"
"""The name of the plaintext listener that every embedded broker has."""

STARTS_FAST = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC")
"""A JVM that lives for seconds takes half the processor time without its second compiler."""

JVM_FLAGS = (
    *STARTS_FAST,
    "-XX:+ExitOnOutOfMemoryError",
    "-Xss256k",
    "-Djava.awt.headless=true",
)
"""A JVM that starts fast and stays small; one that is out of memory ends instead of limping."""

_SINGLE_NODE: Mapping[str, str] = {
    "process.roles": "broker,controller",
    "node.id": "1",
    "controller.listener.names": "CONTROLLER",
    "inter.broker.listener.name": LISTENER,
    # One node cannot replicate.
    "offsets.topic.replication.factor": "1",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "share.coordinator.state.topic.replication.factor": "1",
    "share.coordinator.state.topic.min.isr": "1",
    # Few internal partitions and small buffers: the first group is quick, the heap can be small.
    "offsets.topic.num.partitions": "5",
    "transaction.state.log.num.partitions": "5",
    "share.coordinator.state.topic.num.partitions": "5",
    "log.cleaner.dedupe.buffer.size": "2097152",
    "group.initial.rebalance.delay.ms": "0",
    # Records may have timestamps that are years old: retention must not delete them.
    "log.retention.ms": "-1",
    # A killed node can register again after this time; Kafka's default of 9 s is for many nodes.
    "broker.session.timeout.ms": "2000",
    "broker.heartbeat.interval.ms": "500",
    # Only the lower bounds: a group that asks for nothing gets Kafka's own 5 s and 45 s.
    "group.consumer.min.heartbeat.interval.ms": "100",
    "group.consumer.min.session.timeout.ms": "1000",
}

_LOG4J2 = """\
status = ERROR
appender.file.type = RollingFile
appender.file.name = file
appender.file.fileName = {log}
appender.file.filePattern = {log}.%i
appender.file.layout.type = PatternLayout
appender.file.layout.pattern = [%d] %p %m (%c)%n
appender.file.policies.type = Policies
appender.file.policies.size.type = SizeBasedTriggeringPolicy
appender.file.policies.size.size = 16MB
appender.file.strategy.type = DefaultRolloverStrategy
appender.file.strategy.max = 2
rootLogger.level = INFO
rootLogger.appenderRef.file.ref = file
"""

_TOOL_LOG4J2 = """\
status = ERROR
appender.stderr.type = Console
appender.stderr.name = stderr
appender.stderr.target = SYSTEM_ERR
appender.stderr.layout.type = PatternLayout
appender.stderr.layout.pattern = [%d] %p %m (%c)%n
rootLogger.level = WARN
rootLogger.appenderRef.stderr.ref = stderr
"""


class BrokerFiles:
    """The files of one broker under its folder."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.logs = directory / "logs"
        """Kafka's `log.dirs`: the topics."""
        self.broker_log = directory / "broker.log"
        self.output = directory / "broker.out"
        """Standard output and error of the JVM."""
        self.properties = directory / "server.properties"
        self.log4j2 = directory / "log4j2.properties"
        self.tool_log4j2 = directory / "tool-log4j2.properties"
        """The log configuration of the command line tools: warnings, on standard error."""

    def write(self, properties: Mapping[str, str]) -> None:
        """Write the configuration."""
        self.directory.mkdir(parents=True, exist_ok=True)
        self.properties.write_text(render_properties(properties), encoding="latin-1")
        self.log4j2.write_text(_LOG4J2.format(log=self.broker_log), encoding="utf-8")
        self.tool_log4j2.write_text(_TOOL_LOG4J2, encoding="utf-8")


def broker_properties(
    *,
    ports: Mapping[str, int],
    protocols: Mapping[str, str],
    logs: Path,
    server_properties: Mapping[str, str],
    advertised: Mapping[str, str] | None = None,
) -> dict[str, str]:
    """Return the properties of a single node that is broker and controller.

    Args:
        ports: Listener name to port, on 127.0.0.1; with CONTROLLER.
        protocols: Listener name to security protocol; PLAINTEXT where a listener is not named.
        logs: `log.dirs`.
        server_properties: Properties that override anything else.
        advertised: Listener name to the address that clients are given instead of its own.
    """
    own = {name: f"127.0.0.1:{port}" for name, port in ports.items()}
    addresses = {name: f"{name}://{address}" for name, address in own.items()}
    given = {name: address for name, address in own.items() if name != "CONTROLLER"}
    clients = [f"{name}://{address}" for name, address in {**given, **(advertised or {})}.items()]
    return {
        **_SINGLE_NODE,
        "listeners": ",".join(addresses.values()),
        "advertised.listeners": ",".join(clients),
        "listener.security.protocol.map": ",".join(
            f"{name}:{protocols.get(name, 'PLAINTEXT')}" for name in ports
        ),
        "controller.quorum.voters": f"1@127.0.0.1:{ports['CONTROLLER']}",
        "log.dirs": str(logs),
        **server_properties,
    }


def random_cluster_id() -> str:
    """Return a cluster id as Kafka makes them; never one that looks like an option."""
    while True:
        cluster_id = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode("ascii").rstrip("=")
        if not cluster_id.startswith("-"):
            return cluster_id
