"""Addresses of brokers: parsing `bootstrap.servers`, and resolving host names before a deadline."""

from __future__ import annotations

import re
import socket
import threading
import time
from collections import OrderedDict
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final

from spark_groups.errors import BrokerUnreachableError, OptionsError

_SERVER = re.compile(
    r"(?:[A-Z_]+://)?"
    r"(?:\[(?P<ipv6>[0-9A-Fa-f:.%]+)\]|(?P<host>[^\s:\[\]/]+)):(?P<port>\d{1,5})"
)


@dataclass(frozen=True, slots=True, order=True)
class Address:
    """Host and port of a listener; a name is in lower case."""

    host: str
    port: int

    def __post_init__(self) -> None:
        if ":" not in self.host:
            # Names have no case; the zone of an IPv6 address has.
            object.__setattr__(self, "host", self.host.lower())

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def parse_bootstrap_servers(bootstrap_servers: str | Iterable[str]) -> tuple[Address, ...]:
    """Parse `bootstrap.servers`: a comma-separated text or a sequence of `host:port`.

    Raises:
        OptionsError: It is empty, or some entries are not `host:port`; lists all of those.
    """
    if isinstance(bootstrap_servers, str):
        bootstrap_servers = bootstrap_servers.split(",")
    addresses: list[Address] = []
    wrong: list[str] = []
    for text in (bootstrap_server.strip() for bootstrap_server in bootstrap_servers):
        found = _SERVER.fullmatch(text)
        if found and 0 < int(found["port"]) <= 0xFFFF:
            addresses.append(Address(found["ipv6"] or found["host"], int(found["port"])))
        elif text:
            wrong.append(text)
    if wrong:
        listed = ", ".join(repr(each) for each in wrong)
        raise OptionsError(f"kafka.bootstrap.servers: {listed} is not host:port")
    if not addresses:
        raise OptionsError("kafka.bootstrap.servers is empty: give host:port of a broker")
    return tuple(dict.fromkeys(addresses))


_TARGETS_MAX: Final = 1_000
SocketTarget = tuple[socket.AddressFamily, Any]
"""An address family and an address for `socket.connect`."""


class ReachedTargets:
    """The socket address of each host that was reached last; of this process, for any thread."""

    def __init__(self) -> None:
        self._targets: OrderedDict[Address, SocketTarget] = OrderedDict()
        self._lock = threading.Lock()

    def reached(self, address: Address, target: SocketTarget) -> None:
        """Note the socket address to which a connection was made."""
        with self._lock:
            self._targets[address] = target
            self._targets.move_to_end(address)
            while len(self._targets) > _TARGETS_MAX:
                self._targets.popitem(last=False)

    def first(
        self, address: Address, targets: tuple[SocketTarget, ...]
    ) -> tuple[SocketTarget, ...]:
        """Return socket addresses of a host, with the one that was reached last in front."""
        with self._lock:
            last = self._targets.get(address)
        return tuple(sorted(targets, key=lambda each: each != last))


REACHED: Final = ReachedTargets()
"""The socket addresses that this process has reached."""


def resolve(address: Address, deadline: float) -> tuple[SocketTarget, ...]:
    """Return the socket addresses of a host, in the system's order of preference.

    A name is looked up in a thread of its own, because `getaddrinfo` has no timeout.

    Args:
        deadline: Monotonic seconds.

    Raises:
        BrokerUnreachableError: The name is unknown, or the lookup timed out.
    """
    try:
        return _look_up(address, socket.AI_NUMERICHOST)
    except socket.gaierror:
        pass  # A name, not an address.
    except UnicodeError as error:
        raise BrokerUnreachableError(f"{address} is not a host name") from error
    found: list[tuple[SocketTarget, ...]] = []
    errors: list[Exception] = []

    def look_up() -> None:
        try:
            found.append(_look_up(address, 0))
        except (OSError, UnicodeError) as error:
            errors.append(error)

    thread = threading.Thread(target=look_up, name=f"resolve-{address.host}", daemon=True)
    thread.start()
    thread.join(max(0.0, deadline - time.monotonic()))
    if found:
        return found[0]
    reason = getattr(errors[0], "strerror", None) or str(errors[0]) if errors else "no answer"
    raise BrokerUnreachableError(f"cannot resolve the host name of {address}: {reason}")


def _look_up(address: Address, flags: int) -> tuple[SocketTarget, ...]:
    answers = socket.getaddrinfo(address.host, address.port, type=socket.SOCK_STREAM, flags=flags)
    return tuple(dict.fromkeys((family, target) for family, _, _, _, target in answers))
