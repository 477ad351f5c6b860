"""The summary of the comparisons, a line for each version, with the seeds of fresh ones."""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from dataclasses import dataclass

PROPERTY = "conformance"
"""The name of the property of a test's report that has its counts."""


@dataclass(frozen=True, order=True)
class Played:
    """One script to its end.

    Args:
        version: The broker's.
        kind: "consumer", or "classic" for groups with members of that protocol.
        seed: What the script was drawn from.
        compared: How many requests were compared.
        given_up: How many groups were left because the broker was slow.
    """

    version: str
    kind: str
    seed: int
    compared: int
    given_up: int


def lines(scripts: Iterable[Played]) -> list[str]:
    """Return a line for each version and kind, the oldest first."""
    by_version = itertools.groupby(sorted(scripts), key=lambda each: (each.version, each.kind))
    return [_line(*of, list(played)) for of, played in by_version]


def _line(version: str, kind: str, played: list[Played]) -> str:
    compared = sum(each.compared for each in played)
    given_up = sum(each.given_up for each in played)
    return (
        f"Kafka {version} and the model agree on {compared:,} requests about {kind} groups in"
        f" {len(played)} scripts,"
        f" seeds {_spans(sorted(each.seed for each in played))};"
        f" groups left because the broker was slow: {given_up}"
    )


def _spans(seeds: list[int]) -> str:
    """Join seeds, those that follow each other as the first and the last."""
    spans = []
    numbered = itertools.groupby(enumerate(seeds), key=lambda each: each[1] - each[0])
    for _, run in numbered:
        numbers = [seed for _, seed in run]
        spans.append(f"{numbers[0]}" if len(numbers) == 1 else f"{numbers[0]}-{numbers[-1]}")
    return ", ".join(spans)
