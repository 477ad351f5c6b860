"""`make fuzz`: every target is fed in a process of its own, which may die of it.

A process says which input it is at in a file that both share. When it dies, takes too long for an
input or too much memory, or an error comes out that is none of this package's, that input is made
again from the seed, saved, and the command is printed that feeds it alone. The exit status is 0
only if nothing of this happened.
"""

from __future__ import annotations

import argparse
import faulthandler
import importlib
import mmap
import os
import resource
import shlex
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from rich.console import Console

from workshop.fuzz.mutation import drawn

ROOT: Final = Path(__file__).resolve().parents[2]
TABLE: Final = "workshop.fuzz.targets"
INPUT_S: Final = 60
"""How long one input may take; a machine may be slow, and the search is for hangs."""
MEMORY_BYTES: Final = 256 * 1024 * 1024
"""How much more memory a process may use for inputs than for what it has to take."""
ADDRESS_BYTES: Final = 2 * 1024 * 1024 * 1024
"""How much more it may ask for, whether it uses it or not."""
START_S: Final = 600.0
"""How long a process may take beside its inputs: the first one compiles the decoder."""
_PLACE: Final = struct.Struct(">q")
_TAIL_LINES: Final = 25


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """What feeding a target came to.

    Args:
        target: Its name.
        fed: How many inputs it got.
        problem: What went wrong; empty: nothing.
        saved: The input of which it went wrong.
        again: The command that feeds it again.
    """

    target: str
    fed: int
    problem: str = ""
    saved: Path | None = None
    again: str = ""


def feed(
    target: str,
    *,
    seed: int,
    directory: Path,
    seconds: float | None = None,
    count: int | None = None,
    table: str = TABLE,
) -> Outcome:
    """Feed a target in a process of its own.

    Args:
        target: Its name.
        seed: What inputs are drawn from.
        directory: Where an input is saved of which something goes wrong.
        seconds: For how long; None: until the count is reached.
        count: How many inputs; None: until the time is over.
        table: The module with the targets.
    """
    with tempfile.NamedTemporaryFile() as place:
        place.write(_PLACE.pack(0))
        place.flush()
        limits = ["--seconds", str(seconds)] if seconds is not None else []
        limits += ["--count", str(count)] if count is not None else []
        command = [
            sys.executable,
            "-m",
            "workshop.fuzz.run",
            "--child",
            place.name,
            "--table",
            table,
        ]
        try:
            done = subprocess.run(
                [*command, "--target", target, "--seed", str(seed), *limits],
                cwd=ROOT,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                errors="replace",
                timeout=START_S + (seconds or (count or 0) * INPUT_S),
                check=False,
            )
            ended: int | str = done.returncode
            said = done.stderr
        except subprocess.TimeoutExpired as error:
            ended, said = "the time that it had is over", str(error.stderr)
        (number,) = _PLACE.unpack(Path(place.name).read_bytes())
    if ended == 0:
        return Outcome(target=target, fed=number)
    corpus = _corpus(target, table)
    saved = directory / f"{target}-{seed}-{number}.bin"
    directory.mkdir(parents=True, exist_ok=True)
    saved.write_bytes(_input(seed, target, number, corpus))
    again = [sys.executable, "-m", "workshop.fuzz.run", "--target", target, "--input", str(saved)]
    again += ["--table", table] if table != TABLE else []
    tail = "\n".join(said.splitlines()[-_TAIL_LINES:])
    return Outcome(
        target=target,
        fed=number,
        problem=f"{_how(ended)}\n{tail}",
        saved=saved,
        again=shlex.join(again),
    )


def _how(ended: int | str) -> str:
    if isinstance(ended, str):
        return ended
    return f"its process died of signal {-ended}" if ended < 0 else f"exit code {ended}"


def _input(seed: int, target: str, number: int, corpus: Sequence[bytes]) -> bytes:
    """Return an input: first all that must be accepted unchanged, then drawn ones."""
    return corpus[number] if number < len(corpus) else drawn(seed, target, number, corpus)


