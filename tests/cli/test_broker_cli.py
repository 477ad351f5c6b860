"""`spark-groups broker` on a real Apache Kafka, as somebody types it."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from spark_groups.broker.embedded import answers, free_ports
from workshop.parts.brokers import ANSWER_S, admin, create_topic
from workshop.parts.processes import environment, is_alive

pytestmark = pytest.mark.broker

Run = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Run]:
    """Run one broker command with a state directory of its own; none runs afterwards."""

    def run(*args: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "spark_groups.cli.main", "broker", *args],
            env=environment(
                SPARK_GROUPS_STATE_DIR=str(tmp_path / "state"), COLUMNS="200", NO_COLOR="1"
            ),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=800,
            start_new_session=True,
            check=False,
        )

    yield run
    run("stop", "--timeout", "60")


def test_round_trip(broker: Run, tmp_path: Path, topic_name: str) -> None:
    port = str(free_ports(1)[0])
    address = f"127.0.0.1:{port}"
    started = broker("start", "--port", port)
    assert started.returncode == 0, started.stderr
    assert address in started.stdout

    state = json.loads(broker("status", "--json").stdout)
    assert state["running"]
    assert state["answers"]
    assert (state["version"], state["bootstrap_servers"]) == ("4.3.1", address)
    assert state["log_dir"] == str(tmp_path / "state" / "kafka-4.3.1")
    assert 0 <= state["uptime_s"] < 120
    # A session of its own: neither a Ctrl-C nor the end of the terminal reaches it.
    assert os.getsid(state["pid"]) == state["pid"]
    create_topic(address, topic_name)

    shown = broker("status")
    assert shown.returncode == 0
    assert [line.split()[0] for line in shown.stdout.splitlines()] == [
        *("Apache", "bootstrap.servers", "pid", "uptime", "answers", "log"),
    ]

    again = broker("start", "--port", port)
    assert again.returncode == 1
    assert f"a broker runs already on {address}" in again.stderr

    stopped = broker("stop")
    assert stopped.returncode == 0, stopped.stderr
    assert f"broker (pid {state['pid']}) stopped" in stopped.stdout
    assert not is_alive(state["pid"])
    assert not answers(int(port))
    assert broker("status").returncode == 1
    assert broker("stop").returncode == 1

    assert broker("start", "--port", port).returncode == 0
    assert topic_name in admin(address).list_topics(timeout=ANSWER_S).topics


@pytest.mark.long
def test_options_reach_the_broker(broker: Run, tmp_path: Path) -> None:
    folder = tmp_path / "elsewhere"
    port = str(free_ports(1)[0])
    started = broker(
        *("start", "--port", port, "--log-dir", str(folder), "--json"),
        *("--set", "num.partitions=7", "--set", "log.retention.ms=-1"),
    )
    assert json.loads(started.stdout)["log_dir"] == str(folder)
    written = (folder / "server.properties").read_text().splitlines()
    assert {"num.partitions=7", "log.retention.ms=-1"} <= set(written)


@pytest.mark.long
def test_one_that_was_killed_does_not_run(broker: Run) -> None:
    port = str(free_ports(1)[0])
    pid = json.loads(broker("start", "--port", port, "--json").stdout)["pid"]
    os.kill(pid, signal.SIGKILL)
    shown = broker("status", "--json")
    assert shown.returncode == 1
    assert json.loads(shown.stdout) == {"running": False}
    assert broker("start", "--port", port).returncode == 0


@pytest.mark.long
def test_one_that_does_not_stop_in_time_is_killed(broker: Run) -> None:
    port = str(free_ports(1)[0])
    pid = json.loads(broker("start", "--port", port, "--json").stdout)["pid"]
    stopped = json.loads(broker("stop", "--timeout", "0", "--json").stdout)
    assert stopped == {"stopped": True, "killed": True, "pid": pid}
    assert not is_alive(pid)


def test_a_taken_port_is_one_clear_line(broker: Run) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        refused = broker("start", "--port", str(port))
    assert refused.returncode == 1
    assert refused.stderr.startswith(f"spark-groups: port {port} of 127.0.0.1 cannot be listened")
    assert len(refused.stderr.splitlines()) == 1
    assert broker("status").returncode == 1


def test_a_broken_property_shows_the_broker_s_words_and_leaves_nothing(broker: Run) -> None:
    port = free_ports(1)[0]
    refused = broker("start", "--port", str(port), "--set", "num.io.threads=many")
    assert refused.returncode == 1
    assert "Invalid value many for configuration num.io.threads" in refused.stderr
    assert broker("status").returncode == 1
    assert not answers(port)


def test_settings_that_are_none_are_all_named(broker: Run) -> None:
    refused = broker("start", "--set", "one", "--set", "=2", "--set", "three=3")
    assert refused.returncode == 2
    assert "not key=value: =2, one" in refused.stderr
