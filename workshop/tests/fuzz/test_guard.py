"""Memory with guard pages: an access beside it ends the process."""

from __future__ import annotations

import signal
import subprocess
import sys

import numpy as np
import pytest

from workshop.fuzz.run import ROOT
from workshop.parts.guard import PAGE_BYTES, guarded

TOUCH = """
import ctypes, numpy as np
from workshop.parts.guard import guarded
place = guarded(np.arange({size}, dtype=np.uint8), at_end={at_end})
begin = place.ctypes.data + {offset}
{touch}
"""
READ, WRITE = "ctypes.string_at(begin, 1)", "ctypes.memset(begin, 1, 1)"


def touched(size: int, offset: int, touch: str, *, at_end: bool = True) -> int:
    program = TOUCH.format(size=size, at_end=at_end, offset=offset, touch=touch)
    return subprocess.run([sys.executable, "-c", program], cwd=ROOT, check=False).returncode


def test_content_of_every_type_is_copied() -> None:
    for content in (
        np.arange(PAGE_BYTES + 3, dtype=np.int64),
        np.arange(7, dtype=np.int32),
        np.array([True, False]),
        np.empty(0, np.uint8),
    ):
        for at_end in (True, False):
            copy = guarded(content, at_end=at_end)
            assert copy.dtype == content.dtype
            assert np.array_equal(copy, content)
            assert copy.flags.writeable


@pytest.mark.parametrize("touch", [READ, WRITE])
def test_one_byte_beside_it_ends_the_process(touch: str) -> None:
    assert touched(100, 99, touch) == 0
    assert touched(100, 100, touch) == -signal.SIGSEGV
    assert touched(100, -1, touch, at_end=False) == -signal.SIGSEGV
    assert touched(100, 0, touch, at_end=False) == 0
