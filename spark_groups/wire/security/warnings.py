"""What a configuration sends unencrypted and should not: said once in a process."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator
from typing import Final

from spark_groups.wire.security.sasl import Mechanism, PasswordLogin, TokenLogin
from spark_groups.wire.security.security import Security

logger = logging.getLogger(__name__)

_said: Final[set[str]] = set()
_saying: Final = threading.Lock()


def warn_of_open_secrets(security: Security | None) -> None:
    """Warn of secrets that cross the network in the open, of each only once in this process.

    Args:
        security: How connections are secured.
    """
    with _saying:
        for warning in _open_secrets(security):
            if warning not in _said:
                _said.add(warning)
                logger.warning("%s", warning)


def _open_secrets(security: Security | None) -> Iterator[str]:
    match security:
        case Security("SASL_PLAINTEXT", _, PasswordLogin(Mechanism.PLAIN)):
            yield (
                "SASL PLAIN over SASL_PLAINTEXT sends the password unencrypted: whoever sees the"
                " traffic has it. Set kafka.security.protocol to SASL_SSL and name a listener that"
                " has TLS, or kafka.sasl.mechanism to SCRAM-SHA-512, which sends no password"
            )
        case Security(_, _, TokenLogin(endpoint_url=url)) if url.lower().startswith("http:"):
            yield (
                "tokens are fetched over http://, unencrypted: whoever sees the traffic has the"
                " client's secret and its tokens. Set kafka.sasl.oauthbearer.token.endpoint.url to"
                " an https:// address"
            )
