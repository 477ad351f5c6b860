"""The published files, their description, and the workflows that make them."""

from __future__ import annotations

import re
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.documents import ROOT, make_targets
from workshop.parts.processes import environment
from workshop.tools.package_metadata import VARIABLE, long_description, urls
from workshop.tools.release_check import (
    ReleaseError,
    check_on_main,
    digests_of,
    find_pythons,
    metadata_of,
    relative_links,
    run,
    supported,
    tag_problems,
)

README = """# A
![picture](docs/a.svg)

See [`b`](docs/b.md#c), [away](https://kafka.apache.org/a) and [mail](mailto:a@b.example).
```python
x[0](1)
```
"""
REPOSITORY = "https://forge.example/owner/name"
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))


def test_links_lead_to_the_files_of_the_version() -> None:
    text = long_description(README, REPOSITORY, "1.2.3")
    assert f"![picture]({REPOSITORY}/raw/v1.2.3/docs/a.svg)" in text
    assert f"[`b`]({REPOSITORY}/blob/v1.2.3/docs/b.md#c)" in text
    assert "[away](https://kafka.apache.org/a)" in text
    assert "x[0](1)" in text


def test_without_a_repository_links_are_their_text() -> None:
    text = long_description(README, "", "1.2.3")
    assert text.startswith("# A\nSee `b`, [away](https://kafka.apache.org/a) and ")
    assert "x[0](1)" in text
    assert urls("", "1.2.3") == {}


def test_relative_links_are_found() -> None:
    found = relative_links(
        "![p](a.svg) [l](b.md) [t](#c) <a href='d'>e</a>\n\n|x|\n|-|\n|[f](g)|\n"
    )
    assert found == ["a.svg", "b.md", "#c", "d", "g"]
    assert relative_links("[l](https://a.example/b)\n\n```python\n[x](y)\n```\n") == []


def modules() -> list[str]:
    """Every file of the package that git knows, but those that the wheel has under other names."""
    listed = subprocess.run(
        ["git", "ls-files", "spark_groups"], cwd=ROOT, capture_output=True, text=True, check=True
    )
    return [each for each in listed.stdout.splitlines() if not each.endswith("/discovery.py")]


@pytest.mark.parametrize("repository", ["", REPOSITORY])
def test_wheel_and_sdist_are_described_without_relative_links(
    repository: str, tmp_path: Path
) -> None:
    subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-d", str(tmp_path)],
        cwd=ROOT,
        env=environment(**{VARIABLE: repository}),
        check=True,
        capture_output=True,
        timeout=800,
    )
    archives = sorted(tmp_path.iterdir())
    with zipfile.ZipFile(archives[0]) as wheel:
        assert set(modules()) <= set(wheel.namelist())
    assert [each.suffix for each in archives] == [".whl", ".gz"]
    for archive in archives:
        metadata = metadata_of(archive)
        description = metadata.get_payload()
        assert isinstance(description, str)
        assert "# spark-groups" in description
        assert relative_links(description) == []
        assert metadata["Author"] == "The spark-groups authors"
        assert bool(metadata.get_all("Project-URL")) == bool(repository)
    run("twine", sys.executable, "-m", "twine", "check", "--strict", *map(str, archives))


def test_tag_agrees_with_version_and_changelog() -> None:
    assert tag_problems("v1.0.0", "1.0.0", "## [1.0.0] - 2026-01-31\n") == []
    wrong = tag_problems("v1.0.1", "1.0.0", "## [1.0.0] - Unreleased\n")
    assert len(wrong) == 2
    assert "the tag v1.0.1 is not v1.0.0" in wrong[0]
    assert "## [1.0.0] - YYYY-MM-DD" in wrong[1]


def test_changelog_has_a_section_of_the_version() -> None:
    changelog = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    pyproject = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    (version,) = re.findall(r'^version = "(.+)"$', pyproject, re.MULTILINE)
    assert f"\n## [{version}]" in changelog


def test_only_a_python_that_starts_is_found(tmp_path: Path) -> None:
    here = f"{sys.version_info.major}.{sys.version_info.minor}"
    shim = tmp_path / "python3.99"
    shim.write_text("#!/bin/sh\nexit 127\n", encoding="utf-8")
    shim.chmod(0o755)
    environ = {"PATH": str(tmp_path), "PYENV_ROOT": str(tmp_path)}
    assert find_pythons([here, "3.99"], environ) == {here: sys.executable}


def test_a_check_that_fails_has_its_output() -> None:
    with pytest.raises(ReleaseError, match=r"status 3 of .*\n.*why"):
        run("x", sys.executable, "-c", "import sys; print('why'); sys.exit(3)")
    with pytest.raises(ReleaseError, match=r"not ended within 0\.1 s"):
        run("x", sys.executable, "-c", "import time; time.sleep(60)", timeout_s=0.1)


