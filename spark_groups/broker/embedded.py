"""A real single-node Apache Kafka for tests, notebooks and the command line."""

from __future__ import annotations

import contextlib
import random
import shutil
import signal
import socket
import struct
import subprocess
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from spark_groups.broker.java import archive_flags, archive_of, find_java
from spark_groups.broker.jvm_process import (
    DetachedJvm,
    JvmProcess,
    SupervisedJvm,
    await_stopped,
    send_signal,
)
from spark_groups.broker.kafka_jars import DEFAULT_VERSION, KafkaArtifacts, fetch_kafka
from spark_groups.broker.properties import (
    JVM_FLAGS,
    LISTENER,
    BrokerFiles,
    broker_properties,
    random_cluster_id,
)
from spark_groups.broker.started_broker import BROKER_ID_FLAG
from spark_groups.errors import EmbeddedKafkaError

DEFAULT_HEAP_MB = 256
STOP_TIMEOUT_S = 30.0
_PORT_ATTEMPTS = 3
_KILL_S = 60.0
_PORTS = range(10_000, 32_768)
"""Below those of connections and of who asks for any port, who could take one before its use."""
_ERROR_LINES = 20
_TAIL_BYTES = 256 * 1024
HOST = "127.0.0.1"
_METADATA_V1 = struct.pack(">hhihi", 3, 1, 1, -1, 0)
"""Metadata v1, correlation id 1, no client id, no topics. Source: MetadataRequest.json."""


