"""One blocking connection to one broker, with one request in flight.

A broker answers a connection strictly in order. Every wait ends at a monotonic deadline; after any
failure the connection is closed, because a late response could be taken for the next one.
"""

from __future__ import annotations

import math
import struct
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from spark_groups.errors import AccessError, BrokerUnreachableError, ErrorCode, ProtocolError
from spark_groups.group.member.messages import RequestFailed
from spark_groups.wire.addresses import Address
from spark_groups.wire.cluster_identity import ClusterIdentity
from spark_groups.wire.schemas.codec import Frame, Values, decode, decode_start, encode
from spark_groups.wire.schemas.wire_messages import (
    API_VERSIONS_V0,
    API_VERSIONS_V3,
    API_VERSIONS_V4,
    METADATA,
    SASL_HANDSHAKE,
    Message,
    Struct,
)
from spark_groups.wire.security.authentication import log_in
from spark_groups.wire.security.security import Security
from spark_groups.wire.security.tls import no_tls
from spark_groups.wire.timeouts import USUAL_TIMEOUTS, Timeouts
from spark_groups.wire.topic_metadata import metadata_to_wire
from spark_groups.wire.transport import FrameBuffer, HungUpError, Transport

CLIENT_SOFTWARE_NAME: Final = "spark-groups"
CLIENT_SOFTWARE_VERSION: Final = "0.1.0"
MAX_FRAME_BYTES: Final = 32 * 1024 * 1024
_CORRELATION_IDS: Final = 2**31
OLD_S: Final = 3.0
"""The age of the last answer from which on a connection may have been dropped in silence."""
_PROBE_S: Final = 10.0
"""Timeout for detecting the kind of a listener that hung up."""

_UNSUPPORTED_VERSION: Final = struct.pack(">h", ErrorCode.UNSUPPORTED_VERSION)


ADVERTISED: Final = (
    "a broker gave this address: advertised.listeners in its configuration must name one that leads"
    " to it from here"
)


class RequestError(BrokerUnreachableError):
    """A request got no answer.

    Args:
        reason: The failure, with the address.
        may_have_arrived: False only if certainly no byte of the request was sent.
    """

    def __init__(self, reason: str, *, may_have_arrived: bool) -> None:
        super().__init__(reason)
        self.reason = reason
        self.may_have_arrived = may_have_arrived

    def as_failure(self) -> RequestFailed:
        """Return the value that the group client reads."""
        return RequestFailed(self.reason, self.may_have_arrived)


class AdvertisedAddressError(RequestError):
    """An address that a broker gave leads nowhere: it was never reached.

    Args:
        reason: Why it cannot be reached.
    """

    def __init__(self, reason: str) -> None:
        super().__init__(f"{reason}; {ADVERTISED}", may_have_arrived=False)


class AnotherClusterError(RequestError):
    """An address leads to another cluster; nothing was sent there but the question for its id."""


@dataclass(frozen=True, slots=True)
class _InFlight:
    message: Message
    correlation_id: int
    sent_at: float
    deadline: float


