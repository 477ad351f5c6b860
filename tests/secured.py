"""A real broker with TLS, SASL and ACLs, and the certificates, users and tokens for it."""

from __future__ import annotations

import base64
import datetime
import http.server
import ipaddress
import json
import subprocess
import threading
import time
import urllib.parse
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    ResourcePatternType,
    ResourceType,
)
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import padding, rsa
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    NoEncryption,
    PrivateFormat,
)
from cryptography.hazmat.primitives.serialization.pkcs12 import serialize_key_and_certificates

from spark_groups.broker.embedded import EmbeddedKafka
from spark_groups.broker.java import find_java
from workshop.parts.brokers import ANSWER_S, admin, jvm_options

STORE_PASSWORD: Final = "store-secret-1"
KEY_PASSWORD: Final = "key-secret-2"
CLIENT_ID: Final = "batch-client"
CLIENT_SECRET: Final = "token-secret-31415"
PASSWORDS: Final = {
    "alice": "wonder-2718",
    "bob": "builder-1618",
    "carol": "copper-3141",
    "nobody": "nothing-1414",
}
SESSION_LIFETIME_MS: Final = 4_000
_PACKAGE = "org.apache.kafka.common.security."
_DAY = datetime.timedelta(days=1)


def jaas(module: str, **options: str) -> str:
    """Return a JAAS configuration of one of Kafka's modules, `plain.Plain` for example."""
    said = " ".join(f'{name}="{value}"' for name, value in options.items())
    return f"{_PACKAGE}{module}LoginModule required {said};"


@dataclass(frozen=True)
class Identity:
    """A certificate with its key.

    Args:
        key: The key.
        certificate: The certificate.
        chain: Certificates between it and its authority.
    """

    key: rsa.RSAPrivateKey
    certificate: x509.Certificate
    chain: tuple[x509.Certificate, ...] = ()

    @property
    def key_pem(self) -> str:
        return self.key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode()

    @property
    def certificate_pem(self) -> str:
        found = (self.certificate, *self.chain)
        return "".join(each.public_bytes(Encoding.PEM).decode() for each in found)

    @property
    def pem(self) -> str:
        return self.key_pem + self.certificate_pem


def issue(
    name: str,
    issuer: Identity | None = None,
    *,
    hosts: tuple[str, ...] = (),
    is_authority: bool = False,
    until: datetime.timedelta = _DAY,
) -> Identity:
    """Return a new certificate; without an issuer it is its own."""
    key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    subject = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name)])
    now = datetime.datetime.now(datetime.timezone.utc)
    builder = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer.certificate.subject if issuer else subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - 2 * _DAY)
        .not_valid_after(now + until)
        .add_extension(x509.BasicConstraints(is_authority, None), critical=True)
    )
    if hosts:
        names = [_general_name(each) for each in hosts]
        builder = builder.add_extension(x509.SubjectAlternativeName(names), critical=False)
    signed = builder.sign(issuer.key if issuer else key, hashes.SHA256())
    chain = ()
    if issuer is not None and issuer.certificate.issuer != issuer.certificate.subject:
        chain = (issuer.certificate, *issuer.chain)
    return Identity(key, signed, chain)


