"""The directory of this package's cache: compiled code, and Kafka's jars."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

import platformdirs

CACHE_DIR_VARIABLE: Final = "SPARK_GROUPS_CACHE_DIR"


def cache_dir() -> Path:
    """Return the user's cache directory of this package; SPARK_GROUPS_CACHE_DIR overrides it."""
    chosen = os.environ.get(CACHE_DIR_VARIABLE)
    return Path(chosen).absolute() if chosen else platformdirs.user_cache_path("spark-groups")
