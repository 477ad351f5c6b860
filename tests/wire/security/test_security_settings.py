"""Kafka's settings for security: their meaning, and the errors for wrong ones."""

from __future__ import annotations

import pickle
from pathlib import Path

import pytest

from spark_groups.errors import OptionsError
from spark_groups.wire.security.config_references import EVERYTHING, Allowed
from spark_groups.wire.security.sasl import (
    Mechanism,
    PasswordLogin,
    ProviderLogin,
    TokenLogin,
)
from spark_groups.wire.security.security import Security
from spark_groups.wire.security.security_settings import SECURITY_SETTINGS, parse_jaas, security_of
from tests.secured import Identity, issue, jaas

SECRET = "hush-123456"
SCRAM = {
    "security.protocol": "SASL_SSL",
    "sasl.mechanism": "SCRAM-SHA-512",
    "sasl.jaas.config": jaas("scram.Scram", username="alice", password=SECRET),
}
TOKENS = {
    "security.protocol": "SASL_SSL",
    "sasl.mechanism": "OAUTHBEARER",
    "sasl.oauthbearer.token.endpoint.url": "https://login.example.com/token",
    "sasl.oauthbearer.client.credentials.client.id": "batch",
    "sasl.oauthbearer.client.credentials.client.secret": SECRET,
}


@pytest.fixture(scope="module")
def client() -> Identity:
    return issue("carol")


def test_nothing_is_plaintext() -> None:
    assert security_of({}) == Security()
    assert Security().librdkafka_settings() == {"security.protocol": "PLAINTEXT"}


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"])
@pytest.mark.parametrize("shaded", ["", "kafkashaded."])
def test_a_password(mechanism: str, shaded: str) -> None:
    module = "plain.Plain" if mechanism == "PLAIN" else "scram.Scram"
    text = shaded + jaas(module, username="alice", password=SECRET)
    found = security_of({**SCRAM, "sasl.mechanism": mechanism, "sasl.jaas.config": text})
    assert found.login == PasswordLogin(Mechanism(mechanism), "alice", SECRET)
    settings = found.librdkafka_settings()
    assert settings["sasl.password"] == SECRET
    assert settings["enable.ssl.certificate.verification"] is True
    assert settings["ssl.endpoint.identification.algorithm"] == "https"
    assert SECRET not in repr(found) + str(found)


def test_a_client_of_tokens() -> None:
    expected = TokenLogin(
        endpoint_url="https://login.example.com/token",
        client_id="batch",
        client_secret=SECRET,
        scope="kafka",
        extensions=(("logicalCluster", "lkc-1"),),
    )
    module = jaas("oauthbearer.OAuthBearer", extension_logicalCluster="lkc-1")
    found = security_of({**TOKENS, "sasl.oauthbearer.scope": "kafka", "sasl.jaas.config": module})
    assert found.login == expected
    in_jaas = jaas(
        "oauthbearer.OAuthBearer",
        clientId="batch",
        clientSecret=SECRET,
        scope="kafka",
        extension_logicalCluster="lkc-1",
    )
    older = {key: value for key, value in TOKENS.items() if "credentials" not in key}
    assert security_of({**older, "sasl.jaas.config": in_jaas}).login == expected
    assert SECRET not in repr(found)


PROVIDED = {
    "security.protocol": "SASL_SSL",
    "sasl.mechanism": "OAUTHBEARER",
    "sasl.oauthbearer.token.provider": "tests.provided_tokens:provided",
}


