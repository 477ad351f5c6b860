"""Tokens for OAUTHBEARER: fetched by client credentials over HTTP, or read from a file."""

from __future__ import annotations

import base64
import binascii
import json
import ssl
import threading
import time
import urllib.error
import urllib.parse
import urllib.request
from collections import OrderedDict
from dataclasses import dataclass, field
from http.client import HTTPException
from pathlib import Path
from typing import Any, Final

from spark_groups.errors import AccessError, BrokerUnreachableError, printable
from spark_groups.wire.security.sasl import TokenLogin
from spark_groups.wire.security.tls import Tls

TOKEN_BYTES_MAX: Final = 1024 * 1024
_ERROR_FIELDS: Final = ("error", "error_description")
_ERROR_FIELD_MAX: Final = 500
"""How many characters of each field an error message repeats."""
UNKNOWN_LIFETIME_S: Final = 300.0
"""How long a token is taken for good that does not say it."""
_RENEW_AT: Final = 0.8
_TOKENS_MAX: Final = 16
_SECRETS_REMEDY: Final = (
    "check kafka.sasl.oauthbearer.client.credentials.client.id and ...client.secret, or clientId"
    " and clientSecret in kafka.sasl.jaas.config, and kafka.sasl.oauthbearer.scope"
)


@dataclass(frozen=True, slots=True)
class Token:
    """A token, and when it ends.

    Args:
        text: The token.
        expires_at_s: Seconds since 1970.
        renew_at_s: When to fetch the next one.
    """

    text: str = field(repr=False)
    expires_at_s: float
    renew_at_s: float


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    """A redirect would carry the client's secret to another host."""

    def redirect_request(self, *_: Any) -> None:
        return None


class TokenStore:
    """The tokens of a process, each used by all connections until it is nearly over."""

    def __init__(self) -> None:
        self._tokens: OrderedDict[TokenLogin, Token] = OrderedDict()
        self._lock = threading.Lock()

    def token(self, login: TokenLogin, tls: Tls, timeout_s: float) -> Token:
        """Return a token that is good for a while.

        Args:
            login: Whose.
            tls: What is trusted at the endpoint, beside what the system trusts.
            timeout_s: Seconds in which it must be there.

        Raises:
            AccessError: The endpoint refused, or what it gives is no token.
            BrokerUnreachableError: The endpoint did not answer in time.
        """
        with self._lock:
            known = self._tokens.get(login)
        if known is not None and time.time() < known.renew_at_s:
            return known
        if login.endpoint_url.lower().startswith("file:"):
            return _read_token(login.endpoint_url)
        fresh = _fetch_in_time(login, tls, timeout_s)
        with self._lock:
            self._tokens[login] = fresh
            self._tokens.move_to_end(login)
            while len(self._tokens) > _TOKENS_MAX:
                self._tokens.popitem(last=False)
        return fresh

    def forget(self, login: TokenLogin) -> None:
        """Fetch another one next time: a broker refused this one."""
        with self._lock:
            self._tokens.pop(login, None)


TOKENS: Final = TokenStore()
"""The tokens of this process."""


def _read_token(url: str) -> Token:
    path = Path(urllib.request.url2pathname(urllib.parse.urlsplit(url).path))
    try:
        text = path.read_text(encoding="ascii").strip()
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not ASCII"
        raise AccessError(
            f"the token in {path} cannot be read: {reason}; correct"
            " kafka.sasl.oauthbearer.token.endpoint.url"
        ) from None
    return _token(text, None, str(path))


def _fetch_in_time(login: TokenLogin, tls: Tls, timeout_s: float) -> Token:
    """Fetch in a thread of its own: urllib bounds each read, and nothing bounds them together."""
    fetched: list[Token | Exception] = []

    def fetch() -> None:
        try:
            fetched.append(_fetch(login, tls, max(0.001, timeout_s)))
        except (AccessError, BrokerUnreachableError) as error:
            fetched.append(error)
        except ValueError:
            # Its own words may repeat all of the address.
            name = "kafka.sasl.oauthbearer.token.endpoint.url"
            fetched.append(AccessError(f"{_said(login)} is no address: correct {name}"))

    thread = threading.Thread(target=fetch, name="oauth-token", daemon=True)
    thread.start()
    thread.join(max(0.001, timeout_s))
    if not fetched:
        raise BrokerUnreachableError(f"{_said(login)} did not answer in time")
    if isinstance(fetched[0], Exception):
        raise fetched[0]
    return fetched[0]


