"""Each of Kafka's errors as the answer to each request: the client's reaction, and its losses.

The model of the coordinator answers, one request is answered with the error, and the next half
minute passes on the client's own clock.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

from group_lab.coordinator.profile import KAFKA_4_3
from group_lab.coordinator.settings import BrokerSettings, Settings
from lab.tests.scenarios.clients import Clients
from lab.tests.scenarios.model_world import ModelWorld
from lab.tests.scenarios.scene import Command, Scene
from lab.tests.scenarios.wording import code_text
from lab.tests.scenarios.world import World
from spark_groups.errors import ErrorCode
from spark_groups.group.member import messages as m
from spark_groups.types import TopicId
from tests.answers import list_answer

KINDS: dict[str, type] = {
    "heartbeat": m.HeartbeatRequest,
    "commit": m.OffsetCommitRequest,
    "fetch": m.OffsetFetchRequest,
    "find-coordinator": m.FindCoordinatorRequest,
    "metadata": m.MetadataRequest,
    "list-offsets": m.ListOffsetsRequest,
    "describe": m.DescribeGroupRequest,
}
REFUSED: dict[type, Callable[[Any, int], m.Response]] = {
    m.HeartbeatRequest: lambda _, code: m.HeartbeatResponse(error_code=code),
    m.OffsetCommitRequest: lambda request, code: m.OffsetCommitResponse(
        errors=dict.fromkeys(request.offsets, code)
    ),
    m.OffsetFetchRequest: lambda _, code: m.OffsetFetchResponse(error_code=code),
    m.FindCoordinatorRequest: lambda _, code: m.FindCoordinatorResponse(error_code=code),
    m.MetadataRequest: lambda _, code: m.MetadataResponse(errors={"orders": code}),
    m.ListOffsetsRequest: lambda request, code: list_answer(
        errors=dict.fromkeys(request.partitions, code)
    ),
    m.DescribeGroupRequest: lambda _, code: m.DescribeGroupResponse(error_code=code),
}
"""What a broker answers that refuses all of a request."""
ROWS = 10
LINES = 14
"""How much of what follows is shown."""

ORDERS = TopicId(int=1)


class FaultyWorld(ModelWorld):
    """A cluster of one topic that answers one request with an error.

    Args:
        clock: The client's clock.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        super().__init__(KAFKA_4_3, _now=clock(), _settings=Settings(BrokerSettings()))
        self._clock = clock
        self._kind: type | None = None
        self._code: int | None = None
        self.create_topic("orders", 2, ORDERS)
        self.produce_rows()

    def produce_rows(self) -> None:
        """Append rows to each partition."""
        self.produce("orders", {0: ROWS, 1: ROWS})

    def inject(self, kind: type, code: int | None) -> None:
        """Answer the next request of a kind with an error, or not at all if there is none."""
        self._kind, self._code = kind, code

    def ask(self, request: m.Request) -> m.Response | m.RequestFailed:
        """Answer a request."""
        self.sleep(self._clock() - self.now())
        if type(request) is not self._kind:
            return super().ask(request)
        self._kind = None
        if self._code is None:
            return m.RequestFailed("the connection was closed")
        return REFUSED[type(request)](request, self._code)


class Injections:
    """The command `answer KIND with ERROR`; each begins with a new client and a new cluster."""

    def play(self, line: str) -> list[str]:
        """Run one command and return what it prints."""
        command = Command.parse(line)
        name, kind, _, error = [command.name, *command.words]
        assert name == "answer", f"no command {name!r}: answer KIND with ERROR"
        instance_id = command.take("instance")
        command.done()
        code = None if error == "nothing" else code_of(error)
        clients = Clients(Scene(cast(World, None), "g", "g"))
        world = FaultyWorld(lambda: clients.now)
        clients.scene.world = world
        clients.scene.names.created("orders", ORDERS)
        join = "client c1 join topics=orders start=latest"
        if instance_id:
            join += f" instance={instance_id}"
        if kind in ("heartbeat", "commit"):
            self._play(clients, join, "run 6", "produce", "client c1 plan")
        world.inject(KINDS[kind], code)
        clients.shown_in_any_case = {KINDS[kind]: 2}
        if kind == "heartbeat":
            lines = self._play(clients, "run 30", "client c1 finish", "run 1")
        elif kind == "commit":
            lines = self._play(clients, "client c1 finish", "run 30")
        else:
            lines = self._play(clients, join, "run 30")
        return [*self._cut(lines, code), *self._end(clients)]

    def _play(self, clients: Clients, *lines: str) -> list[str]:
        said: list[str] = []
        for line in lines:
            if line == "produce":
                cast(FaultyWorld, clients.scene.world).produce_rows()
                continue
            command = Command.parse(line)
            said += clients.commands[command.name](command)
        return said

    def _cut(self, lines: list[str], code: int | None) -> list[str]:
        """What came before the error is the same everywhere."""
        shown = "no answer" if code is None else code_text(code)
        error = next(index for index, line in enumerate(lines) if f"-> {shown}" in line)
        return lines[error : error + LINES]

    def _end(self, clients: Clients) -> list[str]:
        said = self._play(clients, "client c1 plan", "client c1 show")
        return [f"then {each}" for each in said if " planned " in each or " * " not in each]


def code_of(name: str) -> int:
    """Return the code of a name, or of a number that has none."""
    return ErrorCode[name].value if name in ErrorCode.__members__ else int(name)
