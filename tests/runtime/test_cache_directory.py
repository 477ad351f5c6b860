"""Where things are kept."""

from __future__ import annotations

from pathlib import Path

import pytest

from spark_groups.runtime.cache_directory import CACHE_DIR_VARIABLE, cache_dir


def test_variable_says_where_the_cache_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(CACHE_DIR_VARIABLE, str(tmp_path))
    assert cache_dir() == tmp_path
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv(CACHE_DIR_VARIABLE, "beside")
    assert cache_dir() == tmp_path / "beside"


def test_user_has_a_cache_of_this_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(CACHE_DIR_VARIABLE, raising=False)
    assert cache_dir().is_absolute()
    assert "spark-groups" in cache_dir().parts
