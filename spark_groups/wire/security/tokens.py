"""The OAUTHBEARER tokens of a process: fetched over HTTP or by a provider, or read from a file."""

from __future__ import annotations

import logging
import threading
from collections import OrderedDict
from dataclasses import dataclass
from functools import partial
from typing import Final

from spark_groups.wire.security.bearer_token import BearerToken
from spark_groups.wire.security.sasl import ProviderLogin, TokenLogin
from spark_groups.wire.security.tls import Tls
from spark_groups.wire.security.token_provider import provided_token, provider_source
from spark_groups.wire.security.token_renewal import RenewedToken

REFUSED_S: Final = 30.0
"""How long other tokens are tried after a refused one: less than the usual session timeout."""
NEVER_ACCEPTED_S: Final = 1.0
"""The same if no broker has taken any token of the login: it is probably a wrong one. A broker
looks for a key that it does not know when a token names it, which takes a moment."""
_TOKENS_MAX: Final = 16
_log = logging.getLogger(__name__)


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
            from spark_groups.wire.security.token_endpoint import read_token

            return read_token(login)
        return self._renewed(login, tls).token(timeout_s)

    def _renewed(self, login: TokenLogin | ProviderLogin, tls: Tls) -> RenewedToken:
        with self._lock:
            known = self._tokens.get(login)
            if known is None:
                known = self._tokens[login] = _renewed(login, tls)
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


def _renewed(login: TokenLogin | ProviderLogin, tls: Tls) -> RenewedToken:
    if isinstance(login, ProviderLogin):
        return RenewedToken(partial(provided_token, login), provider_source(login))
    from spark_groups.wire.security.token_endpoint import fetch_token

    return RenewedToken(partial(fetch_token, login, tls), login.source)
