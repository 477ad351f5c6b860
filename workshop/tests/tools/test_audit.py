"""The audit of requirements.lock: a database that does not answer never counts as a clean one."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from tests.documents import ROOT
from workshop.tools import audit
from workshop.tools.audit import Audit, Pin, Verdict, audit_of, layers, summary, verdict_of

OLD, NEW, OTHER = Pin("numpy", "2.2.6"), Pin("numpy", "2.5.3"), Pin("pyarrow", "25.0.0")
PINS = [OLD, NEW, OTHER]
KNOWN = {"id": "PYSEC-1", "fix_versions": ["26.0.0"], "aliases": [], "description": ""}


def clean(pin: Pin) -> dict[str, Any]:
    return {"name": pin.name, "version": pin.version, "vulns": []}


def skipped(pin: Pin) -> dict[str, Any]:
    return {"name": pin.name, "skip_reason": f"not found: {pin}"}


def report(*dependencies: Mapping[str, Any]) -> dict[str, Any]:
    return {"dependencies": list(dependencies), "fixes": []}


def test_a_name_is_once_in_a_layer() -> None:
    assert layers(PINS) == [[OLD, OTHER], [NEW]]
    assert layers([]) == []


@pytest.mark.parametrize(
    ("reports", "verdict", "said"),
    [
        ([report(clean(OLD), clean(OTHER)), report(clean(NEW))], Verdict.CLEAN, "3 pins audited"),
        (
            [report(skipped(OLD), skipped(OTHER)), report(skipped(NEW))],
            Verdict.NOT_AUDITED,
            "NOT AUDITED: no vulnerability database",
        ),
        ([], Verdict.NOT_AUDITED, "answered for any of 3 pins"),
        (
            [report(clean(OLD), clean(OTHER))],
            Verdict.NOT_AUDITED,
            "1 of 3 pins, such as numpy==2.5.3",
        ),
        (
            [report(skipped(OLD), clean(OTHER) | {"vulns": [KNOWN]})],
            Verdict.VULNERABLE,
            "pyarrow==25.0.0: PYSEC-1 (fixed in 26.0.0)\nNOT AUDITED: 2 of 3",
        ),
    ],
    ids=["clean", "all skipped", "no report", "one report of two", "vulnerable"],
)
def test_verdict_of_reports(reports: list[dict[str, Any]], verdict: Verdict, said: str) -> None:
    found = audit_of(reports)
    assert verdict_of(PINS, found) is verdict
    assert said in summary(PINS, found)


def answering(monkeypatch: pytest.MonkeyPatch, *services: str) -> list[str]:
    """Let cyclonedx-py and pip-audit write what they would if these databases answered."""
    asked: list[str] = []

    def run(words: Sequence[str], log: Path, deadline_s: float) -> int:
        del log, deadline_s
        option = dict(pairwise(words))
        if "cyclonedx_py" in words:
            bill = {"components": [{"name": pin.name, "version": pin.version} for pin in PINS]}
            Path(option["--output-file"]).write_text(json.dumps(bill), encoding="utf-8")
            return 0
        service = option["--vulnerability-service"]
        asked.append(service)
        text = Path(option["--requirement"]).read_text(encoding="utf-8")
        pins = [Pin(*line.split("==")) for line in text.splitlines()]
        answer = clean if service in services else skipped
        Path(option["--output"]).write_text(
            json.dumps(report(*map(answer, pins))), encoding="utf-8"
        )
        return 0

    monkeypatch.setattr(audit, "_run", run)
    return asked


@pytest.mark.parametrize("service", audit.SERVICES)
def test_a_database_that_answers_suffices(
    service: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    asked = answering(monkeypatch, service)
    assert audit.main(["--into", str(tmp_path)]) == 0
    assert asked[-2:] == [service, service]
    assert len(asked) == 2 * (audit.SERVICES.index(service) + 1)


@pytest.mark.parametrize(("flags", "status"), [((), 3), (("--allow-unreachable",), 0)])
def test_no_database_has_a_status_of_its_own(
    flags: tuple[str, ...],
    status: int,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    answering(monkeypatch)
    assert audit.main(["--into", str(tmp_path), *flags]) == status
    assert "NOT AUDITED: no vulnerability database" in capsys.readouterr().out


def test_a_database_that_is_broken_leaves_no_report(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(audit, "_run", lambda *_: 1)
    assert audit.ask("pypi", PINS, tmp_path, 0.0) == Audit(frozenset(), {})
    with pytest.raises(SystemExit, match="no bill of materials"):
        audit.bill_of(ROOT / "requirements.lock", tmp_path, 0.0)


def test_tools_of_the_audit_are_pinned_with_hashes() -> None:
    text = (ROOT / "workshop/tools/audit.lock").read_text(encoding="utf-8")
    pinned = re.findall(r"^([\w.-]+)==.*\n +--hash=sha256:", text, re.MULTILINE)
    assert {"cyclonedx-bom", "pip-audit"} <= set(pinned)
    assert len(pinned) == len(re.findall(r"^[\w.-]+==", text, re.MULTILINE))
    assert "//" not in text