class EmbeddedKafka:
    """A single-node Apache Kafka (KRaft) on 127.0.0.1 that ends with its owner.

    As a context manager it starts on entry and stops on exit; it also ends, with its temporary
    folder, when the owning process is killed.

    Args:
        version: The release of Apache Kafka 4; fetched once into the user's cache.
        port: The port for clients; None takes a free one.
        log_dir: The folder that holds topics and logs, kept; None is a temporary one, deleted.
        server_properties: Broker properties that override anything else.
        extra_listeners: Name to security protocol of further listeners, each on a free port. Their
            settings are broker properties (`listener.name.<name>...`).
        advertised: Listener name to the address that clients are given for it, that of a proxy
            for example; its own where a listener is not named.
        listener_ports: Name to port of further listeners, and of CONTROLLER; free ones otherwise.
        format_arguments: Further arguments of `StorageTool format`, `--add-scram` for example.
        cluster_id: Kafka's cluster id for a new folder; None is a random one.
        heap_mb: The JVM's largest heap in MB.
        start_timeout_s: How long a start may take, the fetch not counted.
        outlives_owner: Let the broker run on when this process ends; needs a `log_dir`.
    """

    def __init__(
        self,
        version: str = DEFAULT_VERSION,
        *,
        port: int | None = None,
        log_dir: Path | str | None = None,
        server_properties: Mapping[str, str] | None = None,
        extra_listeners: Mapping[str, str] | None = None,
        advertised: Mapping[str, str] | None = None,
        listener_ports: Mapping[str, int] | None = None,
        format_arguments: Sequence[str] = (),
        cluster_id: str | None = None,
        heap_mb: int = DEFAULT_HEAP_MB,
        start_timeout_s: float = 120.0,
        outlives_owner: bool = False,
    ) -> None:
        if outlives_owner and log_dir is None:
            raise EmbeddedKafkaError("a broker that outlives its owner needs a log_dir to be kept")
        self.version = version
        self._fixed_port = port
        self._fixed_log_dir = Path(log_dir).absolute() if log_dir is not None else None
        self._server_properties = dict(server_properties or {})
        self._protocols = dict(extra_listeners or {})
        self._advertised = dict(advertised or {})
        self._fixed_ports = dict(listener_ports or {})
        self._format_arguments = tuple(format_arguments)
        self._cluster_id = cluster_id
        self._heap_mb = heap_mb
        self._start_timeout_s = start_timeout_s
        self._outlives_owner = outlives_owner
        self._artifacts: KafkaArtifacts | None = None
        self._files: BrokerFiles | None = None
        self._ports: dict[str, int] = {}
        self._log_start_bytes = 0
        self._jvm: JvmProcess | None = None

    @property
    def bootstrap_servers(self) -> str:
        """The address of the plaintext listener."""
        return self.listener(LISTENER)

    def listener(self, name: str) -> str:
        """Return the address of a listener."""
        if name not in self._ports:
            raise EmbeddedKafkaError(f"there is no listener {name} before the broker was started")
        return f"{HOST}:{self._ports[name]}"

    @property
    def log_dir(self) -> Path:
        """The folder that holds the topics, the configuration and the broker's own log."""
        return self._started_files().directory

    @property
    def pid(self) -> int | None:
        """The pid of the broker's JVM; None when it does not run."""
        if self._jvm is None or self._jvm.wait(0.0) is not None:
            return None
        return self._jvm.pid

    def __enter__(self) -> EmbeddedKafka:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def start(self) -> None:
        """Start the broker and return when it answers; after `kill()` on the same topics.

        Raises:
            EmbeddedKafkaError: It cannot be fetched or does not start; with its last log lines.
        """
        if self.pid is not None:
            raise EmbeddedKafkaError(f"the broker runs already, on {self.bootstrap_servers}")
        self._artifacts = fetch_kafka(self.version)
        try:
            attempts = 1 if self._fixed_port or self._ports else _PORT_ATTEMPTS
            for attempt in range(1, attempts + 1):
                ports = self._ports or self._choose_ports()
                try:
                    self._start_on(ports)
                    break
                except EmbeddedKafkaError as error:
                    # Another process may have taken the port since.
                    if attempt == attempts or "Address already in use" not in str(error):
                        raise
        except BaseException:
            self._release()
            raise

    def stop(self, timeout_s: float = STOP_TIMEOUT_S) -> None:
        """Stop the broker, if it runs, and delete its folder, if that is a temporary one.

        Args:
            timeout_s: How long an orderly end may take before the JVM is killed.
        """
        try:
            self.end(timeout_s)
        finally:
            self._release()

    def restart(self, timeout_s: float = STOP_TIMEOUT_S) -> None:
        """Stop the broker in order and start it again, on the same ports and topics.

        Args:
            timeout_s: How long an orderly end may take before the JVM is killed.
        """
        self.end(timeout_s)
        self.start()

    def end(self, timeout_s: float = STOP_TIMEOUT_S) -> None:
        """Stop the broker in order, if it runs; `start()` brings it back.

        Args:
            timeout_s: How long an orderly end may take before the JVM is killed.
        """
        if self._jvm is None or not send_signal(self._jvm, signal.SIGTERM):
            return
        # A paused JVM would keep the signal for later.
        send_signal(self._jvm, signal.SIGCONT)
        if self._jvm.wait(timeout_s) is None:
            self.kill()

    def kill(self) -> None:
        """Kill the broker without any warning (SIGKILL); `start()` brings it back."""
        self._signal(signal.SIGKILL)
        assert self._jvm is not None
        if self._jvm.wait(_KILL_S) is None:
            raise EmbeddedKafkaError(f"the broker (pid {self._jvm.pid}) does not die of SIGKILL")

    def pause(self) -> None:
        """Stop the broker's JVM in its tracks (SIGSTOP); connections stay open.

        Raises:
            EmbeddedKafkaError: It does not run, or does not stop.
        """
        self._signal(signal.SIGSTOP)
        assert self._jvm is not None
        if not await_stopped(self._jvm, _KILL_S):
            raise EmbeddedKafkaError(f"the broker (pid {self._jvm.pid}) does not stop at SIGSTOP")

    def resume(self) -> None:
        """Resume a paused broker (SIGCONT)."""
        self._signal(signal.SIGCONT)

    def log_tail(self, lines: int = 50) -> str:
        """Return the last lines of the broker's log and of its JVM's output."""
        if self._files is None:
            return ""
        found = _last_lines(self._files.broker_log) + _last_lines(self._files.output)
        return "\n".join(found[-lines:])

    def run_tool(self, main_class: str, *args: str, timeout_s: float = 120.0) -> str:
        """Run one of Kafka's command line tools and return what it wrote to standard output.

        Args:
            main_class: Its main class, `org.apache.kafka.tools.TopicCommand` for example.

        Raises:
            EmbeddedKafkaError: It failed, with its output, or took too long.
        """
        self._started_files()
        name = main_class.rpartition(".")[2]
        try:
            done = subprocess.run(
                self._tool_command(main_class, args),
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                errors="replace",
                timeout=timeout_s,
                check=False,
            )
        except subprocess.TimeoutExpired as error:
            raise EmbeddedKafkaError(f"{name} did not end within {timeout_s:g} s") from error
        if done.returncode != 0:
            raise EmbeddedKafkaError(
                f"{name} ended with exit code {done.returncode}:\n{done.stdout}{done.stderr}"
            )
        return done.stdout

    def _started_files(self) -> BrokerFiles:
        if self._files is None:
            raise EmbeddedKafkaError("the broker was not started: use it in a with statement")
        return self._files

    def _choose_ports(self) -> dict[str, int]:
        """Return listener name to port."""
        names = [LISTENER, *self._protocols, "CONTROLLER"]
        ports = dict(zip(names, free_ports(len(names)), strict=True)) | self._fixed_ports
        if self._fixed_port is not None:
            ports[LISTENER] = self._fixed_port
        return ports

    def _start_on(self, ports: Mapping[str, int]) -> None:
        """Format the folder if it is new, start the JVM and wait until it answers."""
        check_port(ports[LISTENER])
        deadline_s = time.monotonic() + self._start_timeout_s
        self._files = self._files or BrokerFiles(
            self._fixed_log_dir or Path(tempfile.mkdtemp(prefix="spark-groups-kafka-"))
        )
        properties = broker_properties(
            ports=ports,
            protocols=self._protocols,
            logs=self._files.logs,
            server_properties=self._server_properties,
            advertised=self._advertised,
        )
        self._files.write(properties)
        self._log_start_bytes = _size_bytes(self._files.broker_log)
        if self._jvm is None:
            kept = self._fixed_log_dir is not None
            delete = None if kept else self._files.directory
            self._jvm = DetachedJvm() if self._outlives_owner else SupervisedJvm(delete)
        first_log_dir = Path(properties["log.dirs"].split(",")[0])
        if not (first_log_dir / "meta.properties").exists():
            self._format(self._jvm, deadline_s)
        self._files.output.write_bytes(b"")
        broker_id = f"{BROKER_ID_FLAG}{self._files.directory}"
        arguments = (broker_id, "kafka.Kafka", str(self._files.properties))
        command = self._java(self._heap_mb, self._files.log4j2, *arguments)
        self._jvm.run(command, self._files.output)
        self._await_ready(self._jvm, ports[LISTENER], deadline_s)
        self._ports = dict(ports)

    def _format(self, jvm: JvmProcess, deadline_s: float) -> None:
        """Format the folder's storage."""
        assert self._files is not None
        arguments = ["-t", self._cluster_id or random_cluster_id()]
        arguments += ["-c", str(self._files.properties), *self._format_arguments]
        command = self._tool_command("kafka.tools.StorageTool", ["format", *arguments])
        self._files.output.write_bytes(b"")
        jvm.run(command, self._files.output)
        exit_code = jvm.wait(max(0.0, deadline_s - time.monotonic()))
        if exit_code != 0:
            how = "takes too long" if exit_code is None else f"failed (exit code {exit_code})"
            raise self._failure(f"formatting {self._files.logs} {how}")

    def _await_ready(self, jvm: JvmProcess, port: int, deadline_s: float) -> None:
        """Wait until the broker answers."""
        while not answers(port):
            exit_code = jvm.wait(0.05)
            if exit_code is not None:
                raise self._failure(f"the broker ended while it started (exit code {exit_code})")
            if time.monotonic() > deadline_s:
                raise self._failure(
                    f"the broker did not answer within {self._start_timeout_s:g} s on the listener"
                    f" {LISTENER} ({HOST}:{port}), which has to stay plaintext: secure ones are"
                    " `extra_listeners`"
                )

    def _failure(self, what: str) -> EmbeddedKafkaError:
        """Return an error with the broker's last log lines."""
        lines: list[str] = []
        if self._files is not None:
            lines += _last_lines(self._files.broker_log, self._log_start_bytes)
            lines += _last_lines(self._files.output)
        # Of a stack trace only the messages: its frames would push the cause out.
        lines = [line for line in lines if not line.startswith("\tat ")]
        tail = "\n".join(lines[-_ERROR_LINES:]) or "(nothing)"
        return EmbeddedKafkaError(
            f"Apache Kafka {self.version}: {what}. Its last log lines:\n{tail}"
        )

    def _tool_command(self, main_class: str, args: Sequence[str]) -> list[str]:
        assert self._files is not None
        return self._java(128, self._files.tool_log4j2, main_class, *args)

    def _java(self, heap_mb: int, log4j2: Path, *rest: str) -> list[str]:
        assert self._artifacts is not None
        log_flag = f"-Dlog4j2.configurationFile={log4j2.as_uri()}"
        class_path = ("-cp", self._artifacts.class_path)
        java = find_java()
        classes = archive_flags(archive_of(self._artifacts.directory, "kafka", java))
        flags = (f"-Xmx{heap_mb}m", *JVM_FLAGS, *classes, log_flag)
        return [str(java), *flags, *class_path, *rest]

    def _signal(self, number: signal.Signals) -> None:
        if self._jvm is None or not send_signal(self._jvm, number):
            raise EmbeddedKafkaError(f"the broker does not run, {number.name} cannot be sent")

    def _release(self) -> None:
        """Release everything except a folder that is kept."""
        if self._outlives_owner and self.pid is not None:
            # Reached only after a failed start: a working broker outlives its owner.
            self.kill()
        if self._jvm is not None:
            self._jvm.close()
        if self._files is not None and self._fixed_log_dir is None:
            shutil.rmtree(self._files.directory, ignore_errors=True)
        self._jvm, self._files, self._ports = None, None, {}


