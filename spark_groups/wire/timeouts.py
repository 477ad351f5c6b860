"""How long connections and requests may take, with the defaults of Kafka's clients."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

FIRST_WAIT_S: Final = 3.0
"""How long one broker is waited for, at first, before another one is asked."""


@dataclass(frozen=True, slots=True)
class Timeouts:
    """The limits of connections and requests.

    Args:
        request_s: For one request, and for securing a new connection: `request.timeout.ms`.
        setup_s: For the TCP connection, at first: `socket.connection.setup.timeout.ms`.
        setup_max_s: The same after failures, each of which doubles it:
            `socket.connection.setup.timeout.max.ms`.
        max_idle_s: The age of the last answer from which on a connection is not used again:
            `connections.max.idle.ms`; infinite: never.
        first_wait_s: How long one broker is waited for, at first, before another one is asked.
    """

    request_s: float = 30.0
    setup_s: float = 10.0
    setup_max_s: float = 30.0
    max_idle_s: float = 540.0
    first_wait_s: float = FIRST_WAIT_S

    @classmethod
    def within(cls, seconds: float) -> Timeouts:
        """Return the limits of a command that must end in time; it may try each thing twice."""
        return cls(request_s=seconds, first_wait_s=max(FIRST_WAIT_S, seconds / 3))

    @property
    def max_idle_ms(self) -> int:
        """The idle time in librdkafka's form: 0 means never."""
        return 0 if math.isinf(self.max_idle_s) else int(self.max_idle_s * 1000)

    def setup_after(self, failures: int) -> float:
        """Return the seconds for the next TCP connection to an address, after failures of it."""
        return min(self.setup_max_s, self.setup_s * 2.0 ** min(failures, 16))


USUAL_TIMEOUTS: Final = Timeouts()
