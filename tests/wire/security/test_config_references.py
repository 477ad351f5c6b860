"""Secrets that settings only refer to."""

from __future__ import annotations

from pathlib import Path

import pytest

from spark_groups.errors import OptionsError
from spark_groups.spark.source.foreach_batch_rows import _store_types
from spark_groups.wire.security.config_references import EVERYTHING, Allowed, resolved
from spark_groups.wire.security.sasl import Mechanism, PasswordLogin
from spark_groups.wire.security.security_settings import security_of
from tests.secured import issue, jaas


@pytest.fixture
def directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "password").write_text("from-directory\n")
    (tmp_path / "secrets.properties").write_text("alice = from-file\n")
    monkeypatch.setenv("SPARK_GROUPS_TEST_PASSWORD", "from-env")
    return tmp_path


def test_references_are_replaced_by_their_values(directory: Path) -> None:
    for text, expected in (
        ("${env:SPARK_GROUPS_TEST_PASSWORD}", "from-env"),
        (f"a ${{file:{directory}/secrets.properties:alice}} b", "a from-file b"),
        (f"${{directory:{directory}:password}}", "from-directory"),
        ("plain $ {x} ${other:y}", "plain $ {x} ${other:y}"),
    ):
        assert resolved(text, EVERYTHING) == expected


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("${env:SPARK_GROUPS_NO_SUCH}", "the environment has no such variable"),
        ("${file:/no/such:alice}", "/no/such cannot be read: No such file"),
        ("${file:alice}", "is not ${file:PATH:NAME}"),
        ("${directory:/no:such}", "cannot be read: No such file"),
        ("${file:HERE/secrets.properties:bob}", "the file has no property bob"),
    ],
)
def test_a_missing_value_is_named_by_its_reference(directory: Path, text: str, says: str) -> None:
    with pytest.raises(ValueError, match=r"^\$\{") as raised:
        resolved(text.replace("HERE", str(directory)), EVERYTHING)
    assert says in str(raised.value)


CONNECT = {"SPARK_JOB_ARTIFACT_UUID": "4a557170-88ce-4870-960d-c19e9878f4e3"}
CLASSIC = {"SPARK_JOB_ARTIFACT_UUID": "default"}
ENV = "${env:SPARK_GROUPS_TEST_PASSWORD}"


def refusal(text: str, environ: dict[str, str]) -> str:
    """Return why a text is refused in an environment; empty: it is resolved."""
    try:
        resolved(text, Allowed.by(environ))
    except ValueError as error:
        return str(error)
    return ""


def test_on_spark_connect_nothing_may_be_referred_to_until_it_is_allowed(directory: Path) -> None:
    file = f"${{file:{directory}/secrets.properties:alice}}"
    secret = f"${{directory:{directory}:password}}"
    for text in (ENV, file, secret):
        assert "is not allowed on Spark Connect by default" in refusal(text, CONNECT)
        assert "SPARK_GROUPS_CONFIG_PROVIDERS=" in refusal(text, CONNECT)
    paths = CONNECT | {"SPARK_GROUPS_ALLOWED_PATHS": str(directory)}
    assert "is not allowed" in refusal(secret, paths)
    both = paths | {"SPARK_GROUPS_CONFIG_PROVIDERS": "directory"}
    assert refusal(secret, both) == ""
    assert "the configuration provider file is not allowed" in refusal(file, both)


@pytest.mark.parametrize("environ", [{}, CLASSIC], ids=["outside of Spark", "classic"])
def test_elsewhere_variables_may_be_read_and_files_of_directories_that_are_named(
    directory: Path, environ: dict[str, str]
) -> None:
    file = f"${{file:{directory}/secrets.properties:alice}}"
    secret = f"${{directory:{directory}:password}}"
    assert refusal(ENV, environ) == ""
    for text in (file, secret):
        assert "SPARK_GROUPS_ALLOWED_PATHS in the environment of the driver does not" in refusal(
            text, environ
        )
        assert f"SPARK_GROUPS_ALLOWED_PATHS={directory.resolve()}" in refusal(text, environ)
        named = environ | {"SPARK_GROUPS_ALLOWED_PATHS": f"/no/such, {directory}/"}
        assert refusal(text, named) == ""
    none = environ | {"SPARK_GROUPS_CONFIG_PROVIDERS": "none"}
    assert "env is not allowed here" in refusal(ENV, none)


