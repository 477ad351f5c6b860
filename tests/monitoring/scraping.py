"""What an endpoint says over HTTP, read as Prometheus reads it."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from dataclasses import dataclass
from typing import Any

from prometheus_client.parser import text_string_to_metric_families

from spark_groups.broker.embedded import free_ports
from workshop.parts.waiting import LONG_S


@dataclass(frozen=True)
class Scrape:
    """Samples by name and labels.

    Args:
        text: What `/metrics` answered.
    """

    text: str

    def value(self, name: str, **labels: str) -> float | None:
        """Return the only sample of a name that has these labels, None if there is none."""
        found = [
            sample.value
            for family in text_string_to_metric_families(self.text)
            for sample in family.samples
            if sample.name == f"kafka_group_{name}" and labels.items() <= sample.labels.items()
        ]
        assert len(found) <= 1, (name, labels, found)
        return found[0] if found else None

    def by_partition(self, name: str) -> dict[int, float]:
        """Return the samples of a name by partition."""
        return {
            int(sample.labels["partition"]): sample.value
            for family in text_string_to_metric_families(self.text)
            for sample in family.samples
            if sample.name == f"kafka_group_{name}"
        }


def free_port() -> int:
    """Return a port that nothing listens on."""
    return free_ports(1)[0]


def get(port: int, path: str) -> tuple[int, str]:
    """Return the status and the text of a path."""
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=LONG_S) as answer:
            return answer.status, answer.read().decode("utf-8")
    except urllib.error.HTTPError as refused:
        return refused.code, refused.read().decode("utf-8")


def scrape(port: int) -> Scrape:
    """Return what `/metrics` says."""
    status, text = get(port, "/metrics")
    assert status == 200, text
    return Scrape(text)


def health(port: int, path: str = "/health") -> tuple[int, dict[str, Any]]:
    """Return the status and the JSON of a path of the health check."""
    status, text = get(port, path)
    found = json.loads(text)
    assert isinstance(found, dict)
    return status, found
