"""A Maven repository in a folder, for the real Ivy."""

from __future__ import annotations

from pathlib import Path

POM = """\
<project>
  <modelVersion>4.0.0</modelVersion>
  <groupId>org.apache.kafka</groupId><artifactId>{name}</artifactId><version>{version}</version>
</project>
"""


def publish(root: Path, name: str, version: str) -> None:
    """Put an artifact of org.apache.kafka into the repository."""
    folder = root / "org" / "apache" / "kafka" / name / version
    folder.mkdir(parents=True)
    (folder / f"{name}-{version}.pom").write_text(POM.format(name=name, version=version))
    (folder / f"{name}-{version}.jar").write_bytes(f"{name} {version}".encode())


def settings_for(root: Path) -> Path:
    """Write the ivysettings.xml of somebody whose mirror is this repository."""
    settings = root / "ivysettings.xml"
    settings.write_text(
        '<ivysettings><settings defaultResolver="mirror"/><resolvers>'
        f'<ibiblio name="mirror" m2compatible="true" root="{root.as_uri()}"/>'
        "</resolvers></ivysettings>"
    )
    return settings
