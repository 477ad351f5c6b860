"""One blocking connection to one broker: a request goes out, its response comes back.

One request is in flight at a time, because a broker answers one connection strictly in order.
Everything that waits (name resolution, connect, send, receive) ends at a monotonic deadline; after
any failure the connection is closed, since a late response could be taken for the next one's.
"""

from __future__ import annotations

import contextlib
import socket
import struct
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from spark_groups.errors import BrokerUnreachableError, ErrorCode, ProtocolError
from spark_groups.kafka.addresses import Address, resolve
from spark_groups.kafka.api_versions import ApiVersions
from spark_groups.kafka.codec import Values, decode, decode_start, encode
from spark_groups.kafka.schemas import (
    API_VERSIONS_V0,
    API_VERSIONS_V3,
    API_VERSIONS_V4,
    Message,
    Struct,
)
from spark_groups.protocol.messages import RequestFailed

CLIENT_SOFTWARE_NAME: Final = "spark-groups"
CLIENT_SOFTWARE_VERSION: Final = "0.1.0"
MAX_FRAME_BYTES: Final = 32 * 1024 * 1024
_RECEIVE_BYTES: Final = 256 * 1024
_CORRELATION_IDS: Final = 2**31
_LEAST_FRAME_BYTES: Final = 4

_FRAME_SIZE = struct.Struct(">i")
_UNSUPPORTED_VERSION: Final = struct.pack(">h", ErrorCode.UNSUPPORTED_VERSION)
_FOREIGN_GREETINGS: Final = {
    b"\x15\x03": "a TLS alert: this is a TLS listener, and security.protocol is PLAINTEXT",
    b"\x16\x03": "a TLS handshake: this is not a Kafka listener for security.protocol PLAINTEXT",
    b"HTTP": "an HTTP answer: this is not a Kafka listener",
    b"SSH-": "an SSH greeting: this is not a Kafka listener",
}


class RequestError(BrokerUnreachableError):
    """A request got no answer.

    Args:
        reason: What happened, with the address.
        may_have_arrived: False only when it is certain that no byte of the request was sent.
    """

    def __init__(self, reason: str, *, may_have_arrived: bool) -> None:
        super().__init__(reason)
        self.reason = reason
        self.may_have_arrived = may_have_arrived

    def as_failure(self) -> RequestFailed:
        """Return it as the value that the group client reads."""
        return RequestFailed(self.reason, self.may_have_arrived)


@dataclass(frozen=True, slots=True)
class Security:
    """How a connection is secured and authenticated.

    Args:
        protocol: Kafka's `security.protocol`; PLAINTEXT is the only one so far.

    Raises:
        ProtocolError: The protocol is not supported yet.
    """

    protocol: str = "PLAINTEXT"

    def __post_init__(self) -> None:
        if self.protocol != "PLAINTEXT":
            raise ProtocolError(
                f"security.protocol={self.protocol} is not supported yet, only PLAINTEXT is"
            )


@dataclass(frozen=True, slots=True)
class _InFlight:
    message: Message
    correlation_id: int
    deadline: float


