"""Memory between two protected pages: an access beside it ends the process at once."""

from __future__ import annotations

import ctypes
import mmap
import os
from typing import Any, Final

import numpy as np
import numpy.typing as npt

PAGE_BYTES: Final = mmap.PAGESIZE
_NO_ACCESS: Final = 0
_libc: Final = ctypes.CDLL(None, use_errno=True)


def guarded(content: npt.NDArray[Any], *, at_end: bool = True) -> npt.NDArray[Any]:
    """Return a copy of an array that lies directly beside a page without access.

    Args:
        content: The array.
        at_end: Whether the page comes directly behind its end, or directly before its beginning;
            at the other side there may be a few bytes of room.
    """
    pages = max(1, -(-content.nbytes // PAGE_BYTES))
    memory = mmap.mmap(-1, (pages + 2) * PAGE_BYTES)
    whole = np.frombuffer(memory, np.uint8)
    behind = (pages + 1) * PAGE_BYTES
    begin = behind - content.nbytes if at_end else PAGE_BYTES
    place = whole[begin : begin + content.nbytes].view(content.dtype)
    place[:] = content
    for page in (0, behind):
        if _libc.mprotect(
            ctypes.c_void_p(whole.ctypes.data + page), ctypes.c_size_t(PAGE_BYTES), _NO_ACCESS
        ):
            raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return place
