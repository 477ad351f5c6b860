"""The function that jobs of tests call with each record."""

from __future__ import annotations

from pathlib import Path

from spark_groups import Record, UnprocessableError


def book(record: Record) -> None:
    """Refuse `bad` records for good, and a path until a file is there."""
    value = (record.value or b"").decode()
    if value == "bad":
        raise UnprocessableError("bad")
    if value.startswith("/") and not Path(value).exists():
        raise RuntimeError(f"{value} is not there")
