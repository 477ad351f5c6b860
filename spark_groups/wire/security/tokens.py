"""OAUTHBEARER tokens: fetched over HTTP or by a provider, or read from a file."""

from __future__ import annotations

import base64
import binascii
import json
import logging
import ssl
import threading
import time
import urllib.error
import urllib.parse
import urllib.request
from collections import OrderedDict
from dataclasses import dataclass
from functools import partial
from http.client import HTTPException
from pathlib import Path
from typing import Any, Final

from spark_groups.errors import AccessError, BrokerUnreachableError, printable
from spark_groups.masking import Secrets, masked
from spark_groups.wire.security.bearer_token import BearerToken
from spark_groups.wire.security.sasl import ProviderLogin, TokenLogin
from spark_groups.wire.security.tls import Tls
from spark_groups.wire.security.token_provider import provided_token, provider_source
from spark_groups.wire.security.token_renewal import CALL_TIMEOUT_S, RenewedToken

TOKEN_BYTES_MAX: Final = 1024 * 1024
_ERROR_FIELDS: Final = ("error", "error_description")
_ERROR_FIELD_MAX: Final = 500
"""The characters of each field that an error message repeats."""
UNKNOWN_LIFETIME_S: Final = 300.0
"""The assumed lifetime of a token without an expiry."""
REFUSED_S: Final = 30.0
"""How long other tokens are tried after a refused one: less than the usual session timeout."""
NEVER_ACCEPTED_S: Final = 1.0
"""The same if no broker has taken any token of the login: it is probably a wrong one. A broker
looks for a key that it does not know when a token names it, which takes a moment."""
_TOKENS_MAX: Final = 16
_log = logging.getLogger(__name__)
_SECRETS_REMEDY: Final = (
    "check kafka.sasl.oauthbearer.client.credentials.client.id and ...client.secret, or clientId"
    " and clientSecret in kafka.sasl.jaas.config, and kafka.sasl.oauthbearer.scope"
)


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    """A redirect would carry the client secret to another host."""

    def redirect_request(self, *_: Any) -> None:
        return None


@dataclass(slots=True)
class _Standing:
    """What brokers said of a login's tokens in this process.

    Args:
        was_accepted: Whether they took one.
        refused_at_s: When they refused the first one since; monotonic seconds. None: none.
    """

    was_accepted: bool = False
    refused_at_s: float | None = None


class TokenStore:
    """The tokens of a process, each shared by all connections with the same login."""

    def __init__(self) -> None:
        self._tokens: OrderedDict[TokenLogin | ProviderLogin, RenewedToken] = OrderedDict()
        self._standings: OrderedDict[TokenLogin | ProviderLogin, _Standing] = OrderedDict()
        self._lock = threading.Lock()

    def token(self, login: TokenLogin | ProviderLogin, tls: Tls, timeout_s: float) -> BearerToken:
        """Return a token that is valid for a while.

        Args:
            tls: Trusted certificates for the endpoint, in addition to the system's.
            timeout_s: How long to wait for a token.

        Raises:
            AccessError: The endpoint or the provider refused, or returned no token.
            BrokerUnreachableError: The endpoint or the provider did not answer in time.
        """
        if isinstance(login, TokenLogin) and login.endpoint_url.lower().startswith("file:"):
            return _read_token(login)
        return self._renewed(login, tls).token(timeout_s)

    def _renewed(self, login: TokenLogin | ProviderLogin, tls: Tls) -> RenewedToken:
        with self._lock:
            known = self._tokens.get(login)
            if known is None:
                if isinstance(login, ProviderLogin):
                    known = RenewedToken(partial(provided_token, login), token_source(login))
                else:
                    known = RenewedToken(partial(_fetch, login, tls), token_source(login))
                self._tokens[login] = known
            self._tokens.move_to_end(login)
            while len(self._tokens) > _TOKENS_MAX:
                self._tokens.popitem(last=False)[1].close()
        return known

    def forget(self, login: TokenLogin | ProviderLogin) -> None:
        """Fetch another token next time: a broker rejected this one."""
        with self._lock:
            known = self._tokens.get(login)
        if known is not None:
            known.forget()

    def accepted(self, login: TokenLogin | ProviderLogin) -> None:
        """Note that a broker took a token of a login."""
        with self._lock:
            standing = self._standing(login)
            standing.was_accepted, standing.refused_at_s = True, None

    def refused(self, login: TokenLogin | ProviderLogin, reason: str, now_s: float) -> bool:
        """Fetch another token next time, and return whether there should be a next time.

        While an issuer changes its keys, a broker refuses tokens that it takes a moment later.

        Args:
            reason: Why the broker refused it, for a warning.
            now_s: Monotonic seconds.
        """
        self.forget(login)
        with self._lock:
            standing = self._standing(login)
            is_first = standing.refused_at_s is None
            since_s = now_s if standing.refused_at_s is None else standing.refused_at_s
            limit_s = REFUSED_S if standing.was_accepted else NEVER_ACCEPTED_S
            asks_again = now_s - since_s < limit_s
            standing.refused_at_s = since_s if asks_again else None
        if is_first:
            _log.warning("%s. Other tokens are tried for %g s", reason, limit_s)
        return asks_again

    def _standing(self, login: TokenLogin | ProviderLogin) -> _Standing:
        standing = self._standings.setdefault(login, _Standing())
        self._standings.move_to_end(login)
        while len(self._standings) > _TOKENS_MAX:
            self._standings.popitem(last=False)
        return standing