class Connection:
    """A connection to one address; used by one thread, except for `shutdown`.

    Args:
        client_id: Appears in the broker's logs and quotas.
        identity: The cluster that the address must lead to; None: any.
        timeouts: When it is too old to be used.
        max_frame_bytes: The longest response that is accepted.
        receive_buffer_bytes: The socket's receive buffer; None for the system's default.
    """

    def __init__(
        self,
        host: str,
        port: int,
        *,
        client_id: str = CLIENT_SOFTWARE_NAME,
        security: Security | None = None,
        timeouts: Timeouts = USUAL_TIMEOUTS,
        identity: ClusterIdentity | None = None,
        max_frame_bytes: int = MAX_FRAME_BYTES,
        receive_buffer_bytes: int | None = None,
    ) -> None:
        self.address = Address(host, port)
        self.client_id = client_id
        self.security = security or Security()
        self._timeouts = timeouts
        self._identity = identity
        self.versions = ApiVersions()
        self._transport = Transport(
            self.address, self.security, max_frame_bytes, receive_buffer_bytes
        )
        self._correlation_id = 0
        self._in_flight: _InFlight | None = None
        self._was_answered = False
        self._usable_until = math.inf
        self._answered_at = -math.inf
        self._slowest_s = 0.0

    def connect(self, timeout_s: float, setup_s: float | None = None) -> None:
        """Connect, negotiate versions, authenticate if SASL is configured, and ask for the cluster.

        Args:
            timeout_s: For all of it.
            setup_s: For the TCP connection; None: that of `timeouts`.

        Raises:
            RequestError: The address cannot be resolved or reached, or did not answer in time.
            AnotherClusterError: It leads to another cluster.
            ProtocolError: The peer is not a Kafka broker.
            AccessError: TLS or authentication failed; not retried.
        """
        deadline = time.monotonic() + timeout_s
        try:
            self._open(deadline, self._timeouts.setup_s if setup_s is None else setup_s)
            self.versions = self._negotiate(deadline)
            if self.security.uses_sasl:
                self._usable_until = log_in(
                    lambda message, values: self._exchange(message, values, deadline),
                    self.security,
                    self.address,
                    deadline,
                )
            self._transport.allow_full_frames()
            self._was_answered = False
            self._check_cluster(deadline)
        except (AnotherClusterError, ProtocolError, AccessError):
            self.close()
            raise
        except BrokerUnreachableError as error:
            self.close()
            raise RequestError(str(error), may_have_arrived=False) from error

    def _open(self, deadline: float, setup_s: float) -> None:
        try:
            self._transport.open(deadline, setup_s)
        except HungUpError:
            if self._speaks_plaintext():
                raise no_tls(self.address) from None
            raise

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

    def _check_cluster(self, deadline: float) -> None:
        if self._identity is None or not self.supports(METADATA):
            return
        # Metadata without topics needs no rights, and every broker answers it.
        found = self._exchange(METADATA, metadata_to_wire(), deadline)["cluster_id"]
        refusal = self._identity.refusal(self.address, found)
        if refusal is not None:
            raise AnotherClusterError(refusal, may_have_arrived=False)

    def _speaks_plaintext(self) -> bool:
        """Return whether the listener that hung up answers ApiVersions without TLS."""
        other = Connection(self.address.host, self.address.port, client_id=self.client_id)
        try:
            other.connect(_PROBE_S)
        except (RequestError, ProtocolError, AccessError):
            return False
        other.close()
        return True

    def _fail_if_login_is_required(self) -> None:
        """Raise an AccessError if a broker hung up because it requires authentication."""
        other = Connection(
            self.address.host, self.address.port, client_id=self.client_id, security=self.security
        )
        try:
            other.connect(_PROBE_S)
            deadline = time.monotonic() + _PROBE_S
            offered = other._exchange(SASL_HANDSHAKE, {"mechanism": ""}, deadline)["mechanisms"]
        except (RequestError, ProtocolError):
            return
        finally:
            other.close()
        if offered:
            required = "SASL_SSL" if self.security.uses_tls else "SASL_PLAINTEXT"
            raise AccessError(
                f"{self.address} requires authentication, but kafka.security.protocol is"
                f" {self.security.protocol}: set it to {required}, and kafka.sasl.mechanism to one"
                f" of {', '.join(offered)}"
            )

    @property
    def is_open(self) -> bool:
        return self._transport.is_open

    def is_usable(self) -> bool:
        """Return whether the connection is open and the broker has not hung up.

        A session near the end of its lifetime is not usable: the broker would end it. Nor is a
        connection that was idle for `connections.max.idle.ms`.
        """
        now = time.monotonic()
        if self._in_flight is not None or now >= self._usable_until:
            return False
        if now - self._answered_at >= self._timeouts.max_idle_s:
            return False
        return self._transport.is_quiet()

    def supports(self, message: Message) -> bool:
        """Return whether the broker supports this version of an API."""
        return self.versions.supports(message)

    def request(self, message: Message, values: Mapping[str, Any], timeout_s: float) -> Values:
        """Send one request and wait for its response.

        Args:
            values: The request's fields by name.
            timeout_s: Until the response must have arrived.

        Raises:
            RequestError: No response arrived; the connection is closed.
            ProtocolError: The values do not fit the schema, the broker does not support this
                version, or the response cannot be read; in the last case the connection is closed.
        """
        self.send(message, values, timeout_s)
        return self.receive()

    def send(self, message: Message, values: Mapping[str, Any], timeout_s: float) -> None:
        """Send one request for `receive`; raises like `request`.

        If the last answer is old, a middlebox may have dropped the connection without a word: this
        request then ends after a short time, and a caller that retries it gets a new connection.
        """
        if not self.supports(message):
            raise ProtocolError(
                f"{self.address} does not support {message}, only"
                f" {self.versions.text(message)}: Apache Kafka 4.0 or later is required"
            )
        now = time.monotonic()
        if now - self._answered_at >= OLD_S:
            timeout_s = min(timeout_s, max(self._timeouts.first_wait_s, 2 * self._slowest_s))
        self._send(message, values, now + timeout_s)

    @property
    def deadline(self) -> float:
        """Until when the answer to the request in flight must come; infinite without one."""
        return math.inf if self._in_flight is None else self._in_flight.deadline

    def receive(self) -> Values:
        """Wait for the response until the deadline given to `send`."""
        return self._receive(lambda in_flight: self._transport.receive(in_flight.deadline))

    def receive_into(self, buffer: FrameBuffer, idle_s: float) -> Values:
        """Wait for the response and read it into a buffer.

        Args:
            buffer: Holds the records until its next use; all other values are copies.
            idle_s: The longest time without any byte; see `Transport.receive_into`.
        """
        return self._receive(lambda _: self._transport.receive_into(buffer, idle_s))

    def fileno(self) -> int:
        """Return the socket's descriptor for `selectors`; -1 without a socket."""
        return self._transport.fileno()

    def _receive(self, read_frame: Callable[[_InFlight], Frame]) -> Values:
        in_flight, self._in_flight = self._in_flight, None
        if in_flight is None:
            raise ProtocolError(f"no request to {self.address} is in flight")
        try:
            values = self._read_response(in_flight, read_frame(in_flight))
        except BrokerUnreachableError as error:
            self.close()
            reason = str(error)
            if isinstance(error, HungUpError):
                reason = self._why_hung_up(in_flight.message, reason)
            raise self._failed(in_flight.message, reason) from error
        except (ProtocolError, AccessError):
            self.close()
            raise
        self._was_answered = True
        self._answered_at = time.monotonic()
        self._slowest_s = max(self._slowest_s, self._answered_at - in_flight.sent_at)
        return values

    def _why_hung_up(self, message: Message, reason: str) -> str:
        if self._was_answered or self._transport.is_shut_down:
            return reason
        protocol = self.security.protocol
        if message.api_key == API_VERSIONS_V0.api_key:
            return f"{reason} at once: is this a {protocol} Kafka listener?"
        if message is not SASL_HANDSHAKE and not self.security.uses_sasl:
            self._fail_if_login_is_required()
        return reason

    def close(self) -> None:
        """Close the connection; only for the thread that uses it, others call `shutdown`."""
        self._in_flight = None
        self._transport.close()

    def shutdown(self) -> None:
        """Make the current call and all later ones fail at once; for any thread."""
        self._transport.shutdown()

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
        try:
            self._transport.fail_if_shut_down()
        except BrokerUnreachableError as error:
            raise RequestError(str(error), may_have_arrived=False) from error
        if not self._transport.is_open:
            raise RequestError(f"not connected to {self.address}", may_have_arrived=False)
        if deadline <= time.monotonic():
            raise RequestError(
                f"no time left to send {message} to {self.address}", may_have_arrived=False
            )
        try:
            self._transport.send(payload, deadline)
        except BrokerUnreachableError as error:
            self.close()
            raise self._failed(message, str(error)) from error
        except AccessError:
            self.close()
            raise
        now = time.monotonic()
        self._in_flight = _InFlight(message, self._correlation_id, now, deadline)

    def _read_response(self, in_flight: _InFlight, frame: Frame) -> Values:
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
        if self._transport.is_shut_down:
            reason = "the connection was shut down"
        return RequestError(f"{message} to {self.address}: {reason}", may_have_arrived=True)


