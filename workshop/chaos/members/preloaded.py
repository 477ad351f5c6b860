"""Everything that members need, imported once: the process that has done it forks them.

A member that imports all this by itself takes seconds of processor time for each start, which on a
small machine leaves none for batches.
"""

from __future__ import annotations

import contextlib
import importlib
import signal
from typing import Final

# The first of them: it repairs what others import.
import workshop.chaos.faults.clocks  # noqa: F401
from spark_groups.spark.reading.compiled import NotCompiledError, prepare
from workshop.chaos.members.application_session import TO_SESSION
from workshop.chaos.systems.tables import import_kinds
from workshop.parts.lifetime import be_parent, die_with_parent

MODULES: Final = (
    "workshop.chaos.systems.cluster",
    "workshop.chaos.members.ensemble",
    "workshop.chaos.systems.production",
    "workshop.chaos.results.report",
    "spark_groups.broker.embedded",
    "spark_groups.spark.reading.librdkafka_reader",
)
"""What the program imports that is started: each process that is forked for it does so again."""
# Members hold the pipe that would show this process the end of its parent.
die_with_parent()
be_parent()
# A process that it forks may get one before it has handlers; it is then acted on a moment later.
signal.pthread_sigmask(signal.SIG_BLOCK, TO_SESSION)
for _name in MODULES:
    importlib.import_module(_name)
import_kinds()
with contextlib.suppress(NotCompiledError):
    prepare()
    importlib.import_module("spark_groups.spark.reading.fast_reader")
