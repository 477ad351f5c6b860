"""What ApiVersions tells, for each release."""

from __future__ import annotations

import pytest

from spark_groups.kafka.features import BrokerFeatures
from spark_groups.kafka.topic_schemas import OFFSET_COMMIT_V9, OFFSET_COMMIT_V10


@pytest.mark.parametrize(
    ("release", "metadata_version", "relaxed"),
    [("4.0", 25, False), ("4.2", 29, False), ("4.3", 30, True), ("4.4", 33, True)],
)
def test_relaxed_commits_are_known_from_the_release(release, metadata_version, relaxed) -> None:
    features = BrokerFeatures(supported_features={"metadata.version": (7, metadata_version)})
    assert features.relaxed_commit is relaxed


def test_reads_versions_and_features() -> None:
    features = BrokerFeatures.of(
        {
            "api_keys": ({"api_key": 8, "min_version": 2, "max_version": 9},),
            "supported_features": ({"name": "group.version", "min_version": 0, "max_version": 1},),
            "finalized_features": (
                {"name": "group.version", "max_version_level": 1, "min_version_level": 1},
            ),
        }
    )
    assert features.supports(OFFSET_COMMIT_V9)
    assert not features.supports(OFFSET_COMMIT_V10)
    assert features.versions_text(OFFSET_COMMIT_V10) == "v2 to v9"
    assert features.group_version == 1
    assert not features.relaxed_commit


def test_knows_nothing_before_it_was_told() -> None:
    assert not BrokerFeatures().supports(OFFSET_COMMIT_V9)
    assert BrokerFeatures().versions_text(OFFSET_COMMIT_V9) == "none of it"
    assert BrokerFeatures().group_version == 0
