"""`spark-groups serve` as somebody starts it."""

from __future__ import annotations

import signal
import socket

import pytest

from spark_groups.broker.embedded import EmbeddedKafka, free_ports
from spark_groups.cli.serve_cli import WATCHED_MAX
from tests.cli.commands import invoke
from tests.cli.page_server_setup import documents
from tests.cli.serve_cli_setup import WAIT_S, asked, serving, started
from tests.runtime.members import queries
from workshop.parts.brokers import create_topic


@pytest.mark.parametrize(
    "number", [signal.SIGTERM, pytest.param(signal.SIGINT, marks=pytest.mark.long)]
)
def test_it_ends_cleanly_while_a_stream_is_open(number: signal.Signals) -> None:
    address = f"127.0.0.1:{free_ports(1)[0]}"
    with started(address) as (process, url):
        stream = asked(url, "/events")
        process.send_signal(number)
        _, errors = process.communicate(timeout=WAIT_S)
        assert (process.returncode, errors) == (0, "")
        stream.close()


def test_a_port_that_is_taken_is_exit_code_1() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        done = invoke("serve", "--port", port, "--bootstrap-server", "127.0.0.1:1")
    assert done.exit_code == 1
    assert f"cannot listen on 127.0.0.1:{port}" in done.stderr


@pytest.mark.parametrize("names", [("",), tuple(map(str, range(WATCHED_MAX + 1)))])
def test_what_cannot_be_watched_is_refused(names: tuple[str, ...]) -> None:
    words = (word for name in names for word in ("--watch", name))
    done = invoke("serve", "--port", "0", "--bootstrap-server", "127.0.0.1:1", *words)
    assert done.exit_code == 2
    assert "--watch" in done.stderr


@pytest.mark.long
def test_who_listens_to_others_is_warned() -> None:
    with started("127.0.0.1:1", "--host", "0.0.0.0") as (process, _):
        process.send_signal(signal.SIGTERM)
        _, errors = process.communicate(timeout=WAIT_S)
    assert "0.0.0.0 is not a loopback address" in errors
    assert process.returncode == 0


@pytest.mark.long
@pytest.mark.broker
def test_a_lost_broker_leaves_the_last_good_view_marked_stale(
    topic_name: str, group_id: str
) -> None:
    with EmbeddedKafka() as kafka:
        servers = kafka.bootstrap_servers
        create_topic(servers, topic_name, 2)
        with queries(servers, group_id, topic_name) as start, serving(servers) as url:
            start().plan()
            group = asked(url, f"/events?group={group_id}")
            groups = asked(url, "/events")
            frames, lists = documents(group), documents(groups)
            good = next(each for each in frames if each["group"])
            assert group_id in [each["group_id"] for each in next(lists)["groups"]]
            kafka.pause()
            lost = next(each for each in frames if each["stale"])
            assert lost["group"]["group_id"] == group_id
            assert lost["seen_at_s"] < lost["at_s"]
            assert servers in lost["stale"]["reason"]
            stale = next(each for each in lists if each["stale"])
            assert group_id in [each["group_id"] for each in stale["groups"]]
            kafka.resume()
            again = next(each for each in frames if not each["stale"])
            assert again["seen_at_s"] > good["seen_at_s"]
            assert again["events"][-1]["kind"] != "not readable"
            assert "readable" in {each["kind"] for each in again["events"]}
            group.close()
            groups.close()
