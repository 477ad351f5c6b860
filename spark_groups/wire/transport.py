"""Frames over one socket, with or without TLS; every wait ends at a deadline."""

from __future__ import annotations

import contextlib
import socket
import ssl
import struct
import threading
import time
from typing import Final

from spark_groups.errors import AccessError, BrokerUnreachableError, ProtocolError
from spark_groups.wire.addresses import Address, resolve
from spark_groups.wire.security.security import Security
from spark_groups.wire.security.tls import ssl_context, tls_refusal

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

    def open(self, deadline: float) -> None:
        """Connect, with TLS if configured, until a deadline in monotonic seconds.

        Raises:
            BrokerUnreachableError: The address cannot be resolved or reached, or did not answer in
                time.
            HungUpError: The peer hung up during the TLS handshake.
            AccessError: TLS failed because a certificate was refused; not retried.
        """
        self._connect(deadline)
        if self._security.uses_tls:
            self._encrypt(deadline)

    def allow_full_frames(self) -> None:
        """Accept frames of up to `max_frame_bytes` from now on: the peer is authenticated."""
        self._max_frame_bytes = self._full_frame_bytes

    def _connect(self, deadline: float) -> None:
        targets = resolve(self._address, deadline)
        reasons = []
        for index, (family, target) in enumerate(targets):
            left_s = max(0.001, deadline - time.monotonic()) / (len(targets) - index)
            candidate = socket.socket(family, socket.SOCK_STREAM)
            with self._lock:
                self._socket = candidate
            try:
                self.fail_if_shut_down()
                if self._receive_buffer_bytes is not None:
                    # Must precede the connect, which negotiates the window.
                    size = self._receive_buffer_bytes
                    candidate.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, size)
                candidate.settimeout(left_s)
                candidate.connect(target)
            except OSError as error:
                self.close()
                reasons.append(_reason(error))
            else:
                candidate.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                candidate.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
                return
        self.fail_if_shut_down()
        raise BrokerUnreachableError(
            f"cannot connect to {self._address}: {'; '.join(dict.fromkeys(reasons))}"
        )

    def _encrypt(self, deadline: float) -> None:
        context = ssl_context(self._security.tls)
        with self._lock:
            self.fail_if_shut_down()
            assert self._socket is not None
            secured = context.wrap_socket(
                self._socket, server_hostname=self._address.host, do_handshake_on_connect=False
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


def _lost(error: OSError) -> BrokerUnreachableError:
    hung_up = isinstance(error, ConnectionError | ssl.SSLEOFError | ssl.SSLZeroReturnError)
    return (HungUpError if hung_up else BrokerUnreachableError)(_reason(error))


def _reason(error: OSError) -> str:
    if isinstance(error, TimeoutError):
        return "no answer in time"
    return error.strerror or str(error) or type(error).__name__
