"""OAUTHBEARER tokens: fetched with client credentials over HTTP, or read from a file."""

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
"""The characters of each field that an error message repeats."""
UNKNOWN_LIFETIME_S: Final = 300.0
"""The assumed lifetime of a token without an expiry."""
_RENEW_AT: Final = 0.8
_TOKENS_MAX: Final = 16
_SECRETS_REMEDY: Final = (
    "check kafka.sasl.oauthbearer.client.credentials.client.id and ...client.secret, or clientId"
    " and clientSecret in kafka.sasl.jaas.config, and kafka.sasl.oauthbearer.scope"
)


@dataclass(frozen=True, slots=True)
class Token:
    """A token and its expiry.

    Args:
        expires_at_s: Seconds since 1970.
        renew_at_s: When to fetch the next one.
    """

    text: str = field(repr=False)
    expires_at_s: float
    renew_at_s: float


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    """A redirect would carry the client secret to another host."""

    def redirect_request(self, *_: Any) -> None:
        return None


class TokenStore:
    """The tokens of a process, each shared by all connections until shortly before it expires."""

    def __init__(self) -> None:
        self._tokens: OrderedDict[TokenLogin, Token] = OrderedDict()
        self._lock = threading.Lock()

    def token(self, login: TokenLogin, tls: Tls, timeout_s: float) -> Token:
        """Return a token that is valid for a while.

        Args:
            tls: Trusted certificates for the endpoint, in addition to the system's.
            timeout_s: For fetching a token.

        Raises:
            AccessError: The endpoint refused, or its answer contains no token.
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
        """Fetch another token next time: a broker rejected this one."""
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
    """Fetch in a thread of its own: urllib limits each read, but not all of them together."""
    fetched: list[Token | Exception] = []

    def fetch() -> None:
        try:
            fetched.append(_fetch(login, tls, max(0.001, timeout_s)))
        except (AccessError, BrokerUnreachableError) as error:
            fetched.append(error)
        except ValueError:
            # The error's text may contain the whole address.
            name = "kafka.sasl.oauthbearer.token.endpoint.url"
            fetched.append(
                AccessError(f"{_endpoint(login)} is not a valid address: correct {name}")
            )

    thread = threading.Thread(target=fetch, name="oauth-token", daemon=True)
    thread.start()
    thread.join(max(0.001, timeout_s))
    if not fetched:
        raise BrokerUnreachableError(f"{_endpoint(login)} did not answer in time")
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
                f"the certificate of {_endpoint(login)} is not trusted: {cause.verify_message}; set"
                " kafka.ssl.truststore.location or .certificates to its authority"
            ) from None
        raise BrokerUnreachableError(f"{_endpoint(login)} cannot be reached: {cause}") from None
    try:
        values = json.loads(body)
        return _token(values["access_token"], values.get("expires_in"), _endpoint(login))
    except (ValueError, KeyError, TypeError, RecursionError):
        raise AccessError(f"the answer of {_endpoint(login)} has no access_token") from None


def _context(tls: Tls) -> ssl.SSLContext:
    context = ssl.create_default_context()
    if tls.trusted_pem is not None:
        context.load_verify_locations(cadata=tls.trusted_pem)
    return context


def _refusal(login: TokenLogin, error: urllib.error.HTTPError) -> Exception:
    reason = f"HTTP {error.code}"
    try:
        answer = json.loads(error.read(TOKEN_BYTES_MAX))
        reason = ", ".join(
            [
                reason,
                *(
                    printable(str(answer[key]))[:_ERROR_FIELD_MAX]
                    for key in _ERROR_FIELDS
                    if key in answer
                ),
            ]
        )
    except (OSError, ValueError, TypeError, RecursionError):
        pass  # Report only the status code.
    if login.client_secret:
        reason = reason.replace(login.client_secret, "***")
    if error.code >= 500 or error.code == 429:
        return BrokerUnreachableError(f"{_endpoint(login)} did not issue a token: {reason}")
    return AccessError(f"{_endpoint(login)} did not issue a token: {reason}; {_SECRETS_REMEDY}")


def _endpoint(login: TokenLogin) -> str:
    """Return the endpoint for messages, without its query, which may contain a secret."""
    address = login.endpoint_url.partition("?")[0]
    scheme, _, rest = address.partition("://")
    return f"the token endpoint {scheme}://{rest.rpartition('@')[2]}"


def _token(text: Any, expires_in_s: Any, where: str) -> Token:
    if not isinstance(text, str) or not text.isascii() or not text.isprintable() or not text:
        raise AccessError(f"{where} has no valid token")
    now = time.time()
    lifetime_s = expires_in_s if isinstance(expires_in_s, int | float) else _lifetime_s(text, now)
    return Token(text, now + lifetime_s, now + _RENEW_AT * lifetime_s)


def _lifetime_s(text: str, now: float) -> float:
    """Return the lifetime of a JSON Web Token; an estimate, which brokers check."""
    try:
        payload = text.split(".")[1]
        claims = json.loads(base64.urlsafe_b64decode(payload + "=" * (-len(payload) % 4)))
        return max(0.0, float(claims["exp"]) - now)
    except (IndexError, KeyError, TypeError, ValueError, binascii.Error, RecursionError):
        return UNKNOWN_LIFETIME_S
