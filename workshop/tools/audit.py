"""A bill of materials of requirements.lock, and the known vulnerabilities of what it pins.

    make audit                                        build/audit: the bill and the vulnerabilities
    make audit AUDIT_FLAGS=--allow-unreachable        not audited is no failure, as in CI

The status is 0 if nothing is known against any pin, 1 if something is, and 3 if a database did not
answer for all of them. pip-audit passes over a package that its database does not have, and ends as
after a clean audit: behind a mirror without a database, every package.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from pathlib import Path
from typing import Any, Final, NamedTuple

ROOT: Final = Path(__file__).resolve().parents[2]
SERVICES: Final = ("pypi", "osv")
"""The databases, by pip-audit's names; the second is asked only if the first lacks a pin."""
RUN_S: Final = 60.0
AUDIT_S: Final = 180.0
CONNECT_S: Final = 5
SHOWN_MAX: Final = 5


class Pin(NamedTuple):
    """A package and its version; one name may have several, each for some versions of Python."""

    name: str
    version: str

    def __str__(self) -> str:
        """Return the pin as pip writes it."""
        return f"{self.name}=={self.version}"


class Verdict(IntEnum):
    """The result of an audit, and the exit status."""

    CLEAN = 0
    VULNERABLE = 1
    NOT_AUDITED = 3


@dataclass(frozen=True)
class Audit:
    """What one database knows.

    Args:
        audited: The pins that it has.
        found: The ids of vulnerabilities, with the versions that fix them, of each pin with some.
    """

    audited: frozenset[Pin]
    found: Mapping[Pin, tuple[str, ...]]


def pins_of(bill: Mapping[str, Any]) -> list[Pin]:
    """Return the pins of a bill of materials in CycloneDX's JSON."""
    return sorted({Pin(each["name"], each["version"]) for each in bill["components"]})


def layers(pins: Iterable[Pin]) -> list[list[Pin]]:
    """Return lists in which each name occurs once, because pip-audit refuses a second version."""
    found: list[dict[str, Pin]] = []
    for pin in pins:
        layer = next((each for each in found if pin.name not in each), None)
        if layer is None:
            found.append(layer := {})
        layer[pin.name] = pin
    return [list(each.values()) for each in found]


def audit_of(reports: Iterable[Mapping[str, Any]]) -> Audit:
    """Return what reports of pip-audit say; a package without a version was skipped."""
    audited: set[Pin] = set()
    found: dict[Pin, tuple[str, ...]] = {}
    for each in (each for report in reports for each in report["dependencies"]):
        if "skip_reason" in each:
            continue
        pin = Pin(each["name"], each["version"])
        audited.add(pin)
        if each["vulns"]:
            found[pin] = tuple(
                f"{known['id']} (fixed in {', '.join(known['fix_versions']) or 'no version'})"
                for known in each["vulns"]
            )
    return Audit(frozenset(audited), found)


def verdict_of(pins: Sequence[Pin], audit: Audit) -> Verdict:
    """Return the verdict: without a known vulnerability, only a whole audit is a clean one."""
    if audit.found:
        return Verdict.VULNERABLE
    return Verdict.CLEAN if audit.audited >= set(pins) else Verdict.NOT_AUDITED


def summary(pins: Sequence[Pin], audit: Audit) -> str:
    """Return the result in words."""
    lines = [f"{pin}: {'; '.join(known)}" for pin, known in sorted(audit.found.items())]
    missing = [str(pin) for pin in pins if pin not in audit.audited]
    if len(missing) == len(pins):
        lines.append(
            f"NOT AUDITED: no vulnerability database ({', '.join(SERVICES)}) answered for any of"
            f" {len(pins)} pins; nothing is known about them"
        )
    elif missing:
        shown = ", ".join(missing[:SHOWN_MAX])
        lines.append(f"NOT AUDITED: {len(missing)} of {len(pins)} pins, such as {shown}")
    else:
        lines.append(
            f"{len(pins)} pins audited, {len(audit.found)} of them with known vulnerabilities"
        )
    return "\n".join(lines)


