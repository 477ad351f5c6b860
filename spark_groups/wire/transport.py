"""Frames over one socket, with or without TLS; every wait ends at a deadline."""

from __future__ import annotations

import contextlib
import math
import os
import selectors
import socket
import ssl
import struct
import threading
import time
from collections import deque
from collections.abc import Iterable
from typing import Final, cast

from spark_groups.errors import AccessError, BrokerUnreachableError, ProtocolError
from spark_groups.wire.addresses import REACHED, Address, SocketTarget, resolve
from spark_groups.wire.security.security import Security
from spark_groups.wire.security.tls import ssl_context, tls_refusal

_NEXT_TARGET_S: Final = 0.25
"""After this time without an answer, the next address of a host is tried as well (RFC 8305)."""
_LOOK_S: Final = 0.1
_KEEPALIVE: Final = {"TCP_KEEPIDLE": 30, "TCP_KEEPINTVL": 10, "TCP_KEEPCNT": 3}
"""The system's own first probe comes after two hours; names that a system lacks are left out."""
_RECEIVE_BYTES: Final = 256 * 1024
_LEAST_FRAME_BYTES: Final = 4
_FIRST_FRAMES_BYTES: Final = 1024 * 1024
"""The longest frame that is accepted before authentication."""
_LEAST_BYTES_PER_S: Final = 128 * 1024
"""The least average speed of a frame; Kafka's own consumer, which allows 30 s for a response
(`request.timeout.ms`), requires more."""
_FRAME_SIZE = struct.Struct(">i")
_TLS_ALERT: Final = b"\x15\x03"
_FOREIGN_GREETINGS: Final = {
    b"\x16\x03": "a TLS handshake: this is not a Kafka listener for security.protocol PLAINTEXT",
    b"HTTP": "an HTTP answer: this is not a Kafka listener",
    b"SSH-": "an SSH greeting: this is not a Kafka listener",
}


class FrameBuffer:
    """Memory for one frame at a time.

    Args:
        kept_bytes: The memory to keep for the next frame; a larger frame gets its own.
    """

    def __init__(self, kept_bytes: int) -> None:
        self._kept_bytes = kept_bytes
        self._memory = bytearray()

    def room(self, size_bytes: int) -> memoryview:
        """Return memory for a frame, overwriting the last one; the caller limits `size_bytes`."""
        if size_bytes > self._kept_bytes:
            # Free the old memory first.
            self._memory = bytearray()
            return memoryview(bytearray(size_bytes))
        if size_bytes > len(self._memory):
            grown = min(self._kept_bytes, max(size_bytes, 2 * len(self._memory)))
            self._memory = bytearray()
            self._memory = bytearray(grown)
        return memoryview(self._memory)[:size_bytes]


class HungUpError(BrokerUnreachableError):
    """The peer closed the connection without a reason."""


class FrameTooLargeError(ProtocolError):
    """A broker sent a frame that exceeds the limit."""


