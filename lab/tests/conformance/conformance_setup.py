"""Shared by test_conformance.py and other tests."""

from __future__ import annotations

SEEDS, SEEDS_ON_REQUEST = range(4), range(5, 25)


STEPS = 250
"""Of one script; five of them are more than a thousand."""
