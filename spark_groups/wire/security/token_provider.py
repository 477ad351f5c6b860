"""Token providers: functions that the user names, which return OAUTHBEARER tokens.

A provider is found by the name of an adapter of this package, by the name of an entry point in the
group `spark_groups.token_providers`, or as `package.module:function`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType
from typing import Any, Final

from spark_groups.errors import AccessError, BrokerUnreachableError, printable
from spark_groups.masking import MASK, Secrets
from spark_groups.wire.named_functions import named_function
from spark_groups.wire.security.bearer_token import BearerToken, looks_like_seconds
from spark_groups.wire.security.sasl import ProviderLogin

TokenProvider = Callable[[Mapping[str, str]], BearerToken | tuple[str, int]]
"""Takes the settings, read-only, and returns a token, or a pair of its text and its expiry in
milliseconds since 1970."""

PROVIDER_OPTION: Final = "kafka.sasl.oauthbearer.token.provider"
PROVIDER_GROUP: Final = "spark_groups.token_providers"
ADAPTERS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "msk": "spark_groups.wire.security.msk:token",
        "entra": "spark_groups.wire.security.entra:token",
    }
)
"""The adapters of this package: found without package metadata, as in a zip of modules."""
_REASON_MAX: Final = 500
"""The characters of a provider's error that a message repeats."""
_JSON_WEB_TOKEN: Final = re.compile(r"\beyJ[\w-]+\.[\w-]+(?:\.[\w-]*)?")
_MISTAKES: Final = (
    ArithmeticError,
    AssertionError,
    AttributeError,
    ImportError,
    LookupError,
    NameError,
    NotImplementedError,
    TypeError,
    ValueError,
)
"""Mistakes in a provider or in its settings: the next call would fail as well."""


def find_provider(name: str) -> TokenProvider:
    """Return the function that a name stands for; imports its module.

    Raises:
        ValueError: There is none; lists the places that were searched.
    """
    place = ADAPTERS.get(name)
    if place is None and ":" not in name:
        place = _entry_point(name)
    try:
        return named_function(place or name)
    except ImportError as error:
        raise ValueError(
            f"{name!r} cannot be loaded: {error}. Install the package on the driver and on every"
            " executor; --py-files does not reach streaming sources"
        ) from None
    except ValueError as error:
        raise ValueError(f"{name!r} cannot be loaded: {error}") from None


def _entry_point(name: str) -> str:
    # Importing it takes longer than all else here; few processes need it.
    from importlib.metadata import entry_points  # noqa: PLC0415

    installed = {each.name: each.value for each in entry_points(group=PROVIDER_GROUP)}
    if name not in installed:
        others = ", ".join(sorted({*ADAPTERS, *installed}))
        raise ValueError(
            f"{name!r} is no token provider: the adapters of this package and the entry points in"
            f" {PROVIDER_GROUP} are {others}. Name one of them, or a function as"
            " package.module:function"
        )
    # An entry point may name extras: "module:function [extra]".
    return installed[name].partition("[")[0].strip()


def refuse_unknown(settings: Mapping[str, str], known: Iterable[str]) -> None:
    """Raise an AccessError for settings that a provider does not know."""
    unknown = sorted(set(settings) - set(known))
    if unknown:
        listed = ", ".join(f"kafka.sasl.oauthbearer.{each}" for each in unknown)
        raise AccessError(
            f"it does not know the option {listed}; its options are"
            f" {', '.join(f'kafka.sasl.oauthbearer.{each}' for each in known)}"
        )


def provider_source(login: ProviderLogin) -> str:
    """Return the provider for messages."""
    return f"the token provider {login.provider!r}"


def provided_token(login: ProviderLogin) -> BearerToken:
    """Call a provider and return its token.

    Raises:
        AccessError: The provider cannot be loaded, refused, or made a mistake.
        BrokerUnreachableError: It failed otherwise; a later call may succeed.
    """
    try:
        provider = find_provider(login.provider)
    except ValueError as error:
        raise AccessError(f"{PROVIDER_OPTION}: {error}") from None
    try:
        answer = provider(MappingProxyType(dict(login.settings)))
    except AccessError as error:
        raise AccessError(f"{provider_source(login)}: {_reason(login, error)}") from None
    except BrokerUnreachableError as error:
        raise BrokerUnreachableError(f"{provider_source(login)}: {_reason(login, error)}") from None
    except (Exception, SystemExit) as error:
        # What fails to decode an answer is an OSError and a ValueError: the answer was not whole.
        is_mistake = isinstance(error, _MISTAKES) and not isinstance(error, OSError)
        kind = AccessError if is_mistake else BrokerUnreachableError
        raise kind(_failed(login, error)) from None
    return _checked(login, answer)


def _checked(login: ProviderLogin, answer: Any) -> BearerToken:
    source = provider_source(login)
    if isinstance(answer, tuple) and len(answer) == 2:
        try:
            answer = BearerToken(*answer)
        except (ValueError, TypeError) as error:
            raise AccessError(f"{source} returned an invalid token: {error}") from None
    if not isinstance(answer, BearerToken):
        raise AccessError(
            f"{source} returned a value of the type {type(answer).__name__}: return a"
            " spark_groups.BearerToken, or a pair of the token and its expiry in milliseconds"
            " since 1970"
        )
    if looks_like_seconds(answer.expires_at_ms):
        raise AccessError(
            f"{source} returned the expiry {answer.expires_at_ms}: return milliseconds since 1970,"
            " not seconds"
        )
    extensions = dict(login.extensions) | dict(answer.extensions)
    return BearerToken(
        answer.text, answer.expires_at_ms, answer.principal, tuple(extensions.items())
    )


def _failed(login: ProviderLogin, error: BaseException) -> str:
    reason = _reason(login, error)
    kind = type(error).__name__
    return f"{provider_source(login)} failed with {kind}{f': {reason}' if reason else ''}"


def _reason(login: ProviderLogin, error: BaseException) -> str:
    """Return the text of an error without tokens, and without the values of secret settings."""
    text = Secrets.of(dict(login.settings)).line(error)
    text = _JSON_WEB_TOKEN.sub(MASK, printable(text))
    return text if len(text) <= _REASON_MAX else f"{text[:_REASON_MAX]}..."
