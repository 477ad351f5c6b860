"""Settings of the registry's client, as options and files have them."""

from __future__ import annotations

import os
from typing import Final

from spark_groups.wire.security.config_references import Allowed, resolved

PREFIX: Final = "schemaRegistry."
"""Before the client's settings in the source's options."""
LOGIN: Final = "basic.auth.user.info"
_FILES: Final = ("ssl.ca.location", "ssl.certificate.location", "ssl.key.location")


def setting_of(name: str, text: str) -> str:
    """Return a setting of the client with its references resolved.

    Args:
        name: Its name, without the prefix of the source's options.
        text: As options or a file have it.

    Raises:
        ValueError: It cannot be resolved, or is not what the client takes.
    """
    allowed = Allowed.by(os.environ)
    value = resolved(text, allowed).strip()
    if name in _FILES:
        allowed.check_store(value)
    if name == LOGIN and ":" not in value:
        raise ValueError("is not user:password")
    return value
