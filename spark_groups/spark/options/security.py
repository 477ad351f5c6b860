"""The options for security, which are Kafka's own settings behind `kafka.`, as one value.

Files are read at load(), on the driver; what executors need of them travels in the reader.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from spark_groups.errors import OptionsError
from spark_groups.wire.security.security import PLAINTEXT, Security
from spark_groups.wire.security.settings import SECURITY_SETTINGS, security_of

_PREFIX: Final = "kafka."

SECURITY_OPTIONS: Final[tuple[tuple[str, str, str], ...]] = tuple(
    (f"{_PREFIX}{each.name}", each.default, each.meaning) for each in SECURITY_SETTINGS
)
"""Name, default and meaning of each, as the option table shows them."""

_KEY_IN_THE_OPEN: Final = (
    f"{_PREFIX}ssl.keystore.key: a key without a password would be shown by Spark, which prints"
    " options with its plans: give an encrypted key and kafka.ssl.key.password, or"
    " kafka.ssl.keystore.location, or a reference such as ${env:NAME} or ${directory:PATH:FILE}"
)


def read_security(given: Mapping[str, str], problems: list[str]) -> Security:
    """Return how connections are secured.

    Args:
        given: Texts by name in lower case.
        problems: Takes what is wrong with them; secrets are never repeated.
    """
    settings = {
        name.removeprefix(_PREFIX): given[name] for name, _, _ in SECURITY_OPTIONS if name in given
    }
    key = settings.get("ssl.keystore.key", "")
    if "PRIVATE KEY-----" in key and "ENCRYPTED PRIVATE KEY-----" not in key:
        problems.append(_KEY_IN_THE_OPEN)
    try:
        return security_of(settings, prefix=_PREFIX)
    except OptionsError as error:
        problems += str(error).splitlines()
        return PLAINTEXT
