"""One run of Apache Ivy: resolve the artifacts of a Kafka version and copy them to a folder."""

from __future__ import annotations

import contextlib
import os
import re
import subprocess
import threading
import time
import urllib.request
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from spark_groups.broker.java import find_java
from spark_groups.broker.properties import STARTS_FAST
from spark_groups.errors import EmbeddedKafkaError

IVY_SETTINGS_VARIABLE = "SPARK_GROUPS_IVY_SETTINGS"

# Ivy's `ibiblio` resolver without a root is Maven Central.
_SETTINGS = """\
<ivysettings>
  <settings defaultResolver="central"/>
  <resolvers><ibiblio name="central" m2compatible="true"/></resolvers>
</ivysettings>
"""

# Kafka Connect is half of what kafka-tools asks for and nothing here uses it.
_MODULE = """\
<ivy-module version="2.0">
  <info organisation="spark-groups" module="kafka"/>
  <configurations><conf name="default"/></configurations>
  <dependencies>
    {dependencies}
    <exclude org="org.apache.kafka" module="connect-.*" matcher="regexp"/>
    <exclude org="org.slf4j"/>
    <exclude org="org.apache.logging.log4j"/>
    {overrides}
  </dependencies>
</ivy-module>
"""
FLAT_FOLDER = "[artifact]-[revision](-[classifier]).[ext]"
MAVEN_FOLDERS = f"[orgPath]/[module]/[revision]/{FLAT_FOLDER}"
_LINES_EVERY = 20
"""Plain output has one line for so many artifacts."""


def retrieve(
    version: str,
    *,
    stand_ins: Mapping[str, str],
    into: Path,
    work: Path,
    spark_jars: Path,
    deadline_s: float,
    layout: str = FLAT_FOLDER,
) -> None:
    """Fetch the server and the tools of a Kafka version with all they depend on.

    Args:
        stand_ins: Artifact name to the version taken in the place of `version`.
        layout: Where a jar is put inside `into`, as an Ivy pattern.
        deadline_s: When to give up, on the monotonic clock.

    Raises:
        EmbeddedKafkaError: An artifact cannot be fetched; with the reason and a remedy.
    """
    work.mkdir()
    module, settings = work / "ivy.xml", work / "ivysettings.xml"
    module.write_text(_module(version, stand_ins), encoding="utf-8")
    settings.write_text(_SETTINGS, encoding="utf-8")
    command = [
        str(find_java()),
        *STARTS_FAST,
        *_proxy_flags(),
        "-cp",
        str(next(spark_jars.glob("ivy-*.jar"))),
        "org.apache.ivy.Main",
        *("-settings", os.environ.get(IVY_SETTINGS_VARIABLE) or str(settings)),
        *("-cache", str(work / "cache")),
        *("-ivy", str(module)),
        *("-retrieve", str(into / layout)),
        *("-types", "jar", "bundle"),
    ]
    with fetch_progress(f"Apache Kafka {version}") as progress:
        lines, exit_code = _run(command, progress, deadline_s)
    if exit_code != 0:
        raise EmbeddedKafkaError(_failure(version, lines, time.monotonic() >= deadline_s))


def _module(version: str, stand_ins: Mapping[str, str]) -> str:
    """Return the ivy.xml that asks for a version."""
    dependencies = [
        f'<dependency org="org.apache.kafka" name="{name}" rev="{stand_ins.get(name, version)}"'
        ' conf="default->default"/>'
        for name in ("kafka_2.13", "kafka-tools")
    ]
    overrides = [
        f'<override org="org.apache.kafka" module="{name}" rev="{rev}"/>'
        for name, rev in stand_ins.items()
    ]
    return _MODULE.format(
        dependencies="\n    ".join(dependencies), overrides="\n    ".join(overrides)
    )