TOKENS: Final = TokenStore()
"""The tokens of this process."""


def _read_token(login: TokenLogin) -> BearerToken:
    url = urllib.parse.urlsplit(login.endpoint_url)
    path = Path(urllib.request.url2pathname(url.path))
    try:
        text = path.read_text(encoding="ascii").strip()
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not ASCII"
        raise AccessError(
            f"the token in {path} cannot be read: {reason}; correct"
            " kafka.sasl.oauthbearer.token.endpoint.url"
        ) from None
    return _token(login, text, None, str(path))


def _fetch(login: TokenLogin, tls: Tls) -> BearerToken:
    try:
        return _requested(login, tls)
    except ValueError:
        # The error's text may contain the whole address.
        name = "kafka.sasl.oauthbearer.token.endpoint.url"
        raise AccessError(f"{token_source(login)} is not a valid address: correct {name}") from None


def _requested(login: TokenLogin, tls: Tls) -> BearerToken:
    source = token_source(login)
    form = {"grant_type": "client_credentials"}
    if login.scope:
        form["scope"] = login.scope
    pair = (login.client_id or "", login.client_secret or "")
    if login.urlencodes_header:
        pair = (urllib.parse.quote_plus(pair[0]), urllib.parse.quote_plus(pair[1]))
    secret = ":".join(pair).encode()
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
        with opener.open(request, timeout=CALL_TIMEOUT_S) as answer:
            body = answer.read(TOKEN_BYTES_MAX)
    except urllib.error.HTTPError as error:
        with error:
            raise _refusal(login, error) from None
    except (OSError, HTTPException) as error:
        cause = getattr(error, "reason", error)
        if isinstance(cause, ssl.SSLCertVerificationError):
            raise AccessError(
                f"the certificate of {source} is not trusted: {cause.verify_message}; set"
                " kafka.ssl.truststore.location or .certificates to its authority"
            ) from None
        raise BrokerUnreachableError(
            f"{source} cannot be reached: {_secrets(login).line(cause)}"
        ) from None
    try:
        values = json.loads(body)
        text, expires_in_s = values["access_token"], values.get("expires_in")
    except (ValueError, KeyError, TypeError, RecursionError):
        raise AccessError(f"the answer of {source} has no access_token") from None
    return _token(login, text, expires_in_s, source)


def _secrets(login: TokenLogin) -> Secrets:
    """Return what no error of an endpoint may repeat."""
    query = urllib.parse.parse_qsl(urllib.parse.urlsplit(login.endpoint_url).query)
    return Secrets(frozenset(filter(None, [login.client_secret, *(value for _, value in query)])))


def _context(tls: Tls) -> ssl.SSLContext:
    context = ssl.create_default_context()
    if tls.trusted_pem is not None:
        context.load_verify_locations(cadata=tls.trusted_pem)
    return context


def _refusal(login: TokenLogin, error: urllib.error.HTTPError) -> Exception:
    reason = f"HTTP {error.code}"
    secrets = _secrets(login).values
    try:
        answer = json.loads(error.read(TOKEN_BYTES_MAX))
        reason = ", ".join(
            [
                reason,
                *(
                    printable(masked(str(answer[key]), secrets))[:_ERROR_FIELD_MAX]
                    for key in _ERROR_FIELDS
                    if key in answer
                ),
            ]
        )
    except (OSError, ValueError, TypeError, RecursionError):
        pass  # Report only the status code.
    if error.code >= 500 or error.code == 429:
        return BrokerUnreachableError(f"{token_source(login)} did not issue a token: {reason}")
    return AccessError(f"{token_source(login)} did not issue a token: {reason}; {_SECRETS_REMEDY}")


def token_source(login: TokenLogin | ProviderLogin) -> str:
    """Return the source of tokens for messages.

    An endpoint comes without its query, which may contain a secret.
    """
    if isinstance(login, ProviderLogin):
        return provider_source(login)
    address = login.endpoint_url.partition("?")[0]
    scheme, _, rest = address.partition("://")
    return f"the token endpoint {scheme}://{rest.rpartition('@')[2]}"


def _token(login: TokenLogin, text: Any, expires_in_s: Any, where: str) -> BearerToken:
    now = time.time()
    lifetime_s = expires_in_s if isinstance(expires_in_s, int | float) else _lifetime_s(text, now)
    try:
        return BearerToken(
            text, int((now + lifetime_s) * 1000), login.client_id or "", login.extensions
        )
    except (ValueError, OverflowError):
        raise AccessError(f"{where} has no valid token") from None


def _lifetime_s(text: Any, now: float) -> float:
    """Return the lifetime of a JSON Web Token; an estimate, which brokers check."""
    try:
        payload = text.split(".")[1]
        claims = json.loads(base64.urlsafe_b64decode(payload + "=" * (-len(payload) % 4)))
        return max(0.0, float(claims["exp"]) - now)
    except (
        AttributeError,
        IndexError,
        KeyError,
        TypeError,
        ValueError,
        binascii.Error,
        RecursionError,
    ):
        return UNKNOWN_LIFETIME_S
