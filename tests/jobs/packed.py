"""An environment as a cluster has it: the wheel of this project and what it depends on.

Nothing is downloaded: the dependencies are copied from the environment that runs the tests. Spark
itself is left out, because a cluster brings its own.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from importlib.metadata import Distribution, distribution
from pathlib import Path

from packaging.requirements import Requirement

from tests.jobs.submitted import ROOT

PROJECT = "spark-groups"


def build_wheel(directory: Path) -> Path:
    """Build the wheel, as `make wheel` does."""
    command = [sys.executable, "-m", "hatchling", "build", "--target", "wheel", "-d"]
    subprocess.run([*command, str(directory)], cwd=ROOT, check=True, capture_output=True)
    (wheel,) = directory.glob("*.whl")
    return wheel


def make_environment(directory: Path, wheel: Path) -> Path:
    """Make a virtual environment with the wheel and its dependencies, and return its Python."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(directory)], check=True)
    python = directory / "bin" / "python"
    (site_packages,) = directory.glob("lib/python*/site-packages")
    for each in dependencies(PROJECT):
        copy_files(each, site_packages)
    uv = Path(sys.executable).with_name("uv")
    install = [str(uv), "pip", "install", "--quiet", "--python", str(python)]
    subprocess.run(
        [*install, "--no-index", "--no-deps", str(wheel)], check=True, capture_output=True
    )
    return python


def pack(environment: Path, archive: Path) -> None:
    """Pack an environment into an archive that can be unpacked anywhere."""
    venv_pack = Path(sys.executable).with_name("venv-pack")
    command = [str(venv_pack), "--quiet", "--prefix", str(environment), "--output", str(archive)]
    subprocess.run([*command, "--compress-level", "1"], check=True, capture_output=True)


def dependencies(project: str) -> list[Distribution]:
    """Return what a project needs at run time, directly or not; extras are left out."""
    found: dict[str, Distribution] = {}
    waiting = [project]
    while waiting:
        one = distribution(waiting.pop())
        for text in one.requires or ():
            requirement = Requirement(text)
            name = re.sub(r"[-_.]+", "-", requirement.name).lower()
            is_needed = requirement.marker is None or requirement.marker.evaluate({"extra": ""})
            if is_needed and name not in found:
                found[name] = distribution(name)
                waiting.append(name)
    return list(found.values())


def copy_files(one: Distribution, site_packages: Path) -> None:
    """Copy the files of a distribution."""
    for file in one.files or ():
        target = (site_packages / file).resolve()
        source = Path(str(one.locate_file(file)))
        if not source.is_file() or "__pycache__" in file.parts:
            continue
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(source, target)