def test_no_way_leads_out_of_a_directory_that_is_named(directory: Path, tmp_path: Path) -> None:
    inner = tmp_path / "inner"
    inner.mkdir()
    (tmp_path / "inner2").mkdir()
    (tmp_path / "inner2" / "password").touch()
    (inner / "link").symlink_to(directory / "password")
    # As Kubernetes mounts secrets: files are links to others in the same directory.
    (inner / "..data").mkdir()
    (inner / "..data" / "password").write_text("from-inner")
    (inner / "password").symlink_to("..data/password")
    environ = {"SPARK_GROUPS_ALLOWED_PATHS": str(inner)}
    for place, name in (
        (inner, "../password"),
        (inner, "/etc/hostname"),
        (inner, "link"),
        (inner / "..", "password"),
        (tmp_path / "inner2", "password"),
    ):
        assert "may not be read" in refusal(f"${{directory:{place}:{name}}}", environ)
    assert refusal(f"${{directory:{inner}:password}}", environ) == ""


def test_variables_may_be_named_by_a_pattern(directory: Path) -> None:
    pattern = {"SPARK_GROUPS_ALLOWLIST_PATTERN": "KAFKA_.*"}
    assert "SPARK_GROUPS_ALLOWLIST_PATTERN" in refusal(ENV, pattern)
    assert refusal(ENV, {"SPARK_GROUPS_ALLOWLIST_PATTERN": "SPARK_GROUPS_.*"}) == ""


@pytest.mark.parametrize(
    ("name", "value", "says"),
    [
        ("SPARK_GROUPS_CONFIG_PROVIDERS", "enw", "'enw' is not one of env, file, directory"),
        ("SPARK_GROUPS_ALLOWLIST_PATTERN", "(", "is not a regular expression"),
    ],
)
def test_what_allows_has_to_be_understood(
    monkeypatch: pytest.MonkeyPatch, name: str, value: str, says: str
) -> None:
    monkeypatch.setenv(name, value)
    with pytest.raises(OptionsError, match=name) as raised:
        security_of({})
    assert says in str(raised.value)


