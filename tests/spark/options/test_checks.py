"""Problems of unknown and refused options and invalid values."""

from __future__ import annotations

import pickle
from dataclasses import MISSING, dataclass

import pytest

from spark_groups.errors import OptionsError
from spark_groups.spark.options.checks import (
    SECURITY_OPTIONS,
    read_security,
    refuse_load,
    unknown_or_refused,
)
from spark_groups.spark.options.declaring import option, parsed
from spark_groups.spark.options.option_values import whole_number
from spark_groups.spark.options.source_options import SourceOptions
from spark_groups.spark.reading.librdkafka_consumer import librdkafka_settings
from spark_groups.wire.security.sasl import ProviderLogin
from spark_groups.wire.security.security import PLAINTEXT
from spark_groups.wire.security.security_settings import SECURITY_SETTINGS
from tests.secured import issue, jaas
from workshop.tools.docs_options import option_table

KNOWN = {"startingoffsets": "startingOffsets", "kafka.group.id": "kafka.group.id"}


def said(*names: str) -> list[str]:
    return list(unknown_or_refused(dict.fromkeys(names, "x"), KNOWN))


def test_known_names_are_not_spoken_of() -> None:
    assert said("startingoffsets", "kafka.group.id") == []


def test_names_that_are_nearly_right_are_guessed() -> None:
    assert said("startingofsets") == [
        "startingOfsets is not an option of this source; did you mean startingOffsets?"
    ]
    assert said("StartingOfsets")[0].startswith("StartingOfsets is not"), "its own capitals"
    assert said("group.id") == ["group.id is not an option of this source: write kafka.group.id"]
    assert said("something") == ["something is not an option of this source"]


def test_refused_names_come_with_the_reason_also_without_their_prefix() -> None:
    for name in ("kafka.session.timeout.ms", "session.timeout.ms"):
        (reason,) = said(name)
        assert reason.startswith(f"{name} is refused: the coordinator sets this")
        assert "spark-groups config GROUP --set consumer.session.timeout.ms=..." in reason
    assert "use subscribe or subscribePattern" in said("assign")[0]


@dataclass(frozen=True, kw_only=True)
class Sizes:
    large: int = option("maxSize", whole_number(1, 9), "A size.", default=MISSING)
    small: int = option("minSize", whole_number(1), "Another.", default=3)
    other: str = ""


def test_options_are_values_or_problems() -> None:
    problems: list[str] = []
    assert parsed(Sizes, {"maxsize": "4", "more": "x"}, problems) == {"large": 4}
    assert problems == []
    assert parsed(Sizes, {"maxsize": "10", "minsize": "2"}, problems) == {"small": 2}
    assert parsed(Sizes, {"minsize": "0"}, problems) == {}
    assert problems == [
        "maxSize: '10' is invalid: write a whole number from 1 to 9",
        "maxSize is missing",
        "minSize: '0' is invalid: write a whole number of at least 1",
    ]
    with pytest.raises(OptionsError, match=r"the sizes source cannot be loaded:\n  - maxSize: '1"):
        refuse_load("sizes", problems)


SECRET = "hush-123456"
NEEDED = {
    "kafka.bootstrap.servers": "localhost:9092",
    "kafka.group.id": "g",
    "subscribe": "t",
}
LOGIN = {
    "kafka.security.protocol": "SASL_SSL",
    "kafka.sasl.mechanism": "SCRAM-SHA-512",
    "kafka.sasl.jaas.config": jaas("scram.Scram", username="alice", password=SECRET),
}


def test_every_setting_of_kafka_is_an_option() -> None:
    assert [name for name, _, _ in SECURITY_OPTIONS] == [
        f"kafka.{each.name}" for each in SECURITY_SETTINGS
    ]
    for name, default, meaning in SECURITY_OPTIONS:
        assert f"| `{name}` | {default} | {meaning} |" in option_table()


def test_nothing_given_is_plaintext() -> None:
    problems: list[str] = []
    assert read_security({"subscribe": "t"}, problems) == PLAINTEXT
    assert problems == []


