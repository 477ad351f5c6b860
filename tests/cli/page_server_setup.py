"""Shared by test_page_server.py and other tests."""

from __future__ import annotations

import http.client
import json
from collections.abc import Iterator
from typing import Any


def documents(answer: http.client.HTTPResponse) -> Iterator[Any]:
    for line in answer:
        if line.startswith(b"data: "):
            yield json.loads(line[len(b"data: ") :])
