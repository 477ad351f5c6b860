"""All of a release but the upload: builds wheel and sdist, checks, installs and runs them.

    make release-check                                build into dist/, check, install, run
    make release-check RELEASE_FLAGS=--built          check the files that are in dist/
    make release-check RELEASE_FLAGS="--tag v0.1.0"   also that tag, version and changelog agree,
                                                      and that main has the commit
    make release-check RELEASE_FLAGS=--build-only     build and check, and install nothing
    make release-check RELEASE_FLAGS=--all            a supported Python must not be missing

The wheel is installed for each supported Python of this machine, from the package index, with the
newest dependencies that it allows: first alone, then with PySpark. Nothing downloads a Python. With
the Python that runs this, a job of the wheel reads an embedded Kafka.

The release workflow builds in a job that installs only the lock, and hands the files on at once;
jobs with newer dependencies try a copy. The digests, which this writes to `GITHUB_OUTPUT`, tell the
publishing job whether it has the files of the first job.
"""

from __future__ import annotations

import argparse
import email
import hashlib
import os
import re
import shutil
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from email.message import Message
from html.parser import HTMLParser
from pathlib import Path
from typing import Final

from markdown import markdown

from workshop.tools.docs_reference import job_names

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

ROOT: Final = Path(__file__).resolve().parents[2]
DIST: Final = ROOT / "dist"
ENVIRONMENTS: Final = ROOT / "build" / "release"
BUILD_S: Final = 120
COMMAND_S: Final = 120
INSTALL_S: Final = 900
SMOKE_S: Final = 420

_ALONE: Final = """
import importlib.util, spark_groups
assert importlib.util.find_spec("pyspark") is None, "the wheel brings PySpark"
spark_groups.describe, spark_groups.EmbeddedKafka
assert importlib.util.find_spec("group_lab") is None, "the wheel brings the laboratory"
try:
    spark_groups.simulate
except ImportError as error:
    assert "pip install kafka-group-lab" in str(error), error
else:
    raise AssertionError("simulate without the laboratory")
"""
_WITH_SPARK: Final = """
import pyspark_kafka_group, pyspark_kafka_group_state, spark_groups
further_extras = {"delta_table", "iceberg_table", "postgres_table"}
for name in set(spark_groups.__all__) - further_extras:
    getattr(spark_groups, name)
"""


_WITH_LABORATORY: Final = """
import spark_groups
assert spark_groups.simulate.__module__ == "group_lab.commands.simulation"
"""
_TRANSCRIPT: Final = "lab/tests/transcripts/4.3.1/r03_static_swap.jsonl"


class ReleaseError(Exception):
    """A check failed; the message has its output."""


def supported() -> list[str]:
    """Return the versions of Python that the classifiers in pyproject.toml name."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    found = (re.fullmatch(r".* :: (3\.\d+)", each) for each in project["classifiers"])
    return [each[1] for each in found if each]


def find_pythons(versions: Sequence[str], environ: Mapping[str, str]) -> dict[str, str]:
    """Return an executable for each of these versions that is on this machine, and starts.

    Args:
        versions: Versions such as 3.11.
        environ: The environment, with `PATH` and `PYENV_ROOT`.
    """
    return {
        version: found
        for version in versions
        for found in _candidates(version, environ)
        if _version_of(found) == version
    }


def _candidates(version: str, environ: Mapping[str, str]) -> Iterator[str]:
    """Yield places where a version may be; the last one that starts is taken."""
    if root := environ.get("PYENV_ROOT"):
        yield from map(str, sorted(Path(root, "versions").glob(f"{version}.*/bin/python")))
    if found := shutil.which(f"python{version}", path=environ.get("PATH")):
        yield found
    if sys.version_info[:2] == tuple(map(int, version.split("."))):
        yield sys.executable


def _version_of(python: str) -> str | None:
    """Return the version of an executable; None: it does not start, as a shim of pyenv may not."""
    program = "import sys; print('%d.%d' % sys.version_info[:2])"
    try:
        done = subprocess.run(
            (python, "-c", program), capture_output=True, text=True, timeout=COMMAND_S, check=True
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip()


def metadata_of(archive: Path) -> Message:
    """Return the metadata of a wheel or an sdist."""
    if archive.suffix == ".whl":
        with zipfile.ZipFile(archive) as wheel:
            (name,) = (each for each in wheel.namelist() if each.endswith(".dist-info/METADATA"))
            return email.message_from_bytes(wheel.read(name))
    with tarfile.open(archive) as sdist:
        (member,) = (
            each for each in sdist.getmembers() if re.fullmatch(r"[^/]+/PKG-INFO", each.name)
        )
        file = sdist.extractfile(member)
        assert file is not None
        return email.message_from_bytes(file.read())


class _Links(HTMLParser):
    """Collects the targets of links and pictures."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        del tag
        self.found += [value or "" for name, value in attrs if name in {"href", "src"}]