def workflow(name: str) -> dict[str, Any]:
    text = (ROOT / ".github" / "workflows" / name).read_text(encoding="utf-8")
    read: dict[str, Any] = yaml.safe_load(text)
    return read


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.stem)
def test_workflow_is_valid(path: Path) -> None:
    """By the schema that check-jsonschema brings."""
    program = str(Path(sys.executable).with_name("check-jsonschema"))
    run("schema", program, "--builtin-schema", "vendor.github-workflows", str(path))


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.stem)
def test_workflow_runs_targets_and_files_that_exist(path: Path) -> None:
    steps = [step for job in workflow(path.name)["jobs"].values() for step in job["steps"]]
    commands = [line for step in steps for line in step.get("run", "").splitlines()]
    for command in commands:
        program, *arguments = command.split()
        if program == "(cd":
            # The publishing job has no checkout; the test of the release runs it.
            continue
        if program == "make":
            assert arguments[0] in make_targets(), command
        else:
            assert (ROOT / program).is_file(), command
    assert commands


def test_release_is_tested_on_each_python_before_it_is_published() -> None:
    jobs = workflow("release.yml")["jobs"]
    assert jobs["test"]["strategy"]["matrix"]["python"] == supported()
    (setup,) = (job for job in jobs["try"]["steps"] if "setup-python" in job.get("uses", ""))
    assert sorted(setup["with"]["python-version"].split()) == supported()
    assert set(jobs["publish"]["needs"]) == {"build", "try", "test"}
    assert jobs["publish"]["permissions"]["id-token"] == "write"
    names = [job.get("uses", "compare").partition("@")[0] for job in jobs["publish"]["steps"]]
    attest, publish = "actions/attest-build-provenance", "pypa/gh-action-pypi-publish"
    assert names.index("compare") < names.index(attest) < names.index(publish)


def test_only_the_lock_runs_before_the_files_are_handed_on() -> None:
    jobs = workflow("release.yml")["jobs"]
    *_, build, upload = jobs["build"]["steps"]
    assert "--build-only" in build["run"]
    assert "upload-artifact" in upload["uses"]
    uploading = [
        name
        for name, job in jobs.items()
        if any("upload-artifact" in step.get("uses", "") for step in job["steps"])
    ]
    assert uploading == ["build"]
    # A tag's name must not get into a shell.
    assert "REF_NAME" not in (ROOT / ".github" / "workflows" / "release.yml").read_text()


def test_files_that_another_job_replaced_are_not_published(tmp_path: Path) -> None:
    (step,) = (
        each for each in workflow("release.yml")["jobs"]["publish"]["steps"] if "run" in each
    )
    dist = tmp_path / "dist"
    dist.mkdir()
    files = [dist / "a-1.tar.gz", dist / "a-1-py3-none-any.whl"]
    for file in files:
        file.write_bytes(file.name.encode())
    # An output of a job has no newline at its end.
    digests = digests_of(sorted(files)).rstrip()

    def status() -> int:
        return subprocess.run(
            [step["shell"], "-eo", "pipefail", "-c", step["run"]],
            cwd=tmp_path,
            env=environment(DIGESTS=digests),
            check=False,
            capture_output=True,
        ).returncode

    assert status() == 0
    (dist / "b-1.whl").touch()
    assert status() != 0
    (dist / "b-1.whl").unlink()
    files[0].write_bytes(b"rewritten")
    assert status() != 0


def test_tag_of_a_commit_that_is_not_on_main_is_refused(tmp_path: Path) -> None:
    def git(*arguments: str) -> None:
        name = ("-c", "user.name=a", "-c", "user.email=a@b.example")
        subprocess.run(["git", "-C", str(tmp_path), *name, *arguments], check=True)

    git("init", "--quiet", "--initial-branch", "main")
    git("commit", "--quiet", "--allow-empty", "--message", "one")
    with pytest.raises(ReleaseError, match="must be on main"):
        check_on_main(tmp_path)
    git("update-ref", "refs/remotes/origin/main", "HEAD")
    check_on_main(tmp_path)
    git("commit", "--quiet", "--allow-empty", "--message", "another")
    with pytest.raises(ReleaseError, match="merge it, and tag the commit on main"):
        check_on_main(tmp_path)


def test_only_the_publishing_job_may_get_a_token() -> None:
    for path in WORKFLOWS:
        read = workflow(path.name)
        assert read["permissions"] == {"contents": "read"}
        assert [name for name, job in read["jobs"].items() if "permissions" in job] == (
            ["publish"] if path.name == "release.yml" else []
        )