def _last_lines(path: Path, start_bytes: int = 0) -> list[str]:
    """Return the lines at the end of a file that may be long, or not there."""
    with contextlib.suppress(FileNotFoundError), path.open("rb") as file:
        size_bytes = file.seek(0, 2)
        if size_bytes < start_bytes:
            # The log was rolled over since.
            start_bytes = 0
        file.seek(max(start_bytes, size_bytes - _TAIL_BYTES))
        return file.read().decode("utf-8", "replace").splitlines()
    return []


def _size_bytes(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0


def free_ports(count: int) -> list[int]:
    """Return ports that are free at this moment, and that no system gives to anybody by itself."""
    found: list[int] = []
    with contextlib.ExitStack() as held:
        for port in random.SystemRandom().sample(_PORTS, 100 + count):
            if len(found) < count:
                with contextlib.suppress(OSError):
                    held.enter_context(socket.socket()).bind((HOST, port))
                    found.append(port)
    return found


def check_port(port: int) -> None:
    """Check that a port can be listened on.

    Raises:
        EmbeddedKafkaError: It is taken, or not allowed.
    """
    try:
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind((HOST, port))
    except (OSError, OverflowError) as error:
        raise EmbeddedKafkaError(
            f"port {port} of {HOST} cannot be listened on ({error}): end what uses it, or choose"
            " another port"
        ) from error


def answers(port: int, timeout_s: float = 5.0) -> bool:
    """Return whether a broker answers on a plaintext port and is ready for work.

    A broker accepts requests shortly before the controller unfences it. Until then its own
    metadata does not list it.
    """
    try:
        with socket.create_connection((HOST, port), timeout=timeout_s) as connection:
            connection.sendall(struct.pack(">i", len(_METADATA_V1)) + _METADATA_V1)
            head = b""
            while len(head) < 12:
                received = connection.recv(12 - len(head))
                if not received:
                    return False
                head += received
    except OSError:
        return False
    _, correlation_id, brokers = struct.unpack(">iii", head)
    return bool(correlation_id == 1 and brokers > 0)
