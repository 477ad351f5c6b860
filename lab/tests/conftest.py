"""Fixtures for the tests of the laboratory: worlds on brokers; comparisons printed."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from lab.tests.conformance.tally import PROPERTY, Played, lines
from lab.tests.scenarios.broker_world import (
    BATCHING,
    MIGRATION_POLICY,
    SERVER_PROPERTIES,
    BrokerWorld,
    StartWorld,
)
from spark_groups.broker.embedded import EmbeddedKafka


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print the comparisons of model and brokers: the fresh seeds appear nowhere else."""
    reports = terminalreporter.getreports("passed")
    properties = [each for report in reports for each in report.user_properties]
    played = [Played(**value) for name, value in properties if name == PROPERTY]
    for line in lines(played):
        terminalreporter.write_line(line)


@pytest.fixture(scope="session")
def broker_world() -> Iterator[StartWorld]:
    """A world on a broker of any version, with short timeouts; all its tests share one.

    A broker with another migration policy is there for one test after the other.
    """
    brokers: dict[tuple[str, str | None], EmbeddedKafka] = {}
    worlds: dict[tuple[str, str | None], BrokerWorld] = {}

    def start(version: str, migration_policy: str | None = None) -> BrokerWorld:
        key = version, migration_policy
        if key not in worlds:
            for other in [each for each in worlds if each[1] is not None]:
                worlds.pop(other).close()
                brokers.pop(other).stop()
            properties = {**SERVER_PROPERTIES, **(BATCHING if version >= "4.3" else {})}
            if migration_policy is not None:
                properties[MIGRATION_POLICY] = migration_policy
            broker = EmbeddedKafka(version, server_properties=properties)
            broker.start()
            brokers[key] = broker
            worlds[key] = BrokerWorld(broker.bootstrap_servers, broker.restart)
        return worlds[key]

    yield start
    for world in worlds.values():
        world.close()
    for broker in brokers.values():
        broker.stop()