def ask(service: str, pins: Sequence[Pin], folder: Path, deadline_s: float) -> Audit:
    """Ask one database about all pins.

    Args:
        service: pip-audit's name of the database.
        pins: The pins.
        folder: Where the reports are written.
        deadline_s: When to stop, by the monotonic clock.
    """
    reports = []
    for number, layer in enumerate(layers(pins), start=1):
        asked = folder / f"pins-{number}.txt"
        asked.write_text("".join(f"{pin}\n" for pin in layer), encoding="utf-8")
        report = folder / f"{service}-{number}.json"
        report.unlink(missing_ok=True)
        words = ["-m", "pip_audit", "--requirement", str(asked), "--no-deps", "--disable-pip"]
        words += ["--vulnerability-service", service, "--timeout", str(CONNECT_S)]
        words += ["--progress-spinner", "off", "--format", "json", "--output", str(report)]
        # Its status is 1 after an error as well as for a vulnerability: only the report counts.
        _run(words, folder / f"{service}-{number}.log", deadline_s)
        if not report.exists():
            break
        reports.append(json.loads(report.read_text(encoding="utf-8")))
    return audit_of(reports)


def _run(words: Sequence[str], log: Path, deadline_s: float) -> int | None:
    """Run a module of Python; None: it took too long."""
    rest_s = max(1.0, min(RUN_S, deadline_s - time.monotonic()))
    with log.open("w", encoding="utf-8") as output:
        try:
            return subprocess.run(
                [sys.executable, *words],
                stdout=output,
                stderr=subprocess.STDOUT,
                timeout=rest_s,
                check=False,
                env={**os.environ, "PYTHONWARNINGS": "ignore"},
            ).returncode
        except subprocess.TimeoutExpired:
            return None


def bill_of(lock: Path, folder: Path, deadline_s: float) -> Mapping[str, Any]:
    """Write the bill of materials, and return it.

    Raises:
        SystemExit: It could not be written.
    """
    bill, log = folder / "sbom.cdx.json", folder / "sbom.log"
    words = ["-m", "cyclonedx_py", "requirements", "--pyproject", str(ROOT / "pyproject.toml")]
    words += ["--mc-type", "library", "--output-reproducible", "--output-file", str(bill)]
    if _run([*words, str(lock)], log, deadline_s) != 0:
        raise SystemExit(f"no bill of materials was written: {log}")
    found: Mapping[str, Any] = json.loads(bill.read_text(encoding="utf-8"))
    return found


def main(arguments: Sequence[str]) -> int:
    """Write the bill of materials, audit its pins, and return the exit status."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", maxsplit=1)[0])
    parser.add_argument("--lock", type=Path, default=ROOT / "requirements.lock")
    parser.add_argument("--into", type=Path, default=ROOT / "build" / "audit")
    parser.add_argument(
        "--allow-unreachable", action="store_true", help="status 0 if a database does not answer"
    )
    given = parser.parse_args(arguments)
    given.into.mkdir(parents=True, exist_ok=True)
    deadline_s = time.monotonic() + AUDIT_S
    pins = pins_of(bill_of(given.lock, given.into, deadline_s))
    audit = Audit(frozenset(), {})
    for service in SERVICES:
        audit = max(audit, ask(service, pins, given.into, deadline_s), key=_answers)
        if verdict_of(pins, audit) is not Verdict.NOT_AUDITED:
            break
    verdict = verdict_of(pins, audit)
    sys.stdout.write(f"{summary(pins, audit)}\n{given.into}: bill of materials and reports\n")
    if verdict is Verdict.NOT_AUDITED and given.allow_unreachable:
        return Verdict.CLEAN
    return verdict


def _answers(audit: Audit) -> int:
    return len(audit.audited)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