def _general_name(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def keytool(*args: str) -> None:
    """Run the JDK's keytool."""
    tool = Path(find_java()).with_name("keytool")
    subprocess.run([str(tool), *args], check=True, capture_output=True, timeout=800)


def pkcs12_of(identity: Identity) -> bytes:
    """Return a PKCS #12 store with STORE_PASSWORD and the alias carol."""
    password = BestAvailableEncryption(STORE_PASSWORD.encode())
    found = (identity.key, identity.certificate, identity.chain, password)
    return serialize_key_and_certificates(b"carol", *found)


def key_store(directory: Path, identity: Identity) -> Path:
    """Make a JKS with STORE_PASSWORD, whose key has KEY_PASSWORD."""
    source, store = directory / "client.p12", directory / "client.jks"
    source.write_bytes(pkcs12_of(identity))
    keytool(
        *("-importkeystore", "-srckeystore", str(source), "-destkeystore", str(store)),
        *("-srcstorepass", STORE_PASSWORD, "-deststorepass", STORE_PASSWORD),
        *("-destkeypass", KEY_PASSWORD, "-deststoretype", "JKS", "-srcalias", "carol"),
    )
    return store


def trust_store(directory: Path, *trusted: Identity, kind: str = "JKS") -> Path:
    """Make a trust store with STORE_PASSWORD."""
    store = directory / f"trust.{kind.lower()}"
    for index, each in enumerate(trusted):
        certificate = directory / f"trusted-{index}.pem"
        certificate.write_text(each.certificate_pem)
        keytool(
            *("-importcert", "-noprompt", "-alias", str(index), "-file", str(certificate)),
            *("-keystore", str(store), "-storetype", kind, "-storepass", STORE_PASSWORD),
        )
    return store


@dataclass
class TokenIssuer:
    """A small token endpoint that knows one client, with real signed tokens.

    Args:
        url: Where it is.
        asked: The forms of the requests that came.
        provided: The tokens for token providers: the process, and the claim `nonce` if any.
        is_down: Whether it gives token providers no tokens.
        lifetime_s: How long its tokens are good.
        subject: Whom they name.
        audience: For whom they are.
        credentials: What the client has to send.
    """

    url: str = ""
    asked: list[dict[str, list[str]]] = field(default_factory=list)
    provided: list[tuple[int, str]] = field(default_factory=list)
    is_down: bool = False
    lifetime_s: float = 300.0
    subject: str = "bob"
    audience: str = "kafka"
    credentials: str = f"{CLIENT_ID}:{CLIENT_SECRET}"
    key: rsa.RSAPrivateKey = field(
        default_factory=lambda: rsa.generate_private_key(public_exponent=65537, key_size=2048)
    )

    def expected(self) -> str:
        """Return the header with which the client names itself."""
        return f"Basic {base64.b64encode(self.credentials.encode()).decode()}"

    def token(self, **claims: Any) -> str:
        """Return a JSON Web Token, signed with RS256."""
        now = int(time.time())
        payload = {
            "iss": "tests",
            "aud": self.audience,
            "sub": self.subject,
            "scope": "read",
            "iat": now,
            "exp": int(now + self.lifetime_s),
            **claims,
        }
        head = {"alg": "RS256", "kid": "one", "typ": "JWT"}
        signed = f"{_base64(json.dumps(head).encode())}.{_base64(json.dumps(payload).encode())}"
        signature = self.key.sign(signed.encode(), padding.PKCS1v15(), hashes.SHA256())
        return f"{signed}.{_base64(signature)}"

    def keys(self) -> dict[str, Any]:
        """Return the JSON Web Key Set that brokers check tokens with."""
        numbers = self.key.public_key().public_numbers()
        return {
            "keys": [
                {
                    "kty": "RSA",
                    "kid": "one",
                    "use": "sig",
                    "alg": "RS256",
                    "n": _base64(numbers.n.to_bytes(256, "big")),
                    "e": _base64(numbers.e.to_bytes(3, "big")),
                }
            ]
        }


def _base64(content: bytes) -> str:
    return base64.urlsafe_b64encode(content).rstrip(b"=").decode()


@contextmanager
def token_issuer() -> Iterator[TokenIssuer]:
    """Run a token endpoint on a free port."""
    issuer = TokenIssuer()

    class Endpoint(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self._answer(200, issuer.keys())

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"])).decode()
            if self.path == "/provided":
                self._provide(json.loads(body))
                return
            issuer.asked.append(urllib.parse.parse_qs(body))
            if self.path == "/down":
                self._answer(503, {})
            elif self.path == "/elsewhere":
                self._answer(302, {}, Location="/token")
            elif self.headers["Authorization"] == issuer.expected():
                token = issuer.token()
                self._answer(200, {"access_token": token, "expires_in": issuer.lifetime_s})
            else:
                self._answer(401, {"error": "invalid_client", "error_description": "who is it?"})

        def _provide(self, asked: dict[str, Any]) -> None:
            if asked["client_secret"] != CLIENT_SECRET or issuer.is_down:
                self._answer(503, {})
                return
            issuer.provided.append((asked["process"], asked["claims"].get("nonce", "")))
            token = issuer.token(**asked["claims"])
            self._answer(200, {"token": token, "expires_at_ms": asked["claims"]["exp"] * 1000})

        def _answer(self, status: int, values: dict[str, Any], **headers: str) -> None:
            content = json.dumps(values).encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(content)))
            for name, value in headers.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, *_: Any) -> None:
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Endpoint)
    thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    issuer.url = f"http://127.0.0.1:{server.server_address[1]}/token"
    try:
        yield issuer
    finally:
        server.shutdown()
        server.server_close()
        thread.join(300)


