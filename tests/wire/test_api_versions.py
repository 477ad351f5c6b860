"""What ApiVersions tells."""

from __future__ import annotations

from spark_groups.wire.api_versions import ApiVersions
from spark_groups.wire.schemas.messages import OFFSET_COMMIT_V9, OFFSET_COMMIT_V10


def test_reads_versions() -> None:
    versions = ApiVersions.of({"api_keys": ({"api_key": 8, "min_version": 2, "max_version": 9},)})
    assert versions.supports(OFFSET_COMMIT_V9)
    assert not versions.supports(OFFSET_COMMIT_V10)
    assert versions.text(OFFSET_COMMIT_V10) == "v2 to v9"


def test_knows_nothing_before_it_was_told() -> None:
    assert not ApiVersions().supports(OFFSET_COMMIT_V9)
    assert ApiVersions().text(OFFSET_COMMIT_V9) == "none of it"
