"""TCP proxies in front of brokers: each is a link that can be slow, one-way, silent or reset.

While a way is held, bytes wait and arrive when the fault ends, even if the client has given up
meanwhile: as in TCP, a request can reach a broker long after its sender stopped waiting for it. A
new connection seems to come about at once; its first bytes wait. Other than in TCP, no sender gives
up sending again before the fault ends.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import socket
import struct
import threading
import time
from collections import Counter
from collections.abc import Coroutine, Iterator
from typing import Any, Final, TypeVar

from workshop.chaos.faults.link import WORKING, Condition, Passage, Timetable, Way

T = TypeVar("T")

HOST: Final = "127.0.0.1"
CHUNK_BYTES: Final = 16 * 1024
PENDING_CHUNKS: Final = 64
"""How much a connection takes from its sender while nothing passes."""
_RESETS: Final = struct.pack("ii", 1, 0)
"""SO_LINGER: the end of a connection is a reset."""
_END: Final = b""
_STOP_S: Final = 10.0


class Link:
    """One listening port, whose connections lead to one broker; made by `Proxies`.

    Args:
        proxies: Where its event loop runs.
        chance: Where jitter is drawn from.
    """

    def __init__(self, proxies: Proxies, chance: random.Random) -> None:
        self._proxies = proxies
        self._listening = socket.create_server((HOST, 0))
        self.address = f"{HOST}:{self._listening.getsockname()[1]}"
        """Where clients connect."""
        self.condition = WORKING
        """The condition of the moment."""
        self.accepted: Counter[int] = Counter()
        """How many connections came, by minutes of the monotonic clock."""
        self._timetables = {way: Timetable(chance) for way in Way}
        self._target: tuple[str, int] | None = None
        self._connections: set[asyncio.Task[None]] = set()
        self._changed = asyncio.Event()

    def forward_to(self, address: str) -> None:
        """Say where the broker is; connections before that wait, those to another one are reset."""
        host, _, port = address.rpartition(":")
        self._proxies.run(self._lead_to((host, int(port))))

    def put(self, condition: Condition) -> None:
        """Put the link into a condition, and return when it is."""
        self._proxies.run(self._change(condition))

    async def listen(self) -> None:
        """Begin to accept connections."""
        self._server = await asyncio.start_server(self._accepted, sock=self._listening)

    async def close(self) -> None:
        """Accept no more connections, and reset those that are open."""
        self._server.close()
        await self._hang_up()

    async def _lead_to(self, target: tuple[str, int]) -> None:
        is_moved, self._target = self._target is not None, target
        await self._change(self.condition)
        if is_moved:
            await self._hang_up()

    async def _change(self, condition: Condition) -> None:
        self.condition = condition
        self._changed.set()
        self._changed = asyncio.Event()
        if condition.resets:
            await self._hang_up()

    async def _hang_up(self) -> None:
        ended = list(self._connections)
        for each in ended:
            each.cancel()
        await asyncio.gather(*ended, return_exceptions=True)

    async def _accepted(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._connections.add(task)
        self.accepted[int(time.monotonic() // 60)] += 1
        # What remains of a connection when `_carry` is done with it is reset.
        with contextlib.suppress(OSError, asyncio.CancelledError), _reset_in_the_end(writer):
            if not self.condition.resets:
                await self._carry(reader, writer)
        self._connections.discard(task)

    async def _carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Carry bytes of one connection until both ends have closed it."""
        requests = _Stream(self, Way.TO_BROKER, reader)
        collecting = asyncio.ensure_future(requests.collect())
        try:
            target = await self._reached()
            if requests.is_ended:
                # The client has given up before there was a connection.
                return
            from_broker, to_broker = await asyncio.open_connection(*target)
            with _reset_in_the_end(to_broker):
                answers = _Stream(self, Way.FROM_BROKER, from_broker)
                await _all(requests.deliver(to_broker), answers.collect(), answers.deliver(writer))
                to_broker.close()
                writer.close()
        finally:
            collecting.cancel()

    async def _reached(self) -> tuple[str, int]:
        """Wait until a connection to the broker comes about."""
        while self._target is None or not self.condition.connects:
            await self._changed.wait()
        return self._target

    def due_s(self, way: Way, size_bytes: int, after_s: float) -> float:
        """Return when bytes that are sent now arrive, on the monotonic clock."""
        slowness = self.condition.slowness
        is_slow = self.condition.passage(way) is Passage.SLOW
        return self._timetables[way].due_s(
            time.monotonic(), size_bytes, slowness if is_slow else None, after_s
        )

    async def passes(self, way: Way, due_s: float) -> None:
        """Wait until bytes that are due at a time arrive."""
        while (passage := self.condition.passage(way)) is not Passage.OPEN:
            left_s = due_s - time.monotonic() if passage is Passage.SLOW else None
            if left_s is not None and left_s <= 0:
                return
            with contextlib.suppress(asyncio.TimeoutError):
                await asyncio.wait_for(self._changed.wait(), left_s)


class _Stream:
    """The bytes of one way of a connection."""

    def __init__(self, link: Link, way: Way, reader: asyncio.StreamReader) -> None:
        self.is_ended = False
        """Whether the sender has closed its end."""
        self._link = link
        self._way = way
        self._reader = reader
        self._pending: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue(PENDING_CHUNKS)

    async def collect(self) -> None:
        """Take bytes from the sender until it closes its end."""
        due_s, chunk = 0.0, b"any"
        while chunk != _END:
            try:
                chunk = await self._reader.read(CHUNK_BYTES)
            except OSError:
                chunk = _END
            self.is_ended = chunk == _END
            due_s = self._link.due_s(self._way, len(chunk), due_s)
            await self._pending.put((due_s, chunk))

    async def deliver(self, writer: asyncio.StreamWriter) -> None:
        """Hand the bytes to the receiver when they arrive, and the end after them."""
        while True:
            due_s, chunk = await self._pending.get()
            await self._link.passes(self._way, due_s)
            if chunk == _END:
                writer.write_eof()
                return
            writer.write(chunk)
            await writer.drain()


class Proxies:
    """Links on one event loop, in a thread.

    Args:
        seed: What jitter is drawn from.
    """

    def __init__(self, seed: int) -> None:
        self._chance = random.Random(f"{seed}-links")
        self._links: list[Link] = []
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(
            target=self._loop.run_forever, name="chaos-proxies", daemon=True
        )

    def __enter__(self) -> Proxies:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        for each in self._links:
            self.run(each.close())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(_STOP_S)

    def link(self) -> Link:
        """Make a link, and listen for its clients."""
        link = Link(self, self._chance)
        self._links.append(link)
        self.run(link.listen())
        return link

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Do something on the event loop, and wait for its result."""
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(_STOP_S)


@contextlib.contextmanager
def _reset_in_the_end(writer: asyncio.StreamWriter) -> Iterator[None]:
    """Reset a connection in the end, unless it was closed."""
    try:
        yield
    finally:
        if not writer.is_closing():
            taken: socket.socket = writer.get_extra_info("socket")
            with contextlib.suppress(OSError):
                taken.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESETS)
            writer.transport.abort()


async def _all(*works: Coroutine[Any, Any, None]) -> None:
    """Do several things at once; the first error ends all of them."""
    tasks = [asyncio.ensure_future(each) for each in works]
    try:
        await asyncio.gather(*tasks)
    finally:
        for each in tasks:
            each.cancel()
