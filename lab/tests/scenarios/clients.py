"""Production clients, driven step by step: their requests, the answers, their events.

A client's clock is the scenario's own. It moves by `run` and `sleep` only, so that what a client
sends does not depend on how fast a machine is; requests are answered while it stands still.
"""

from __future__ import annotations

from dataclasses import dataclass

from lab.tests.scenarios.exchange_text import exchange_text
from lab.tests.scenarios.scene import Command, Scene
from spark_groups.errors import SparkGroupsError
from spark_groups.group.batches.plan_limit import PlanLimit
from spark_groups.group.client import GroupClient
from spark_groups.group.client_config import ClientConfig
from spark_groups.group.client_parts import ClientParts
from spark_groups.group.ledger.events import CoordinatorFound, PositionFound
from spark_groups.group.ledger.starting import StartingOffsets, StartingPoint
from spark_groups.group.member import messages as m
from spark_groups.group.member.events import SessionTimeoutKnown
from spark_groups.group.member.member_config import MemberConfig
from spark_groups.group.member.subscription import Subscription
from spark_groups.group.requests.channels import Channel, Outgoing
from spark_groups.types import BatchPlan

HIDDEN = (CoordinatorFound, PositionFound, SessionTimeoutKnown)
"""Events without news in a scenario: every client finds its coordinator, settings, positions."""

MANY = 1_000
"""More requests than any client sends without time passing."""


@dataclass
class Query:
    """A client driven as Spark does: it plans, runs, and finishes batches.

    Args:
        name: What it is called.
        client: The client.
        config: How it was made.
        incarnation: How often it was started.
        plan: The plan in its checkpoint.
        is_running: Whether the batch of that plan still runs.
        wakes_at: When it wants to be asked again.
    """

    name: str
    client: GroupClient
    config: ClientConfig
    incarnation: int = 1
    plan: BatchPlan | None = None
    is_running: bool = False
    wakes_at: float = 0.0


