"""Profiles, by the names that people give them."""

from __future__ import annotations

import pytest

from spark_groups.lab.coordinator.profile import (
    KAFKA_4_3,
    KIP_848,
    PROFILES,
    Profile,
    profile_named,
)


@pytest.mark.parametrize(
    ("text", "profile"),
    [
        *((name, profile) for name, profile in PROFILES.items()),
        ("4.3", KAFKA_4_3),
        ("4.3.1", KAFKA_4_3),
        ("v4.3", KAFKA_4_3),
        ("kafka-4.3.1", KAFKA_4_3),
        ("Kafka 4.3", KAFKA_4_3),
        ("KAFKA_4_3", KAFKA_4_3),
        (" kip848 ", KIP_848),
        ("KIP_848", KIP_848),
    ],
)
def test_a_profile_is_found_as_people_write_it(text: str, profile: Profile) -> None:
    assert profile_named(text) is profile


@pytest.mark.parametrize("text", ["", "4", "3.9", "kafka", "4.3.1.2", "kip-849", "kafka-5.0"])
def test_what_there_is_no_profile_for(text: str) -> None:
    with pytest.raises(KeyError):
        profile_named(text)
