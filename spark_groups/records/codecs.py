"""Decompression of batches that `blocks` leaves to libraries, into bounded memory.

Those are pyarrow's codecs. For zstd they create a context for each batch, which takes as long as a
small batch itself: so the package zstandard, which keeps its context, decompresses most of these.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import pyarrow as pa
import zstandard

from spark_groups.records.blocks import SNAPPY, XERIAL_HEADER_BYTES
from spark_groups.records.layout import Octets

_ZSTD: Final = 4
_STREAMED: Final = {1: "gzip", 3: "lz4", 4: "zstd"}
_XERIAL_MAGIC: Final = b"\x82SNAPPY\x00"
_PREAMBLE_BYTES: Final = 5
_FIRST_BLOCKS: Final = 1024
_LEAST_BLOCK_BYTES: Final = 128
"""The least average size of a snappy block: Java's writer makes blocks of 1 KiB or more, and each
block takes as long as thousands of bytes."""
_FIRST_BYTES: Final = 256 * 1024
_REPEATED: Final = 1
_HAS_CHECKSUM: Final = 0x04
_CHECKSUM_BYTES: Final = 4
_KEPT_BYTES_MAX: Final = 4 * 1024 * 1024
"""The largest batch for the kept context, which needs memory for it beside the task's share."""
_WINDOW_BYTES_MAX: Final = 8 * 1024 * 1024
"""The largest window whose memory is kept: that of zstd's level 19."""


def new_octets(size: int) -> Octets:
    """Return memory for decompressed bytes."""
    return np.empty(size, np.uint8)


class DecompressionError(Exception):
    """A batch cannot be decompressed, or would exceed the memory limit."""


class Decompressor:
    """Decompresses one batch at a time into memory that it reuses.

    Args:
        bytes_max: The size limit of a decompressed batch.
    """

    def __init__(self, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self._zstd = zstandard.ZstdDecompressor(max_window_size=_WINDOW_BYTES_MAX)
        self._octets = new_octets(0)
        self.body = self._octets
        """Memory that holds the last batch, and receives the next one if that fits."""

    def decompress(self, codec: int, compressed: Octets) -> Octets:
        """Return the records of a batch, valid until the next call.

        Args:
            codec: The codec's number in the attributes of a batch.
            compressed: The batch without its header.

        Raises:
            DecompressionError: The bytes do not match the codec, or are too many.

        Source: Kafka's CompressionType; SnappyOutputStream of xerial/snappy-java for its framing.
        """
        try:
            if codec == _ZSTD:
                frame = self._read_frame(compressed.tobytes())
                if frame is not None:
                    return frame
            if codec in _STREAMED:
                return self._read(_STREAMED[codec], compressed)
            if codec == SNAPPY:
                return self._read_snappy(compressed)
        except (pa.ArrowException, OSError) as error:
            raise DecompressionError(str(error)) from error
        raise DecompressionError(f"unknown codec {codec}")

    def _read_frame(self, compressed: bytes) -> Octets | None:
        """Decompress the one frame of zstd that there usually is; None for anything else."""
        room = min(len(self.body), _KEPT_BYTES_MAX)
        try:
            size = zstandard.frame_content_size(compressed)
            if not room or size > room or _frame_end(compressed) != len(compressed):
                return None
            # It allocates the size that the frame states, or else the room.
            octets = self._zstd.decompress(compressed, room)
        except (zstandard.ZstdError, IndexError):
            return None
        self.body[: len(octets)] = np.frombuffer(octets, np.uint8)
        return self.body[: len(octets)]

    def _read(self, name: str, compressed: Octets) -> Octets:
        source = pa.BufferReader(pa.py_buffer(compressed))
        used = 0
        with pa.CompressedInputStream(source, name) as stream:
            while True:
                # One byte beyond the limit shows that there is more.
                self._reserve(used + 1, used)
                count = stream.readinto(self._octets.data[used:])
                used += count
                if used > self._bytes_max:
                    raise self._too_large()
                if used < len(self._octets):
                    return self._octets[:used]

    def _read_snappy(self, compressed: Octets) -> Octets:
        if compressed[: len(_XERIAL_MAGIC)].tobytes() != _XERIAL_MAGIC:
            block = self._block(compressed, self._bytes_max)
            self._reserve(block.size + 1, 0)
            self._octets[: block.size] = np.frombuffer(block, np.uint8)
            return self._octets[: block.size]
        at, used, blocks = XERIAL_HEADER_BYTES, 0, 0
        while at < len(compressed):
            blocks += 1
            if blocks > _FIRST_BLOCKS + used // _LEAST_BLOCK_BYTES:
                raise DecompressionError(f"{blocks} snappy blocks contain only {used} bytes")
            length = int.from_bytes(compressed[at : at + 4].tobytes(), "big", signed=True)
            at += 4
            if not 0 <= length <= len(compressed) - at:
                raise DecompressionError("a snappy block is truncated")
            block = self._block(compressed[at : at + length], self._bytes_max - used)
            at += length
            self._reserve(used + block.size + 1, used)
            self._octets[used : used + block.size] = np.frombuffer(block, np.uint8)
            used += block.size
        return self._octets[:used]

    def _block(self, compressed: Octets, bytes_max: int) -> pa.Buffer:
        """Decompress a block that begins with its decompressed length."""
        size = 0
        for index, byte in enumerate(compressed[:_PREAMBLE_BYTES].tolist()):
            size |= (byte & 0x7F) << 7 * index
            if byte < 0x80:
                break
        else:
            raise DecompressionError("a snappy block has no length")
        if size > bytes_max:
            raise self._too_large()
        return pa.Codec("snappy").decompress(pa.py_buffer(compressed), decompressed_size=size)

    def _reserve(self, size: int, used: int) -> None:
        """Make room for `size` bytes, and keep those in use."""
        if size > len(self._octets):
            ample = min(max(2 * used, _FIRST_BYTES), self._bytes_max + 1)
            octets = new_octets(max(size, ample))
            octets[:used] = self._octets[:used]
            self._octets, self.body = octets, octets[:-1]

    def _too_large(self) -> DecompressionError:
        return DecompressionError(
            f"it exceeds {self._bytes_max} bytes, its share of maxMemoryPerTask: raise that option"
        )


def _frame_end(compressed: bytes) -> int:
    """Return where the first frame of zstd ends.

    Raises:
        IndexError: It does not end.

    Source: RFC 8878, 3.1.1.
    """
    at = zstandard.frame_header_size(compressed)
    is_last = False
    while not is_last:
        header = compressed[at] | compressed[at + 1] << 8 | compressed[at + 2] << 16
        is_last, is_repeated = bool(header & 1), header >> 1 & 3 == _REPEATED
        at += 3 + (1 if is_repeated else header >> 3)
    return at + (_CHECKSUM_BYTES if compressed[4] & _HAS_CHECKSUM else 0)
