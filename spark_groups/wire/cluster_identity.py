"""Which Kafka cluster connections must lead to.

An address can lead to another cluster at any time: an IP address is used again, a DNS name or a
proxy is switched. Topic ids differ there, but group ids, topic names and offsets may be the same.
A connection never changes its broker, so it is enough to ask each new one once, before anything
else is sent on it.
"""

from __future__ import annotations

import logging
import threading
from typing import Final

from spark_groups.wire.addresses import Address

logger = logging.getLogger(__name__)

_REMEMBERED_MAX: Final = 100


class ClusterIdentity:
    """The cluster of all connections that share this object; for any thread.

    Args:
        cluster_id: Its id if known, such as that in a plan; None: the first one met.
    """

    def __init__(self, cluster_id: str | None = None) -> None:
        self._cluster_id = cluster_id
        self._is_met = False
        self._strangers: dict[Address, str] = {}
        """The addresses that led to another cluster last, and its id."""
        self._lock = threading.Lock()

    @property
    def cluster_id(self) -> str | None:
        """The cluster's id; None while unknown, and for brokers that report none."""
        return self._cluster_id

    @property
    def is_met(self) -> bool:
        """Whether any connection has led to this cluster yet."""
        return self._is_met

    def expect(self, cluster_id: str | None) -> None:
        """Set the id, if it is known and no connection has led anywhere yet."""
        with self._lock:
            self._cluster_id = self._cluster_id or cluster_id

    def refusal(self, address: Address, found: str | None) -> str | None:
        """Return why a connection must not be used; None if it may.

        The first refusal of an address is logged, and its end.

        Args:
            address: Where it leads.
            found: The cluster id that the broker reports; None: it reports none, which is accepted.
        """
        if found is None:
            return None
        with self._lock:
            expected = self._cluster_id = self._cluster_id or found
            before = self._strangers.pop(address, None)
            if found == expected:
                self._is_met = True
            elif len(self._strangers) < _REMEMBERED_MAX:
                self._strangers[address] = found
        if found == expected:
            if before is not None:
                logger.info("%s leads to the Kafka cluster %s again", address, expected)
            return None
        reason = (
            f"{address} leads to the Kafka cluster {found}, not to {expected}, to which this client"
            " belongs: nothing is read, committed or changed there. Correct the address: its IP"
            " address, its DNS name or a proxy leads elsewhere now"
        )
        if before != found:
            logger.warning("%s", reason)
        return reason
