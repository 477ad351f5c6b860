"""One running query for each `group.instance.id` on a host.

The coordinator would let a second one wait for a session that never ends, and would fence the first
one as if the second were its restart. So a running query locks a file in this user's private
directory, and writes into it who holds it; the kernel releases the lock when the process dies.
A query on another host is detected only by the coordinator.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import logging
import os
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final

from spark_groups.errors import GroupError
from spark_groups.runtime.directories import make_private
from spark_groups.runtime.snapshot_sockets import snapshot_directory

logger = logging.getLogger(__name__)

GRACE_S: Final = 1.0
"""How long to wait for a holder whose query was just stopped."""
LEAVING_S: Final = 10.0
"""How long to wait for a holder that is leaving its group."""
_POLL_S: Final = 0.05


class InstanceLock:
    """The right to be the only member on this host with an instance id.

    Args:
        bootstrap_servers: The cluster, as the query names it.
        directory: None for this user's own directory.
    """

    def __init__(
        self,
        bootstrap_servers: Iterable[str],
        group_id: str,
        instance_id: str,
        *,
        directory: Path | None = None,
    ) -> None:
        self._group_id = group_id
        self._instance_id = instance_id
        self._directory = directory or snapshot_directory()
        key = "\0".join([*sorted(bootstrap_servers), group_id, instance_id])
        name = hashlib.sha256(key.encode("utf-8")).hexdigest()[:32]
        self._path = self._directory / f"{name}.instance"
        self._descriptor: int | None = None
        self._facts: dict[str, Any] = {"pid": os.getpid()}

    def acquire(self) -> None:
        """Take the lock; without a writable directory, log a warning and continue without.

        Raises:
            GroupError: A running query of this host holds it; names its process and member.
        """
        began_at_s = time.monotonic()
        try:
            make_private(self._directory)
            while not self._try():
                self._wait_for_holder(time.monotonic() - began_at_s)
        except OSError as error:
            logger.warning(
                "cannot detect another query with this kafka.group.instance.id: %s",
                error,
            )
            return
        self.note()

    def note(self, **facts: Any) -> None:
        """Add facts about the holder for other processes: its member id, that it is leaving."""
        self._facts |= facts
        if self._descriptor is not None:
            content = json.dumps(self._facts).encode("utf-8")
            os.pwrite(self._descriptor, content, 0)
            os.ftruncate(self._descriptor, len(content))

    def release(self) -> None:
        """Release the lock, if it is held."""
        descriptor, self._descriptor = self._descriptor, None
        if descriptor is not None:
            self._path.unlink(missing_ok=True)
            os.close(descriptor)

    def _try(self) -> bool:
        descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            # The last holder may have removed the file between the two calls.
            is_current = os.fstat(descriptor).st_ino == self._path.stat().st_ino
        except (BlockingIOError, FileNotFoundError):
            is_current = False
        if not is_current:
            os.close(descriptor)
            return False
        self._descriptor = descriptor
        return True

    def _wait_for_holder(self, waited_s: float) -> None:
        holder = self._holder()
        if waited_s < (LEAVING_S if holder.get("leaving") else GRACE_S):
            time.sleep(_POLL_S)
            return
        raise GroupError(
            f"kafka.group.instance.id {self._instance_id!r} of group {self._group_id!r} is in use"
            f" by another query on this host: process {holder.get('pid', 'unknown')}, member"
            f" {holder.get('member_id', 'not joined yet')}. Give each query an instance id of its"
            " own, or stop the other one first"
        )

    def _holder(self) -> dict[str, Any]:
        try:
            found = json.loads(self._path.read_bytes())
        except (OSError, ValueError, RecursionError):
            return {}
        return found if isinstance(found, dict) else {}