@dataclass
class SecuredKafka:
    """A running broker with listeners of every kind.

    Args:
        kafka: The broker; its plaintext listener is a super user's.
        authority: Issued every certificate but the client's own intermediate.
        client: A client's certificate, with an intermediate one.
        issuer: Gives tokens.
        directory: Where the authority and the client's certificate are as files.
    """

    kafka: EmbeddedKafka
    authority: Identity
    client: Identity
    issuer: TokenIssuer
    directory: Path

    @property
    def ca_file(self) -> str:
        return str(self.directory / "authority.pem")

    def tls(self, **more: str) -> dict[str, str]:
        """Return settings that trust the broker."""
        return {
            "security.protocol": "SSL",
            "ssl.truststore.location": self.ca_file,
            **_dotted(more),
        }

    def mutual_tls(self) -> dict[str, str]:
        """Return settings with a client certificate, all of it as texts."""
        return {
            "security.protocol": "SSL",
            "ssl.truststore.certificates": self.authority.certificate_pem,
            "ssl.keystore.certificate.chain": self.client.certificate_pem,
            "ssl.keystore.key": self.client.key_pem,
        }

    def java_stores(self, directory: Path) -> dict[str, str]:
        """Return settings with a client certificate, in stores that keytool makes."""
        return {
            "security.protocol": "SSL",
            "ssl.truststore.location": str(trust_store(directory, self.authority)),
            "ssl.truststore.type": "JKS",
            "ssl.truststore.password": STORE_PASSWORD,
            "ssl.keystore.location": str(key_store(directory, self.client)),
            "ssl.keystore.type": "JKS",
            "ssl.keystore.password": STORE_PASSWORD,
            "ssl.key.password": KEY_PASSWORD,
        }

    def login(
        self, mechanism: str, user: str = "alice", password: str | None = None, **more: str
    ) -> dict[str, str]:
        """Return settings for SASL_SSL with a password."""
        module = "plain.Plain" if mechanism == "PLAIN" else "scram.Scram"
        return {
            "security.protocol": "SASL_SSL",
            "ssl.truststore.location": self.ca_file,
            "sasl.mechanism": mechanism,
            "sasl.jaas.config": jaas(module, username=user, password=password or PASSWORDS[user]),
            **_dotted(more),
        }

    def tokens(self, secret: str = CLIENT_SECRET, **more: str) -> dict[str, str]:
        """Return settings for SASL_SSL with tokens."""
        return {
            "security.protocol": "SASL_SSL",
            "ssl.truststore.location": self.ca_file,
            "sasl.mechanism": "OAUTHBEARER",
            "sasl.oauthbearer.token.endpoint.url": self.issuer.url,
            "sasl.oauthbearer.client.credentials.client.id": CLIENT_ID,
            "sasl.oauthbearer.client.credentials.client.secret": secret,
            "sasl.oauthbearer.scope": "read",
            **_dotted(more),
        }

    def provided(self, lifetime_s: int = 300, **claims: str) -> dict[str, str]:
        """Return settings for SASL_PLAINTEXT with the token provider of `tests.provided_tokens`."""
        return {
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": "OAUTHBEARER",
            "sasl.oauthbearer.token.provider": "tests.provided_tokens:provided",
            "sasl.oauthbearer.test.url": self.issuer.url.replace("/token", "/provided"),
            "sasl.oauthbearer.test.client.secret": CLIENT_SECRET,
            "sasl.oauthbearer.test.lifetime": str(lifetime_s),
            **{f"sasl.oauthbearer.test.claim.{name}": text for name, text in claims.items()},
        }

    def allow(self, user: str, kind: str, name: str, *operations: str, deny: bool = False) -> None:
        """Give a user rights on a TOPIC, a GROUP or the CLUSTER, or deny them."""
        permission = AclPermissionType.DENY if deny else AclPermissionType.ALLOW
        bindings = [
            AclBinding(
                ResourceType.BROKER if kind == "CLUSTER" else ResourceType[kind],
                name,
                ResourcePatternType.LITERAL,
                f"User:{user}",
                "*",
                AclOperation[operation],
                permission,
            )
            for operation in operations
        ]
        client = admin(self.kafka.bootstrap_servers)
        for created in client.create_acls(bindings).values():
            created.result(ANSWER_S)


