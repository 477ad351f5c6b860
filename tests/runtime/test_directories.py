"""Directories that no other user can write to."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from spark_groups.runtime.cache_directory import CACHE_DIR_VARIABLE, cache_dir
from spark_groups.runtime.directories import (
    is_private,
    make_private,
    runtime_directory,
    user_directory,
)


def test_a_new_directory_is_this_users_alone(tmp_path: Path) -> None:
    directory = tmp_path / "notes"
    assert not is_private(directory)
    make_private(directory)
    assert is_private(directory)
    assert stat.S_IMODE(directory.stat().st_mode) == 0o700


def test_one_that_is_there_is_closed_to_others(tmp_path: Path) -> None:
    directory = tmp_path / "notes"
    directory.mkdir(mode=0o755)
    make_private(directory)
    assert stat.S_IMODE(directory.stat().st_mode) == 0o700


def test_a_runtime_directory_is_taken_only_if_others_have_no_access(tmp_path: Path) -> None:
    directory = tmp_path / "runtime"
    assert runtime_directory(None) is runtime_directory("") is None
    assert runtime_directory(str(directory)) is None
    directory.mkdir(mode=0o700)
    assert runtime_directory(str(directory)) == directory
    directory.chmod(0o701)
    assert runtime_directory(str(directory)) is None
    (tmp_path / "file").touch(mode=0o600)
    assert runtime_directory(str(tmp_path / "file")) is None


def test_a_users_directory_is_below_the_runtime_directory_or_has_the_users_number(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tmp_path.chmod(0o700)
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    assert user_directory("files") == tmp_path / "files"
    monkeypatch.setenv("XDG_RUNTIME_DIR", "")
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    assert user_directory("files") == tmp_path / f"files-{os.getuid()}"


def test_a_link_and_a_file_are_refused(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "link").symlink_to(tmp_path)
    for name in ("file", "link"):
        assert not is_private(tmp_path / name)
        with pytest.raises(PermissionError, match="is not a directory of this user"):
            make_private(tmp_path / name)


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
