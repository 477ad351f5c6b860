"""A small REST service that stores orders, and compares offsets in each PUT.

    python server.py --port 9099 --database orders.db

    GET  /groups/GROUP                        the group's entries, and their ETags
    PUT  /groups/GROUP/TOPIC_ID/PARTITION     orders and the new entry; If-Match: the ETag of the
                                              old one; without If-Match there must be none
    GET  /count                               how many orders are stored, and how many differ

A PUT whose condition does not hold gets 412, and changes nothing.
"""

from __future__ import annotations

import argparse
import json
import os
import sqlite3
from contextlib import closing
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

TABLES = """
CREATE TABLE IF NOT EXISTS entries (
    group_id TEXT, topic_id TEXT, partition INTEGER, start_offset INTEGER, next_offset INTEGER,
    PRIMARY KEY (group_id, topic_id, partition)
);
CREATE TABLE IF NOT EXISTS orders (value TEXT);
"""
LOCK_S = 60.0


def etag(entry: tuple[int, int] | None) -> str | None:
    """Return the ETag of an entry: both of its offsets."""
    return None if entry is None else f'"{entry[0]}-{entry[1]}"'


class OrderService(BaseHTTPRequestHandler):
    """Serves one request."""

    database = ""
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        """Return the entries of a group, or the counts."""
        match self.path.strip("/").split("/"):
            case ["groups", group_id]:
                statement = (
                    "SELECT topic_id, partition, start_offset, next_offset FROM entries"
                    " WHERE group_id = ?"
                )
                self._answer(200, self._query(statement, group_id))
            case ["count"]:
                counted = self._query("SELECT count(*), count(DISTINCT value) FROM orders")
                self._answer(200, dict(zip(("orders", "different"), counted[0], strict=True)))
            case _:
                self._answer(404, None)

    def do_PUT(self) -> None:
        """Add orders and change an entry, in one transaction, if the entry is as expected."""
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        match self.path.strip("/").split("/"):
            case ["groups", *key] if len(key) == 3:
                self._answer(204 if self._put(key, body) else 412, None)
            case _:
                self._answer(404, None)

    def _put(self, key: list[str], body: dict[str, Any]) -> bool:
        with closing(sqlite3.connect(self.database, timeout=LOCK_S)) as opened, opened:
            opened.execute("BEGIN IMMEDIATE")
            found = opened.execute(
                "SELECT start_offset, next_offset FROM entries"
                " WHERE group_id = ? AND topic_id = ? AND partition = ?",
                key,
            ).fetchone()
            if etag(found) != self.headers["If-Match"]:
                return False
            opened.execute(
                "INSERT OR REPLACE INTO entries VALUES (?, ?, ?, ?, ?)", [*key, *body["entry"]]
            )
            opened.executemany("INSERT INTO orders VALUES (?)", [[e] for e in body["orders"]])
            return True

    def _query(self, statement: str, *values: str) -> list[tuple[Any, ...]]:
        with closing(sqlite3.connect(self.database, timeout=LOCK_S)) as opened:
            return opened.execute(statement, values).fetchall()

    def _answer(self, status: int, content: object) -> None:
        body = b"" if content is None else json.dumps(content).encode()
        self.send_response(status)
        if status != 204:
            self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Log nothing."""


def main() -> None:
    """Serve until the process is ended."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--port", type=int, default=int(os.environ.get("SERVICE_PORT", "9099")))
    parser.add_argument("--database", default="orders.db")
    given = parser.parse_args()
    OrderService.database = given.database
    with closing(sqlite3.connect(given.database)) as opened:
        opened.executescript(TABLES)
    with ThreadingHTTPServer(("127.0.0.1", given.port), OrderService) as server:
        print(f"serving on port {server.server_port}", flush=True)
        server.serve_forever()


if __name__ == "__main__":
    main()
