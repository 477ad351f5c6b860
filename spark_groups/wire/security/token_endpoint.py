"""Tokens from an endpoint, over HTTP, or from a file.

Only a process that fetches one imports this: HTTP takes as long to import as all of TLS and SASL.
"""

from __future__ import annotations

import base64
import binascii
import json
import ssl
import time
import urllib.error
import urllib.parse
import urllib.request
from http.client import HTTPException
from pathlib import Path
from typing import Any, Final

from spark_groups.errors import AccessError, BrokerUnreachableError, printable
from spark_groups.masking import Secrets, masked
from spark_groups.wire.security.bearer_token import BearerToken
from spark_groups.wire.security.sasl import TokenLogin
from spark_groups.wire.security.tls import Tls
from spark_groups.wire.security.token_renewal import CALL_TIMEOUT_S

TOKEN_BYTES_MAX: Final = 1024 * 1024
_ERROR_FIELDS: Final = ("error", "error_description")
_ERROR_FIELD_MAX: Final = 500
"""The characters of each field that an error message repeats."""
UNKNOWN_LIFETIME_S: Final = 300.0
"""The assumed lifetime of a token without an expiry."""
_SECRETS_REMEDY: Final = (
    "check kafka.sasl.oauthbearer.client.credentials.client.id and ...client.secret, or clientId"
    " and clientSecret in kafka.sasl.jaas.config, and kafka.sasl.oauthbearer.scope"
)


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    """A redirect would carry the client secret to another host."""

    def redirect_request(self, *_: Any) -> None:
        return None


def read_token(login: TokenLogin) -> BearerToken:
    """Return the token in a file.

    Raises:
        AccessError: The file cannot be read, or has no token.
    """
    url = urllib.parse.urlsplit(login.endpoint_url)
    path = Path(urllib.parse.unquote(url.path))
    try:
        text = path.read_text(encoding="ascii").strip()
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not ASCII"
        raise AccessError(
            f"the token in {path} cannot be read: {reason}; correct"
            " kafka.sasl.oauthbearer.token.endpoint.url"
        ) from None
    return _token(login, text, None, str(path))


def fetch_token(login: TokenLogin, tls: Tls) -> BearerToken:
    """Return a token from an endpoint.

    Args:
        tls: Trusted certificates, in addition to the system's.

    Raises:
        AccessError: The endpoint refused, or returned no token.
        BrokerUnreachableError: It did not answer in time.
    """
    try:
        return _requested(login, tls)
    except ValueError:
        # The error's text may contain the whole address.
        name = "kafka.sasl.oauthbearer.token.endpoint.url"
        raise AccessError(f"{login.source} is not a valid address: correct {name}") from None


def _requested(login: TokenLogin, tls: Tls) -> BearerToken:
    source = login.source
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
        return BrokerUnreachableError(f"{login.source} did not issue a token: {reason}")
    return AccessError(f"{login.source} did not issue a token: {reason}; {_SECRETS_REMEDY}")


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
