"""References to secrets in settings, in the syntax of Kafka's configuration providers.

    ${env:NAME}                  an environment variable
    ${file:PATH:KEY}             a property in a file of properties
    ${directory:PATH:FILE}       a file in a directory, as secrets are mounted into containers

The author of the settings is not always the operator of the driver, and must not read the driver's
files: variables of the driver's environment, named like the settings of Kafka's providers, limit
the references.
"""

from __future__ import annotations

import os
import re
import urllib.parse
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from spark_groups.errors import OptionsError
from spark_groups.wire.properties_file import read_properties

PROVIDERS_VARIABLE: Final = "SPARK_GROUPS_CONFIG_PROVIDERS"
"""The allowed providers, of env, file and directory; `none` for no provider."""
PATHS_VARIABLE: Final = "SPARK_GROUPS_ALLOWED_PATHS"
"""Roots of readable files: absolute paths, separated by commas."""
PATTERN_VARIABLE: Final = "SPARK_GROUPS_ALLOWLIST_PATTERN"
"""A regular expression that matches the whole names of readable variables."""
URLS_VARIABLE: Final = "SPARK_GROUPS_ALLOWED_URLS"
"""Permitted token endpoints: whole addresses, separated by commas."""
TOKEN_PROVIDERS_VARIABLE: Final = "SPARK_GROUPS_ALLOWED_TOKEN_PROVIDERS"
"""Permitted token providers: names as options give them, separated by commas."""
TOKEN_SETTINGS_VARIABLE: Final = "SPARK_GROUPS_ALLOWED_TOKEN_SETTINGS"
"""What options may set of a token provider: NAME=VALUE, separated by commas."""
BROKERS_VARIABLE: Final = "SPARK_GROUPS_ALLOWED_BROKERS"
"""The bootstrap servers that may get tokens: HOST:PORT or *.DOMAIN:PORT, separated by commas."""
PROVIDERS: Final = ("env", "file", "directory")
HOST_VARIABLES: Final = frozenset({"HOSTNAME", "POD_NAME", "NODE_NAME"})
"""Variables that only name a host, and are always readable."""

