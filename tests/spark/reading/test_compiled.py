"""Compiled code: made once per machine in a writable directory, and reused."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numba
import pytest

from spark_groups.spark.reading import compiled
from spark_groups.spark.reading.compiled import NotCompiledError

PREPARE = """
import sys
from spark_groups.spark.reading import compiled
assert "numba" not in sys.modules and "llvmlite" not in sys.modules
compiled.prepare()
from spark_groups.records.decoding import decode_batches, offset_behind
print(sum(sum(each.stats.cache_misses.values()) for each in (decode_batches, offset_behind)))
"""
"""Prints how many functions a process had to compile."""


def environment(directory: Path, **more: str) -> dict[str, str]:
    """Return one where everything that can be chosen is in a directory."""
    chosen = {"SPARK_GROUPS_CACHE_DIR": str(directory / "cache"), "TMPDIR": str(directory), **more}
    return {**os.environ, **chosen}


def start(directory: Path, code: str = PREPARE, **more: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", code],
        env=environment(directory, **more),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def output(process: subprocess.Popen[str]) -> str:
    out, err = process.communicate(timeout=800)
    assert process.returncode == 0, err
    return out.strip()


def compiled_files(directory: Path) -> list[Path]:
    return sorted(each for each in directory.rglob("*.nb?") if each.is_file())


@pytest.mark.long
def test_many_that_start_together_compile_once_and_later_ones_not_at_all(tmp_path: Path) -> None:
    counts = sorted(map(output, [start(tmp_path) for _ in range(3)]))
    assert counts == ["0", "0", "2"]
    files = compiled_files(tmp_path)
    assert files
    # A truncated cache is made again, and the next process uses it.
    for file in files:
        file.write_bytes(file.read_bytes()[:100])
    assert output(start(tmp_path)) == "2"
    assert output(start(tmp_path)) == "0"


@pytest.mark.long
def test_where_the_cache_cannot_be_written_it_is_kept_beside_temporary_files(
    tmp_path: Path,
) -> None:
    (tmp_path / "cache").write_text("a file where a directory should be")
    assert output(start(tmp_path)) == "2"
    (directory,) = tmp_path.glob("spark-groups-*-compiled-*")
    assert directory.stat().st_mode & 0o777 == 0o700
    assert output(start(tmp_path)) == "0"


def test_package_is_imported_without_numba(tmp_path: Path) -> None:
    code = (
        "import sys, spark_groups, pyspark_kafka_group, spark_groups.spark.source.source;"
        " print([each for each in ('numba', 'llvmlite') if each in sys.modules])"
    )
    assert output(start(tmp_path, code)) == "[]"


def test_settings_of_others_stay_as_they_are() -> None:
    before = numba.config.CACHE_DIR
    compiled.prepare.cache_clear()
    compiled.prepare()
    assert before == numba.config.CACHE_DIR


def test_the_error_without_a_writable_directory_states_the_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "file"
    file.write_text("x")
    monkeypatch.setattr(compiled, "cache_dir", lambda: file)
    monkeypatch.setattr(compiled.tempfile, "gettempdir", lambda: str(file))
    with pytest.raises(NotCompiledError, match="no directory can hold compiled code"):
        compiled._directory()


def test_somebody_elses_directory_is_not_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Code is loaded from there: a link that another user made could lead anywhere."""
    name = f"compiled-{compiled.sources_digest()}"
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "cache").mkdir()
    (tmp_path / "cache" / name).symlink_to(tmp_path / "elsewhere")
    monkeypatch.setattr(compiled, "cache_dir", lambda: tmp_path / "cache")
    monkeypatch.setattr(compiled.tempfile, "gettempdir", lambda: str(tmp_path))
    assert compiled._directory().parent == tmp_path


def test_without_numba_the_other_reader_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compiled.importlib.util, "find_spec", lambda _: None)
    compiled.prepare.cache_clear()
    with pytest.raises(NotCompiledError, match="set reader to librdkafka"):
        compiled.prepare()
    with pytest.raises(NotCompiledError, match=r"install spark-groups\[avro\]"):
        compiled.prepare(compiled.AVRO)


def test_another_process_that_compiles_for_too_long_is_not_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compiled, "LOCK_S", 0.2)
    with compiled._locked(tmp_path / "lock"), (tmp_path / "lock").open("wb") as second:
        assert compiled._is_held_by_another(second)
        with compiled._locked(tmp_path / "lock"):
            assert compiled._is_held_by_another(second)
    with (tmp_path / "lock").open("wb") as third:
        assert not compiled._is_held_by_another(third)