def relative_links(description: str) -> list[str]:
    """Return the targets in a text in Markdown that lead nowhere on a package index."""
    parser = _Links()
    parser.feed(markdown(description, extensions=["fenced_code", "tables"]))
    return [each for each in parser.found if not each.startswith(("https://", "http://"))]


def tag_problems(tag: str, version: str, changelog: str) -> list[str]:
    """Return why a tag must not be released; none: it may."""
    problems = []
    if tag != f"v{version}":
        problems.append(f"the tag {tag} is not v{version}: set the version in pyproject.toml")
    if not re.search(
        rf"^## \[{re.escape(version)}\] - \d{{4}}-\d\d-\d\d$", changelog, re.MULTILINE
    ):
        problems.append(
            f"CHANGELOG.md has no heading of {version} with a date: ## [{version}] - YYYY-MM-DD"
        )
    return problems


def digests_of(archives: Sequence[Path]) -> str:
    """Return a line for each file as `sha256sum` prints it."""
    return "".join(
        f"{hashlib.sha256(archive.read_bytes()).hexdigest()}  {archive.name}\n"
        for archive in archives
    )


def check_on_main(repository: Path) -> None:
    """Check that the commit is on main.

    Args:
        repository: The checkout, with all commits of its remote's main.

    Raises:
        ReleaseError: It is not, or the checkout lacks main.
    """
    git = ("git", "-C", str(repository), "merge-base", "--is-ancestor", "HEAD", "origin/main")
    try:
        run("the commit of a tag must be on main", *git)
    except ReleaseError as error:
        raise ReleaseError(f"{error}\nmerge it, and tag the commit on main") from None


def check_files(archives: Sequence[Path]) -> None:
    """Check the metadata of wheels and sdists.

    Raises:
        ReleaseError: A field is wrong, or a link is relative.
    """
    run("twine", sys.executable, "-m", "twine", "check", "--strict", *map(str, archives))
    for archive in archives:
        if links := relative_links(metadata_of(archive).get_payload()):
            raise ReleaseError(f"{archive.name}: relative links in the long description: {links}")


def build() -> None:
    """Build the sdists of product and laboratory, and the wheels from them, without a network.

    Raises:
        ReleaseError: The build failed.
    """
    shutil.rmtree(DIST, ignore_errors=True)
    options = (
        "--quiet",
        "--no-build-isolation",
        "--python",
        sys.executable,
        "--out-dir",
        str(DIST),
    )
    for project in (ROOT, ROOT / "lab"):
        uv("build", *options, str(project))


def install_and_run(version: str, python: str, wheel: Path, laboratory: Path) -> None:
    """Install the product alone in a new environment, then the laboratory; run their commands.

    Raises:
        ReleaseError: A command failed.
    """
    environment = ENVIRONMENTS / version
    bin_directory = environment / "bin"
    own = str(bin_directory / "python")
    uv("venv", "--quiet", "--clear", "--python", python, str(environment))
    uv("pip", "install", "--quiet", "--python", own, str(wheel), timeout_s=INSTALL_S)
    run("import", own, "-I", "-c", _ALONE)
    run("command", str(bin_directory / "spark-groups"), "--version")
    run("command", str(bin_directory / "spark-groups"), "--help")
    uv("pip", "install", "--quiet", "--python", own, f"{wheel}[spark]", timeout_s=INSTALL_S)
    run("import", own, "-I", "-W", "error", "-c", _WITH_SPARK)
    for job in job_names():
        run(job, own, "-I", "-m", f"spark_groups.jobs.{job}", "--help")
    uv("pip", "install", "--quiet", "--python", own, str(laboratory), timeout_s=INSTALL_S)
    run("import", own, "-I", "-W", "error", "-c", _WITH_LABORATORY)
    program = str(bin_directory / "spark-groups")
    run("simulate", program, "simulate", "--schedules", "3", "--seed", "1")
    run("replay", program, "replay", str(ROOT / _TRANSCRIPT), "--check")


