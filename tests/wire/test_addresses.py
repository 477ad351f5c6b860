"""Reading bootstrap.servers and resolving names."""

from __future__ import annotations

import socket
import time

import pytest

from spark_groups.errors import BrokerUnreachableError, OptionsError
from spark_groups.wire.addresses import Address, parse_bootstrap_servers, resolve
from workshop.parts.waiting import LONG_S, SOON_S


@pytest.mark.parametrize(
    ("text", "addresses"),
    [
        ("a:9092", [Address("a", 9092)]),
        (" a:9092 , b.example:1,", [Address("a", 9092), Address("b.example", 1)]),
        (["a:9092", "a:9092"], [Address("a", 9092)]),
        ("[::1]:65535", [Address("::1", 65535)]),
        ("PLAINTEXT://a:9092", [Address("a", 9092)]),
    ],
)
def test_reads_what_kafka_reads(text, addresses: list[Address]) -> None:
    assert list(parse_bootstrap_servers(text)) == addresses


def test_says_everything_that_is_wrong() -> None:
    with pytest.raises(OptionsError, match=r"'a', 'b:x', 'c:70000', '::1:9092' is not host:port"):
        parse_bootstrap_servers("a,b:x,c:70000,::1:9092,d:1")


@pytest.mark.parametrize("text", ["", " , ", []])
def test_an_empty_list_is_refused(text) -> None:
    with pytest.raises(OptionsError, match=r"kafka\.bootstrap\.servers is empty"):
        parse_bootstrap_servers(text)


def test_writes_ipv6_in_brackets() -> None:
    assert str(Address("::1", 1)) == "[::1]:1"
    assert str(Address("a", 1)) == "a:1"


def test_resolves_addresses_and_names() -> None:
    deadline = time.monotonic() + LONG_S
    assert resolve(Address("127.0.0.1", 7), deadline) == ((socket.AF_INET, ("127.0.0.1", 7)),)
    assert any(target[0] == "127.0.0.1" for _, target in resolve(Address("localhost", 7), deadline))


@pytest.mark.parametrize("host", ["nowhere.invalid", "a" * 300, "\u2603" * 80])
def test_names_what_cannot_be_resolved(host: str) -> None:
    deadline = time.monotonic() + SOON_S
    with pytest.raises(BrokerUnreachableError, match=r"resolve the host name|not a host name"):
        resolve(Address(host, 7), deadline)
    assert time.monotonic() < deadline + SOON_S


def test_a_slow_name_service_ends_at_the_deadline() -> None:
    with pytest.raises(BrokerUnreachableError, match="cannot resolve the host name of"):
        resolve(Address("nowhere.invalid", 7), time.monotonic())
