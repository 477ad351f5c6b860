"""Memory for large frames, used again and again: fresh memory costs more than what goes into it."""

from __future__ import annotations


class FrameBuffer:
    """Room for one frame at a time.

    Args:
        kept_bytes: How much memory stays for the next frame; a larger frame has its own.
    """

    def __init__(self, kept_bytes: int) -> None:
        self._kept_bytes = kept_bytes
        self._memory = bytearray()

    def room(self, size_bytes: int) -> memoryview:
        """Return room for a frame; what was given before is given again.

        Args:
            size_bytes: How many bytes the frame has; whoever asks has bounded it.
        """
        if size_bytes > self._kept_bytes:
            # Not both at once.
            self._memory = bytearray()
            return memoryview(bytearray(size_bytes))
        if size_bytes > len(self._memory):
            grown = min(self._kept_bytes, max(size_bytes, 2 * len(self._memory)))
            self._memory = bytearray()
            self._memory = bytearray(grown)
        return memoryview(self._memory)[:size_bytes]
