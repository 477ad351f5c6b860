"""Options of the state of groups: few, and checked without a broker."""

from __future__ import annotations

import pytest

from spark_groups.errors import OptionsError
from spark_groups.spark.state.state_options import STATE_OPTIONS, StateOptions

SERVERS = {"kafka.bootstrap.servers": "one:9092,two:9093"}


def test_no_group_means_all_and_several_stand_between_commas() -> None:
    assert StateOptions.of(SERVERS).group_ids == ()
    several = StateOptions.of(SERVERS | {"kafka.group.id": "b, a,b"})
    assert several.group_ids == ("b", "a")
    assert several.bootstrap_servers == ("one:9092", "two:9093")
    assert several.api_timeout_ms == 60_000
    assert not several.read_committed
    assert StateOptions.of(SERVERS | {"kafka.isolation.level": "read_committed"}).read_committed


def test_all_problems_are_reported_together() -> None:
    given = {
        "kafka.group.id": " , ",
        "kafka.default.api.timeout.ms": "0",
        "kafka.isolation.level": "dirty",
        "kafka.security.protocol": "NOTHING",
        "subscribe": "flights",
        "group.id": "a",
    }
    with pytest.raises(OptionsError) as caught:
        StateOptions.of(given)
    text = str(caught.value)
    assert text.startswith("the kafka-group-state source cannot be loaded:")
    assert "kafka.bootstrap.servers is missing" in text
    assert "subscribe is not an option of this source" in text
    assert "group.id is not an option of this source: write kafka.group.id" in text
    assert all(name in text for name in (*STATE_OPTIONS, "kafka.security.protocol"))


def test_security_is_that_of_the_stream() -> None:
    secured = StateOptions.of(SERVERS | {"kafka.security.protocol": "SSL"})
    assert secured.security.protocol == "SSL"