class Clients:
    """The commands client and run.

    Args:
        scene: What commands share.
    """

    def __init__(self, scene: Scene) -> None:
        self.scene = scene
        self.queries: dict[str, Query] = {}
        self.passed_s = 0.0
        self.shown_in_any_case: dict[type, int] = {}
        """How many requests of a kind are still shown although they are of no interest."""
        self.commands = {"client": self._client, "run": self._run}
        self._actions = {
            "join": self._join,
            "plan": self._plan,
            "finish": self._finish,
            "leave": self._leave,
            "kill": self._kill,
            "restart": self._restart,
            "show": self._show,
        }

    @property
    def now(self) -> float:
        return 1_000.0 + self.passed_s + self.scene.slept_s

    def _client(self, command: Command) -> list[str]:
        name, action = command.words[:2]
        lines = self._actions[action](name, command)
        command.done()
        return lines

    def _run(self, command: Command) -> list[str]:
        """Let time pass for the clients named, for all of them if none is."""
        seconds, names = float(command.words[0]), command.words[1:] or list(self.queries)
        began_at, end = self.now, self.now + seconds
        lines: list[str] = []
        while True:
            due = [(self.queries[name].wakes_at, name) for name in names]
            at, name = min(due, default=(end, ""))
            if at > end or not name:
                break
            self.passed_s += max(0.0, at - self.now)
            lines += self._pump(name, f"+{self.now - began_at:.1f} ")
        self.passed_s += max(0.0, end - self.now)
        return lines

    def _pump(self, name: str, prefix: str = "") -> list[str]:
        """Carry out all that a client asks for while the clock stands still."""
        query, lines = self.queries[name], []
        for _ in range(MANY):
            lines += self._events(query, prefix)
            asked = query.client.poll_requests(self.now)
            if not asked:
                wakes_at = query.client.next_wakeup(self.now)
                query.wakes_at = float("inf") if wakes_at is None else wakes_at
                return lines + self._events(query, prefix)
            for outgoing in asked:
                lines += [f"{prefix}{name}: {line}" for line in self._exchange(query, outgoing)]
        raise AssertionError(f"{name} never stops asking: {lines[-5:]}")

    def _exchange(self, query: Query, outgoing: Outgoing) -> list[str]:
        answer = self.scene.world.ask(outgoing.request)
        group_id = query.config.member.group_id
        if isinstance(answer, m.HeartbeatResponse) and answer.error_code == 0:
            self.scene.names.note_epoch(group_id, answer.member_epoch)
        if isinstance(answer, m.RequestFailed):
            query.client.handle_failure(outgoing, answer, self.now)
        else:
            query.client.handle_response(outgoing, answer, self.now)
        if outgoing.channel is Channel.TRIGGER:
            return []
        kind = type(outgoing.request)
        in_any_case = self.shown_in_any_case.get(kind, 0) > 0
        if in_any_case:
            self.shown_in_any_case[kind] -= 1
        return exchange_text(
            self.scene.names, group_id, outgoing.request, answer, in_any_case=in_any_case
        )

    def _events(self, query: Query, prefix: str) -> list[str]:
        names = self.scene.names
        return [
            f"{prefix}{query.name} * {self._plain(query, event.text(names.name))}"
            for event in query.client.poll_events()
            if not isinstance(event, HIDDEN)
        ]

    # Commands to one client.

    def _join(self, name: str, command: Command) -> list[str]:
        topics, pattern = command.take("topics"), command.take("pattern")
        subscription = (
            Subscription.of_pattern(pattern) if pattern else Subscription.of_names(topics or "")
        )
        start = StartingPoint[(command.take("start") or "earliest").upper()]
        config = ClientConfig(
            member=MemberConfig(
                group_id=self.scene.group_of(command),
                subscription=subscription,
                instance_id=command.take("instance"),
                rebalance_timeout_ms=int(command.take("rebalance") or 300_000),
            ),
            starting_offsets=StartingOffsets(start),
        )
        self.queries[name] = Query(name, self._new(name, 1, config, None), config)
        return self._started(name)

    def _new(
        self, name: str, incarnation: int, config: ClientConfig, checkpointed: BatchPlan | None
    ) -> GroupClient:
        # One that joins again under another id is c1.1b, c1.1c and so on.
        ids = iter(f"{name}.{incarnation}{letter}" for letter in ["", *"bcdefgh"])
        return GroupClient(
            ClientParts(config, new_member_id=lambda: next(ids), checkpointed=checkpointed)
        )

    def _started(self, name: str) -> list[str]:
        self.queries[name].client.start(self.now)
        return self._pump(name)

    def _restart(self, name: str, command: Command) -> list[str]:
        """Start a killed query again from its checkpoint; Spark replays a batch that ran."""
        query = self.queries[name]
        query.incarnation += 1
        query.client = self._new(name, query.incarnation, query.config, query.plan)
        if query.plan is not None and query.is_running:
            query.client.replay(query.plan, self.now)
        return self._started(name)

    def _kill(self, name: str, command: Command) -> list[str]:
        """End without a word; `restart` brings it back."""
        query = self.queries[name]
        query.client = GroupClient(ClientParts(query.config, new_member_id=lambda: f"{name}.dead"))
        query.wakes_at = float("inf")
        return []

    def _plan(self, name: str, command: Command) -> list[str]:
        query, limit = self.queries[name], command.take("limit")
        try:
            parts = query.client.parts
            parts.next_batch.ask_for_ends(self.now)
            lines = self._pump(name)
            found = parts.log_ends.found
            ends = {key: each.offset for key, each in found.items()}
            leader_epochs = {key: each.leader_epoch for key, each in found.items()}
            parts.validator.compare(ends, leader_epochs)
            lines += self._pump(name)
            plan = query.client.plan(
                PlanLimit(max_offsets=int(limit) if limit else None),
                ends,
                self.now,
                leader_epochs,
            )
        except SparkGroupsError as error:
            return [f"{name}: {type(error).__name__}: {self._plain(query, str(error))}"]
        if plan is None:
            return [*lines, *self._pump(name), f"{name}: nothing to plan"]
        query.plan, query.is_running = plan, True
        return lines + self._pump(name)

    def _finish(self, name: str, command: Command) -> list[str]:
        query = self.queries[name]
        assert query.plan is not None, f"{name} has planned nothing"
        query.is_running = False
        query.client.finish(query.plan, self.now)
        return self._pump(name)

    def _leave(self, name: str, command: Command) -> list[str]:
        query = self.queries[name]
        query.client.leave(
            self.now, leave_by=self.now + 5.0, will_return="return" in command.words[2:]
        )
        return self._pump(name)

    def _show(self, name: str, command: Command) -> list[str]:
        query = self.queries[name]
        names, group_id = self.scene.names, query.config.member.group_id
        parts = query.client.parts
        member, pending = parts.member, parts.positions.still_pending(parts.target.pending)
        shown = [f"{member.state.name} at epoch {names.epoch_out(group_id, member.member_epoch)}"]
        for word, keys in (
            ("has", member.assigned),
            ("waits for", pending),
            ("is giving up", member.owned - member.assigned),
            ("has yet to commit", parts.commits.pending()),
        ):
            if word == "has" or keys:
                shown.append(f"{word} {names.partitions(keys)}")
        withheld = parts.pending_offsets.withheld(pending)
        if withheld:
            shown.append("withheld are " + ", ".join(str(each) for each in withheld))
        return [f"{name}: {', '.join(shown)}"]

    def _plain(self, query: Query, text: str) -> str:
        plain = self.scene.names.plain(text, query.config.member.group_id)
        return self.scene.message(plain)
