"""Decompression of batches that `blocks` leaves to libraries, into bounded memory.

Which bytes these are given, `compressed` decides. Pyarrow would create a context of zstd for each
batch, which takes as long as a small batch itself: the package zstandard keeps its context.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import numpy as np
import pyarrow as pa
import zstandard

from spark_groups.compressed import (
    FramingError,
    first_lz4_frame,
    gzip_chunks,
    snappy_blocks,
    snappy_size,
    zstd_frame_end,
)
from spark_groups.records.blocks import LZ4, SNAPPY
from spark_groups.records.layout import Octets

_GZIP: Final = 1
_ZSTD: Final = 4
_FIRST_BLOCKS: Final = 1024
_LEAST_BLOCK_BYTES: Final = 128
"""The least average size of a snappy block: Java's writer makes blocks of 1 KiB or more, and each
block takes as long as thousands of bytes."""
_FIRST_BYTES: Final = 256 * 1024
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

        Source: Kafka's CompressionType.
        """
        try:
            if codec == _GZIP:
                return self._take(gzip_chunks(compressed.data, _FIRST_BYTES))
            if codec == SNAPPY:
                return self._take(self._snappy_chunks(compressed.data))
            if codec == LZ4:
                frame = pa.BufferReader(pa.py_buffer(first_lz4_frame(compressed.data)))
                with pa.CompressedInputStream(frame, "lz4") as stream:
                    return self._read(stream)
            if codec == _ZSTD:
                return self._read_zstd(compressed.tobytes())
        except (pa.ArrowException, OSError, FramingError, zstandard.ZstdError) as error:
            raise DecompressionError(str(error)) from error
        raise DecompressionError(f"unknown codec {codec}")

    def _read_zstd(self, compressed: bytes) -> Octets:
        first_end = zstd_frame_end(compressed, 0)
        octets = self._read_frame(compressed) if first_end == len(compressed) else None
        if octets is not None:
            return octets
        if first_end is not None and first_end > len(compressed):
            raise DecompressionError("a zstd frame is truncated")
        source = zstandard.ZstdDecompressor().stream_reader(compressed, read_across_frames=True)
        with source as stream:
            return self._read(stream)

    def _read_frame(self, compressed: bytes) -> Octets | None:
        """Decompress one frame with the kept context; None if it is not for that."""
        room = min(len(self.body), _KEPT_BYTES_MAX)
        try:
            if not room or zstandard.frame_content_size(compressed) > room:
                return None
            # It allocates the size that the frame states, or else the room.
            octets = self._zstd.decompress(compressed, room)
        except zstandard.ZstdError:
            return None
        self.body[: len(octets)] = np.frombuffer(octets, np.uint8)
        return self.body[: len(octets)]

    def _read(self, stream: Any) -> Octets:
        used = 0
        while True:
            # One byte beyond the limit shows that there is more.
            self._reserve(used + 1, used)
            count = stream.readinto(self._octets.data[used:])
            used += count
            if used > self._bytes_max:
                raise self._too_large()
            if used < len(self._octets):
                return self._octets[:used]

    def _take(self, chunks: Iterator[bytes | pa.Buffer]) -> Octets:
        used = 0
        for chunk in chunks:
            size = len(chunk)
            if used + size > self._bytes_max:
                raise self._too_large()
            self._reserve(used + size + 1, used)
            self._octets[used : used + size] = np.frombuffer(chunk, np.uint8)
            used += size
        self._reserve(used + 1, used)
        return self._octets[:used]

    def _snappy_chunks(self, compressed: memoryview) -> Iterator[pa.Buffer]:
        used = 0
        for blocks, block in enumerate(snappy_blocks(compressed), start=1):
            if blocks > _FIRST_BLOCKS + used // _LEAST_BLOCK_BYTES:
                raise DecompressionError(f"{blocks} snappy blocks contain only {used} bytes")
            chunk = self._block(block, self._bytes_max - used)
            used += chunk.size
            yield chunk

    def _block(self, compressed: memoryview, bytes_max: int) -> pa.Buffer:
        """Decompress a block that begins with its decompressed length."""
        size = snappy_size(compressed)
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