def test_a_token_provider(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPARK_GROUPS_TEST_SECRET", SECRET)
    settings = {
        "sasl.oauthbearer.scope": "kafka",
        "sasl.oauthbearer.Test.Client.Secret": "${env:SPARK_GROUPS_TEST_SECRET}",
        "sasl.jaas.config": jaas("oauthbearer.OAuthBearer", extension_logicalCluster="lkc-1"),
    }
    found = security_of(PROVIDED | settings)
    assert found.login == ProviderLogin(
        provider="tests.provided_tokens:provided",
        settings=(("scope", "kafka"), ("test.client.secret", SECRET)),
        extensions=(("logicalCluster", "lkc-1"),),
    )
    assert SECRET not in repr(found) + str(found)
    assert pickle.loads(pickle.dumps(found)) == found
    assert found.principal == ""


def test_the_authority_of_entra_is_an_address_that_the_operator_allows() -> None:
    authority = "https://login.example.org"
    settings = {
        "sasl.mechanism": "OAUTHBEARER",
        "security.protocol": "SASL_SSL",
        "sasl.oauthbearer.token.provider": "entra",
        "sasl.oauthbearer.entra.authority": authority,
    }

    providers = {"SPARK_GROUPS_ALLOWED_TOKEN_PROVIDERS": "entra"}
    security_of(settings, allowed=Allowed.by(providers | {"SPARK_GROUPS_ALLOWED_URLS": authority}))
    others = {"SPARK_GROUPS_ALLOWED_URLS": "https://other.example.org"}
    with pytest.raises(OptionsError, match=r"entra\.authority.*SPARK_GROUPS_ALLOWED_URLS"):
        security_of(settings, allowed=Allowed.by(providers | others))


def test_a_token_in_a_file_needs_no_client() -> None:
    settings = {key: value for key, value in TOKENS.items() if "credentials" not in key}
    url = "file:///run/secrets/token"
    found = security_of(
        {**settings, "sasl.oauthbearer.token.endpoint.url": url}, allowed=EVERYTHING
    )
    assert found.login == TokenLogin(endpoint_url=url)


def test_certificates_as_files_and_as_texts(client: Identity, tmp_path: Path) -> None:
    path = tmp_path / "client.pem"
    path.write_text(client.pem)
    files = {
        "security.protocol": "SSL",
        "ssl.truststore.location": str(path),
        "ssl.keystore.location": str(path),
        "ssl.keystore.type": "PEM",
        "ssl.endpoint.identification.algorithm": "",
    }
    texts = {
        "security.protocol": "SSL",
        "ssl.truststore.certificates": client.certificate_pem,
        "ssl.keystore.certificate.chain": client.certificate_pem,
        "ssl.keystore.key": client.key_pem,
    }
    found = security_of(files)
    assert found.tls.trusted_pem == client.certificate_pem
    assert found.tls.key_pem == client.key_pem
    assert not found.tls.verify_host_name
    assert security_of(texts).tls.verify_host_name
    assert security_of({**texts, "ssl.endpoint.identification.algorithm": ""}) == found
    assert found.librdkafka_settings()["ssl.endpoint.identification.algorithm"] == "none"
    assert "PRIVATE KEY" not in repr(found)


WRONG: list[tuple[dict[str, str], str]] = [
    ({"security.protocol": "TLS"}, "kafka.security.protocol: 'TLS' is none of PLAINTEXT, SSL"),
    (SCRAM | {"sasl.mechanism": "GSSAPI"}, "kafka.sasl.mechanism: 'GSSAPI' is none of PLAIN"),
    ({"security.protocol": "SASL_SSL"}, "kafka.sasl.mechanism: is missing: one of PLAIN"),
    (
        SCRAM | {"sasl.jaas.config": ""},
        "kafka.sasl.jaas.config: it is not of the form: some.LoginModule",
    ),
    (
        SCRAM | {"sasl.mechanism": "PLAIN"},
        "ScramLoginModule belongs to another mechanism: sasl.mechanism=PLAIN needs org.apache",
    ),
    (
        SCRAM | {"sasl.jaas.config": f'com.sun.Krb5LoginModule required x="{SECRET}";'},
        "com.sun.Krb5LoginModule is a Java class, which only a JVM can run",
    ),
    (
        SCRAM | {"sasl.jaas.config": jaas("scram.Scram", username="a", tokenauth="true")},
        "password is missing",
    ),
    (
        SCRAM
        | {
            "sasl.jaas.config": jaas("scram.Scram", username="a", password=SECRET, tokenauth="true")
        },
        "tokenauth is not supported",
    ),
    (TOKENS | {"sasl.oauthbearer.token.endpoint.url": SECRET}, "is not an https://, http://"),
    (
        {k: v for k, v in TOKENS.items() if not k.endswith("secret")},
        "client.secret are required to get a token",
    ),
    (
        SCRAM | {"sasl.oauthbearer.token.provider": "msk"},
        "kafka.sasl.oauthbearer.token.provider: is set, but sasl.mechanism is SCRAM-SHA-512",
    ),
    (
        TOKENS | {"sasl.oauthbearer.token.provider": "msk"},
        "token.provider: is set as well as sasl.oauthbearer.token.endpoint.url, sasl.oauthbearer",
    ),
    (
        PROVIDED | {"sasl.jaas.config": jaas("oauthbearer.OAuthBearer", clientSecret=SECRET)},
        "kafka.sasl.jaas.config: clientSecret is not supported with sasl.oauthbearer.token.prov",
    ),
    (
        PROVIDED | {"sasl.jaas.config": jaas("oauthbearer.OAuthBearer", extension_auth=SECRET)},
        "kafka.sasl.jaas.config: 'auth' cannot name a SASL extension",
    ),
    (
        PROVIDED | {"sasl.oauthbearer.token.provider": "no.such:token"},
        "kafka.sasl.oauthbearer.token.provider: 'no.such:token' cannot be loaded: importing",
    ),
    (
        {"sasl.oauthbearer.token.provider": "msk"},
        "token.provider: is set, but security.protocol is PLAINTEXT, which does not use it",
    ),
    (
        {"sasl.jaas.config": SCRAM["sasl.jaas.config"]},
        "kafka.sasl.jaas.config: is set, but security.protocol is PLAINTEXT",
    ),
    (
        {"security.protocol": "SASL_PLAINTEXT", "ssl.truststore.location": "x"},
        "kafka.ssl.truststore.location: is set, but security.protocol is SASL_PLAINTEXT",
    ),
    (
        {"security.protocol": "SSL", "ssl.truststore.location": "/no/such.pem"},
        "kafka.ssl.truststore.location: /no/such.pem cannot be read",
    ),
    (
        {"security.protocol": "SSL", "ssl.keystore.key": SECRET},
        "kafka.ssl.keystore.key: set either ssl.keystore.location, or both",
    ),
    (
        {"security.protocol": "SSL", "ssl.endpoint.identification.algorithm": "none"},
        "'none' is neither https nor empty",
    ),
]


@pytest.mark.parametrize(("settings", "says"), WRONG, ids=[says[:40] for _, says in WRONG])
def test_a_wrong_setting_is_reported_by_name_and_without_secrets(
    settings: dict[str, str], says: str
) -> None:
    with pytest.raises(OptionsError) as raised:
        security_of(settings)
    assert says in str(raised.value)
    assert SECRET not in str(raised.value)


def test_all_wrong_settings_are_reported_together() -> None:
    with pytest.raises(OptionsError) as raised:
        security_of(
            SCRAM
            | {"sasl.mechanism": "x", "ssl.truststore.location": "/no", "ssl.keystore.key": "y"},
            prefix="",
        )
    assert [line.split(":")[0] for line in str(raised.value).splitlines()] == [
        "ssl.truststore.location",
        "ssl.keystore.key",
        "sasl.mechanism",
    ]


def test_every_setting_is_read() -> None:
    """A name in the table that nothing reads would be taken and not obeyed."""
    source = Path(security_of.__code__.co_filename).read_text(encoding="utf-8")
    reading = source[source.index("class _Reading") :] + source.split("_JAAS: Final")[1]
    for each in SECURITY_SETTINGS:
        tail = each.name.removeprefix("ssl.keystore.").split("client.credentials.client.")[-1]
        assert tail in reading, each.name


PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule"


@pytest.mark.parametrize(
    ("text", "options"),
    [
        (f'{PLAIN} required username="alice" password="wonder";', ("alice", "wonder")),
        (f"{PLAIN} required username=alice password=wonder ;", ("alice", "wonder")),
        (f"{PLAIN} required username='al\"ice' password='it\\'s';", ('al"ice', "it's")),
        (f'{PLAIN} REQUIRED\n  username = "al;ce"\n  password="a = b";\n', ("al;ce", "a = b")),
        (rf'{PLAIN} required username="a" password="a\"b\\c\n";', ("a", 'a"b\\c\n')),
        (f'// who\n{PLAIN} required # why\n username="a" /* ; */ password="";', ("a", "")),
    ],
)
def test_a_module_with_its_options_is_read(text: str, options: tuple[str, str]) -> None:
    module = parse_jaas(text)
    assert module.name == PLAIN
    assert (module.options["username"], module.options["password"]) == options
    assert "wonder" not in repr(module)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "it is not of the form: some.LoginModule required"),
        ("alice:secret-1", "it is not of the form: some.LoginModule required"),
        (f'{PLAIN} required username="alice" password="secret-1"', "it is not"),
        (f'{PLAIN} needed username="alice" password="secret-1";', "expected one of required"),
        (f'{PLAIN} required password="secret-1; username="a";', "is a quote missing"),
        (f'{PLAIN} required password="secret-1"; {PLAIN} required;', "more than one login module"),
        (f'{PLAIN} required password;"secret-1";', "more than one login module"),
        (f'{PLAIN} required password="secret-1" username;', "it is not"),
    ],
)
def test_what_cannot_be_read_is_refused_without_its_values(text: str, says: str) -> None:
    with pytest.raises(ValueError, match=says) as raised:
        parse_jaas(text)
    assert "secret-1" not in str(raised.value)
