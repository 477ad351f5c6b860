"""Shared by test_resolution.py and other tests."""

from __future__ import annotations

import uuid
from collections.abc import Mapping

from spark_groups.group.ledger.commit_metadata import commit_metadata
from spark_groups.group.ledger.commits import CommitQueue, PendingCommit
from spark_groups.group.ledger.events import PartitionsReadFromBeginning, PartitionsStarted
from spark_groups.group.ledger.known_topics import TopicDirectory
from spark_groups.group.ledger.ledger import Ledger, OwnedPartition
from spark_groups.group.ledger.resolution import PositionResolver
from spark_groups.group.ledger.resolved import Resolved
from spark_groups.group.ledger.starting import StartingOffsets, StartingPoint
from spark_groups.group.member.messages import (
    ListOffsetsRequest,
    ListOffsetsResponse,
    OffsetAndMetadata,
    TopicMetadata,
)
from spark_groups.types import (
    Assignment,
    TopicIdPartition,
)
from tests.answers import fetch_answer, list_answer

TOPIC = uuid.UUID(int=1)


BILLS = uuid.UUID(int=9)


FIRST_BILLS = TopicIdPartition(BILLS, 0)


NONE = OffsetAndMetadata(-1)


EARLIEST = StartingOffsets(StartingPoint.EARLIEST)


LATEST = StartingOffsets(StartingPoint.LATEST)


def key(partition: int) -> TopicIdPartition:
    return TopicIdPartition(TOPIC, partition)


class Scene:
    """A resolver with what it works on; partitions 0.. of one topic are owned."""

    def __init__(
        self,
        starting: StartingOffsets = LATEST,
        *owned: int,
        count: int = 4,
        fail_on_data_loss: bool = True,
    ) -> None:
        self.ledger, self.commits, self.topics = Ledger("run"), CommitQueue(), TopicDirectory()
        self.resolver = PositionResolver(
            self.ledger,
            self.topics,
            starting,
            group_id="g",
            read_committed=True,
            fail_on_data_loss=fail_on_data_loss,
            command_options="--bootstrap-server b:1",
        )
        if count:
            self.topics.learn(TopicMetadata(TOPIC, "orders", count))
        self.ledger.assign(Assignment.of({TOPIC: owned or (0,)}), 3)

    def of(self, partition: int) -> OwnedPartition:
        return self.ledger.owned[key(partition)]

    def fetched(
        self,
        offsets: Mapping[int, OffsetAndMetadata],
        errors: Mapping[int, int] | None = None,
    ) -> Resolved:
        self.resolver.to_fetch()
        return self.resolver.handle_fetch(
            fetch_answer(
                offsets={key(each): value for each, value in offsets.items()},
                errors={key(each): int(code) for each, code in (errors or {}).items()},
            ),
            now=1.0,
        )

    def listed(self, offsets: Mapping[int, int]) -> ListOffsetsRequest:
        request = self.resolver.listing.to_list()
        assert request is not None
        answer = list_answer(offsets={key(each): at for each, at in offsets.items()})
        self.handle_list(request, answer)
        return request

    def handle_list(self, request: ListOffsetsRequest, response: ListOffsetsResponse) -> Resolved:
        resolved = self.resolver.listing.handle_list(request, response, 1.0)
        self.commits.add(
            self.ledger.commit_of_position(each, member_epoch=3) for each in resolved.to_commit
        )
        return resolved

    def commit(self) -> dict[int, PendingCommit]:
        """Let the commits under way be accepted; return them."""
        chosen = self.commits.poll(9.0, member_epoch=3, proven_at=8.0, tenure=self.ledger.tenure)
        self.resolver.committed(chosen.values(), 9.0)
        return {each.partition: commit for each, commit in chosen.items()}


def indexes(request: ListOffsetsRequest) -> list[int]:
    return sorted(each.partition for each in request.partitions)


def committed(offset: int, count: int | None = 4) -> OffsetAndMetadata:
    known = "" if count is None else commit_metadata(count, mark=f"at{offset}", offset=offset)
    return OffsetAndMetadata(offset, known)


BEHIND_2 = {0: committed(5, None), 1: committed(5, None), 2: NONE, 3: NONE}


def started(scene: Scene, at: int = 9) -> list[PartitionsStarted]:
    """Let all partitions start, each at offset `at`; return the warnings about that."""
    while (request := scene.resolver.listing.to_list()) is not None:
        answer = list_answer(offsets=dict.fromkeys(request.partitions, at))
        scene.handle_list(request, answer)
    chosen = scene.commits.poll(9.0, member_epoch=3, proven_at=8.0, tenure=scene.ledger.tenure)
    events = scene.resolver.committed(chosen.values(), 9.0).events
    return [each for each in events if isinstance(each, PartitionsStarted)]


def read_whole(scene: Scene) -> list[tuple[str, tuple[int, ...]]]:
    found = [each for each in started(scene) if isinstance(each, PartitionsReadFromBeginning)]
    return [(each.topic, tuple(key.partition for key in each.partitions)) for each in found]
