"""Connections to the brokers of one cluster: at most one for each address."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable
from functools import partial
from typing import Final

from spark_groups.errors import AccessError, BrokerUnreachableError, ProtocolError
from spark_groups.group.member.backoff import Backoff, Patience
from spark_groups.group.member.messages import Node
from spark_groups.wire.addresses import Address
from spark_groups.wire.cluster_identity import ClusterIdentity
from spark_groups.wire.connection import (
    MAX_FRAME_BYTES,
    AdvertisedAddressError,
    AnotherClusterError,
    Connection,
    RequestError,
)
from spark_groups.wire.security.security import Security
from spark_groups.wire.security.tls import CertificateError
from spark_groups.wire.timeouts import USUAL_TIMEOUTS, Timeouts

logger = logging.getLogger(__name__)

RECONNECT_MAX_S: Final = 5.0
"""The longest pause between two rounds over all addresses; the first one takes 0.1 s."""
SPARE_S: Final = 1.0
"""The age from which on an open connection that was not used yet is checked before it is used."""
LATE_S: Final = 1.0
"""A command that is cut off names the connections that took longer."""
_Failure = RequestError | ProtocolError | AccessError


class ConnectionPool:
    """Opens connections on demand and keeps them; used by one thread.

    A connection is opened in a thread of its own, which may take as long as one request may: a
    broker that is slow to answer is reached, and one that hangs does not keep the pool from others.

    Args:
        bootstrap_servers: The first addresses to try.
        client_id: Appears in the brokers' logs and quotas.
        identity: The cluster, shared with other connections to it; None: the first one met.
        max_frame_bytes: The longest response that is accepted.
        receive_buffer_bytes: The sockets' receive buffer; None for the system's default.
    """

    def __init__(
        self,
        bootstrap_servers: Iterable[Address],
        *,
        client_id: str,
        security: Security,
        timeouts: Timeouts = USUAL_TIMEOUTS,
        identity: ClusterIdentity | None = None,
        max_frame_bytes: int = MAX_FRAME_BYTES,
        receive_buffer_bytes: int | None = None,
    ) -> None:
        self._bootstrap = list(bootstrap_servers)
        # The next address to try comes first: one that failed goes to the end.
        self._rotation = list(self._bootstrap)
        self._client_id = client_id
        self._security = security
        self.timeouts = timeouts
        self._identity = identity or ClusterIdentity()
        self._max_frame_bytes = max_frame_bytes
        self._receive_buffer_bytes = receive_buffer_bytes
        self._connections: dict[Address, Connection] = {}
        self._openings: dict[Address, _Opening] = {}
        self._failures: dict[Address, int] = {}
        """How often the TCP connection to an address failed in a row."""
        self._reached: set[Address] = set()
        self._unreached: dict[Address, Exception] = {}
        """Why the latest connection to an address failed."""
        self._patiences: dict[Address, Patience] = {}
        self._passed_over: Address | None = None
        self._backoff = Backoff()
        self._warned_of: set[Address] = set()
        self._changed = threading.Condition()
        self._stopped = threading.Event()

    def learn(self, nodes: Iterable[Node]) -> None:
        """Store the live brokers, and drop connections to others."""
        alive = [Address(node.host, node.port) for node in nodes]
        known = dict.fromkeys((*alive, *self._bootstrap))
        self._rotation = [each for each in self._rotation if each in known]
        self._rotation += [each for each in known if each not in self._rotation]
        for address in {*self._connections, *self._openings} - known.keys():
            self._drop(address)
        self._reached &= known.keys()
        for by_address in (self._patiences, self._failures, self._unreached):
            for address in by_address.keys() - known.keys():
                del by_address[address]

    def any(self, deadline: float) -> Connection:
        """Return a connection to any broker, preferably an open one.

        Args:
            deadline: Monotonic seconds; until then every address is retried.

        Raises:
            RequestError: No address could be reached; lists all with their reasons.
            AnotherClusterError: All addresses lead to other clusters.
            ProtocolError: No address is a Kafka broker.
            AccessError: A broker refuses the login, or no broker's certificate is trusted.
        """
        passed_over, self._passed_over = self._passed_over, None
        for address in self._rotation:
            connection = self._connections.get(address)
            if address != passed_over and connection is not None and connection.is_usable():
                return connection
        failed: dict[Address, _Failure] = {}
        while True:
            reasons: dict[Address, _Failure] = {}
            connection = self._first_opened(reasons, deadline)
            if connection is not None:
                self._backoff.succeeded()
                self._warn(reasons)
                return connection
            for final in (ProtocolError, AnotherClusterError, AccessError):
                is_final = all(isinstance(reason, final) for reason in reasons.values())
                if is_final and len(reasons) >= len(self._rotation):
                    raise next(iter(reasons.values()))
            failed |= reasons
            now = time.monotonic()
            self._backoff.failed(now, RECONNECT_MAX_S)
            if not self.pause(self._backoff.not_before - now, deadline):
                raise self._none_answered(failed)

    def _first_opened(self, reasons: dict[Address, _Failure], deadline: float) -> Connection | None:
        """Open one connection after another until the first one is open, or all have failed.

        Args:
            reasons: Takes why others failed.
            deadline: Monotonic seconds.

        Raises:
            AccessError: A broker refuses the login.
        """
        tried: list[Address] = []
        for address in list(self._rotation):
            tried.append(address)
            is_last = len(tried) == len(self._rotation)
            until = deadline if is_last else time.monotonic() + self.timeouts.first_wait_s
            connection = self._first_of(tried, reasons, min(until, deadline))
            if connection is not None:
                return connection
        return None

    def _first_of(
        self, addresses: list[Address], reasons: dict[Address, _Failure], until: float
    ) -> Connection | None:
        """Return the first open connection among addresses; None if none opens in time."""
        while True:
            waiting = [each for each in addresses if each not in reasons]
            for address in waiting:
                try:
                    connection = self._opened(address)
                except (CertificateError, RequestError, ProtocolError) as error:
                    reasons[address] = error
                else:
                    if connection is not None:
                        return connection
                    continue
                self.failed(address)
            if len(reasons) == len(addresses):
                return None
            ongoing = [e for a in waiting if (e := self._openings.get(a)) is not None]
            if not self._wait(partial(_any_done, ongoing), until):
                for address in waiting:
                    if address in self._openings:
                        self.failed(address)
                return None

    def _none_answered(self, reasons: dict[Address, _Failure]) -> Exception:
        refused = [reason for reason in reasons.values() if isinstance(reason, AccessError)]
        if refused:
            return refused[0]
        # An attempt that the deadline cut short says less than the one before it.
        silent = {key for key, each in self._openings.items() if each.is_late or key not in reasons}
        listed = [str(reason) for key, reason in reasons.items() if key not in silent]
        listed += [f"{key} does not answer in time" for key in sorted(silent)]
        return RequestError(f"no broker answered: {'; '.join(listed)}", may_have_arrived=False)

    def _warn(self, reasons: dict[Address, _Failure]) -> None:
        """Say once which address is not used because of its certificate."""
        for address, reason in reasons.items():
            if isinstance(reason, AccessError) and address not in self._warned_of:
                self._warned_of.add(address)
                logger.warning("another broker is used in place of %s: %s", address, reason)

    def to(self, node: Node, deadline: float, wait_s: float | None = None) -> Connection:
        """Return a connection to one broker, after at most one attempt to connect.

        Args:
            deadline: Monotonic seconds.
            wait_s: How long to wait for a connection that is being opened, since its beginning;
                None: until the deadline. The next call continues to wait for it.

        Raises:
            RequestError: The broker cannot be reached.
            ProtocolError: The peer is not a Kafka broker.
            AccessError: The broker refuses.
        """
        address = Address(node.host, node.port)
        connection = self._opened(address)
        if connection is None:
            opening = self._openings[address]
            until = deadline if wait_s is None else min(deadline, opening.began_at + wait_s)
            self._wait(lambda: opening.is_done, until)
            connection = self._opened(address)
        if connection is None:
            raise self._named(address, opening)
        return connection

    def unreached(self) -> list[str]:
        """Say which addresses cannot be reached, and why; for any thread."""
        with self._changed:
            waiting = {key: opening for key, opening in self._openings.items() if opening.is_late}
            failed = dict(self._unreached)
        return [str(self._named(key, each)) for key, each in waiting.items()] + [
            str(error) for address, error in failed.items() if address not in waiting
        ]

    def _named(self, address: Address, opening: _Opening) -> Exception:
        """Return why a connection is not open, and that a broker gave its address."""
        earlier = self._unreached.get(address)
        if opening.is_given_up and isinstance(earlier, RequestError):
            # The attempt was cut short: the one before it has the reason.
            return earlier
        error = opening.error
        if error is None:
            waited_s = time.monotonic() - opening.began_at
            error = RequestError(
                f"{address} does not answer a new connection yet, after {waited_s:.1f} s",
                may_have_arrived=False,
            )
        is_given = address not in self._bootstrap and address not in self._reached
        if is_given and type(error) is RequestError and not opening.is_given_up:
            error = AdvertisedAddressError(error.reason)
        if opening.is_done:
            self._unreached[address] = error
        return error

    def patience(self, broker: Node | Address) -> Patience:
        """Return how long one broker is waited for."""
        address = Address(broker.host, broker.port)
        if address not in self._patiences:
            limits = self.timeouts.first_wait_s, self.timeouts.request_s
            self._patiences[address] = Patience(*limits)
        return self._patiences[address]

    def failed(self, address: Address) -> None:
        """Try this address last from now on."""
        if address in self._rotation:
            self._rotation.remove(address)
            self._rotation.append(address)

    def pass_over(self, address: Address) -> None:
        """Use another broker next time, if one can be reached: this one knows less than asked."""
        self.failed(address)
        self._passed_over = address

    def pause(self, seconds: float, deadline: float) -> bool:
        """Wait before a retry, and return whether there is time for one.

        Args:
            seconds: How long to wait; `shutdown` ends it at once.
            deadline: Monotonic seconds.
        """
        left_s = deadline - time.monotonic()
        return not self._stopped.wait(max(0.0, min(seconds, left_s))) and left_s > seconds

    def _wait(self, condition: Callable[[], bool], until: float) -> bool:
        with self._changed:
            return self._changed.wait_for(condition, max(0.0, until - time.monotonic()))

    def _opened(self, address: Address) -> Connection | None:
        """Return an open connection; None while it is being opened, which this begins if needed."""
        connection = self._connections.get(address)
        if connection is not None and connection.is_usable():
            return connection
        opening = self._openings.get(address)
        if opening is None:
            self._begin(address)
            return None
        if not opening.is_done:
            return None
        del self._openings[address]
        if opening.error is not None:
            self._failures[address] = self._failures.get(address, 0) + 1
            raise self._named(address, opening)
        self._failures.pop(address, None)
        self._unreached.pop(address, None)
        self._reached.add(address)
        is_old = time.monotonic() - opening.ended_at >= SPARE_S
        if is_old and not opening.connection.is_usable():
            # It was opened a while ago, when another broker was used in the end.
            opening.connection.close()
            self._begin(address)
            return None
        with self._changed:
            self._connections[address] = opening.connection
            if self._stopped.is_set():
                opening.connection.shutdown()
        return opening.connection

    def _begin(self, address: Address) -> None:
        self._drop(address)
        connection = Connection(
            address.host,
            address.port,
            client_id=self._client_id,
            security=self._security,
            timeouts=self.timeouts,
            identity=self._identity,
            max_frame_bytes=self._max_frame_bytes,
            receive_buffer_bytes=self._receive_buffer_bytes,
        )
        setup_s = self.timeouts.setup_after(self._failures.get(address, 0))
        opening = _Opening(connection, self.timeouts.request_s, setup_s, self._changed)
        with self._changed:
            if self._stopped.is_set():
                raise RequestError("the client was shut down", may_have_arrived=False)
            self._openings[address] = opening
        opening.start()

    def _drop(self, address: Address) -> None:
        with self._changed:
            connection = self._connections.pop(address, None)
            opening = self._openings.pop(address, None)
        if connection is not None:
            connection.close()
        if opening is not None:
            opening.give_up()

    def close(self) -> None:
        """Close all connections; only for the thread that uses the pool."""
        for address in {*self._connections, *self._openings}:
            self._drop(address)

    def shutdown(self) -> None:
        """Make the current call and all later ones fail at once; for any thread."""
        with self._changed:
            self._stopped.set()
            for opening in self._openings.values():
                opening.give_up()
            for connection in self._connections.values():
                connection.shutdown()


def _any_done(openings: Iterable[_Opening]) -> bool:
    return any(opening.is_done for opening in openings)


class _Opening:
    """A connection that is being opened, in a thread of its own.

    Args:
        timeout_s: For all of it.
        setup_s: For the TCP connection.
        changed: Notified at its end.
    """

    def __init__(
        self, connection: Connection, timeout_s: float, setup_s: float, changed: threading.Condition
    ) -> None:
        self.connection = connection
        self.began_at = time.monotonic()
        self.is_done = False
        self.ended_at = 0.0
        self.error: Exception | None = None
        self._timeout_s = timeout_s
        self._setup_s = setup_s
        self._changed = changed
        self.is_given_up = False
        """Whether it was ended before it was done; its error then says nothing of the broker."""
        self._thread = threading.Thread(
            target=self._open, name=f"connect-{connection.address}", daemon=True
        )

    @property
    def is_late(self) -> bool:
        """Whether it takes longer than a usual connection."""
        return not self.is_done and time.monotonic() - self.began_at > LATE_S

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def give_up(self) -> None:
        """End it at once, and close the connection; for any thread."""
        with self._changed:
            is_done = self.is_done
            self.is_given_up |= not is_done
        self.connection.shutdown()
        if is_done:
            self.connection.close()

    def _open(self) -> None:
        error: Exception | None = None
        try:
            self.connection.connect(self._timeout_s, self._setup_s)
        except (BrokerUnreachableError, ProtocolError, AccessError) as failure:
            error = failure
        except Exception as failure:
            logger.exception("a connection to %s failed", self.connection.address)
            error = failure
        with self._changed:
            self.error = error
            self.ended_at = time.monotonic()
            self.is_done = True
            is_given_up = self.is_given_up
            self._changed.notify_all()
        if is_given_up:
            self.connection.close()
