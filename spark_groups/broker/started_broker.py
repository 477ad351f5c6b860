"""The broker that somebody started from the command line: where it is and whether it lives."""

from __future__ import annotations

import contextlib
import dataclasses
import fcntl
import json
import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import platformdirs

from spark_groups.errors import EmbeddedKafkaError

STATE_DIR_VARIABLE = "SPARK_GROUPS_STATE_DIR"
BROKER_ID_FLAG = "-Dspark.groups.broker="
"""With the folder behind it, it tells one broker's JVM from any other process."""
_KILL_S = 10.0
_POLL_S = 0.05


@dataclass(frozen=True, slots=True)
class StartedBroker:
    """A broker that was started and not stopped since.

    Args:
        pid: The pid of its JVM.
        version: The version of Apache Kafka.
        bootstrap_servers: Its address.
        log_dir: The folder of its topics and logs.
        started_s: When it was started, in seconds since 1970.
    """

    pid: int
    version: str
    bootstrap_servers: str
    log_dir: str
    started_s: float


def state_dir() -> Path:
    """Return the user's state directory of this package; SPARK_GROUPS_STATE_DIR overrides it."""
    chosen = os.environ.get(STATE_DIR_VARIABLE)
    return Path(chosen).absolute() if chosen else platformdirs.user_state_path("spark-groups")


@contextlib.contextmanager
def locked_state() -> Iterator[None]:
    """Let one command at a time start or stop the broker.

    Raises:
        EmbeddedKafkaError: Another one is at it, or the state directory cannot be written.
    """
    path = state_dir() / "broker.lock"
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        file = path.open("w")
    except OSError as error:
        raise EmbeddedKafkaError(
            f"{path} cannot be written ({error}): make its folder writable, or set"
            f" {STATE_DIR_VARIABLE} to one that is"
        ) from error
    with file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise EmbeddedKafkaError(
                "another `spark-groups broker` command is at work: wait until it is done"
            ) from None
        yield


def write_started(broker: StartedBroker) -> None:
    """Remember a broker, all of it or nothing.

    Args:
        broker: The broker.
    """
    path = _state_file()
    draft = path.with_suffix(".new")
    draft.write_text(json.dumps(dataclasses.asdict(broker)), encoding="utf-8")
    draft.replace(path)


def forget_started() -> None:
    """Forget the broker."""
    _state_file().unlink(missing_ok=True)


def running_broker() -> StartedBroker | None:
    """Return the broker that was started, if its JVM still lives."""
    try:
        broker = StartedBroker(**json.loads(_state_file().read_text(encoding="utf-8")))
    except FileNotFoundError:
        return None
    except (ValueError, TypeError) as error:
        raise EmbeddedKafkaError(
            f"{_state_file()} cannot be read ({error}): delete it, and end the broker by its pid if"
            " it still runs"
        ) from error
    return broker if is_its_jvm(broker) else None


def is_its_jvm(broker: StartedBroker) -> bool:
    """Tell whether the process of that pid is this broker's JVM, not a later one's.

    Args:
        broker: The broker.
    """
    # With the space behind it: one folder's name may begin with another's.
    return f"{BROKER_ID_FLAG}{broker.log_dir} " in f"{_command_line(broker.pid).strip()} "


def stop_broker(broker: StartedBroker, timeout_s: float) -> bool:
    """Stop a broker, in order if it can, by force if it must.

    Args:
        broker: The broker.
        timeout_s: How long an orderly end may take.

    Returns:
        Whether it ended in order.

    Raises:
        EmbeddedKafkaError: It cannot be ended.
    """
    for number in (signal.SIGTERM, signal.SIGCONT):
        _send(broker, number)
    if _wait_until(lambda: not is_its_jvm(broker), timeout_s):
        return True
    _send(broker, signal.SIGKILL)
    if not _wait_until(lambda: not is_its_jvm(broker), _KILL_S):
        raise EmbeddedKafkaError(f"the broker (pid {broker.pid}) does not die of SIGKILL")
    return False


def _send(broker: StartedBroker, number: signal.Signals) -> None:
    if not is_its_jvm(broker):
        return
    try:
        os.kill(broker.pid, number)
    except ProcessLookupError:
        return
    except PermissionError as error:
        raise EmbeddedKafkaError(
            f"the broker (pid {broker.pid}) belongs to another user: {error}"
        ) from error


def _wait_until(condition: Callable[[], bool], timeout_s: float) -> bool:
    deadline_s = time.monotonic() + timeout_s
    while not condition():
        if time.monotonic() > deadline_s:
            return False
        time.sleep(_POLL_S)
    return True


def _command_line(pid: int) -> str:
    """Return the command line of a process; empty if it is gone or only a zombie."""
    if Path("/proc/self/cmdline").exists():
        try:
            raw = Path(f"/proc/{pid}/cmdline").read_bytes()
        except OSError:
            return ""
        return os.fsdecode(raw).replace("\0", " ")
    shown = subprocess.run(
        ["ps", "-ww", "-o", "command=", "-p", str(pid)],
        capture_output=True,
        text=True,
        timeout=10,
        check=False,
    )
    return shown.stdout


def _state_file() -> Path:
    return state_dir() / "broker.json"