def _fetch(login: TokenLogin, tls: Tls, timeout_s: float) -> Token:
    form = {"grant_type": "client_credentials"}
    if login.scope:
        form["scope"] = login.scope
    secret = f"{login.client_id}:{login.client_secret}".encode()
    request = urllib.request.Request(
        login.endpoint_url,
        data=urllib.parse.urlencode(form).encode(),
        headers={
            "Accept": "application/json",
            "Authorization": f"Basic {base64.b64encode(secret).decode()}",
        },
    )
    opener = urllib.request.build_opener(
        _NoRedirects, urllib.request.HTTPSHandler(context=_context(tls))
    )
    try:
        with opener.open(request, timeout=timeout_s) as answer:
            body = answer.read(TOKEN_BYTES_MAX)
    except urllib.error.HTTPError as error:
        with error:
            raise _refusal(login, error) from None
    except (OSError, HTTPException) as error:
        cause = getattr(error, "reason", error)
        if isinstance(cause, ssl.SSLCertVerificationError):
            raise AccessError(
                f"the certificate of {_said(login)} is not trusted: {cause.verify_message}; set"
                " kafka.ssl.truststore.location or .certificates to its authority"
            ) from None
        raise BrokerUnreachableError(f"{_said(login)} cannot be reached: {cause}") from None
    try:
        values = json.loads(body)
        return _token(values["access_token"], values.get("expires_in"), _said(login))
    except (ValueError, KeyError, TypeError, RecursionError):
        raise AccessError(f"{_said(login)} answered without an access_token") from None


def _context(tls: Tls) -> ssl.SSLContext:
    context = ssl.create_default_context()
    if tls.trusted_pem is not None:
        context.load_verify_locations(cadata=tls.trusted_pem)
    return context


def _refusal(login: TokenLogin, error: urllib.error.HTTPError) -> Exception:
    reason = f"HTTP {error.code}"
    try:
        said = json.loads(error.read(TOKEN_BYTES_MAX))
        reason = ", ".join(
            [
                reason,
                *(
                    printable(str(said[key]))[:_ERROR_FIELD_MAX]
                    for key in _ERROR_FIELDS
                    if key in said
                ),
            ]
        )
    except (OSError, ValueError, TypeError, RecursionError):
        pass  # The code alone has to do.
    if login.client_secret:
        reason = reason.replace(login.client_secret, "***")
    if error.code >= 500 or error.code == 429:
        return BrokerUnreachableError(f"{_said(login)} gave no token: {reason}")
    return AccessError(f"{_said(login)} gave no token: {reason}; {_SECRETS_REMEDY}")


def _said(login: TokenLogin) -> str:
    """Return how messages call the endpoint: without a query, which may hold a secret."""
    address = login.endpoint_url.partition("?")[0]
    scheme, _, rest = address.partition("://")
    return f"the token endpoint {scheme}://{rest.rpartition('@')[2]}"


def _token(text: Any, expires_in_s: Any, where: str) -> Token:
    if not isinstance(text, str) or not text.isascii() or not text.isprintable() or not text:
        raise AccessError(f"{where} has no token that could be sent")
    now = time.time()
    lifetime_s = expires_in_s if isinstance(expires_in_s, int | float) else _lifetime_s(text, now)
    return Token(text, now + lifetime_s, now + _RENEW_AT * lifetime_s)


def _lifetime_s(text: str, now: float) -> float:
    """Return how long a JSON Web Token is good; brokers check it, this is only a guide."""
    try:
        payload = text.split(".")[1]
        claims = json.loads(base64.urlsafe_b64decode(payload + "=" * (-len(payload) % 4)))
        return max(0.0, float(claims["exp"]) - now)
    except (IndexError, KeyError, TypeError, ValueError, binascii.Error, RecursionError):
        return UNKNOWN_LIFETIME_S
