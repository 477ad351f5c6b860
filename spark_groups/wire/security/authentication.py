"""SASL on a new connection: SaslHandshake, then SaslAuthenticate until the exchange is complete."""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Callable, Mapping
from typing import Any, Final

from spark_groups.errors import AccessError, BrokerUnreachableError, ErrorCode, printable
from spark_groups.wire.addresses import Address
from spark_groups.wire.schemas.codec import Values
from spark_groups.wire.schemas.wire_messages import SASL_AUTHENTICATE, SASL_HANDSHAKE, Message
from spark_groups.wire.security.sasl import (
    Exchange,
    PasswordLogin,
    ProviderLogin,
    TokenLogin,
    password_exchange,
    token_exchange,
)
from spark_groups.wire.security.security import Security
from spark_groups.wire.security.token_provider import provider_source
from spark_groups.wire.security.tokens import TOKENS

Ask = Callable[[Message, Mapping[str, Any]], Values]
_RECONNECT_AT: Final = 0.85
"""Kafka's own clients log in again between 85 % and 95 % of a session's lifetime."""


def log_in(ask: Ask, security: Security, address: Address, deadline: float) -> float:
    """Authenticate, and return the end of the session in monotonic seconds.

    Args:
        ask: Sends one request over the connection.
        deadline: Monotonic seconds until which a token must be there.

    Raises:
        AccessError: Authentication failed, not retried; names the option to correct.
        BrokerUnreachableError: The source of tokens did not answer, or the broker refused a token,
            and another one may be taken.
    """
    login = security.login
    assert login is not None
    exchange = _exchange(security, deadline)
    message = next(exchange)
    _choose_mechanism(ask, login.mechanism.value, security, address)
    challenge = b""
    while True:
        sent_at = time.monotonic()
        answer = ask(SASL_AUTHENTICATE, {"auth_bytes": message})
        if answer["error_code"]:
            reason = _refused(answer, challenge, security, address)
            if security.tries_another_token(reason):
                raise BrokerUnreachableError(reason)
            raise AccessError(reason)
        challenge = answer["auth_bytes"]
        try:
            message = exchange.send(challenge)
        except StopIteration:
            break
        except AccessError as error:
            raise AccessError(f"{address}: {error}") from None
    if not isinstance(login, PasswordLogin):
        TOKENS.accepted(login)
    lifetime_ms = answer["session_lifetime_ms"]
    return sent_at + _RECONNECT_AT * lifetime_ms / 1000 if lifetime_ms > 0 else float("inf")


def _exchange(security: Security, deadline: float) -> Exchange:
    if isinstance(security.login, PasswordLogin):
        return password_exchange(security.login, deadline - time.monotonic())
    assert security.login is not None
    token = TOKENS.token(security.login, security.tls, deadline - time.monotonic())
    return token_exchange(token)


def _choose_mechanism(ask: Ask, mechanism: str, security: Security, address: Address) -> None:
    answer = ask(SASL_HANDSHAKE, {"mechanism": mechanism})
    code = answer["error_code"]
    if code == ErrorCode.UNSUPPORTED_SASL_MECHANISM:
        offered = ", ".join(answer["mechanisms"]) or "none"
        raise AccessError(
            f"{address} does not offer kafka.sasl.mechanism={mechanism}; it offers {offered}"
        )
    if code == ErrorCode.ILLEGAL_SASL_STATE:
        without = security.protocol.removeprefix("SASL_")
        raise AccessError(
            f"{address} is a listener without SASL: name the {security.protocol} listener in"
            f" kafka.bootstrap.servers, or set kafka.security.protocol to {without}"
        )
    if code:
        raise AccessError(f"{address} answered SaslHandshake with {ErrorCode.name_of(code)}")


def _refused(answer: Values, challenge: bytes, security: Security, address: Address) -> str:
    login = security.login
    assert login is not None
    reason = answer["error_message"] or ErrorCode.name_of(answer["error_code"])
    if isinstance(login, PasswordLogin):
        who = f"user {login.username!r}"
        remedy = "check username and password in kafka.sasl.jaas.config"
    else:
        who = f"the token of {_issuer(login)}"
        remedy = "check its issuer, audience, scope and expiry"
        with contextlib.suppress(ValueError, KeyError, TypeError, AttributeError, RecursionError):
            status = printable(json.loads(challenge)["status"])
            reason = f"{reason} ({status})" if status not in reason else reason
    return f"{address} rejected {who} ({login.mechanism.value}): {reason}; {remedy}"


def _issuer(login: TokenLogin | ProviderLogin) -> str:
    if isinstance(login, ProviderLogin):
        return provider_source(login)
    return repr(login.client_id) if login.client_id else login.endpoint_url
