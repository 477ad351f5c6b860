"""Several real Apache Kafka nodes on this machine, each of them a broker and a controller."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from spark_groups.broker.embedded import DEFAULT_HEAP_MB, HOST, EmbeddedKafka, free_ports
from spark_groups.broker.kafka_jars import DEFAULT_VERSION
from spark_groups.broker.properties import LISTENER, random_cluster_id
from spark_groups.errors import EmbeddedKafkaError, ProtocolError
from spark_groups.wire.connection import Connection, RequestError
from spark_groups.wire.schemas.wire_messages import METADATA
from spark_groups.wire.topic_metadata import metadata_to_wire

NODES: Final = 3
"""The fewest controllers of which a majority is left when one node is down."""
MIN_IN_SYNC: Final = 2
START_TIMEOUT_S: Final = 120.0
IN_SYNC_TIMEOUT_S: Final = 120.0
_ANSWER_S: Final = 2.0
_LOOK_AGAIN_S: Final = 0.1
_PORT_ATTEMPTS: Final = 3
CLUSTER_SESSION_MS: Final = 4000
"""A node of several that does not answer for this long is fenced: its partitions get other leaders.

On a busy machine a single node's 2 s would fence nodes that are only slow.
"""


@dataclass(frozen=True, slots=True)
class PartitionState:
    """A partition as one node knows it.

    Args:
        leader: The node id of its leader; -1: it has none.
        replicas: The node ids of its replicas.
        in_sync: The node ids of those that are in sync.
    """

    leader: int
    replicas: frozenset[int]
    in_sync: frozenset[int]


@dataclass(frozen=True, slots=True)
class ClusterState:
    """A cluster as one node knows it.

    Args:
        brokers: The node ids of the brokers that are not fenced.
        partitions: All partitions, by topic name and index, internal topics included.
    """

    brokers: frozenset[int]
    partitions: Mapping[tuple[str, int], PartitionState]

    def is_in_sync(self, nodes: Iterable[int]) -> bool:
        """Return whether these nodes serve, and every replica of every partition is in sync."""
        return self.brokers == frozenset(nodes) and all(
            partition.leader >= 0 and partition.in_sync == partition.replicas
            for partition in self.partitions.values()
        )


class EmbeddedCluster:
    """Nodes of Apache Kafka (KRaft) on 127.0.0.1 that end with their owner.

    Every topic has a replica on each node unless its creator asks for fewer; so have the internal
    topics. `nodes` kills, pauses, resumes and restarts one node; it comes back on the same ports
    and topics.

    Args:
        version: The release of Apache Kafka 4.
        nodes: How many nodes there are; their ids begin with 1.
        min_in_sync: `min.insync.replicas`.
        server_properties: Broker properties that override anything else, the same on all nodes.
        advertised: By node id, the names of further plaintext listeners and the addresses that
            clients are given for them: those of proxies.
        heap_mb: The largest heap of each JVM in MB.
        start_timeout_s: How long the start of a node may take, the fetch not counted.
        log_dirs: The folder of each node by its id, kept; None: temporary ones, deleted.
    """

    def __init__(
        self,
        version: str = DEFAULT_VERSION,
        *,
        nodes: int = NODES,
        min_in_sync: int = MIN_IN_SYNC,
        server_properties: Mapping[str, str] | None = None,
        advertised: Mapping[int, Mapping[str, str]] | None = None,
        heap_mb: int = DEFAULT_HEAP_MB,
        start_timeout_s: float = START_TIMEOUT_S,
        log_dirs: Mapping[int, Path] | None = None,
    ) -> None:
        if not 1 <= min_in_sync <= nodes:
            raise EmbeddedKafkaError(
                f"min_in_sync is {min_in_sync}: it has to be 1 to {nodes}, the number of nodes"
            )
        self.version = version
        self.nodes: dict[int, EmbeddedKafka] = {}
        """The nodes by id; none before the start."""
        self._node_ids = tuple(range(1, nodes + 1))
        self._min_in_sync = min_in_sync
        self._server_properties = dict(server_properties or {})
        self._advertised = {
            node_id: dict((advertised or {}).get(node_id, {})) for node_id in self._node_ids
        }
        self._heap_mb = heap_mb
        self._start_timeout_s = start_timeout_s
        self._log_dirs = dict(log_dirs or {})

    @property
    def bootstrap_servers(self) -> str:
        """The addresses of all nodes, also of those that are down."""
        return ",".join(node.bootstrap_servers for node in self.nodes.values())

    def __enter__(self) -> EmbeddedCluster:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def start(self) -> None:
        """Start all nodes, and return when each of them knows that all of them serve.

        Raises:
            EmbeddedKafkaError: A node does not start; with its last log lines.
        """
        if self.nodes:
            raise EmbeddedKafkaError(f"the cluster runs already, on {self.bootstrap_servers}")
        try:
            for attempt in range(1, _PORT_ATTEMPTS + 1):
                self.nodes = self._new_nodes()
                try:
                    # None of them is ready before most controllers run.
                    with ThreadPoolExecutor(len(self.nodes)) as pool:
                        list(pool.map(EmbeddedKafka.start, self.nodes.values()))
                    break
                except EmbeddedKafkaError as error:
                    # Another process may have taken a port since.
                    if attempt == _PORT_ATTEMPTS or "Address already in use" not in str(error):
                        raise
                    self.stop()
            self.await_in_sync()
        except BaseException:
            self.stop()
            raise

    def stop(self) -> None:
        """Kill all nodes that run, and delete their folders.

        Nodes that end together in good order would wait for a majority of controllers.
        """
        nodes, self.nodes = list(self.nodes.values()), {}
        with ExitStack() as released:
            for node in nodes:
                released.callback(node.stop)
            for node in nodes:
                if node.pid is not None:
                    node.kill()

    def await_in_sync(self, timeout_s: float = IN_SYNC_TIMEOUT_S) -> None:
        """Wait until each node knows that all nodes serve and that all replicas are in sync.

        Args:
            timeout_s: When to give up.

        Raises:
            EmbeddedKafkaError: It took too long, or a node does not run.
        """
        deadline_s = time.monotonic() + timeout_s
        while not all(map(self._is_in_sync, self.nodes.values())):
            if time.monotonic() > deadline_s:
                raise EmbeddedKafkaError(
                    f"not all replicas are in sync after {timeout_s:g} s: {self._states()}"
                )
            time.sleep(_LOOK_AGAIN_S)

    def roll(self) -> None:
        """Restart one node after the other in good order, and wait for its replicas each time.

        Raises:
            EmbeddedKafkaError: A node does not start, or its replicas are not in sync in time.
        """
        for node in self.nodes.values():
            node.restart()
            self.await_in_sync()

    def state(self) -> ClusterState | None:
        """Return the cluster as a node that answers knows it; None: no node answers."""
        found = (node_state(node) for node in self.nodes.values() if node.pid is not None)
        return next((each for each in found if each is not None), None)

    def _is_in_sync(self, node: EmbeddedKafka) -> bool:
        state = node_state(node) if node.pid is not None else None
        return state is not None and state.is_in_sync(self._node_ids)

    def _states(self) -> str:
        return "; ".join(
            f"node {node_id}: {node_state(node) if node.pid is not None else 'does not run'}"
            for node_id, node in self.nodes.items()
        )

    def _new_nodes(self) -> dict[int, EmbeddedKafka]:
        names = {each: (LISTENER, *self._advertised[each], "CONTROLLER") for each in self._node_ids}
        free = iter(free_ports(sum(map(len, names.values()))))
        ports = {name: dict(zip(found, free, strict=False)) for name, found in names.items()}
        controllers = {port: found["CONTROLLER"] for port, found in ports.items()}
        cluster_id = random_cluster_id()
        return {
            node_id: EmbeddedKafka(
                self.version,
                port=ports[node_id][LISTENER],
                extra_listeners=dict.fromkeys(self._advertised[node_id], "PLAINTEXT"),
                advertised=self._advertised[node_id],
                listener_ports=ports[node_id],
                log_dir=self._log_dirs.get(node_id),
                cluster_id=cluster_id,
                heap_mb=self._heap_mb,
                start_timeout_s=self._start_timeout_s,
                server_properties={
                    **_cluster_properties(
                        node_id=node_id,
                        controller_ports=controllers,
                        min_in_sync=self._min_in_sync,
                    ),
                    **self._server_properties,
                },
            )
            for node_id in self._node_ids
        }


def node_state(node: EmbeddedKafka) -> ClusterState | None:
    """Return the cluster as one node knows it; None: it does not answer."""
    connection = Connection(HOST, int(node.listener(LISTENER).rpartition(":")[2]))
    try:
        connection.connect(_ANSWER_S)
        every_topic = metadata_to_wire() | {"topics": None}
        values = connection.request(METADATA, every_topic, _ANSWER_S)
    except (RequestError, ProtocolError):
        return None
    finally:
        connection.close()
    return ClusterState(
        brokers=frozenset(each["node_id"] for each in values["brokers"]),
        partitions={
            (topic["name"], each["partition_index"]): PartitionState(
                leader=each["leader_id"],
                replicas=frozenset(each["replica_nodes"]),
                in_sync=frozenset(each["isr_nodes"]),
            )
            for topic in values["topics"]
            for each in topic["partitions"]
        },
    )


def _cluster_properties(
    *, node_id: int, controller_ports: Mapping[int, int], min_in_sync: int
) -> dict[str, str]:
    """Return the properties of a node that differ from those of a single one.

    Args:
        node_id: The node.
        controller_ports: The controllers' ports by node id.
        min_in_sync: `min.insync.replicas`, also of the internal topics.
    """
    replicas = str(len(controller_ports))
    return {
        "node.id": str(node_id),
        "controller.quorum.voters": ",".join(
            f"{controller_port}@127.0.0.1:{port}"
            for controller_port, port in controller_ports.items()
        ),
        "default.replication.factor": replicas,
        "min.insync.replicas": str(min_in_sync),
        "offsets.topic.replication.factor": replicas,
        "transaction.state.log.replication.factor": replicas,
        "transaction.state.log.min.isr": str(min_in_sync),
        "share.coordinator.state.topic.replication.factor": replicas,
        "share.coordinator.state.topic.min.isr": str(min_in_sync),
        "broker.session.timeout.ms": str(CLUSTER_SESSION_MS),
        # The partitions of a node that was away return to it while a test still runs.
        "leader.imbalance.check.interval.seconds": "10",
        "replica.lag.time.max.ms": "10000",
    }