def _corpus(target: str, table: str) -> Sequence[bytes]:
    targets = importlib.import_module(table).TARGETS
    found: Sequence[bytes] = next(each for each in targets if each.name == target).corpus()
    return found


def _play(arguments: argparse.Namespace) -> None:
    """Feed one target, in this process."""
    faulthandler.enable()
    targets = importlib.import_module(arguments.table).TARGETS
    target = next(each for each in targets if each.name == arguments.target)
    corpus = target.corpus()
    if arguments.input is not None:
        for each in corpus:
            target.feed(each)
        _bound_memory()
        faulthandler.dump_traceback_later(INPUT_S, exit=True)
        target.feed(arguments.input.read_bytes())
        faulthandler.cancel_dump_traceback_later()
        return
    with arguments.child.open("r+b") as file, mmap.mmap(file.fileno(), _PLACE.size) as place:
        number, began_at, bound_bytes = 0, time.monotonic(), 0
        while arguments.count is None or number < len(corpus) + arguments.count:
            if arguments.seconds is not None and time.monotonic() - began_at > arguments.seconds:
                break
            if number == len(corpus):
                bound_bytes = _bound_memory()
            place[:] = _PLACE.pack(number)
            faulthandler.dump_traceback_later(INPUT_S, exit=True)
            target.feed(_input(arguments.seed, target.name, number, corpus))
            if bound_bytes and _used_bytes() > bound_bytes:
                raise MemoryError(f"more than {MEMORY_BYTES} bytes beside what it had used before")
            number += 1
            place[:] = _PLACE.pack(number)
    faulthandler.cancel_dump_traceback_later()


def _bound_memory() -> int:
    """Let this process ask for no more than a bound, and return what it may use."""
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[0])
    most = pages * mmap.PAGESIZE + ADDRESS_BYTES
    resource.setrlimit(resource.RLIMIT_AS, (most, most))
    return _used_bytes() + MEMORY_BYTES


def _used_bytes() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def main() -> int:
    """Feed all targets, or those that are named, and say what went wrong."""
    parser = argparse.ArgumentParser(prog="python -m workshop.fuzz.run", description=__doc__)
    parser.add_argument("--minutes", type=float, default=5.0, help="for how long, in all")
    parser.add_argument("--seed", type=int, default=None, help="what inputs are drawn from")
    parser.add_argument("--target", default=None, help="feed only this one")
    parser.add_argument("--input", type=Path, default=None, help="feed it only this file")
    parser.add_argument("--into", type=Path, default=ROOT / "build" / "fuzz", help="saved inputs")
    for hidden, kind in (("child", Path), ("seconds", float), ("count", int)):
        parser.add_argument(f"--{hidden}", type=kind, default=None, help=argparse.SUPPRESS)
    parser.add_argument("--table", default=TABLE, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.child is not None or arguments.input is not None:
        _play(arguments)
        return 0
    console = Console(highlight=False, soft_wrap=True)
    seed = arguments.seed
    if seed is None:
        seed = int.from_bytes(os.urandom(4), "big")
    targets = [target.name for target in importlib.import_module(arguments.table).TARGETS]
    chosen = [target for target in targets if arguments.target in (None, target)]
    seconds = arguments.minutes * 60 / max(1, len(chosen))
    console.print(f"seed {seed}: {', '.join(chosen)}, {seconds:.0f} s each")
    failed = 0
    for name in chosen:
        outcome = feed(
            name, seed=seed, directory=arguments.into, seconds=seconds, table=arguments.table
        )
        console.print(f"{name}: {outcome.fed} inputs{': FAILED' if outcome.problem else ''}")
        if outcome.problem:
            failed += 1
            console.print(outcome.problem, markup=False)
            console.print(f"saved: {outcome.saved}\nagain: {outcome.again}", markup=False)
            console.print(f"all:   make fuzz SEED={seed} MINUTES={arguments.minutes:g}")
    return 1 if failed or not chosen else 0


if __name__ == "__main__":
    sys.exit(main())