def smoke(version: str) -> None:
    """Let a job of the installed wheel read a topic of an embedded Kafka.

    Raises:
        ReleaseError: It did not write exactly the rows of the topic.
    """
    own = str(ENVIRONMENTS / version / "bin" / "python")
    program = str(ROOT / "workshop" / "tools" / "release_smoke.py")
    run("smoke", own, "-I", program, timeout_s=SMOKE_S)


def uv(*arguments: str, timeout_s: float = BUILD_S) -> None:
    """Run uv, which must not download a Python.

    Raises:
        ReleaseError: It failed.
    """
    program = str(Path(sys.executable).with_name("uv"))
    run("uv", program, "--no-python-downloads", *arguments, timeout_s=timeout_s)


def run(what: str, *command: str, timeout_s: float = COMMAND_S) -> None:
    """Run a command outside the checkout's packages.

    Raises:
        ReleaseError: It failed, or took too long.
    """
    environment = {k: v for k, v in os.environ.items() if k not in {"PYTHONPATH", "VIRTUAL_ENV"}}
    try:
        done = subprocess.run(
            command,
            cwd=ROOT,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=timeout_s,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise ReleaseError(f"{what}: not ended within {timeout_s:g} s: {error.cmd}") from error
    if done.returncode:
        raise ReleaseError(f"{what}: status {done.returncode} of {command}:\n{done.stdout}")


def say(line: str) -> None:
    """Print a line at once."""
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def check(*, is_built: bool, is_build_only: bool, needs_all: bool, tag: str | None) -> None:
    """Run all checks, with a line for each.

    Raises:
        ReleaseError: The first check that failed.
    """
    if not is_built:
        say("build: sdists, and the wheels from them")
        build()
    archives = sorted(DIST.glob("*.whl")) + sorted(DIST.glob("*.tar.gz"))
    if [archive.suffix for archive in archives] != [".whl", ".whl", ".gz", ".gz"]:
        raise ReleaseError(f"dist/ must hold two wheels and two sdists, not {archives}")
    laboratory, wheel = archives[:2]
    say("metadata: twine check --strict, no relative link")
    check_files(archives)
    if tag is not None:
        changelog = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
        if problems := tag_problems(tag, str(metadata_of(wheel)["Version"]), changelog):
            raise ReleaseError("; ".join(problems))
        check_on_main(ROOT)
    say(digests_of(archives).rstrip())
    if is_build_only:
        if output := os.environ.get("GITHUB_OUTPUT"):
            with open(output, "a", encoding="utf-8") as file:
                file.write(f"digests<<END\n{digests_of(archives)}END\n")
        return
    try_files(wheel, laboratory, archives, needs_all=needs_all)


def try_files(wheel: Path, laboratory: Path, archives: Sequence[Path], *, needs_all: bool) -> None:
    """Install and run the wheels, which must be the same afterwards.

    Raises:
        ReleaseError: The first check that failed.
    """
    before = digests_of(archives)
    found = find_pythons(supported(), os.environ)
    if needs_all and (missing := set(supported()) - set(found)):
        raise ReleaseError(f"--all: Python {', '.join(sorted(missing))} is not on this machine")
    for version in supported():
        if version not in found:
            say(f"Python {version}: NOT CHECKED, not on this machine")
            continue
        say(f"Python {version}: install, import, commands and jobs")
        install_and_run(version, found[version], wheel, laboratory)
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    say(f"Python {version}: a job reads a topic of an embedded Kafka")
    smoke(version)
    if digests_of(archives) != before:
        raise ReleaseError("the files in dist/ were changed while they were tried")
    say(f"{' and '.join(archive.name for archive in archives)}: ready for an upload")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run all checks; return 1 if one failed."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--built", action="store_true", help="Do not build.")
    parser.add_argument("--all", action="store_true", help="Fail if a Python is missing.")
    parser.add_argument("--build-only", action="store_true", help="Install nothing.")
    parser.add_argument(
        "--tag",
        metavar="TAG",
        nargs="?",
        # No shell expands the name there.
        const=os.environ.get("GITHUB_REF_NAME", ""),
        help="The tag of the release; without a value, the one in GITHUB_REF_NAME.",
    )
    given = parser.parse_args(arguments)
    try:
        check(
            is_built=given.built,
            is_build_only=given.build_only,
            needs_all=given.all,
            tag=given.tag,
        )
    except ReleaseError as error:
        sys.stderr.write(f"release-check: {error}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
