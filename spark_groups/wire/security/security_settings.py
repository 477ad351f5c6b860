"""Kafka's security settings, by the names of its Java clients, as one value.

Files are read here, once, so that executors need none. No message repeats a secret.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Final, TypeVar

from spark_groups.errors import OptionsError, printable
from spark_groups.group.member.near_names import nearest
from spark_groups.wire.security.bearer_token import check_extensions
from spark_groups.wire.security.config_references import Allowed, resolved
from spark_groups.wire.security.sasl import (
    Login,
    Mechanism,
    PasswordLogin,
    ProviderLogin,
    TokenLogin,
)
from spark_groups.wire.security.security import PROTOCOLS, Security
from spark_groups.wire.security.tls import Tls
from spark_groups.wire.security.token_provider import TokenProvider, find_provider

Result = TypeVar("Result")
_FLAGS: Final = ("required", "requisite", "sufficient", "optional")
_TOKEN: Final = re.compile(
    r"""\s*(?:(?://|\#)[^\n]*\s*|/\*.*?\*/\s*)*
    (?: "(?P<quoted>(?:\\.|[^"\\])*)" | '(?P<single>(?:\\.|[^'\\])*)'
        | (?P<mark>[=;]) | (?P<word>[^\s="';]+) )""",
    re.VERBOSE | re.DOTALL,
)
_ESCAPES: Final = {"n": "\n", "t": "\t", "r": "\r", "f": "\f", "b": "\b"}


@dataclass(frozen=True, slots=True)
class SecuritySetting:
    """One of Kafka's settings: its name, its default as tables show it, and its meaning."""

    name: str
    default: str
    meaning: str


SECURITY_SETTINGS: Final = (
    SecuritySetting("security.protocol", "PLAINTEXT", "PLAINTEXT, SSL, SASL_PLAINTEXT, SASL_SSL."),
    SecuritySetting(
        "sasl.mechanism", "required with SASL", "PLAIN, SCRAM-SHA-256, SCRAM-SHA-512, OAUTHBEARER."
    ),
    SecuritySetting(
        "sasl.jaas.config",
        "none",
        "The login: PlainLoginModule, ScramLoginModule or OAuthBearerLoginModule.",
    ),
    SecuritySetting(
        "sasl.oauthbearer.token.endpoint.url",
        "none",
        "The token endpoint: https://, http://, or file:// with a token.",
    ),
    SecuritySetting("sasl.oauthbearer.client.credentials.client.id", "none", "The client id."),
    SecuritySetting(
        "sasl.oauthbearer.client.credentials.client.secret", "none", "The client secret."
    ),
    SecuritySetting("sasl.oauthbearer.scope", "none", "The scope of the token."),
    SecuritySetting(
        "sasl.oauthbearer.header.urlencode",
        "false",
        "true: client id and secret are URL-encoded for the endpoint, as RFC 6749 wants it.",
    ),
    SecuritySetting(
        "sasl.oauthbearer.token.provider",
        "none",
        "A function that returns tokens, instead of an endpoint: msk, entra, the name of an entry"
        " point in spark_groups.token_providers, or package.module:function. All other"
        " kafka.sasl.oauthbearer options are its settings.",
    ),
    SecuritySetting(
        "ssl.truststore.location", "the system's", "A file with the trusted authorities."
    ),
    SecuritySetting("ssl.truststore.type", "what the file is", "PEM, PKCS12 or JKS."),
    SecuritySetting("ssl.truststore.password", "none", "The password of a PKCS12 or JKS file."),
    SecuritySetting("ssl.truststore.certificates", "none", "The trusted authorities, as PEM."),
    SecuritySetting(
        "ssl.keystore.location", "none", "A file with the client's certificate and key."
    ),
    SecuritySetting("ssl.keystore.type", "what the file is", "PEM, PKCS12 or JKS."),
    SecuritySetting("ssl.keystore.password", "none", "The password of a PKCS12 or JKS file."),
    SecuritySetting(
        "ssl.keystore.certificate.chain", "none", "The client's certificate chain, as PEM."
    ),
    SecuritySetting("ssl.keystore.key", "none", "The client's key, as PEM."),
    SecuritySetting(
        "ssl.key.password",
        "none",
        "The password of a PEM key, or of the key in a JKS file if it differs from the file's.",
    ),
    SecuritySetting(
        "ssl.endpoint.identification.algorithm",
        "https",
        "https: a certificate must name the broker's host; empty: not checked.",
    ),
)
"""All supported settings; they have the same meaning as for Kafka's own clients."""

_JAAS: Final = "sasl.jaas.config"
_PACKAGE: Final = "org.apache.kafka.common.security."
_PLAIN_MODULE: Final = f"{_PACKAGE}plain.PlainLoginModule"
_SCRAM_MODULE: Final = f"{_PACKAGE}scram.ScramLoginModule"
_TOKEN_MODULE: Final = f"{_PACKAGE}oauthbearer.OAuthBearerLoginModule"
_MODULES: Final = {
    Mechanism.PLAIN: _PLAIN_MODULE,
    Mechanism.SCRAM_SHA_256: _SCRAM_MODULE,
    Mechanism.SCRAM_SHA_512: _SCRAM_MODULE,
    Mechanism.OAUTHBEARER: _TOKEN_MODULE,
}
_SHADED: Final = "kafkashaded."
"""Databricks' prefix of Kafka's class names."""
_EXTENSION: Final = "extension_"
_TOKEN_URL: Final = "sasl.oauthbearer.token.endpoint.url"
_PROVIDER: Final = "sasl.oauthbearer.token.provider"
_PROVIDED: Final = "sasl.oauthbearer."
_CLIENT: Final = "sasl.oauthbearer.client.credentials.client."


def security_of(
    settings: Mapping[str, str], *, prefix: str = "kafka.", allowed: Allowed | None = None
) -> Security:
    """Return the security that settings describe.

    Args:
        settings: Kafka's settings by name; others are ignored.
        prefix: The user's prefix of the names, for messages.
        allowed: The permitted references; None for those of this process's environment.

    Raises:
        OptionsError: Some settings are invalid; lists all of them.
    """
    if allowed is None:
        try:
            allowed = Allowed.by(os.environ)
        except ValueError as error:
            raise OptionsError(str(error)) from None
    given = {name: value for name, value in settings.items() if value is not None}
    reading = _Reading(given, allowed)
    found = reading.security()
    if found is None or reading.problems:
        raise OptionsError(
            "\n".join(f"{prefix}{name}: {problem}" for name, problem in reading.problems)
        )
    return found


class _Reading:
    """One reading of settings, which continues after an error to find them all."""

    def __init__(self, settings: Mapping[str, str], allowed: Allowed) -> None:
        self._allowed = allowed
        self.problems: list[tuple[str, str]] = []
        self._settings: dict[str, str] = {}
        # The caller of a command names them, not its settings.
        self._brokers = settings.get("bootstrap.servers", "")
        own = [
            security_setting.name
            for security_setting in SECURITY_SETTINGS
            if security_setting.name in settings
        ]
        for name in (*own, *provider_settings(settings)):
            text = self._try(name, partial(resolved, settings[name], allowed))
            if text is not None:
                self._settings[name] = text

    def security(self) -> Security | None:
        if self.problems:
            return None
        protocol = self._settings.get("security.protocol", "PLAINTEXT").strip().upper()
        if protocol not in PROTOCOLS:
            self._wrong("security.protocol", f"{protocol!r} is none of {', '.join(PROTOCOLS)}")
            return None
        self._find_unused(protocol)
        # A token endpoint may use TLS even if the broker's listener does not.
        tls = self._tls() if protocol.endswith("SSL") or _TOKEN_URL in self._settings else Tls()
        login = self._login() if protocol.startswith("SASL_") else None
        return None if self.problems else Security(protocol, tls, login)

    def _find_unused(self, protocol: str) -> None:
        """Report settings that have no effect: the user relies on them."""
        for start, uses in (("ssl.", "SSL"), ("sasl.", "SASL_")):
            given = [
                security_setting.name
                for security_setting in SECURITY_SETTINGS
                if security_setting.name in self._settings
            ]
            unused = [name for name in given if name.startswith(start) and uses not in protocol]
            if unused and not (start == "ssl." and _TOKEN_URL in self._settings):
                self._wrong(
                    unused[0], f"is set, but security.protocol is {protocol}, which does not use it"
                )

    def _tls(self) -> Tls:
        trusted = self._trusted()
        certificate, key = self._identity() or (None, None)
        name = "ssl.endpoint.identification.algorithm"
        algorithm = self._settings.get(name, "https").strip().lower()
        if algorithm not in ("https", ""):
            self._wrong(name, f"{algorithm!r} is neither https nor empty")
        return Tls(
            trusted_pem=trusted,
            certificate_pem=certificate,
            key_pem=key,
            verify_host_name=algorithm != "",
        )

    def _trusted(self) -> str | None:
        # Its imports take a tenth of a second; most executors do not need it.
        from spark_groups.wire.security import keystores  # noqa: PLC0415

        location, texts = "ssl.truststore.location", "ssl.truststore.certificates"
        path, text = self._settings.get(location), self._settings.get(texts)
        if path is not None and text is not None:
            self._wrong(texts, f"is set as well as {location}: set only one of them")
        elif text is not None:
            return self._try(texts, lambda: keystores.trusted_from_pem(text))
        elif path is not None:
            return self._try(location, lambda: self._trusted_in(path))
        return None

    def _trusted_in(self, path: str) -> str:
        from spark_groups.wire.security import keystores  # noqa: PLC0415

        self._allowed.check_store(path)
        kind, content = keystores.read_store(path, self._settings.get("ssl.truststore.type"))
        if kind == "PEM":
            return keystores.trusted_from_pem(content.decode("latin-1"))
        password = self._settings.get("ssl.truststore.password")
        if kind == "JKS":
            return keystores.trusted_from_jks(path, content, password)
        return keystores.trusted_from_pkcs12(content, password)

    def _identity(self) -> tuple[str, str] | None:
        from spark_groups.wire.security import keystores  # noqa: PLC0415

        location, chain, key = (
            f"ssl.keystore.{each}" for each in ("location", "certificate.chain", "key")
        )
        given = [name for name in (location, chain, key) if name in self._settings]
        password = self._settings.get("ssl.key.password")
        if given == [location]:
            return self._try(location, lambda: self._identity_in(self._settings[location]))
        if given == [chain, key]:
            texts = self._settings[chain], self._settings[key]
            return self._try(chain, lambda: keystores.identity_from_pem(*texts, password))
        if given:
            self._wrong(given[0], f"set either {location}, or both {chain} and {key}")
        return None

    def _identity_in(self, path: str) -> tuple[str, str]:
        from spark_groups.wire.security import keystores  # noqa: PLC0415

        self._allowed.check_store(path)
        kind, content = keystores.read_store(path, self._settings.get("ssl.keystore.type"))
        key_password = self._settings.get("ssl.key.password")
        if kind == "PEM":
            text = content.decode("latin-1")
            return keystores.identity_from_pem(text, text, key_password)
        password = self._settings.get("ssl.keystore.password")
        if kind == "JKS":
            return keystores.identity_from_jks(path, content, password, key_password)
        return keystores.identity_from_pkcs12(content, password)

    def _login(self) -> Login | None:
        name = self._settings.get("sasl.mechanism", "").strip().upper()
        try:
            mechanism = Mechanism(name)
        except ValueError:
            offered = ", ".join(each.value for each in Mechanism)
            what = f"{name!r} is none of {offered}" if name else f"is missing: one of {offered}"
            self._wrong("sasl.mechanism", what)
            return None
        module = self._login_module(mechanism) if _JAAS in self._settings else None
        if module is None and _JAAS in self._settings:
            return None
        if mechanism is Mechanism.OAUTHBEARER:
            return self._token_login(module)
        if _PROVIDER in self._settings:
            self._wrong(
                _PROVIDER,
                f"is set, but sasl.mechanism is {mechanism.value}, which uses no token: set"
                " sasl.mechanism to OAUTHBEARER, or remove the provider",
            )
        if module is None:
            self._wrong(
                _JAAS, f'is missing: {_MODULES[mechanism]} required username=".." password="..";'
            )
            return None
        return self._password_login(mechanism, module)

    def _login_module(self, mechanism: Mechanism) -> LoginModule | None:
        module = self._try(_JAAS, lambda: parse_jaas(self._settings[_JAAS]))
        if module is None:
            return None
        wanted, class_name = _MODULES[mechanism], module.name.removeprefix(_SHADED)
        if class_name == wanted:
            return module
        why = (
            "belongs to another mechanism"
            if class_name in _MODULES.values()
            else "is a Java class, which only a JVM can run"
        )
        self._wrong(_JAAS, f"{module.name} {why}: sasl.mechanism={mechanism.value} needs {wanted}")
        return None

    def _password_login(self, mechanism: Mechanism, module: LoginModule) -> Login | None:
        missing = [each for each in ("username", "password") if not module.options.get(each)]
        unknown = [option for option in module.options if option not in ("username", "password")]
        if missing:
            self._wrong(_JAAS, f"{' and '.join(missing)} is missing")
        if unknown:
            self._wrong(_JAAS, f"{', '.join(unknown)} is not supported")
        if missing or unknown:
            return None
        return PasswordLogin(mechanism, module.options["username"], module.options["password"])

    def _token_login(self, module: LoginModule | None) -> Login | None:
        options = dict(module.options) if module is not None else {}
        extensions = tuple(
            (name.removeprefix(_EXTENSION), options.pop(name))
            for name in sorted(options)
            if name.startswith(_EXTENSION)
        )
        self._try(_JAAS, partial(check_extensions, extensions))
        if _PROVIDER in self._settings:
            return self._provider_login(options, extensions)
        url = self._settings.get(_TOKEN_URL)
        scheme = (url or "").partition(":")[0].lower()
        if scheme not in ("https", "http", "file"):
            what = "is not an https://, http:// or file:// address" if url else "is missing"
            self._wrong(_TOKEN_URL, what)
            return None
        self._try(_TOKEN_URL, lambda: self._allowed.check_url(url or ""))
        client_id = self._settings.get(f"{_CLIENT}id") or options.pop("clientId", None)
        secret = self._settings.get(f"{_CLIENT}secret") or options.pop("clientSecret", None)
        scope = self._settings.get("sasl.oauthbearer.scope") or options.pop("scope", None)
        left = [option for option in options if option not in ("clientId", "clientSecret", "scope")]
        if left:
            self._wrong(_JAAS, f"{', '.join(left)} is not supported")
        if scheme != "file" and not (client_id and secret):
            self._wrong(f"{_CLIENT}id", f"it and {_CLIENT}secret are required to get a token")
        return TokenLogin(
            endpoint_url=url or "",
            client_id=client_id,
            client_secret=secret,
            scope=scope,
            extensions=extensions,
            urlencodes_header=self._flag("sasl.oauthbearer.header.urlencode"),
        )

    def _provider_login(
        self, options: Mapping[str, str], extensions: tuple[tuple[str, str], ...]
    ) -> Login | None:
        endpoint = (_TOKEN_URL, f"{_CLIENT}id", f"{_CLIENT}secret")
        both = [name for name in endpoint if name in self._settings]
        if both:
            self._wrong(_PROVIDER, f"is set as well as {', '.join(both)}: remove one of them")
        if options:
            self._wrong(_JAAS, f"{', '.join(options)} is not supported with {_PROVIDER}")
        name = self._settings[_PROVIDER].strip()
        if self._try(_PROVIDER, partial(self._find_provider, name)) is None:
            return None
        settings = {
            setting.removeprefix(_PROVIDED).lower(): text
            for setting, text in self._settings.items()
            if setting.startswith(_PROVIDED) and setting != _PROVIDER
        }
        if (authority := settings.get("entra.authority")) is not None:
            # The secrets of the host go there.
            self._try(f"{_PROVIDED}entra.authority", partial(self._allowed.check_url, authority))
        for setting, text in settings.items():
            if setting != "entra.authority" or self._allowed.urls is None:
                check = partial(self._allowed.check_token_setting, setting, text)
                self._try(f"{_PROVIDED}{setting}", check)
        self._try("bootstrap.servers", partial(self._allowed.check_brokers, self._brokers))
        return ProviderLogin(
            provider=name, settings=tuple(sorted(settings.items())), extensions=extensions
        )

    def _find_provider(self, name: str) -> TokenProvider:
        self._allowed.check_token_provider(name)
        return find_provider(name)

    def _try(self, name: str, read: Callable[[], Result]) -> Result | None:
        try:
            return read()
        except ValueError as error:
            self._wrong(name, str(error))
            return None

    def _flag(self, name: str) -> bool:
        text = self._settings.get(name, "false").strip().lower()
        if text not in ("true", "false"):
            self._wrong(name, f"{text!r} is neither true nor false")
        return text == "true"

    def _wrong(self, name: str, problem: str) -> None:
        self.problems.append((name, problem))


def unread_settings(settings: Iterable[str]) -> list[str]:
    """Return the settings of a file that say nothing about security, with the name that was meant.

    Args:
        settings: Names without the prefix `kafka.`.
    """
    known = [security_setting.name for security_setting in SECURITY_SETTINGS]
    given = dict.fromkeys(settings, "")
    unread = sorted(given.keys() - {*known, *provider_settings(given), "bootstrap.servers"})
    near = {name: nearest(name, known, similarity=0.85) for name in unread}
    return [
        f"{printable(name)} (did you mean {found}?)" if found else printable(name)
        for name, found in near.items()
    ]


def provider_settings(settings: Mapping[str, str]) -> list[str]:
    """Return the names of settings that only a token provider knows; empty without a provider.

    Args:
        settings: Names without the prefix `kafka.`.
    """
    if _PROVIDER not in settings:
        return []
    own = {security_setting.name for security_setting in SECURITY_SETTINGS}
    return [name for name in settings if name.startswith(_PROVIDED) and name not in own]


@dataclass(frozen=True, slots=True)
class LoginModule:
    """A JAAS login module: its class name, and its options with secrets."""

    name: str
    options: Mapping[str, str] = field(repr=False)


def parse_jaas(text: str) -> LoginModule:
    """Parse a JAAS configuration of one login module; no message repeats any of its values.

    Args:
        text: `some.LoginModule required name="value" name="value";`

    Raises:
        ValueError: It is malformed, or has more than one module.
    """
    tokens = list(_tokens(text))
    kinds = "".join(kind[0] for kind, _ in tokens)
    # One letter for each token: a name, a flag, then name=value as often as it is there, and `;`.
    if re.fullmatch(r"ww(?:wm[wq])*m", kinds) is None or tokens[-1] != ("mark", ";"):
        if sum(token == ("mark", ";") for token in tokens) > 1:
            raise ValueError("it names more than one login module: set only one")
        raise ValueError(
            'it is not of the form: some.LoginModule required name="value" name="value";'
        )
    if tokens[1][1].lower() not in _FLAGS:
        raise ValueError(f"after the login module, expected one of {', '.join(_FLAGS)}")
    rest = tokens[2:-1]
    if any(mark != "=" for _, mark in rest[1::3]):
        raise ValueError("it names more than one login module: set only one")
    options = {name: value for (_, name), (_, value) in zip(rest[::3], rest[2::3], strict=True)}
    return LoginModule(tokens[0][1], options)


def _tokens(text: str) -> Iterator[tuple[str, str]]:
    place, end = 0, len(text.rstrip())
    while place < end:
        found = _TOKEN.match(text, place)
        if found is None:
            raise ValueError(
                f"it cannot be parsed after character {place + 1}: is a quote missing?"
            )
        place = found.end()
        kind = str(found.lastgroup)
        is_quoted = kind in {"quoted", "single"}
        yield ("quoted", _unescaped(found[kind])) if is_quoted else (kind, found[kind])


def _unescaped(text: str) -> str:
    return re.sub(r"\\(.)", lambda found: _ESCAPES.get(found[1], found[1]), text, flags=re.DOTALL)
