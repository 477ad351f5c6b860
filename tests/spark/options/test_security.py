"""The options for security, and what the options show of them."""

from __future__ import annotations

import pickle

import pytest

from spark_groups.errors import OptionsError
from spark_groups.spark.options.security import SECURITY_OPTIONS, read_security
from spark_groups.spark.options.source_options import SourceOptions, option_table
from spark_groups.spark.reading.consumers import librdkafka_settings
from spark_groups.wire.security.security import PLAINTEXT
from spark_groups.wire.security.settings import SECURITY_SETTINGS
from tests.secured import issue, jaas

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


def test_options_show_no_secret() -> None:
    options = SourceOptions.of(NEEDED | LOGIN)
    for shown in (options, options.range_settings(), options.client_config()):
        assert SECRET not in repr(shown) + str(shown)


def test_what_is_wrong_is_listed_with_the_rest_and_without_secrets() -> None:
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
    with pytest.raises(OptionsError, match="a key without a password would be shown") as raised:
        SourceOptions.of(options)
    assert client.key_pem.splitlines()[1] not in str(raised.value)
    monkeypatch.setenv("SPARK_GROUPS_TEST_KEY", client.key_pem)
    referred = SourceOptions.of(
        options | {"kafka.ssl.keystore.key": "${env:SPARK_GROUPS_TEST_KEY}"}
    )
    assert referred.security.tls.key_pem == client.key_pem