def test_tokens_come_from_files_and_addresses_that_are_allowed(
    directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def settings(url: str) -> dict[str, str]:
        return {
            "security.protocol": "SASL_SSL",
            "sasl.mechanism": "OAUTHBEARER",
            "sasl.oauthbearer.token.endpoint.url": url,
            "sasl.oauthbearer.client.credentials.client.id": "flights",
            "sasl.oauthbearer.client.credentials.client.secret": "x",
        }

    endpoint = "https://login.example.com/token"
    for url in (f"file://{directory}/password", f"FILE:{directory}/password"):
        with pytest.raises(OptionsError, match="SPARK_GROUPS_ALLOWED_PATHS"):
            security_of(settings(url))
    security_of(settings(endpoint))
    monkeypatch.setenv("SPARK_GROUPS_ALLOWED_PATHS", str(directory))
    security_of(settings(f"file://{directory}/password"))
    monkeypatch.setenv("SPARK_JOB_ARTIFACT_UUID", CONNECT["SPARK_JOB_ARTIFACT_UUID"])
    with pytest.raises(OptionsError, match="SPARK_GROUPS_ALLOWED_URLS"):
        security_of(settings(endpoint))
    with pytest.raises(OptionsError, match="SPARK_GROUPS_CONFIG_PROVIDERS"):
        security_of(settings(f"file://{directory}/password"))
    monkeypatch.setenv("SPARK_GROUPS_ALLOWED_URLS", f"https://other.example.com, {endpoint}")
    security_of(settings(endpoint))


def test_stores_are_read_only_from_allowed_paths_once_these_are_set(
    directory: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = tmp_path_factory.mktemp("elsewhere") / "ca.pem"
    store.write_text(issue("an authority").certificate_pem)
    for kind in ("truststore", "keystore"):
        settings = {"security.protocol": "SSL", f"ssl.{kind}.location": str(store)}
        monkeypatch.setenv("SPARK_GROUPS_ALLOWED_PATHS", str(directory))
        with pytest.raises(OptionsError, match=r"may not be read: SPARK_GROUPS_ALLOWED_PATHS"):
            security_of(settings)
        with pytest.raises(OptionsError, match=r"may not be read: SPARK_GROUPS_ALLOWED_PATHS"):
            _store_types({f"kafka.ssl.{kind}.location": str(store)})
        monkeypatch.setenv("SPARK_GROUPS_ALLOWED_PATHS", f"{directory},{store.parent}")
        assert _store_types({f"kafka.ssl.{kind}.location": str(store)})
    settings = {"security.protocol": "SSL", "ssl.truststore.location": str(store)}
    assert security_of(settings).tls.trusted_pem
    monkeypatch.delenv("SPARK_GROUPS_ALLOWED_PATHS")
    assert security_of(settings).tls.trusted_pem, "a classic application may read any"


def test_settings_and_brokers_of_a_provider_are_those_of_the_operator() -> None:
    given = {
        "bootstrap.servers": "kafka-1.lake.example.com:9093, kafka-2.lake.example.com:9093",
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "OAUTHBEARER",
        "sasl.oauthbearer.token.provider": "tests.provided_tokens:provided",
        "sasl.oauthbearer.scope": "https://lake.example.com/.default",
    }
    environ = {
        "SPARK_GROUPS_ALLOWED_TOKEN_PROVIDERS": "tests.provided_tokens:provided",
        "SPARK_GROUPS_ALLOWED_TOKEN_SETTINGS": "scope=https://lake.example.com/.default",
        "SPARK_GROUPS_ALLOWED_BROKERS": "*.lake.example.com:9093",
    }

    def problem(**changed: str | None) -> str:
        changes = {name.replace("_", "."): value for name, value in changed.items()}
        settings = {name: value for name, value in (given | changes).items() if value is not None}
        try:
            security_of(settings, allowed=Allowed.by(environ))
        except OptionsError as error:
            return str(error)
        return ""

    assert problem() == ""
    for brokers in (
        "attacker.example.com:9093",
        "kafka-1.lake.example.com:9093,attacker.example.com:9093",
        "kafka-1.lake.example.com:9092",
        "lake.example.com:9093",
        "attackerlake.example.com:9093",
        "PLAINTEXT://attacker.example.com:9093",
    ):
        refused = problem(bootstrap_servers=brokers)
        assert "may not get the tokens of the driver: SPARK_GROUPS_ALLOWED_BROKERS" in refused
    assert problem(bootstrap_servers="SASL_SSL://KAFKA-9.lake.example.com:9093") == ""
    refused = problem(sasl_oauthbearer_scope="https://vault.azure.net/.default")
    assert "kafka.sasl.oauthbearer.scope: is not allowed" in refused
    assert "SPARK_GROUPS_ALLOWED_TOKEN_SETTINGS=scope=..." in refused
    assert "SPARK_GROUPS_ALLOWED_TOKEN_SETTINGS" in problem(sasl_oauthbearer_role="admin")
    del environ["SPARK_GROUPS_ALLOWED_TOKEN_PROVIDERS"]
    assert problem(bootstrap_servers="any.example.com:1") == "", "a driver of one user"
    environ |= CONNECT
    assert "the token provider" in problem()


def test_every_setting_for_security_may_refer(
    directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SPARK_GROUPS_ALLOWED_PATHS", str(directory))
    settings = {
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "PLAIN",
        "sasl.jaas.config": jaas(
            "plain.Plain", username="alice", password=f"${{directory:{directory}:password}}"
        ),
    }
    login = PasswordLogin(Mechanism.PLAIN, "alice", "from-directory")
    assert security_of(settings).login == login
    broken = settings | {"sasl.jaas.config": "${env:SPARK_GROUPS_NO_SUCH}"}
    with pytest.raises(OptionsError, match=r"kafka\.sasl\.jaas\.config: \$\{env:SPARK_GROUPS_NO"):
        security_of(broken)


def test_token_providers_run_as_the_driver_and_may_be_limited() -> None:
    def refusal_of(name: str, environ: dict[str, str]) -> str:
        try:
            Allowed.by(environ).check_token_provider(name)
        except ValueError as error:
            return str(error)
        return ""

    variable = "SPARK_GROUPS_ALLOWED_TOKEN_PROVIDERS"
    assert refusal_of("msk", {}) == refusal_of("msk", CLASSIC) == ""
    assert f"on Spark Connect by default. To allow it, set {variable}=msk" in refusal_of(
        "msk", CONNECT
    )
    for environ in ({}, CONNECT):
        named = environ | {variable: "msk, ours"}
        assert refusal_of("ours", named) == ""
        assert "'os:getcwd' is not allowed" in refusal_of("os:getcwd", named)
    EVERYTHING.check_token_provider("os:getcwd")
