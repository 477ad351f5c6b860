"""What a client says to log in, with scramp's server at the other end."""

from __future__ import annotations

import pytest
from scramp import ScramMechanism

from spark_groups.errors import AccessError
from spark_groups.wire.security.bearer_token import BearerToken
from spark_groups.wire.security.sasl import (
    Exchange,
    Mechanism,
    PasswordLogin,
    password_exchange,
    token_exchange,
)


def ended(exchange: Exchange, answer: bytes) -> bool:
    try:
        exchange.send(answer)
    except StopIteration:
        return True
    return False


def test_plain_is_one_message() -> None:
    exchange = password_exchange(PasswordLogin(Mechanism.PLAIN, "zoë", "päss"), 60)
    assert next(exchange) == "\0zoë\0päss".encode()
    assert ended(exchange, b"")


@pytest.mark.parametrize("mechanism", [Mechanism.SCRAM_SHA_256, Mechanism.SCRAM_SHA_512])
def test_scram_proves_both_sides(mechanism: Mechanism) -> None:
    scram = ScramMechanism(mechanism.value)
    known = scram.make_auth_info("wonder", iteration_count=4096)
    server = scram.make_server(lambda user: {"alice": known}[user])
    exchange = password_exchange(PasswordLogin(mechanism, "alice", "wonder"), 60)
    server.set_client_first(next(exchange).decode())
    server.set_client_final(exchange.send(server.get_server_first().encode()).decode())
    assert ended(exchange, server.get_server_final().encode())


@pytest.mark.parametrize(
    ("final", "says"),
    [
        (b"v=AAAA", "it may be an impostor"),
        (b"e=other-error", "refused the login by SCRAM-SHA-512: other-error; check username"),
        (b"\xff", "a message that is not UTF-8 is not one of SCRAM-SHA-512"),
        (b"", "its last message is not one of SCRAM-SHA-512"),
    ],
)
def test_a_server_that_does_not_know_the_password_is_refused(final: bytes, says: str) -> None:
    mechanism = Mechanism.SCRAM_SHA_512
    scram = ScramMechanism(mechanism.value)
    server = scram.make_server(lambda _: scram.make_auth_info("wonder", iteration_count=4096))
    exchange = password_exchange(PasswordLogin(mechanism, "alice", "wonder"), 60)
    server.set_client_first(next(exchange).decode())
    exchange.send(server.get_server_first().encode())
    with pytest.raises(AccessError, match=says) as raised:
        exchange.send(final)
    assert ("impostor" in str(raised.value)) is final.startswith(b"v=")
    assert "wonder" not in str(raised.value)


@pytest.mark.parametrize(
    ("iterations", "says"),
    [
        ("10000000000", r"would take \d+ s"),
        ("many", "its first message is not one of SCRAM-SHA-256"),
        ("-5", "its first message is not one of SCRAM-SHA-256"),
        ("0", "its first message is not one of SCRAM-SHA-256"),
    ],
)
def test_iterations_that_take_longer_than_there_is_time_are_refused(
    iterations: str, says: str
) -> None:
    exchange = password_exchange(PasswordLogin(Mechanism.SCRAM_SHA_256, "alice", "wonder"), 0.5)
    nonce = next(exchange).decode().rpartition("r=")[2]
    salt = "MDEyMzQ1Njc4OWFiY2RlZg=="
    with pytest.raises(AccessError, match=says) as raised:
        exchange.send(f"r={nonce}more,s={salt},i={iterations}".encode())
    assert "wonder" not in str(raised.value)


def test_a_token_goes_along_with_its_extensions() -> None:
    exchange = token_exchange(BearerToken("abc", 0, extensions=(("a", "1"), ("b", "2"))))
    assert next(exchange) == b"n,,\1auth=Bearer abc\1a=1\1b=2\1\1"
    assert ended(exchange, b"")
    refused = token_exchange(BearerToken("abc", 0))
    assert next(refused) == b"n,,\1auth=Bearer abc\1\1"
    assert refused.send(b'{"status":"invalid_token"}') == b"\1"