def test_driver_and_executors_get_the_same() -> None:
    options = SourceOptions.of(NEEDED | LOGIN)
    assert options.security.login is not None
    assert options.range_settings().security == options.security
    travelled = pickle.loads(pickle.dumps(options)).range_settings()
    assert librdkafka_settings(travelled)["sasl.password"] == SECRET


PROVIDED = {
    "kafka.security.protocol": "SASL_SSL",
    "kafka.sasl.mechanism": "OAUTHBEARER",
    "kafka.sasl.oauthbearer.token.provider": "tests.provided_tokens:provided",
    "kafka.sasl.oauthbearer.test.url": "http://localhost:1",
}


def test_a_token_provider_has_options_of_its_own() -> None:
    login = SourceOptions.of(NEEDED | PROVIDED).security.login
    assert isinstance(login, ProviderLogin)
    assert login.settings == (("test.url", "http://localhost:1"),)
    del (without := dict(PROVIDED))["kafka.sasl.oauthbearer.token.provider"]
    with pytest.raises(
        OptionsError, match=r"oauthbearer\.test\.url is not an option of this source"
    ):
        SourceOptions.of(NEEDED | without)


def test_options_show_no_secret() -> None:
    options = SourceOptions.of(NEEDED | LOGIN)
    for shown in (options, options.range_settings(), options.client_config()):
        assert SECRET not in repr(shown) + str(shown)


def test_problems_are_listed_together_and_without_secrets() -> None:
    with pytest.raises(OptionsError) as raised:
        SourceOptions.of(
            NEEDED
            | LOGIN
            | {
                "kafka.sasl.mechanism": "PLAIN",
                "kafka.ssl.keystore.pasword": SECRET,
                "maxOffsetsPerTrigger": "x",
            }
        )
    said = str(raised.value)
    assert SECRET not in said
    assert "did you mean kafka.ssl.keystore.password?" in said
    assert "kafka.sasl.jaas.config: org.apache.kafka.common.security.scram.Scram" in said
    assert said.count("\n  - ") == 3


def test_a_key_that_spark_would_show_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    client = issue("carol")
    options = {
        **NEEDED,
        "kafka.security.protocol": "SSL",
        "kafka.ssl.keystore.certificate.chain": client.certificate_pem,
        "kafka.ssl.keystore.key": client.key_pem,
    }
    with pytest.raises(OptionsError, match="would expose an unencrypted key") as raised:
        SourceOptions.of(options)
    assert client.key_pem.splitlines()[1] not in str(raised.value)
    monkeypatch.setenv("SPARK_GROUPS_TEST_KEY", client.key_pem)
    referred = SourceOptions.of(
        options | {"kafka.ssl.keystore.key": "${env:SPARK_GROUPS_TEST_KEY}"}
    )
    assert referred.security.tls.key_pem == client.key_pem


@pytest.mark.parametrize("name", ["signing.key", "client.assertion", "credentials"])
def test_secrets_of_a_token_provider_that_spark_prints_have_to_be_references(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = {
        **NEEDED,
        "kafka.security.protocol": "SASL_SSL",
        "kafka.sasl.mechanism": "OAUTHBEARER",
        "kafka.sasl.oauthbearer.token.provider": "tests.provided_tokens:provided",
        "kafka.sasl.oauthbearer.scope": "any",
        "kafka.sasl.oauthbearer.client.secret": "Spark hides it",
    }
    SourceOptions.of(options)
    option = f"kafka.sasl.oauthbearer.{name}"
    with pytest.raises(OptionsError, match=f"{option}: Spark prints options") as raised:
        SourceOptions.of(options | {option: "hush-123456"})
    assert "hush" not in str(raised.value)
    monkeypatch.setenv("SPARK_GROUPS_TEST_KEY", "hush-123456")
    SourceOptions.of(options | {option: "${env:SPARK_GROUPS_TEST_KEY}"})
