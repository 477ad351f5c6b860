"""What executors need to know to read ranges."""

from __future__ import annotations

from spark_groups.spark.options.range_settings import RangeSettings
from spark_groups.wire.security.sasl import Mechanism, PasswordLogin
from spark_groups.wire.security.security import Security


def test_errors_about_missing_rights_know_who_reads_and_where() -> None:
    login = PasswordLogin(Mechanism.SCRAM_SHA_512, "alice", "hush-123456")
    settings = RangeSettings(
        bootstrap_servers=("a:9092", "b:9092"),
        group_id="g",
        security=Security("SASL_SSL", login=login),
    )
    assert settings.identity.principal == "User:alice"
    assert settings.identity.bootstrap_servers == ("a:9092", "b:9092")
    assert "hush" not in repr(settings.identity)
