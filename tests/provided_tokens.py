"""Token providers for the tests: one that asks their issuer, and some that are wrong."""

from __future__ import annotations

import json
import os
import time
import urllib.request
from collections.abc import Mapping

from spark_groups.wire.security.bearer_token import BearerToken

_CLAIM = "test.claim."


def provided(settings: Mapping[str, str]) -> BearerToken:
    """Return a token of the issuer at `test.url`, for `test.lifetime` seconds."""
    claims = {
        name.removeprefix(_CLAIM): text
        for name, text in settings.items()
        if name.startswith(_CLAIM)
    }
    asked = {
        "client_secret": settings["test.client.secret"],
        "process": os.getpid(),
        "claims": {**claims, "exp": int(time.time()) + int(settings["test.lifetime"])},
    }
    request = urllib.request.Request(settings["test.url"], data=json.dumps(asked).encode())
    with urllib.request.urlopen(request, timeout=60) as answer:
        found = json.load(answer)
    return BearerToken(found["token"], found["expires_at_ms"], "provided")
