"""The features of Delta's protocol with which this writer commits, and the way out of others."""

from __future__ import annotations

from collections.abc import Collection
from typing import Final, NamedTuple

from spark_groups.errors import TableError

WRITTEN: Final = frozenset(
    {
        "appendOnly",
        "changeDataFeed",
        "deletionVectors",
        "invariants",
        "timestampNtz",
        "v2Checkpoint",
        "variantType",
        "variantType-preview",
        # These are only dangerous where a table uses them, which its settings and columns tell.
        "checkConstraints",
        "columnMapping",
        "generatedColumns",
    }
)
"""The features with which `deltalake` 1.6 commits, and that appended files do not break."""
_LEGACY_WRITER_MAX: Final = 5
"""The last version without a list of features that `deltalake` writes; the next one has identity
columns."""
_FEATURES_WRITER: Final = 7


class Protocol(NamedTuple):
    """What a table demands of readers and writers.

    Args:
        min_reader_version: The least version of readers.
        min_writer_version: The least version of writers.
        writer_features: The features that writers need, from version 7 on.
        reader_features: The features that readers need, from version 3 on.
    """

    min_reader_version: int
    min_writer_version: int
    writer_features: Collection[str] | None
    reader_features: Collection[str] | None


def check_features(protocol: Protocol, *, table: str) -> None:
    """Refuse a table with a feature that this writer does not have.

    Args:
        protocol: The table's protocol.
        table: The name of the table in an error.

    Raises:
        TableError: It has one; the message names it, and the way out.
    """
    version = protocol.min_writer_version
    if version < _FEATURES_WRITER:
        lacking = ["identityColumns"] if version > _LEGACY_WRITER_MAX else []
    else:
        features = {*(protocol.writer_features or ()), *(protocol.reader_features or ())}
        lacking = sorted(features - WRITTEN)
        if version > _FEATURES_WRITER:
            lacking.append(f"version {version} of writers")
    if lacking:
        raise TableError(
            f"{table} has features that this writer does not have: {', '.join(lacking)}. Remove"
            " them with ALTER TABLE ... DROP FEATURE, where Delta can (not identityColumns), or"
            " write to a table without them, and from there into this one with Spark"
        )
