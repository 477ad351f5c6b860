"""Metrics and health over HTTP: by themselves, and of a member of a real group."""

from __future__ import annotations

import logging
import socket
import threading
from dataclasses import replace
from http.client import HTTPConnection
from typing import Any

import pytest

from spark_groups.broker.embedded import EmbeddedKafka
from spark_groups.errors import OptionsError
from spark_groups.group.snapshot import LagTimes, MemberSnapshot
from spark_groups.monitoring import endpoint as endpoint_module
from spark_groups.monitoring.endpoint import MonitoringEndpoint
from tests.monitoring.scraping import get, health, scrape
from tests.monitoring.views import busy_view
from tests.runtime.members import committed, fill, filled_topic, queries
from workshop.parts.waiting import LONG_S, wait_until

THREAD = "kafka-group-metrics"


def serving(take: Any, port: int = 0) -> MonitoringEndpoint:
    endpoint = MonitoringEndpoint(take, host="127.0.0.1", port=port)
    endpoint.start()
    return endpoint


def threads() -> int:
    return sum(each.name == THREAD for each in threading.enumerate())


def test_paths_answer_for_the_member(caplog: pytest.LogCaptureFixture) -> None:
    views = [busy_view()]
    with caplog.at_level(logging.INFO):
        endpoint = serving(lambda: views[-1])
    try:
        assert f"http://127.0.0.1:{endpoint.port}" in caplog.text
        assert scrape(endpoint.port).value("assigned_partitions", group="g") == 1
        assert health(endpoint.port, "/live")[0] == 200
        assert health(endpoint.port, "/ready") == health(endpoint.port)
        views.append(replace(views[0], failure="refused for good"))
        for path, status in (("/live", 503), ("/ready", 503), ("/health", 200)):
            answered, found = health(endpoint.port, path)
            assert (answered, found["condition"]) == (status, "FAILED")
            assert found["reasons"] == ["refused for good"]
        assert get(endpoint.port, "/")[0] == 404
        assert get(endpoint.port, "/metrics/../live")[0] == 404
    finally:
        endpoint.close()


def test_only_metrics_are_measured_and_probes_do_not_wait_for_brokers() -> None:
    view = busy_view()
    measured: list[str] = []

    def measure(snapshot: MemberSnapshot) -> MemberSnapshot:
        measured.append(snapshot.group)
        times = LagTimes(seconds_behind=7.5)
        partitions = tuple(replace(each, times=times) for each in snapshot.partitions)
        return replace(snapshot, partitions=partitions)

    endpoint = MonitoringEndpoint(lambda: view, host="127.0.0.1", port=0, measure=measure)
    endpoint.start()
    try:
        assert health(endpoint.port)[0] == 200
        assert not measured
        assert scrape(endpoint.port).value("behind_seconds_max") == 7.5
        assert measured
    finally:
        endpoint.close()


def test_port_and_thread_are_gone_after_the_end() -> None:
    before = threads()
    endpoint = serving(busy_view)
    port = endpoint.port
    assert threads() == before + 1
    endpoint.close()
    endpoint.close()
    wait_until(lambda: threads() == before, what="the end of the thread")
    with pytest.raises(OSError, match="refused"):
        get(port, "/live")
    serving(busy_view, port).close()


def test_port_that_is_taken_is_waited_for_and_then_an_error(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        monkeypatch.setattr(endpoint_module, "PORT_WAIT_S", 0.3)
        with pytest.raises(OptionsError, match=rf"metricsPort {port} of metricsHost 127\.0\.0\.1"):
            serving(busy_view, port)
    monkeypatch.setattr(endpoint_module, "PORT_WAIT_S", LONG_S)
    earlier = serving(busy_view)
    threading.Timer(0.3, earlier.close).start()
    later = serving(busy_view, earlier.port)
    try:
        assert get(later.port, "/live")[0] == 200
    finally:
        later.close()


def test_host_that_is_not_this_one_is_an_error_at_once() -> None:
    with pytest.raises(OptionsError, match=r"metricsHost 192\.0\.2\.1"):
        MonitoringEndpoint(busy_view, host="192.0.2.1", port=0).start()


def test_snapshot_that_cannot_be_taken_is_no_good_health() -> None:
    def fail() -> MemberSnapshot:
        raise RuntimeError("no snapshot")

    endpoint = serving(fail)
    try:
        assert get(endpoint.port, "/live")[0] == 500
        assert get(endpoint.port, "/metrics")[0] == 500
    finally:
        endpoint.close()


def test_slow_clients_do_not_keep_a_probe_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(endpoint_module, "MAX_CLIENTS", 2)
    endpoint = serving(busy_view)
    address = ("127.0.0.1", endpoint.port)
    try:
        with socket.create_connection(address), socket.create_connection(address):
            # Both places are taken by clients that ask for nothing: a probe takes one of them.
            assert get(endpoint.port, "/live")[0] == 200
    finally:
        endpoint.close()


@pytest.mark.parametrize(
    ("host", "status"), [("127.0.0.1:1", 200), (None, 200), ("rebound.example:1", 403)]
)
def test_another_name_of_a_loopback_address_is_refused(host: str | None, status: int) -> None:
    endpoint = serving(busy_view)
    connection = HTTPConnection("127.0.0.1", endpoint.port, timeout=LONG_S)
    try:
        connection.putrequest("GET", "/metrics", skip_host=True)
        if host is not None:
            connection.putheader("Host", host)
        connection.endheaders()
        assert connection.getresponse().status == status
    finally:
        connection.close()
        endpoint.close()


@pytest.mark.broker
def test_member_of_a_real_group(kafka: EmbeddedKafka, topic_name: str, group_id: str) -> None:
    filled_topic(kafka.bootstrap_servers, topic_name, 2, 5)
    with queries(kafka.bootstrap_servers, group_id, topic_name) as start:
        query = start()
        endpoint = serving(query.driver.snapshot)
        try:
            query.plan_rows()
            query.commit_all()
            fill(kafka.bootstrap_servers, topic_name, 2, 3)
            query.plan_rows()
            found = scrape(endpoint.port)
            offsets = committed(kafka.bootstrap_servers, group_id)
            assert found.by_partition("committed_offset") == {
                partition: at for (_, partition), at in offsets.items()
            }
            assert found.by_partition("lag") == {0: 3, 1: 3}
            assert found.value("assigned_partitions", group=group_id) == 2
            assert found.value("heartbeat_total") == found.value(
                "heartbeat_response_time_seconds_count"
            )
            assert (found.value("commit_total") or 0) >= 1
            assert found.value("commit_failed_total") == 0
            assert (found.value("rebalance_total") or 0) >= 1
            assert found.value("offsets_finished_total") == 10
            assert found.value("session_timeout_seconds") == 45
            assert health(endpoint.port, "/ready")[1]["condition"] == "READING"
        finally:
            endpoint.close()