class Connection:
    """A connection to one address; used by one thread, but for `shutdown`.

    Args:
        host: Host name or address of the broker.
        port: Port of its listener.
        client_id: What the broker calls this client in its logs and quotas.
        security: How to secure it.
        max_frame_bytes: The longest response that is read.
    """

    def __init__(
        self,
        host: str,
        port: int,
        *,
        client_id: str = CLIENT_SOFTWARE_NAME,
        security: Security | None = None,
        max_frame_bytes: int = MAX_FRAME_BYTES,
    ) -> None:
        self.address = Address(host, port)
        self.client_id = client_id
        self.security = security or Security()
        self.versions = ApiVersions()
        self._max_frame_bytes = max_frame_bytes
        self._correlation_id = 0
        self._in_flight: _InFlight | None = None
        self._socket: socket.socket | None = None
        self._lock = threading.Lock()
        self._shut_down = False

    def connect(self, timeout_s: float) -> None:
        """Connect, and learn which versions the broker has.

        Args:
            timeout_s: Seconds until both must be done.

        Raises:
            RequestError: The address cannot be resolved or reached, or did not answer in time.
            ProtocolError: What answered is not a Kafka broker.
        """
        deadline = time.monotonic() + timeout_s
        try:
            self._connect_any(deadline)
            self.versions = self._negotiate(deadline)
        except BrokerUnreachableError as error:
            self.close()
            raise RequestError(str(error), may_have_arrived=False) from error
        except ProtocolError:
            self.close()
            raise

    def _connect_any(self, deadline: float) -> None:
        targets = resolve(self.address, deadline)
        reasons = []
        for index, (family, target) in enumerate(targets):
            left_s = max(0.001, deadline - time.monotonic()) / (len(targets) - index)
            candidate = socket.socket(family, socket.SOCK_STREAM)
            with self._lock:
                self._socket = candidate
            try:
                self._fail_if_shut_down(sent=False)
                candidate.settimeout(left_s)
                candidate.connect(target)
            except OSError as error:
                self.close()
                reasons.append(_reason(error))
            else:
                candidate.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                candidate.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
                return
        self._fail_if_shut_down(sent=False)
        raise RequestError(
            f"cannot connect to {self.address}: {'; '.join(dict.fromkeys(reasons))}",
            may_have_arrived=False,
        )

    def _negotiate(self, deadline: float) -> ApiVersions:
        software = {
            "client_software_name": CLIENT_SOFTWARE_NAME,
            "client_software_version": CLIENT_SOFTWARE_VERSION,
        }
        message, values = API_VERSIONS_V4, self._exchange(API_VERSIONS_V4, software, deadline)
        if values["error_code"] == ErrorCode.UNSUPPORTED_VERSION:
            offered = ApiVersions.of(values)
            message = API_VERSIONS_V3 if offered.supports(API_VERSIONS_V3) else API_VERSIONS_V0
            values = self._exchange(message, software if message.version else {}, deadline)
        if values["error_code"]:
            raise ProtocolError(
                f"{self.address} answered {message} with {ErrorCode.name_of(values['error_code'])}"
            )
        return ApiVersions.of(values)

    @property
    def is_open(self) -> bool:
        return self._socket is not None and not self._shut_down

    def is_usable(self) -> bool:
        """Say whether a request may be sent: open, and the broker has not hung up meanwhile."""
        connected = self._socket
        if connected is None or self._shut_down or self._in_flight is not None:
            return False
        try:
            connected.settimeout(0)
            connected.recv(1, socket.MSG_PEEK)
        except BlockingIOError:
            return True
        except OSError:
            return False
        return False  # The end of the stream, or bytes that nobody asked for.

    def supports(self, message: Message) -> bool:
        """Say whether the broker speaks this version of an API."""
        return self.versions.supports(message)

    def request(self, message: Message, values: Mapping[str, Any], timeout_s: float) -> Values:
        """Send one request and wait for its response.

        Args:
            message: The API and version.
            values: The request's fields, by name.
            timeout_s: Seconds until the response must have arrived.

        Raises:
            RequestError: No response, with the reason; the connection is closed.
            ProtocolError: The values do not fit the table, the broker does not have this version,
                or its response cannot be read; after the last the connection is closed.
        """
        self.send(message, values, timeout_s)
        return self.receive()

    def send(self, message: Message, values: Mapping[str, Any], timeout_s: float) -> None:
        """Send one request, whose response `receive` waits for; errors are those of `request`."""
        if not self.supports(message):
            raise ProtocolError(
                f"{self.address} does not support {message}, it has"
                f" {self.versions.text(message)}: Apache Kafka 4.0 or later is needed"
            )
        self._send(message, values, time.monotonic() + timeout_s)

    def receive(self) -> Values:
        """Wait for the response to what was sent, until the deadline given there."""
        in_flight, self._in_flight = self._in_flight, None
        if in_flight is None:
            raise ProtocolError(f"nothing was sent to {self.address}")
        try:
            frame = self._receive_frame(in_flight)
            return self._read_response(in_flight, frame)
        except (RequestError, ProtocolError):
            self.close()
            raise

    def close(self) -> None:
        """Close it; only for the thread that uses it, the others call `shutdown`."""
        with self._lock:
            self._in_flight = None
            if self._socket is not None:
                self._socket.close()
                self._socket = None

    def shutdown(self) -> None:
        """Make a blocked or later call of the using thread fail at once; for any thread."""
        with self._lock:
            self._shut_down = True
            if self._socket is not None:
                with contextlib.suppress(OSError):
                    self._socket.shutdown(socket.SHUT_RDWR)

    def _exchange(self, message: Message, values: Mapping[str, Any], deadline: float) -> Values:
        self._send(message, values, deadline)
        return self.receive()

    def _send(self, message: Message, values: Mapping[str, Any], deadline: float) -> None:
        if self._in_flight is not None:
            raise ProtocolError(f"a request to {self.address} is already in flight")
        self._correlation_id = (self._correlation_id + 1) % _CORRELATION_IDS
        header = {
            "request_api_key": message.api_key,
            "request_api_version": message.version,
            "correlation_id": self._correlation_id,
            "client_id": self.client_id,
        }
        payload = encode(message.request_header, header) + encode(message.request, values)
        self._fail_if_shut_down(sent=False)
        connected = self._socket
        if connected is None:
            raise RequestError(f"not connected to {self.address}", may_have_arrived=False)
        left_s = deadline - time.monotonic()
        if left_s <= 0:
            raise RequestError(
                f"no time left to send {message} to {self.address}", may_have_arrived=False
            )
        try:
            connected.settimeout(left_s)
            connected.sendall(_FRAME_SIZE.pack(len(payload)) + payload)
        except OSError as error:
            self.close()
            raise self._failed(message, _reason(error)) from error
        self._in_flight = _InFlight(message, self._correlation_id, deadline)

    def _receive_frame(self, in_flight: _InFlight) -> bytes:
        head = self._receive_exactly(_FRAME_SIZE.size, in_flight)
        (size,) = _FRAME_SIZE.unpack(head)
        if not _LEAST_FRAME_BYTES <= size <= self._max_frame_bytes:
            for greeting, meaning in _FOREIGN_GREETINGS.items():
                if head.startswith(greeting):
                    raise ProtocolError(f"{self.address} sent {meaning}")
            raise ProtocolError(
                f"{self.address} sent a frame of {size} bytes, which is not within"
                f" {_LEAST_FRAME_BYTES} and {self._max_frame_bytes}: is this a Kafka listener?"
            )
        return self._receive_exactly(size, in_flight)

    def _receive_exactly(self, size: int, in_flight: _InFlight) -> bytes:
        """Read bytes as they come, so that a length alone never allocates anything."""
        received = bytearray()
        while len(received) < size:
            connected = self._socket
            left_s = in_flight.deadline - time.monotonic()
            if left_s <= 0 or connected is None:
                raise self._failed(in_flight.message, "no response in time")
            try:
                connected.settimeout(left_s)
                chunk = connected.recv(min(size - len(received), _RECEIVE_BYTES))
            except OSError as error:
                raise self._failed(in_flight.message, _reason(error)) from error
            if not chunk:
                raise self._failed(in_flight.message, self._closed_by_peer(in_flight.message))
            received += chunk
        return bytes(received)

    def _closed_by_peer(self, message: Message) -> str:
        if message.api_key == API_VERSIONS_V0.api_key:
            return "it closed the connection at once: is this a PLAINTEXT Kafka listener?"
        return "it closed the connection"

    def _read_response(self, in_flight: _InFlight, frame: bytes) -> Values:
        message = in_flight.message
        try:
            header, place = decode_start(message.response_header, frame)
            values = decode(_response_schema(message, frame, place), frame, place)
        except ProtocolError as error:
            raise ProtocolError(f"{self.address}: {error}") from error
        if header["correlation_id"] != in_flight.correlation_id:
            raise ProtocolError(
                f"{self.address} answered request {header['correlation_id']},"
                f" but {message} was request {in_flight.correlation_id}"
            )
        return values

    def _failed(self, message: Message, reason: str) -> RequestError:
        if self._shut_down:
            reason = "the connection was shut down"
        return RequestError(f"{message} to {self.address}: {reason}", may_have_arrived=True)

    def _fail_if_shut_down(self, *, sent: bool) -> None:
        if self._shut_down:
            raise RequestError(
                f"the connection to {self.address} was shut down", may_have_arrived=sent
            )


def _response_schema(message: Message, frame: bytes, place: int) -> Struct:
    """Return the table of a response: a refused ApiVersions is answered in its oldest version."""
    refused = frame[place : place + 2] == _UNSUPPORTED_VERSION
    if refused and message.api_key == API_VERSIONS_V0.api_key:
        return API_VERSIONS_V0.response
    return message.response


def _reason(error: OSError) -> str:
    if isinstance(error, TimeoutError):
        return "no answer in time"
    return error.strerror or str(error) or type(error).__name__
