"""Archives of a program's classes, with which a JVM starts in half the processor time (JEP 350)."""

from __future__ import annotations

import hashlib
import os
from dataclasses import dataclass
from pathlib import Path

from spark_groups.broker.java import version_text

_QUIET = ("-Xshare:auto", "-Xlog:cds=off", "-Xlog:cds+dynamic=off", "-Xlog:class+path=off")
"""Without these flags, a JVM that cannot use an archive prints a warning to standard output."""


@dataclass(frozen=True, slots=True)
class ClassArchive:
    """The classes that one program has loaded, for the next JVM that runs it.

    Args:
        path: The archive; no file until a JVM has written one.
    """

    path: Path

    @classmethod
    def of(cls, directory: Path, name: str, java: Path) -> ClassArchive:
        """Return the archive of the program of this name in a directory, for one build of Java."""
        build = hashlib.sha256(version_text(str(java)).encode()).hexdigest()[:12]
        return cls(directory / f"{name}-{build}.jsa")

    @property
    def flags(self) -> tuple[str, ...]:
        """Flags of a JVM that uses the archive; none if there is no archive."""
        return (f"-XX:SharedArchiveFile={self.path}", *_QUIET) if self.path.exists() else ()

    def flags_to_write(self) -> tuple[str, ...]:
        """Make the folder; return the flags of a JVM that writes its classes at a normal exit."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        return (f"-XX:ArchiveClassesAtExit={self._draft}", *_QUIET)

    def keep(self, *, is_whole: bool) -> bool:
        """Move what a JVM has written to the archive's path, and return whether the archive exists.

        Args:
            is_whole: Whether that JVM ended in order. Java does not notice an archive that ends
                too early, and crashes.
        """
        if is_whole and self._draft.exists():
            self._draft.replace(self.path)
        self._draft.unlink(missing_ok=True)
        return self.path.exists()

    @property
    def _draft(self) -> Path:
        return self.path.with_suffix(f".{os.getpid()}.draft")
