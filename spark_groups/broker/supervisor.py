"""The small process between an owner and its broker: the broker never outlives the owner.

It runs as a script with only the standard library. The owner holds the other end of its standard
input, and the kernel closes that end however the owner dies. Requests are
lines of JSON: `{"run": [...], "output": path}` starts the one child, and the answers are
`{"pid": n}` or `{"error": why}`, and later `{"exit": code}`. At the end of the input it
kills the child, deletes the folder named on the command line, and exits.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import select
import shutil
import signal
import subprocess
import sys

POLL_S = 0.1
_PR_SET_PDEATHSIG = 1


def main(owner_pid: int, delete: str | None) -> None:
    """Serve one owner until it is gone or has closed its end.

    Args:
        delete: A folder to delete when the owner ends.
    """
    for ignored in (signal.SIGINT, signal.SIGHUP, signal.SIGPIPE):
        signal.signal(ignored, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    child: subprocess.Popen[bytes] | None = None
    pending = b""
    try:
        # A fork of the owner may hold the pipe open: then only the parent's pid shows its end.
        while os.getppid() == owner_pid:
            if select.select([0], [], [], POLL_S)[0]:
                received = os.read(0, 65536)
                if not received:
                    break
                *requests, pending = (pending + received).split(b"\n")
                for request in requests:
                    child = _run(json.loads(request))
            if child is not None and child.poll() is not None:
                _answer({"exit": child.returncode})
                child = None
    finally:
        if child is not None:
            child.kill()
            child.wait()
        if delete is not None:
            shutil.rmtree(delete, ignore_errors=True)


def _run(request: dict[str, object]) -> subprocess.Popen[bytes] | None:
    """Start the child that a request asks for and answer with its pid."""
    command = request["run"]
    assert isinstance(command, list)
    try:
        with open(str(request["output"]), "ab") as output:
            child = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                preexec_fn=_die_with_parent,  # noqa: PLW1509 - this process has no threads
            )
    except OSError as error:
        _answer({"error": str(error)})
        return None
    _answer({"pid": child.pid})
    return child


def _die_with_parent() -> None:
    """Make the child undo the ignored signals, and on Linux not outlive this process."""
    for default in (signal.SIGINT, signal.SIGHUP):
        signal.signal(default, signal.SIG_DFL)
    if sys.platform == "linux":
        # This process has one thread, so that the death of that thread is its own.
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def _answer(message: dict[str, object]) -> None:
    """Send one line to the owner; an owner that is gone is noticed by the loop."""
    with contextlib.suppress(OSError):
        os.write(1, json.dumps(message).encode() + b"\n")


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2] if len(sys.argv) > 2 else None)