def _dotted(settings: dict[str, str]) -> dict[str, str]:
    return {name.replace("__", "."): value for name, value in settings.items()}


LISTENERS: Final = {
    "TLS": "SSL",
    "MUTUAL": "SSL",
    "OTHERHOST": "SSL",
    "EXPIRED": "SSL",
    "LOGIN": "SASL_SSL",
    "OPENLOGIN": "SASL_PLAINTEXT",
    "SHORT": "SASL_PLAINTEXT",
}


@contextmanager
def secured_kafka(directory: Path) -> Iterator[SecuredKafka]:
    """Run a broker whose listeners are those of `LISTENERS`."""
    authority = issue("authority", is_authority=True)
    between = issue("between", authority, is_authority=True)
    client = issue("carol", between)
    (directory / "authority.pem").write_text(authority.certificate_pem)
    (directory / "client.pem").write_text(client.pem)
    brokers = {
        "": issue("broker", authority, hosts=("127.0.0.1", "localhost")),
        "otherhost.": issue("broker", authority, hosts=("kafka.example.com",)),
        "expired.": issue("broker", authority, hosts=("127.0.0.1",), until=-_DAY),
    }
    with token_issuer() as issuer:
        keys_url = issuer.url.replace("/token", "/keys")
        properties = {
            "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
            "super.users": "User:ANONYMOUS",
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": str(directory / "authority.pem"),
            "ssl.keystore.type": "PEM",
            "listener.name.mutual.ssl.client.auth": "required",
            # Users of certificates have the name alone: CN=carol.
            "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512,OAUTHBEARER",
        }
        for prefix, identity in brokers.items():
            path = directory / f"{prefix or 'broker.'}pem"
            path.write_text(identity.pem)
            name = f"listener.name.{prefix}" if prefix else ""
            properties[f"{name}ssl.keystore.location"] = str(path)
            properties[f"{name}ssl.keystore.type"] = "PEM"
        for listener in ("login", "openlogin", "short"):
            properties |= _sasl_properties(f"listener.name.{listener}.", keys_url)
        properties["listener.name.short.plain.connections.max.reauth.ms"] = str(SESSION_LIFETIME_MS)
        # A session with a token ends with the token, if that is sooner.
        properties["listener.name.short.oauthbearer.connections.max.reauth.ms"] = "3600000"
        properties["listener.name.openlogin.sasl.enabled.mechanisms"] = "PLAIN,SCRAM-SHA-512"
        users = [
            f"{mechanism}=[name={user},password={password}]"
            for mechanism in ("SCRAM-SHA-256", "SCRAM-SHA-512")
            for user, password in PASSWORDS.items()
        ]
        with (
            jvm_options(f"-Dorg.apache.kafka.sasl.oauthbearer.allowed.urls={keys_url}"),
            EmbeddedKafka(
                extra_listeners=LISTENERS,
                server_properties=properties,
                format_arguments=[part for user in users for part in ("--add-scram", user)],
            ) as kafka,
        ):
            yield SecuredKafka(kafka, authority, client, issuer, directory)


def _sasl_properties(listener: str, keys_url: str) -> dict[str, str]:
    users = {f"user_{user}": password for user, password in PASSWORDS.items()}
    return {
        f"{listener}plain.sasl.jaas.config": jaas("plain.Plain", **users),
        f"{listener}scram-sha-256.sasl.jaas.config": jaas("scram.Scram"),
        f"{listener}scram-sha-512.sasl.jaas.config": jaas("scram.Scram"),
        f"{listener}oauthbearer.sasl.jaas.config": jaas("oauthbearer.OAuthBearer"),
        f"{listener}oauthbearer.sasl.server.callback.handler.class": (
            f"{_PACKAGE}oauthbearer.OAuthBearerValidatorCallbackHandler"
        ),
        f"{listener}oauthbearer.sasl.oauthbearer.jwks.endpoint.url": keys_url,
        f"{listener}oauthbearer.sasl.oauthbearer.expected.audience": "kafka",
    }
