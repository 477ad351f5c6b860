"""What happened to a member: into the log, into its snapshot, and to all who observe."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable
from typing import Final

from spark_groups.protocol.events import Event, NameOf

logger = logging.getLogger(__name__)

LENGTH: Final = 100


class Timeline:
    """Tells each event once and keeps the last ones.

    Args:
        group_id: The group.
    """

    def __init__(self, group_id: str) -> None:
        self.observers: list[Callable[[Event, NameOf], None]] = []
        """Called with each event, and with what names topics; they must not wait for anything."""
        self._group_id = group_id
        self._lines: deque[str] = deque(maxlen=LENGTH)

    def add(self, event: Event, name_of: NameOf) -> None:
        """Tell an event."""
        text = event.text(name_of)
        logger.log(event.severity.value, "group %s: %s", self._group_id, text)
        self._lines.append(text)
        for observe in self.observers:
            observe(event, name_of)

    def lines(self) -> list[str]:
        """Return the last events as sentences, the oldest first."""
        return list(self._lines)