_REFERENCE: Final = re.compile(r"\$\{(env|file|directory):([^}]*)\}")
_ARTIFACTS_VARIABLE: Final = "SPARK_JOB_ARTIFACT_UUID"
"""Set for Spark's Python workers: the session's id on Spark Connect, else `default`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Allowed:
    """The references that settings may contain.

    Args:
        paths: Roots of readable files; None for all.
        pattern: Readable variables, as a regular expression; None for all.
        urls: Permitted token endpoints; None for all.
        token_providers: Permitted token providers; None for all, with any setting and broker.
        token_settings: Permitted settings of them, as NAME=VALUE.
        brokers: Bootstrap servers that may get their tokens.
        is_connect: Whether the settings came through Spark Connect.
    """

    providers: frozenset[str]
    paths: tuple[str, ...] | None
    pattern: str | None = None
    urls: frozenset[str] | None = None
    token_providers: frozenset[str] | None = None
    token_settings: frozenset[str] = frozenset()
    brokers: tuple[str, ...] = ()
    is_connect: bool = False

    @classmethod
    def by(cls, environ: Mapping[str, str]) -> Allowed:
        """Return the permissions in an environment.

        Args:
            environ: The environment of the driver, or of a process that Spark started there.

        Raises:
            ValueError: A variable is invalid.
        """
        is_connect = environ.get(_ARTIFACTS_VARIABLE, "default") != "default"
        named = _listed(environ.get(PROVIDERS_VARIABLE, ""))
        if not named:
            named = [] if is_connect else list(PROVIDERS)
        unknown = [each for each in named if each not in (*PROVIDERS, "none")]
        if unknown:
            raise ValueError(
                f"{PROVIDERS_VARIABLE} in the environment of the driver: {unknown[0]!r} is not one"
                f" of {', '.join(PROVIDERS)}, none"
            )
        pattern = environ.get(PATTERN_VARIABLE) or None
        try:
            re.compile(pattern or "")
        except re.error as error:
            raise ValueError(
                f"{PATTERN_VARIABLE} in the environment of the driver is not a regular expression:"
                f" {error}"
            ) from None
        urls = _listed(environ.get(URLS_VARIABLE, ""))
        token_providers = _listed(environ.get(TOKEN_PROVIDERS_VARIABLE, ""))
        return cls(
            providers=frozenset(named) - {"none"},
            paths=tuple(_listed(environ.get(PATHS_VARIABLE, ""))),
            pattern=pattern,
            urls=frozenset(urls) if urls or is_connect else None,
            token_providers=(frozenset(token_providers) if token_providers or is_connect else None),
            token_settings=frozenset(_listed(environ.get(TOKEN_SETTINGS_VARIABLE, ""))),
            brokers=tuple(_listed(environ.get(BROKERS_VARIABLE, "").lower())),
            is_connect=is_connect,
        )

    def check_provider(self, provider: str) -> None:
        """Raise a ValueError unless a provider is allowed."""
        if provider in self.providers:
            return
        where = "on Spark Connect by default" if self.is_connect else "here"
        raise ValueError(
            f"the configuration provider {provider} is not allowed {where}. To allow it, set"
            f" {PROVIDERS_VARIABLE}={provider} in the environment of the driver"
        )

    def check_path(self, path: str) -> None:
        """Raise a ValueError unless a file may be read, after resolving links."""
        found = os.path.realpath(path)
        roots = None if self.paths is None else [os.path.realpath(each) for each in self.paths]
        if roots is None or any(os.path.commonpath((root, found)) == root for root in roots):
            return
        led = f", which is {found}," if found != os.path.normpath(path) else ""
        raise ValueError(
            f"{path}{led} may not be read: {PATHS_VARIABLE} in the environment of the driver does"
            f" not include it. To allow it, set for instance"
            f" {PATHS_VARIABLE}={os.path.dirname(found)}"
        )

    def check_store(self, path: str) -> None:
        """Raise a ValueError unless a key or trust store may be read: it may be the driver's own.

        Where nothing is set, a classic application reads any.
        """
        if self.is_connect or self.paths:
            self.check_path(path)

    def check_variable(self, name: str) -> None:
        """Raise a ValueError unless an environment variable may be read."""
        if self.pattern is not None and not re.fullmatch(self.pattern, name):
            raise ValueError(
                f"the variable {name} may not be read: {PATTERN_VARIABLE} in the environment of the"
                f" driver does not match it"
            )

    def check_bare_variable(self, name: str) -> None:
        """Raise a ValueError unless an instance id may contain `${NAME}`."""
        if name not in HOST_VARIABLES:
            self.check_provider("env")
            self.check_variable(name)

    def check_url(self, url: str) -> None:
        """Raise a ValueError unless tokens may come from an address."""
        if urllib.parse.urlsplit(url).scheme == "file":
            self.check_provider("file")
            self.check_path(urllib.parse.unquote(urllib.parse.urlsplit(url).path))
        elif self.urls is not None and url not in self.urls:
            raise ValueError(
                f"tokens may not be fetched from there: {URLS_VARIABLE} in the environment of the"
                " driver does not include the address. To allow it, add it there"
            )

    def check_token_provider(self, name: str) -> None:
        """Raise a ValueError unless tokens may come from a provider, which runs as the driver."""
        if self.token_providers is not None and name not in self.token_providers:
            where = "on Spark Connect by default" if self.is_connect else "here"
            raise ValueError(
                f"the token provider {name!r} is not allowed {where}. To allow it, set"
                f" {TOKEN_PROVIDERS_VARIABLE}={name} in the environment of the driver"
            )

    def check_token_setting(self, name: str, value: str) -> None:
        """Raise a ValueError unless a provider may get a setting: it chooses the identity."""
        if self.token_providers is None or f"{name}={value}" in self.token_settings:
            return
        raise ValueError(
            "is not allowed: the provider runs with the identity of the driver, and this setting"
            f" chooses what for. To allow it, set {TOKEN_SETTINGS_VARIABLE}={name}=... in the"
            " environment of the driver"
        )

    def check_brokers(self, bootstrap_servers: str) -> None:
        """Raise a ValueError unless brokers may get the tokens of a provider."""
        if self.token_providers is None:
            return
        for each in _listed(bootstrap_servers.lower()):
            # Kafka's own client takes an address with the name of a listener, too.
            address = each.rpartition("://")[2]
            if not any(_is_broker(address, pattern) for pattern in self.brokers):
                raise ValueError(
                    f"{each} may not get the tokens of the driver: {BROKERS_VARIABLE} in its"
                    f" environment does not include it. To allow it, set"
                    f" {BROKERS_VARIABLE}={address}"
                )


EVERYTHING: Final = Allowed(providers=frozenset(PROVIDERS), paths=None)
"""For settings of the operator of the process."""


def resolved(text: str, allowed: Allowed) -> str:
    """Return a setting with its references resolved.

    Raises:
        ValueError: A reference cannot be resolved, or is not allowed; never repeats a value.
    """
    return _REFERENCE.sub(lambda found: _resolve(found[0], found[1], found[2], allowed), text)


def _resolve(reference: str, provider: str, rest: str, allowed: Allowed) -> str:
    try:
        allowed.check_provider(provider)
        if provider == "env":
            allowed.check_variable(rest)
    except ValueError as error:
        raise ValueError(f"{reference}: {error}") from None
    if provider == "env":
        if rest not in os.environ:
            raise ValueError(f"{reference}: the environment has no such variable")
        return os.environ[rest]
    place, colon, name = rest.rpartition(":")
    if not colon or not place or not name:
        raise ValueError(f"{reference} is not ${{{provider}:PATH:NAME}}")
    path = Path(place, name) if provider == "directory" else Path(place)
    try:
        allowed.check_path(str(path))
    except ValueError as error:
        raise ValueError(f"{reference}: {error}") from None
    try:
        if provider == "directory":
            return path.read_text(encoding="utf-8").rstrip("\n")
        properties = read_properties(path)
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
        raise ValueError(f"{reference} cannot be read: {reason}") from None
    except OptionsError as error:
        raise ValueError(f"{reference}: {error}") from None
    if name not in properties:
        raise ValueError(f"{reference}: the file has no property {name}")
    return properties[name]


def _is_broker(address: str, pattern: str) -> bool:
    if pattern.startswith("*."):
        host, _, port = address.rpartition(":")
        domain, _, wanted = pattern[1:].rpartition(":")
        return host.endswith(domain) and port == wanted and len(host) > len(domain) > 1
    return address == pattern


def _listed(text: str) -> list[str]:
    return [each.strip() for each in text.split(",") if each.strip()]
