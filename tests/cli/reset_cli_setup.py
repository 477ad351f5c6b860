"""Shared by test_reset_cli.py and other tests."""

from __future__ import annotations

from pathlib import Path


def written_checkpoint(folder: Path, *batches: str, commits: int) -> Path:
    """Write the logs of a query with Spark's own Kafka source: each batch is its offsets' JSON."""
    for name, texts in (("offsets", batches), ("commits", batches[:commits])):
        (folder / name).mkdir(parents=True)
        for number, text in enumerate(texts):
            (folder / name / str(number)).write_text(f"v1\n{{}}\n{text}")
    return folder
