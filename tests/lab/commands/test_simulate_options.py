"""What the options of the simulation take."""

from __future__ import annotations

import pytest
import typer

from spark_groups.lab.commands.simulate_options import profile_option
from spark_groups.lab.coordinator.profile import KAFKA_4_3, KIP_848


@pytest.mark.parametrize("text", ["4.3", "4.3.1", "Kafka-4.3", "kafka_4_3"])
def test_profile_is_named_as_people_name_versions(text: str) -> None:
    assert profile_option(text) is KAFKA_4_3
    assert profile_option("KIP-848") is KIP_848


def test_profile_that_is_none_is_refused_with_those_that_are() -> None:
    with pytest.raises(typer.BadParameter, match=r"'kafka-3\.9' is none of kip-848, kafka-4\.0"):
        profile_option("kafka-3.9")
