"""How far a fetch is: a bar on standard error in a terminal, plain lines elsewhere."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

_LINES_EVERY = 20
"""Plain output says one line for so many artifacts."""


@dataclass(slots=True)
class FetchProgress:
    """Counts what Ivy says it has found and fetched, and shows the count.

    Args:
        what: What is fetched, in words.
        console: Where plain lines go.
        bar: The bar of a terminal; None elsewhere.
        found: Modules resolved so far.
        fetched: Artifacts downloaded so far.
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
    """Show the progress of one fetch while the block runs.

    Args:
        what: What is fetched, in words.
    """
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
