"""Faults and changes of a run beside the network: a table of the swarm's counts and actions."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from enum import Enum
from functools import partial
from typing import Final

from group_lab.coordinator.messages import OffsetDeleteRequest, OffsetDeleteResponse
from group_lab.sim.facts import Aged, Cut, Deleted, Grown, Incident
from group_lab.sim.network import ANY_BROKER
from group_lab.sim.queries import LEAVE_S, Query
from group_lab.sim.scene import Application, Scene
from group_lab.sim.swarm import Swarm
from spark_groups.fence.entries import FenceKey
from spark_groups.group.ledger.commit_metadata import commit_metadata, partition_count_in
from spark_groups.group.member import messages as m
from spark_groups.group.member.member_states import MemberState
from spark_groups.group.requests.channels import Channel, Outgoing
from spark_groups.types import TopicIdPartition, TopicPartition

NAME: Final = "operator"
NO_MEMBER_ID: Final = ""
NO_MEMBER_EPOCH: Final = -1
"""These mark a commit from outside the group, refused while the group has members."""
TRY_AGAIN_S: Final = 0.5
MARGIN_S: Final = 5.0
"""About how long the group has no members before its queries start again."""


TURNS_S: Final = (2.0, 8.0, 20.0)
"""How long one query runs alone after a reset."""


def longest_down_s(swarm: Swarm) -> float:
    """Return the longest time without queries; a query that leaves ends its batch first."""
    return swarm.session_s + MARGIN_S + swarm.batch_s + LEAVE_S


def longest_reset_s(swarm: Swarm) -> float:
    """Return the longest time until all queries run again after a reset."""
    return longest_down_s(swarm) + swarm.turns * swarm.queries * (max(TURNS_S) + swarm.batch_s)


class Tool(Enum):
    """What an operator sets offsets with, by the metadata that it writes."""

    SPARK_GROUPS = "marks them as a reset"
    KAFKA = "writes no metadata"
    COPYING = "keeps the metadata of the offsets that it replaces"


class Operator:
    """Resets or deletes offsets from outside; retries until that is accepted or too late.

    Args:
        queries: Their last plans suggest offsets to reset to.
        deletes: Whether it deletes offsets.
    """

    def __init__(
        self, scene: Scene, queries: Sequence[Application], until: float, *, deletes: bool
    ) -> None:
        self._scene = scene
        self._queries = queries
        self._until = until
        self._deletes = deletes
        self._tool = scene.chance.choice(list(Tool))

    def act(self) -> None:
        """Reset offsets if the group has no members; else retry after a pause."""
        scene, coordination = self._scene, self._scene.coordination
        if scene.now >= self._until:
            return
        offsets = {} if coordination.member_ids else self._offsets()
        if not offsets or not coordination.answers:
            scene.schedule.after(TRY_AGAIN_S, self.act)
            return
        request: object = m.OffsetCommitRequest(
            group_id=coordination.group_id,
            member_id=NO_MEMBER_ID,
            member_epoch=NO_MEMBER_EPOCH,
            offsets=offsets,
        )
        if self._deletes:
            names = frozenset(
                TopicPartition(scene.storage.name_of(key.topic_id) or "", key.partition)
                for key in offsets
            )
            request = OffsetDeleteRequest(group_id=coordination.group_id, partitions=names)
        outgoing = Outgoing(Channel.OFFSETS, request, coordination.node)  # type: ignore[arg-type]
        scene.network.send(NAME, outgoing, self._answered, lambda _: None)

    def _offsets(self) -> dict[TopicIdPartition, m.OffsetAndMetadata]:
        """Choose new offsets for some partitions, among them starts of batches."""
        chance = self._scene.chance
        begins: dict[TopicIdPartition, list[int]] = {}
        for query in self._queries:
            for each in query.plan.ranges if query.plan else ():
                begins.setdefault(each.key, []).append(each.from_offset)
        offsets = {}
        for key, log in sorted(self._scene.storage.logs.items()):
            kept = self._scene.coordination.kept(key)
            if kept is None or chance.random() < 0.3:
                continue
            end = min(kept.committed_offset, log.end_offset)
            choices = [each for each in begins.get(key, ()) if log.start_offset <= each <= end]
            if log.start_offset <= end:
                choices += [log.start_offset, chance.randint(log.start_offset, end)]
            if self._scene.table is not None:
                entries = self._scene.table.entries
                entry = entries.get(FenceKey(self._scene.coordination.group_id, *key))
                first = entry.start_offset - 1 if entry else -1
                # Often just below where the table begins.
                choices += 3 * [first] if log.start_offset <= first <= end else []
            if not choices:
                continue
            count = partition_count_in(kept.metadata) or 0
            metadata = {
                Tool.SPARK_GROUPS: commit_metadata(count, is_reset=True),
                Tool.KAFKA: "",
                Tool.COPYING: kept.metadata,
            }[self._tool]
            offset = chance.choice(choices)
            if self._tool is not Tool.COPYING or offset != kept.committed_offset:
                offsets[key] = m.OffsetAndMetadata(offset, metadata)
        return offsets

    def _answered(self, answer: m.Response) -> None:
        assert isinstance(answer, m.OffsetCommitResponse | OffsetDeleteResponse)
        if any(answer.errors.values()):
            self._scene.schedule.after(TRY_AGAIN_S, self.act)


LOADING_S: Final = (0.0, 0.5, 3.0)
"""How long a coordinator reads its log before it answers."""
AWAY_S: Final = (0.1, 3.0, 10.0, 20.0)
"""How long a stopped or killed query is away."""
TRANSACTIONS_S: Final = (0.1, 3.0, 15.0)
"""How long a transaction is open."""
STIRRED: Final = 6
"""How many restarts of other queries surround a query in trouble."""
PAUSES_S: Final = (2.0, 11.0, 14.0, 30.0)
"""How long a query freezes: some are longer than the usual session, some almost."""


class Incidents:
    """Draws and performs the incidents of a run."""

    def __init__(self, scene: Scene, queries: Sequence[Application]) -> None:
        self._scene = scene
        self._queries = queries

    def drawn(self) -> Iterator[Callable[[], None]]:
        """Yield every incident of the run, once for each occurrence."""
        swarm = self._scene.swarm
        for count, act in (
            (swarm.growth, self._grow),
            (swarm.vanishings, self._vanish),
            (swarm.elections, lambda: self._elect(0)),
            (swarm.truncations, lambda: self._elect(self._pick((1, 5, 60)))),
            (swarm.retentions, self._retain),
            (swarm.transactions, self._transact),
            (swarm.moves, self._move),
            (swarm.coordinator_crashes, self._crash_node),
            (swarm.failed_appends, self._fail_appends),
            (swarm.partitionings, self._cut_off),
            (swarm.deafenings, self._deafen),
            (swarm.denials, self._deny),
            (swarm.stops, lambda: self._one().stop(self._pick(AWAY_S[:-1]))),
            (swarm.crashes, self._crash),
            (swarm.failures, lambda: self._one().fail(self._pick(AWAY_S))),
            (swarm.pauses, lambda: self._one().stand_still(self._pick(PAUSES_S))),
            (swarm.zombies, self._replace_frozen),
            (swarm.resets, lambda: self._reset(deletes=False)),
            (swarm.deletions, lambda: self._reset(deletes=True)),
            (swarm.migrations, self._migrate),
        ):
            for _ in range(count):
                yield act

    def _pick(self, choices: Sequence[float]) -> float:
        return self._scene.chance.choice(choices)

    def _one(self) -> Application:
        """Choose a query, preferably one that is revoking partitions."""
        reconciling = [
            query
            for query in self._queries
            if query.member is not None and query.member.state is MemberState.RECONCILING
        ]
        return self._scene.chance.choice(reconciling or self._queries)

    def _say(self, what: str, *details: object) -> None:
        self._scene.log.add(self._scene.now, "world", "", what, *details)
        self._scene.publish(Incident(what, " ".join(map(str, details))))

    # Members.

    def _crash(self) -> None:
        chance, query = self._scene.chance, self._one()
        forget = chance.random() < self._scene.swarm.forgetting
        restores = self._scene.swarm.restores
        if restores and isinstance(query, Query) and chance.random() < restores:
            query.kill(self._pick(AWAY_S), forget=False)
            others = [each for each in self._queries if isinstance(each, Query)]
            query.restore(chance.choice((query, query, *others)))
            return
        if chance.random() < 0.5:
            query.kill(self._pick(AWAY_S), forget=forget)
            return
        # It restarts at once, and others restart while it runs its batch again.
        query.kill(AWAY_S[0], forget=forget)
        self._stir(query, 2 * self._scene.swarm.session_s)

    def _stir(self, spared: Application, within_s: float) -> None:
        """Restart other queries: each time the group has a new epoch."""
        chance = self._scene.chance
        others = [each for each in self._queries if each is not spared]
        for _ in range(STIRRED if others else 0):
            query = chance.choice(others)
            away_s, wait_s = self._pick(AWAY_S[:2]), chance.uniform(0.0, within_s)
            # A killed query leaves as soon as it restarts, and need not finish its batch.
            act = partial(query.kill, forget=False) if chance.random() < 0.7 else query.stop
            self._scene.schedule.after(wait_s, partial(act, away_s))

    def _replace_frozen(self) -> None:
        self._one().replace_frozen(self._pick(PAUSES_S), self._pick((1.0, 5.0, 15.0)))

    def _migrate(self) -> None:
        """End all members of one protocol for a while: the group changes its protocol, and back."""
        of_queries = self._scene.chance.random() < 0.5
        leaving = [query for query in self._queries if isinstance(query, Query) == of_queries]
        away_s = self._pick(AWAY_S[1:])
        self._say("migrates", *(each.name for each in leaving), f"{away_s} s")
        for each in leaving:
            each.stop(away_s)

    # The coordinator, and the way to it.

    def _move(self) -> None:
        self._say("move", self._scene.coordination.node)
        self._scene.coordination.move(self._pick(LOADING_S), crash=False)

    def _crash_node(self) -> None:
        coordination, loading_s = self._scene.coordination, self._pick(LOADING_S)
        self._say("crash", coordination.node)
        if self._scene.chance.random() < 0.5:
            coordination.die_at_next_append(loading_s)
        else:
            coordination.move(loading_s, crash=True)

    def _fail_appends(self) -> None:
        for_s = self._pick((0.01, 0.5, 3.0))
        self._say("nolog", f"{for_s} s")
        self._scene.coordination.failing_until = self._scene.now + for_s

    def _cut_off(self) -> None:
        scene = self._scene
        current = self._one().current
        if current is None:
            return
        for_s = self._pick((1.0, 5.0, 20.0))
        coordinator = scene.coordination.node.node_id
        nodes: tuple[int, ...] = (coordinator, ANY_BROKER)
        if scene.chance.random() < 0.5:
            nodes = (scene.chance.choice(nodes),)
        self._say("cut", current.name, "from", nodes, f"{for_s} s")
        for node_id in nodes:
            scene.network.cut(current.name, node_id, for_s)

    def _deafen(self) -> None:
        """Drop a member's answers while the group changes, until the coordinator fences it.

        One lost answer may have moved the member to another epoch; after two its epoch is stale.
        """
        scene, query = self._scene, self._one()
        if query.current is None:
            return
        for_s = self._pick((5.0, 10.0, 20.0))
        node_id = scene.coordination.node.node_id
        self._say("deafens", query.current.name, "to", node_id, f"{for_s} s")
        scene.network.deafen(query.current.name, node_id, for_s)
        self._stir(query, for_s)

    def _deny(self) -> None:
        """Remove an ACL for a while; requests in that time fail as not authorized."""
        scene = self._scene
        until = scene.now + self._pick((0.3, 2.0, 6.0))
        name = self._topic()
        if name is None or scene.chance.random() < 0.4:
            self._say("denies", "the group", f"until {until:.3f} s")
            scene.rights.deny_group(until)
        else:
            self._say("denies", name, f"until {until:.3f} s")
            scene.rights.deny_topic(name, until)

    # An operator.

    def _reset(self, *, deletes: bool) -> None:
        """End all queries, and reset or delete offsets once the group has no members.

        Afterwards the queries start together, or each runs alone for a while.
        """
        scene, swarm = self._scene, self._scene.swarm
        kill = scene.chance.random() < 0.5
        # A killed or static member stays in the group until its session expires.
        away_s = swarm.session_s + MARGIN_S if kill else longest_down_s(swarm)
        Operator(scene, self._queries, scene.now + away_s, deletes=deletes).act()
        if not swarm.turns:
            for query in self._queries:
                query.stay_down(away_s, kill=kill)
            return
        ends_s = away_s
        for query in sorted(self._queries, key=lambda _: scene.chance.random()):
            query.stay_down(ends_s, kill=kill)
            ends_s += self._pick(TURNS_S)
            self._end_turn(query, ends_s)

    def _end_turn(self, query: Application, after_s: float) -> None:
        """End a query that has run alone; it starts again when all have had their turn."""
        kill = self._scene.chance.random() < 0.5
        away_s = self._pick(TURNS_S)
        self._scene.schedule.after(after_s, lambda: query.stay_down(away_s, kill=kill))

    # Topics and their logs.

    def _topic(self) -> str | None:
        names = sorted(self._scene.storage.image.by_name)
        return self._scene.chance.choice(names) if names else None

    def _partition(self) -> TopicIdPartition | None:
        keys = sorted(self._scene.storage.logs)
        return self._scene.chance.choice(keys) if keys else None

    def _grow(self) -> None:
        scene, name = self._scene, self._topic()
        if name is None:
            return
        key = scene.storage.grow(name)
        scene.storage.logs[key].append(scene.chance.randint(0, 30), scene.now)
        self._say("grows", key)
        scene.publish(Grown(key))
        scene.coordination.topics_changed()

    def _vanish(self) -> None:
        scene, name = self._scene, self._topic()
        if name is None:
            return
        if not scene.coordination.forgets_deleted_topics:
            scene.schedule.after(1.0, self._vanish)
            return
        topic = scene.storage.delete(name)
        self._say("deletes", topic)
        scene.publish(Deleted(topic))
        scene.coordination.topics_changed()

        def come_back() -> None:
            scene.storage.create(name, scene.chance.randint(1, topic.partition_count + 1))
            self._say("creates", name)
            scene.coordination.topics_changed()

        scene.schedule.after(self._pick((0.0, 0.5, 10.0)), come_back)

    def _elect(self, lost: float) -> None:
        """Elect a leader whose log lacks the last records, and append others to it."""
        scene, key = self._scene, self._partition()
        if key is None:
            return
        log = scene.storage.logs[key]
        log.elect(int(lost), scene.now)
        if lost:
            scene.publish(Cut(key, log.end_offset))
            log.append(scene.chance.choice((0, 1, 80)), scene.now)
        self._say("elects", key, f"epoch {log.leader_epoch}, lost {lost}, ends {log.end_offset}")

    def _transact(self) -> None:
        """Open a transaction in a partition; it ends before the faults do."""
        scene, key = self._scene, self._partition()
        if key is None:
            return
        log = scene.storage.logs[key]
        opened = log.open_transaction(scene.chance.choice((1, 20)), scene.now)
        self._say("opens", key, f"a transaction at {opened.from_offset}")
        ends_at = min(scene.now + self._pick(TRANSACTIONS_S), scene.swarm.chaos_s)
        aborts = scene.chance.random() < 0.5

        def end() -> None:
            self._say("aborts" if aborts else "commits", key, opened.from_offset)
            log.end_transaction(opened, scene.now, aborts=aborts)

        scene.schedule.at(ends_at, end)

    def _kept_from(self, key: TopicIdPartition) -> int:
        """Draw where a log begins from now on; often just above the rows of a table."""
        chance, log = self._scene.chance, self._scene.storage.logs[key]
        committed = self._scene.coordination.committed(key)
        if self._scene.table is None or committed is None or chance.random() < 0.3:
            return chance.randint(log.start_offset, log.end_offset)
        return committed + chance.choice((0, 1, 1, 1, 2, 5))

    def _retain(self) -> None:
        scene, key = self._scene, self._partition()
        if key is None:
            return
        log = scene.storage.logs[key]
        log.retain(self._kept_from(key))
        self._say("retains", key, "from", log.start_offset)
        scene.publish(Aged(key, log.start_offset))
