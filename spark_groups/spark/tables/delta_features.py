"""The features of Delta's protocol with which this writer commits, and the way out of others."""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

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
_ONLY_APPENDED: Final = frozenset({"deletionVectors"})
"""Features that `deltalake` may break where it replaces files."""
_LEGACY_WRITER_MAX: Final = 5
"""The last version without a list of features that `deltalake` writes; the next one has identity
columns."""
_FEATURES_WRITER: Final = 7


def check_features(
    writer_version: int, features: Collection[str], *, table: str, is_merged: bool = False
) -> None:
    """Refuse a table with a feature that this writer does not have.

    Args:
        writer_version: The least version of writers that the table demands.
        features: The features that writers need from version 7 on, and readers from 3 on.
        table: The name of the table in an error.
        is_merged: Whether files of the table are replaced by others.

    Raises:
        TableError: It has one; the message names it, and the way out.
    """
    if writer_version < _FEATURES_WRITER:
        lacking = ["identityColumns"] if writer_version > _LEGACY_WRITER_MAX else []
    else:
        written = WRITTEN - _ONLY_APPENDED if is_merged else WRITTEN
        lacking = sorted(set(features) - written)
        if writer_version > _FEATURES_WRITER:
            lacking.append(f"version {writer_version} of writers")
    if lacking:
        raise TableError(
            f"{table} has features that this writer does not have: {', '.join(lacking)}. Remove"
            " them with ALTER TABLE ... DROP FEATURE, where Delta can (not identityColumns), or"
            " write to a table without them, and from there into this one with Spark"
        )