def _response_schema(message: Message, frame: Frame, place: int) -> Struct:
    """Return a response's schema; a rejected ApiVersions is answered in version 0."""
    refused = frame[place : place + 2] == _UNSUPPORTED_VERSION
    if refused and message.api_key == API_VERSIONS_V0.api_key:
        return API_VERSIONS_V0.response
    return message.response


@dataclass(frozen=True, slots=True)
class ApiVersions:
    """The API versions that a broker supports.

    Args:
        by_key: Lowest and highest version by API key.
        feature_levels: Level of each finalized feature of the cluster; one at level 0 is missing.
    """

    by_key: Mapping[int, tuple[int, int]] = field(default_factory=dict)
    feature_levels: Mapping[str, int] = field(default_factory=dict)

    @classmethod
    def of(cls, values: Mapping[str, Any]) -> ApiVersions:
        """Read an ApiVersions response of any version."""
        features = values.get("finalized_features", ())
        return cls(
            {e["api_key"]: (e["min_version"], e["max_version"]) for e in values["api_keys"]},
            {feature["name"]: feature["max_version_level"] for feature in features},
        )

    def supports(self, message: Message) -> bool:
        """Return whether the broker supports this version of an API."""
        lowest, highest = self.by_key.get(message.api_key, (0, -1))
        return lowest <= message.version <= highest

    def text(self, message: Message) -> str:
        """Return the supported versions of an API as text."""
        if message.api_key not in self.by_key:
            return "no version"
        lowest, highest = self.by_key[message.api_key]
        return f"v{lowest} to v{highest}"
