"""The image of conf/container: its file copies what exists, and page and manifests agree with it.

Nothing is built here: a build asks a registry for the base image.
"""

from __future__ import annotations

import json
import re
import shlex
import sys
from itertools import pairwise
from pathlib import Path

import yaml
from packaging.requirements import Requirement

from spark_groups.spark.jobs.job_options import ConsumeOptions, load_job
from tests.documents import ROOT, blocks_of, commands_of

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

CONTAINERFILE = "conf/container/Containerfile"
WHEEL = "dist/spark_groups-*.whl"
"""What `make wheel` builds."""
USER = 1000

Step = tuple[str, str]
"""An instruction and its argument."""


def steps_of(text: str) -> list[Step]:
    """The instructions of a Containerfile, with continued lines joined and comments left out."""
    lines = [line for line in text.splitlines() if not line.startswith("#")]
    joined = "\n".join(lines).replace("\\\n", " ")
    return [(line.split()[0], line.split(None, 1)[1]) for line in joined.splitlines() if line]


STEPS = steps_of((ROOT / CONTAINERFILE).read_text(encoding="utf-8"))
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
COMMANDS = [
    shlex.split(command)
    for block in blocks_of((ROOT / "docs" / "deployment.md").read_text(encoding="utf-8"))
    if block.language == "bash"
    for command in commands_of(block)
]
MANIFESTS = [
    each["spec"]["template"]["spec"]
    for name in ("deployment", "statefulset")
    for each in yaml.safe_load_all((ROOT / "conf" / "kubernetes" / f"{name}.yaml").read_text())
    if each["kind"] in ("Deployment", "StatefulSet")
]


def last(instruction: str) -> str:
    return [argument for name, argument in STEPS if name == instruction][-1]


def volumes_of(command: list[str]) -> dict[str, str]:
    """What `docker run` mounts, by where."""
    given = [value for flag, value in pairwise(command) if flag == "--volume"]
    return {each.split(":")[1]: each.split(":")[0] for each in given}


def commands_after(words: list[str]) -> list[list[str]]:
    return [command for command in COMMANDS if command[: len(words)] == words]


def test_each_path_that_the_build_copies_exists_and_is_let_in() -> None:
    lines = (ROOT / ".dockerignore").read_text(encoding="utf-8").splitlines()
    refused, *let_in = [line for line in lines if line and not line.startswith("#")]
    assert refused == "*"
    copied = [argument.split()[:-1] for name, argument in STEPS if name == "COPY"]
    paths = [path for each in copied if not each[0].startswith("--from") for path in each]
    assert WHEEL in paths
    for path in paths:
        assert path == WHEEL or (ROOT / path).exists(), path
        assert any(each in (f"!{path}", f"!{path}/*.py") for each in let_in), path
    for each in let_in:
        assert each[1:] == WHEEL or list(ROOT.glob(each[1:])), each


def test_versions_are_those_of_the_lock() -> None:
    """No version is in the file: the lock pins uv, what uv installs, and what it builds with."""
    commands = " ".join(argument for name, argument in STEPS if name == "RUN")
    assert re.search(r"pip install .*--require-hashes --requirement uv\.txt", commands)
    assert "--constraints requirements.lock --build-constraints requirements.lock" in commands
    assert not re.search(r"[=<>]=\d", commands)
    locked = set(
        re.findall(r"^([\w.-]+)==", (ROOT / "requirements.lock").read_text(), re.MULTILINE)
    )
    (extras,) = re.findall(r"\)\[([\w,]+)\]", commands)
    for extra in ("", *extras.split(",")):
        wanted = PROJECT["optional-dependencies"][extra] if extra else PROJECT["dependencies"]
        named = map(Requirement, wanted)
        assert {re.sub(r"[-_.]+", "-", each.name).lower() for each in named} <= locked


def test_image_has_what_the_jobs_need() -> None:
    """A Java that Spark takes, a process 1 that passes SIGTERM on, and a user without rights."""
    commands = " ".join(argument for name, argument in STEPS if name == "RUN")
    (java,) = re.findall(r"openjdk-(\d+)-jre-headless", commands)
    assert int(java) >= 17
    assert json.loads(last("ENTRYPOINT")) == ["tini", "--"]
    assert "tini" in commands
    assert int(last("USER")) == USER
    assert f"useradd --uid {USER} --create-home" in commands
    program, *rest = json.loads(last("CMD"))
    assert program == "spark-submit"
    (job,) = [word for word in rest if word.endswith(".py")]
    assert (ROOT / "jobs" / Path(job).name).is_file()
    assert f"{Path(job).parent}" in last("COPY")


def test_commands_of_the_page_build_and_run_this_image() -> None:
    (build,) = commands_after(["docker", "build"])
    assert build[build.index("--file") + 1] == CONTAINERFILE
    image = build[build.index("--tag") + 1]
    assert COMMANDS.index(["make", "wheel"]) < COMMANDS.index(build)
    config = Path(json.loads(last("CMD"))[-1])
    first, other = commands_after(["docker", "run"])
    assert first[-1] == image
    assert set(volumes_of(first)) == {str(config), str(checkpoints())}
    submitted = other[other.index(image) + 1 :]
    assert submitted[:3] == json.loads(last("CMD"))[:3]
    assert Path(submitted[3]).parent == Path(json.loads(last("CMD"))[3]).parent
    assert submitted[-1] in volumes_of(other)
    (stop,) = commands_after(["docker", "stop"])
    job = load_job(ConsumeOptions, ROOT / "conf" / "consume.toml", [])
    assert int(stop[stop.index("-t") + 1]) > job.stop_timeout_s


def checkpoints() -> Path:
    """The directory that the image makes for checkpoints."""
    commands = " ".join(argument for name, argument in STEPS if name == "RUN")
    (path,) = re.findall(r"install --directory \S+ \S+ (/\S+)", commands)
    return Path(path)


def test_manifests_use_the_paths_and_the_user_of_the_image() -> None:
    assert len(MANIFESTS) == 2
    for pod in MANIFESTS:
        assert pod["securityContext"]["runAsUser"] == USER
        (container,) = pod["containers"]
        mounted = {each["mountPath"] for each in container["volumeMounts"]}
        config = Path(json.loads(last("CMD"))[-1])
        assert mounted == {str(config.parent), str(checkpoints())}
        assert str(config) in container["args"]