class Transport:
    """A socket that carries frames; used by one thread, except for `shutdown`.

    Args:
        security: TLS settings; authentication is not done here.
        max_frame_bytes: The longest frame that is accepted after `allow_full_frames`.
        receive_buffer_bytes: The socket's receive buffer; None for the system's default.
    """

    def __init__(
        self,
        address: Address,
        security: Security,
        max_frame_bytes: int,
        receive_buffer_bytes: int | None = None,
    ) -> None:
        self._address = address
        self._security = security
        self._full_frame_bytes = max_frame_bytes
        self._max_frame_bytes = min(max_frame_bytes, _FIRST_FRAMES_BYTES)
        self._receive_buffer_bytes = receive_buffer_bytes
        self._socket: socket.socket | None = None
        self._lock = threading.Lock()
        self._is_shut_down = False
        self._is_trusted = False

    @property
    def is_open(self) -> bool:
        """Whether there is a socket that is not shut down."""
        return self._socket is not None and not self._is_shut_down

    @property
    def is_shut_down(self) -> bool:
        """Whether `shutdown` was called."""
        return self._is_shut_down

    def fileno(self) -> int:
        """Return the socket's descriptor for `selectors`; -1 without a socket."""
        return self._socket.fileno() if self._socket is not None else -1

    def open(self, deadline: float, setup_s: float = math.inf) -> None:
        """Connect, with TLS if configured, until a deadline in monotonic seconds.

        Args:
            setup_s: For the TCP connection, if that ends before the deadline.

        Raises:
            BrokerUnreachableError: The address cannot be resolved or reached, or did not answer in
                time.
            HungUpError: The peer hung up during the TLS handshake.
            AccessError: TLS failed because a certificate was refused; not retried.
        """
        self._connect(min(deadline, time.monotonic() + setup_s))
        if self._security.uses_tls:
            self._encrypt(deadline)

    def allow_full_frames(self) -> None:
        """Accept frames of up to `max_frame_bytes` from now on: the peer is authenticated."""
        self._max_frame_bytes = self._full_frame_bytes

    def _connect(self, deadline: float) -> None:
        targets = REACHED.first(self._address, resolve(self._address, deadline))
        reasons: list[str] = []
        candidates: dict[socket.socket, SocketTarget] = {}
        try:
            connected = self._first_connected(targets, candidates, reasons, deadline)
        finally:
            for candidate in candidates:
                candidate.close()
        if connected is None:
            self.fail_if_shut_down()
            unique = "; ".join(dict.fromkeys(reasons)) or "no answer in time"
            raise BrokerUnreachableError(f"cannot connect to {self._address}: {unique}")
        _tune(connected)
        with self._lock:
            self._socket = connected
        if self._is_shut_down:
            self.close()
            self.fail_if_shut_down()

    def _first_connected(
        self,
        targets: Iterable[SocketTarget],
        candidates: dict[socket.socket, SocketTarget],
        reasons: list[str],
        deadline: float,
    ) -> socket.socket | None:
        """Return the first socket that connects, and take it out of the candidates.

        Args:
            targets: Tried in this order, the next one before the last one has failed.
            candidates: The sockets under way.
            reasons: Why others failed.
            deadline: Monotonic seconds.
        """
        waiting, next_at = deque(targets), 0.0
        with selectors.DefaultSelector() as selector:
            while (waiting or candidates) and not self._is_shut_down:
                now = time.monotonic()
                if now >= deadline:
                    break
                if waiting and (now >= next_at or not candidates):
                    next_at = now + _NEXT_TARGET_S
                    target = waiting.popleft()
                    try:
                        candidate = self._begun(target)
                    except OSError as error:
                        reasons.append(_reason(error))
                        continue
                    candidates[candidate] = target
                    selector.register(candidate, selectors.EVENT_WRITE)
                for key, _ in selector.select(min(_LOOK_S, deadline - now)):
                    candidate = cast(socket.socket, key.fileobj)
                    selector.unregister(candidate)
                    target = candidates.pop(candidate)
                    code = candidate.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
                    if not code:
                        REACHED.reached(self._address, target)
                        return candidate
                    candidate.close()
                    reasons.append(os.strerror(code))
        return None

    def _begun(self, target: SocketTarget) -> socket.socket:
        """Return a socket that is connecting."""
        family, place = target
        candidate = socket.socket(family, socket.SOCK_STREAM)
        try:
            if self._receive_buffer_bytes is not None:
                # Must precede the connect, which negotiates the window.
                size = self._receive_buffer_bytes
                candidate.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, size)
            candidate.setblocking(False)
            with contextlib.suppress(BlockingIOError):
                candidate.connect(place)
        except OSError:
            candidate.close()
            raise
        return candidate

    def _encrypt(self, deadline: float) -> None:
        context = ssl_context(self._security.tls)
        with self._lock:
            self.fail_if_shut_down()
            assert self._socket is not None
            # Certificates have no final dot, which a name may have in the DNS.
            host = self._address.host.rstrip(".")
            secured = context.wrap_socket(
                self._socket, server_hostname=host, do_handshake_on_connect=False
            )
            self._socket = secured
        try:
            secured.settimeout(max(0.001, deadline - time.monotonic()))
            secured.do_handshake()
        except OSError as error:
            self.fail_if_shut_down()
            refusal = tls_refusal(error, self._address, self._security.tls)
            if refusal is not None:
                raise refusal from None
            kind = BrokerUnreachableError if isinstance(error, TimeoutError) else HungUpError
            raise kind(
                f"the TLS handshake with {self._address} failed: {_reason(error)}"
            ) from error

    def is_quiet(self) -> bool:
        """Return whether it is open, and the peer neither hung up nor sent unexpected bytes."""
        connected = self._socket
        if connected is None or self._is_shut_down:
            return False
        try:
            connected.settimeout(0)
            # Over TLS this also processes session tickets.
            connected.recv(1)
        except (BlockingIOError, ssl.SSLWantReadError):
            return True
        except OSError:
            return False
        return False

    def send(self, payload: bytes, deadline: float) -> None:
        """Send one frame until a deadline in monotonic seconds.

        Raises:
            BrokerUnreachableError: It could not be sent; parts may have arrived.
            AccessError: The peer refused the handshake after it seemed complete (TLS 1.3).
        """
        connected = self._socket
        if connected is None:
            raise BrokerUnreachableError("not connected")
        try:
            connected.settimeout(max(0.001, deadline - time.monotonic()))
            connected.sendall(_FRAME_SIZE.pack(len(payload)) + payload)
        except OSError as error:
            raise self._refusal(error) or self._alert(connected) or _lost(error) from error

    def receive(self, deadline: float) -> bytes:
        """Wait for one frame and return its content.

        Args:
            deadline: Monotonic seconds.

        Raises:
            BrokerUnreachableError: It did not arrive.
            HungUpError: The peer closed the connection.
            AccessError: The peer requires TLS, or refused the handshake after it seemed complete.
            ProtocolError: The bytes are not a frame.
        """
        return self._receive_exactly(self._receive_size(deadline), deadline)

    def receive_into(self, buffer: FrameBuffer, idle_s: float) -> memoryview:
        """Wait for one frame and read its content into a buffer; raises like `receive`.

        A frame may be large and a network slow, so there is no fixed deadline: it fails if no byte
        arrives for `idle_s`, or if it arrives more slowly than 128 KiB a second after that time.

        Args:
            idle_s: The longest time without any byte.

        Returns:
            The part of the buffer with the content, valid until the buffer is used again.
        """
        size = self._receive_size(time.monotonic() + idle_s)
        frame = buffer.room(size)
        began_at, place = time.monotonic(), 0
        while place < size:
            waited_s = time.monotonic() - began_at
            # A peer that sends single bytes never runs into the timeout of one call.
            left_s = idle_s + place / _LEAST_BYTES_PER_S - waited_s
            try:
                connected = self._connected(min(idle_s, left_s))
                received = connected.recv_into(frame[place:])
            except (TimeoutError, BrokerUnreachableError) as error:
                self.fail_if_shut_down()
                raise BrokerUnreachableError(
                    f"received only {place} of {size} bytes of a frame in {waited_s:.1f} s; at"
                    f" least {_LEAST_BYTES_PER_S} bytes per second are required. On a slow network"
                    " lower kafka.fetch.max.bytes and kafka.max.partition.fetch.bytes"
                ) from error
            except OSError as error:
                raise self._refusal(error) or _lost(error) from error
            if not received:
                raise HungUpError("it closed the connection")
            place += received
        return frame.toreadonly()

    def _receive_size(self, deadline: float) -> int:
        head = self._receive_exactly(_FRAME_SIZE.size, deadline)
        size = int(_FRAME_SIZE.unpack(head)[0])
        if not _LEAST_FRAME_BYTES <= size <= self._max_frame_bytes:
            raise self._foreign(head, size)
        self._is_trusted = True
        return size

    def _foreign(self, head: bytes, size: int) -> Exception:
        """Return the error for bytes that no Kafka broker sends."""
        if self._is_trusted and size > self._max_frame_bytes:
            return FrameTooLargeError(
                f"{self._address} sent a frame of {size} bytes; the limit is"
                f" {self._max_frame_bytes} bytes"
            )
        if head.startswith(_TLS_ALERT):
            return AccessError(
                f"{self._address} sent a TLS alert: it is a TLS listener, and"
                f" kafka.security.protocol is {self._security.protocol}; set it to SSL or SASL_SSL"
            )
        for greeting, meaning in _FOREIGN_GREETINGS.items():
            if head.startswith(greeting):
                return ProtocolError(f"{self._address} sent {meaning}")
        return ProtocolError(
            f"{self._address} sent a frame of {size} bytes, not between {_LEAST_FRAME_BYTES} and"
            f" {self._max_frame_bytes}: is this a Kafka listener?"
        )

    def _receive_exactly(self, size: int, deadline: float) -> bytes:
        """Read bytes as they arrive, so that a length alone never allocates memory."""
        received = bytearray()
        while len(received) < size:
            connected = self._connected(deadline - time.monotonic())
            try:
                chunk = connected.recv(min(size - len(received), _RECEIVE_BYTES))
            except OSError as error:
                raise self._refusal(error) or _lost(error) from error
            if not chunk:
                raise HungUpError("it closed the connection")
            received += chunk
        return bytes(received)

    def _connected(self, timeout_s: float) -> socket.socket:
        """Return the socket, with a timeout for the next call.

        Raises:
            BrokerUnreachableError: There is no time left, or no socket.
        """
        if timeout_s <= 0 or self._socket is None:
            raise BrokerUnreachableError("no response in time")
        self._socket.settimeout(timeout_s)
        return self._socket

    def _refusal(self, error: OSError) -> AccessError | None:
        """Return the handshake failure that an error before the first frame means.

        With TLS 1.3 a refused client learns it only when it reads.
        """
        if self._is_trusted or self._is_shut_down or not self._security.uses_tls:
            return None
        return tls_refusal(error, self._address, self._security.tls)

    def _alert(self, connected: socket.socket) -> AccessError | None:
        """Return the TLS alert that the peer sent before it hung up."""
        try:
            connected.settimeout(0)
            connected.recv(1)
        except OSError as error:
            return self._refusal(error)
        return None

    def fail_if_shut_down(self) -> None:
        """Raise BrokerUnreachableError if `shutdown` was called."""
        if self._is_shut_down:
            raise BrokerUnreachableError(f"the connection to {self._address} was shut down")

    def close(self) -> None:
        """Close the socket; only for the thread that uses it, others call `shutdown`."""
        with self._lock:
            if self._socket is not None:
                self._socket.close()
                self._socket = None

    def shutdown(self) -> None:
        """Make the current call and all later ones fail at once; for any thread."""
        with self._lock:
            self._is_shut_down = True
            if self._socket is not None:
                with contextlib.suppress(OSError):
                    # An SSLSocket's own shutdown() would continue without encryption.
                    socket.socket.shutdown(self._socket, socket.SHUT_RDWR)


def _tune(connected: socket.socket) -> None:
    connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    connected.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in _KEEPALIVE.items():
        option = getattr(socket, name, None)
        if option is not None:
            connected.setsockopt(socket.IPPROTO_TCP, option, value)


def _lost(error: OSError) -> BrokerUnreachableError:
    hung_up = isinstance(error, ConnectionError | ssl.SSLEOFError | ssl.SSLZeroReturnError)
    return (HungUpError if hung_up else BrokerUnreachableError)(_reason(error))


def _reason(error: OSError) -> str:
    if isinstance(error, TimeoutError):
        return "no answer in time"
    return error.strerror or str(error) or type(error).__name__