def _run(command: list[str], progress: FetchProgress, deadline_s: float) -> tuple[list[str], int]:
    """Run Ivy and return its lines and exit code; it is killed at the deadline."""
    lines: list[str] = []
    with subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
    ) as ivy:
        timer = threading.Timer(max(0.0, deadline_s - time.monotonic()), ivy.kill)
        timer.start()
        try:
            assert ivy.stdout is not None
            for line in ivy.stdout:
                lines.append(line.strip())
                progress.follow(lines[-1])
            return lines, ivy.wait()
        finally:
            timer.cancel()
            ivy.kill()


def _failure(version: str, lines: list[str], too_late: bool) -> str:
    """Return the error message of a failed fetch."""
    remedy = (
        f"behind a mirror set {IVY_SETTINGS_VARIABLE} to an ivysettings.xml that names it, behind"
        " a proxy set https_proxy"
    )
    if too_late:
        return f"Apache Kafka {version} was not fetched in the time allowed: {remedy}"
    text = "\n".join(lines)
    missing = re.findall(r"^:: (\S+#\S+;\S+: .*?)(?:\s*::)?$", text, re.MULTILINE)
    missing += re.findall(r"^\[FAILED\s*\]\s+(\S+)", text, re.MULTILINE)
    cause = re.search(r"Server access error at url (\S+) \((.+)\)$", text, re.MULTILINE)
    what = "; ".join(dict.fromkeys(missing)) or "\n".join(lines[-15:])
    if cause:
        return (
            f"Apache Kafka {version} cannot be fetched, {cause[1]} does not answer ({cause[2]});"
            f" missing: {what}. Connect this machine to the network; {remedy}"
        )
    return (
        f"Apache Kafka {version} cannot be fetched: {what}. Check that this version exists;"
        f" {remedy}"
    )


def _proxy_flags() -> list[str]:
    """Return the Java flags for the proxies of the environment, which Java itself ignores."""
    flags: list[str] = []
    proxies = urllib.request.getproxies()
    for scheme in ("http", "https"):
        proxy = urlsplit(proxies.get(scheme, ""))
        if proxy.hostname:
            flags += [f"-D{scheme}.proxyHost={proxy.hostname}"]
            flags += [f"-D{scheme}.proxyPort={proxy.port or 80}"]
    if flags and proxies.get("no"):
        hosts = [host.strip() for host in proxies["no"].split(",") if host.strip()]
        patterns = [f"*{host}" if host.startswith(".") else host for host in hosts]
        flags.append(f"-Dhttp.nonProxyHosts={'|'.join(patterns)}")
    return flags


@dataclass(slots=True)
class FetchProgress:
    """Counts the modules and artifacts in Ivy's output, and shows the count.

    Args:
        bar: The bar of a terminal; None elsewhere.
    """

    what: str
    console: Console
    bar: Progress | None
    found: int = 0
    fetched: int = 0

    def follow(self, line: str) -> None:
        """Take one line of Ivy's output."""
        if line.startswith("found "):
            self.found += 1
        elif line.startswith("[SUCCESSFUL"):
            self.fetched += 1
        else:
            return
        self._show()

    def count(self, total: int) -> None:
        """Count one more artifact of a known total."""
        self.found = total
        self.fetched += 1
        self._show()

    def _show(self) -> None:
        if self.bar is not None:
            # Ivy resolves everything before it downloads: only then is the total known.
            total = self.found if self.fetched else None
            shown = self.fetched or self.found
            step = "fetching" if self.fetched else "resolving"
            self.bar.update(
                self.bar.task_ids[0],
                completed=shown,
                total=total,
                description=f"{step} {self.what}",
            )
        elif self.fetched and self.fetched % _LINES_EVERY == 0:
            self.console.print(f"fetched {self.fetched} of about {self.found} artifacts")


@contextlib.contextmanager
def fetch_progress(what: str) -> Iterator[FetchProgress]:
    """Show the progress of one fetch while the block runs."""
    console = Console(stderr=True, highlight=False)
    if not console.is_terminal:
        console.print(f"fetching {what} from Maven (once)")
        progress = FetchProgress(what, console, None)
        yield progress
        console.print(f"fetched {progress.fetched} artifacts of {what}")
        return
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=console, transient=True) as bar:
        bar.add_task(f"resolving {what}", total=None)
        yield FetchProgress(what, console, bar)
