"""A registry with faults that a real one does not have on request, over real HTTP."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

AVRO = {"type": "record", "name": "O", "fields": [{"name": "a", "type": "int"}]}


def schema(text: object = AVRO, **more: Any) -> dict[str, Any]:
    """Return what a registry answers about a schema."""
    return {"schema": text if isinstance(text, str) else json.dumps(text), **more}


@dataclass
class Stub:
    """Answers by path; each is taken once, the last one always.

    Args:
        answers: Pairs of a status and a body, which may be bytes or JSON.
        queries: What follows the paths that were asked for.
        pause_s: How long to wait after each byte of a body, in seconds.
    """

    url: str = ""
    answers: dict[str, list[tuple[int, Any]]] = field(default_factory=dict)
    asked: list[str] = field(default_factory=list)
    queries: list[str] = field(default_factory=list)
    pause_s: float = 0.0
    has_ended: threading.Event = field(default_factory=threading.Event)
    logins: list[str | None] = field(default_factory=list)
    may_answer: threading.Event = field(default_factory=threading.Event)


@contextmanager
def running_stub() -> Iterator[Stub]:
    """Run a registry on loopback."""
    stub = Stub()
    stub.may_answer.set()

    class Answering(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            path, _, query = self.path.partition("?")
            stub.asked.append(path)
            stub.queries.append(query)
            stub.logins.append(self.headers.get("Authorization"))
            stub.may_answer.wait(300)
            known = stub.answers.get(path, [(404, {"error_code": 40403, "message": "none"})])
            status, body = known.pop(0) if len(known) > 1 else known[0]
            sent = body if isinstance(body, bytes) else json.dumps(body).encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(sent)))
            self.end_headers()
            if not stub.pause_s:
                self.wfile.write(sent)
                return
            for place in range(len(sent)):
                self.wfile.write(sent[place : place + 1])
                if stub.has_ended.wait(stub.pause_s):
                    return

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Answering)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    stub.url = f"http://127.0.0.1:{server.server_port}"
    try:
        yield stub
    finally:
        stub.may_answer.set()
        stub.has_ended.set()
        server.shutdown()
        thread.join()
        server.server_close()
