"""Repairs dead letters of orders: a decimal comma becomes a point."""

from __future__ import annotations

import json
from dataclasses import replace

import spark_groups


def repair_order(letter: spark_groups.Record) -> spark_groups.Record | None:
    """Return the letter with a price that can be read; None if it is no order at all."""
    try:
        order = json.loads(letter.value or b"")
    except ValueError:
        return None
    order["price"] = order["price"].replace(",", ".")
    return replace(letter, value=json.dumps(order).encode())
