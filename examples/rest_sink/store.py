"""The functions of `spark_groups.own_table` for the service of `server.py`."""

from __future__ import annotations

import json
import os
from collections import defaultdict
from dataclasses import dataclass
from http.client import HTTPConnection
from typing import Any
from urllib.parse import quote

from pyspark.sql import DataFrame

from spark_groups.fence.compare import Decision

PORT = int(os.environ.get("SERVICE_PORT", "9099"))
ANSWER_S = 60.0


@dataclass(frozen=True)
class Service:
    """A client of the service."""

    port: int = PORT

    def read(self, group_id: str) -> dict[tuple[str, int], tuple[int, int]]:
        """Return the group's entries."""
        _, found = self._call("GET", f"/groups/{quote(group_id, safe='')}")
        return {
            (topic_id, partition): (start_offset, next_offset)
            for topic_id, partition, start_offset, next_offset in found
        }

    def write(self, rows: DataFrame | None, decision: Decision) -> bool:
        """Put the orders of each partition together with its entry."""
        orders: dict[tuple[str, int], list[str]] = defaultdict(list)
        if rows is not None:
            # maxOffsetsPerTrigger bounds the batch, so the driver can hold its rows.
            for row in rows.select("topic", "partition", "value").collect():
                orders[row.topic, row.partition].append(row.value.decode())
        topics = {each.topic_id: each.topic for each in decision.write}
        for change in decision.changes:
            group_id, topic_id, partition = change.key
            expected, entry = change.expected, change.entry
            body = {
                "entry": [entry.start_offset, entry.next_offset],
                "orders": orders[topics.get(topic_id, ""), partition],
            }
            condition = (
                {}
                if expected is None
                else {"If-Match": f'"{expected.start_offset}-{expected.next_offset}"'}
            )
            path = f"/groups/{quote(group_id, safe='')}/{topic_id}/{partition}"
            status, _ = self._call("PUT", path, body, condition)
            if status == 412:
                return False
        return True

    def count(self) -> dict[str, int]:
        """Return how many orders are stored, and how many of them differ."""
        _, counted = self._call("GET", "/count")
        return dict(counted)

    def _call(
        self,
        method: str,
        path: str,
        body: object = None,
        headers: dict[str, str] | None = None,
    ) -> tuple[int, Any]:
        """Return the status and the content of a response; 412 is no error.

        An error without a response fails the batch. Spark runs it again, and the comparison tells
        whether the service had accepted it.
        """
        connection = HTTPConnection("127.0.0.1", self.port, timeout=ANSWER_S)
        try:
            connection.request(method, path, json.dumps(body), headers or {})
            answer = connection.getresponse()
            content = answer.read()
        finally:
            connection.close()
        if answer.status not in {200, 204, 412}:
            raise RuntimeError(f"{method} {path}: {answer.status} {answer.reason}")
        return answer.status, json.loads(content) if content else None
