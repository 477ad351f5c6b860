"""One line for each event: what a person reads who wants to know what went wrong.

Lines are written only when somebody reads them; until then an event is a row of values that do not
change. The columns are described in docs/simulation.md.
"""

from __future__ import annotations

from collections import deque
from typing import Final

LINES_KEPT: Final = 400
LINE_LENGTH: Final = 400

Row = tuple[float, str, str, str, tuple[object, ...]]


class EventLog:
    """The last events of a run."""

    def __init__(self) -> None:
        self._rows: deque[Row] = deque(maxlen=LINES_KEPT)

    def add(self, now: float, who: str, epoch: str, what: str, *details: object) -> None:
        """Add an event.

        Args:
            now: Seconds.
            who: To whom it happened: an incarnation, a node, "world".
            epoch: The epoch that it goes by, as far as it has one.
            what: One word.
            details: Values that never change; they are written as text if somebody reads them.
        """
        self._rows.append((now, who, epoch, what, details))

    def lines(self) -> list[str]:
        """Return the last events as text, the oldest first."""
        return [_line(*row) for row in self._rows]


def _line(now: float, who: str, epoch: str, what: str, details: tuple[object, ...]) -> str:
    text = " ".join(map(str, details)).replace("\n", " ")
    # Ids of topics are counted from one: most of each is zeroes.
    text = text.replace("00000000-0000-0000-0000-00000000000", "").replace(
        "AAAAAAAAAAAAAAAAAAAA", ""
    )
    return f"{now:10.3f} {who:<8} {epoch:>6} {what:<10} {text}"[:LINE_LENGTH].rstrip()
