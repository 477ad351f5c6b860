"""Commands ask a schema registry: what they show of its answer, and of its refusals."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import typer

from spark_groups.cli.connecting import named_brokers
from spark_groups.cli.doctor_cli import Outcome, check_registry
from spark_groups.cli.preflight_checks import GroupFacts, Verdict, check_group
from spark_groups.cli.preflight_cli import _of_registry, render_preflight
from spark_groups.cli.registry_check import CURE, RegistryAnswer, ask_registry
from spark_groups.errors import OptionsError
from spark_groups.group.member.grant_command import Identity
from tests.cli.rendered import lines
from tests.spark.schemas.stub_registry import Stub, running_stub, schema

SUBJECT = "orders-value"


@pytest.fixture
def stub() -> Iterator[Stub]:
    with running_stub() as running:
        latest = schema(subject=SUBJECT, version=3, id=7)
        running.answers[f"/subjects/{SUBJECT}/versions/latest"] = [(200, latest)]
        running.answers["/subjects"] = [(200, [SUBJECT])]
        yield running


def test_answer_has_the_columns_of_a_subject_or_the_number_of_subjects(stub: Stub) -> None:
    answer = ask_registry(stub.url, SUBJECT, {})
    assert answer == RegistryAnswer(True, "version 3 of orders-value (id 7): struct<a:int>")
    assert ask_registry(stub.url, None, {}) == RegistryAnswer(True, f"{stub.url} has 1 subjects")
    refused = ask_registry(stub.url, "none-such", {})
    assert refused is not None
    assert not refused.is_well
    assert "has no version latest of subject none-such" in refused.text


def test_nothing_is_asked_without_a_registry_and_a_subject_needs_one() -> None:
    assert ask_registry(None, None, {}) is None
    with pytest.raises(OptionsError, match="name the registry, too"):
        ask_registry(None, SUBJECT, {})
    with pytest.raises(typer.BadParameter, match="name the registry, too"):
        check_registry(None, SUBJECT, None)


def test_file_of_settings_has_the_login_of_the_registry(
    stub: Stub, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "client.properties"
    file.write_text("schemaRegistry.basic.auth.user.info=alice:hidden\nacks=all\n")
    (check,) = check_registry(stub.url, SUBJECT, file)
    assert (check.outcome, check.cure) == (Outcome.OK, "")
    brokers = named_brokers("localhost:9092", 1.0, file)
    assert "hidden" not in repr(brokers)
    assert ask_registry(stub.url, SUBJECT, brokers.registry_settings) is not None
    assert len({*stub.logins}) == 1
    assert str(stub.logins[0]).startswith("Basic ")
    shown = capsys.readouterr().err
    assert "not used here: acks" in shown
    assert "schemaRegistry" not in shown


def test_registry_without_the_schema_blocks_a_query(stub: Stub) -> None:
    (check,) = check_registry(stub.url, "none-such", None)
    assert (check.outcome, check.cure) == (Outcome.FAILED, CURE)
    facts = GroupFacts(
        group_id="g", identity=Identity(principal=None, bootstrap_servers=("localhost:9092",))
    )
    assert "schema registry" not in [each.check for each in check_group(facts).findings]
    for subject, verdict in ((SUBJECT, Verdict.OK), ("none-such", Verdict.BLOCKS)):
        answer = ask_registry(stub.url, subject, {})
        assert answer is not None
        view = check_group(facts, _of_registry(answer))
        assert view.findings[-1].verdict is verdict
        assert (view.verdict is Verdict.BLOCKS) is (verdict is Verdict.BLOCKS)
        shown = " ".join(lines(render_preflight(view)))
        assert subject in shown
        assert (CURE in shown) is (verdict is Verdict.BLOCKS)
