"""A test harness of a client: tests answer each request by its channel."""

from __future__ import annotations

import uuid
from collections.abc import Iterable
from math import inf

from spark_groups.errors import ErrorCode
from spark_groups.group.batches.liveness import LivenessLimits
from spark_groups.group.batches.plan_limit import PlanLimit
from spark_groups.group.client import GroupClient
from spark_groups.group.client_config import ClientConfig
from spark_groups.group.client_parts import ClientParts
from spark_groups.group.ledger.commit_metadata import commit_metadata
from spark_groups.group.ledger.starting import StartingOffsets, StartingPoint
from spark_groups.group.member import messages as m
from spark_groups.group.member.events import Event
from spark_groups.group.member.member_config import MemberConfig
from spark_groups.group.member.member_states import MemberState
from spark_groups.group.member.subscription import Subscription
from spark_groups.group.requests.channels import Channel, Outgoing
from spark_groups.types import Assignment, BatchPlan, TopicIdPartition
from tests.answers import fetch_answer

TOPIC = uuid.UUID(int=1)
ORDERS = m.TopicMetadata(TOPIC, "orders", 4)
NO_LIMITS = LivenessLimits(max_idle_s=inf)
NODE = m.Node(1, "broker", 9092)


def key(partition: int, topic_id: uuid.UUID = TOPIC) -> TopicIdPartition:
    return TopicIdPartition(topic_id, partition)


def parts(*indexes: int) -> Assignment:
    return Assignment.of({TOPIC: indexes}) if indexes else Assignment()


def commit_of_a_query(offset: int, count: int = 4) -> m.OffsetAndMetadata:
    """A query's commit; that of each offset has one mark."""
    return m.OffsetAndMetadata(offset, commit_metadata(count, mark=f"at{offset}", offset=offset))


def committed(offsets: dict[int, int], count: int = 4) -> m.OffsetFetchResponse:
    """All four partitions; those that are not given have no committed offset."""
    return fetch_answer(
        offsets={
            key(index): commit_of_a_query(offsets[index], count)
            if index in offsets
            else m.OffsetAndMetadata(-1)
            for index in range(4)
        }
    )


class ClientHarness:
    """A client, its clock and what it has under way.

    Args:
        starting: `startingOffsets`.
        checkpointed: What the checkpoint ended at.
        fail_on_data_loss: `failOnDataLoss`.
        liveness: How long the query may be silent.
        warm_up_tasks: How many tasks warm the run up before it joins.
        available_now: Whether the query runs under AvailableNow.
        member: More fields of `MemberConfig`.
    """

    def __init__(
        self,
        starting: StartingOffsets | None = None,
        *,
        checkpointed: BatchPlan | None = None,
        fail_on_data_loss: bool = True,
        liveness: LivenessLimits = NO_LIMITS,
        warm_up_tasks: int = 0,
        available_now: bool = False,
        **member: object,
    ) -> None:
        ids = (f"m{number}" for number in range(1, 1_000))
        config = MemberConfig(
            group_id="g",
            subscription=Subscription.of_names("orders"),
            **member,  # type: ignore[arg-type]
        )
        self.client = GroupClient(
            ClientParts(
                ClientConfig(
                    member=config,
                    starting_offsets=starting or StartingOffsets(StartingPoint.LATEST),
                    fail_on_data_loss=fail_on_data_loss,
                    liveness=liveness,
                ),
                new_member_id=lambda: next(ids),
                checkpointed=checkpointed,
                warm_up_tasks=warm_up_tasks,
            )
        )
        if available_now:
            self.client.parts.available_now.prepare()
        self.now = 0.0
        self.describes = True
        """Whether descriptions are answered by themselves: nothing more is to come."""
        self.settings = m.GroupSettingsResponse(reason="not authorized")
        """What questions for the group's settings are answered with, by themselves."""
        self.settings_read = 0
        self.under_way: dict[Channel, Outgoing] = {}
        self.events: list[Event] = []
        self.client.start(self.now)
        self.pump()

    def pump(self) -> None:
        for outgoing in self.client.poll_requests(self.now):
            assert outgoing.channel not in self.under_way, "one request on a channel at a time"
            assert (outgoing.node is not None) == outgoing.channel.leads_to_coordinator
            assert 0 < outgoing.timeout_s <= self.client.parts.config.request_timeout_s
            self.under_way[outgoing.channel] = outgoing
        request, member = self.request(Channel.OFFSETS), self.client.parts.member
        is_member = member.state is not MemberState.WARMING_UP
        if self.describes and is_member and isinstance(request, m.DescribeGroupRequest):
            self.answer(
                Channel.OFFSETS, described(member.member_id, member.member_epoch, member.assigned)
            )
        if isinstance(self.request(Channel.CLUSTER), m.GroupSettingsRequest):
            self.settings_read += 1
            self.answer(Channel.CLUSTER, self.settings)
        self.events.extend(self.client.poll_events())

    def request(self, channel: Channel) -> m.Request | None:
        outgoing = self.under_way.get(channel)
        return outgoing.request if outgoing else None

    def answer(self, channel: Channel, response: m.Response) -> None:
        self.client.handle_response(self.under_way.pop(channel), response, self.now)
        self.pump()

    def fail(self, channel: Channel, *, may_have_arrived: bool = True) -> None:
        failed = m.RequestFailed("no answer", may_have_arrived)
        self.client.handle_failure(self.under_way.pop(channel), failed, self.now)
        self.pump()

    def wait(self, seconds: float) -> None:
        """Let time pass, waking the client exactly when it asks to be woken."""
        end = self.now + seconds
        while True:
            wake_at = self.client.next_wakeup(self.now)
            if wake_at is None or wake_at > end:
                break
            assert wake_at > self.now
            self.now = wake_at
            self.pump()
        self.now = end
        self.pump()

    def until(self, kind: type, seconds: float = 30.0) -> m.Request:
        """Let time pass until a request of a kind is under way."""
        end = self.now + seconds
        while self.now <= end:
            for outgoing in self.under_way.values():
                if isinstance(outgoing.request, kind):
                    return outgoing.request
            wake_at = self.client.next_wakeup(self.now)
            assert wake_at is not None, f"nothing will ever send a {kind.__name__}"
            self.now = wake_at
            self.pump()
        raise AssertionError(f"no {kind.__name__} within {seconds} s")

    def find(self, *kinds: type) -> list[Event]:
        return [each for each in self.events if isinstance(each, kinds)]

    def plan(
        self,
        limit: PlanLimit,
        log_ends: dict[TopicIdPartition, int],
        leader_epochs: dict[TopicIdPartition, int],
    ) -> BatchPlan | None:
        """Plan from ends that were listed under leader epochs."""
        self.client.parts.validator.compare(log_ends, leader_epochs)
        return self.client.plan(limit, log_ends, self.now, leader_epochs)

    def ends_asked(self) -> frozenset[TopicIdPartition]:
        """Ask for the log ends of the next plan; return the partitions, and answer none."""
        if not self.client.parts.next_batch.ask_for_ends(self.now):
            return frozenset()
        self.pump()
        request = self.request(Channel.TRIGGER)
        assert isinstance(request, m.ListOffsetsRequest)
        self.answer(Channel.TRIGGER, m.ListOffsetsResponse())
        return request.partitions

    # What a friendly cluster does.

    def beat(self, response: m.HeartbeatResponse) -> m.HeartbeatRequest:
        """Let the next heartbeat come and answer it."""
        request = self.until(m.HeartbeatRequest)
        assert isinstance(request, m.HeartbeatRequest)
        self.answer(Channel.HEARTBEAT, response)
        return request

    def cluster(self, *topics: m.TopicMetadata) -> None:
        """Answer who the coordinator is and which topics there are, as often as it is asked."""
        while True:
            if isinstance(self.request(Channel.SEARCH), m.FindCoordinatorRequest):
                found = m.FindCoordinatorResponse(coordinator=NODE, cluster_id="the cluster")
                self.answer(Channel.SEARCH, found)
            elif isinstance(self.request(Channel.CLUSTER), m.MetadataRequest):
                self.answer(Channel.CLUSTER, m.MetadataResponse(topics=topics or (ORDERS,)))
            else:
                return

    def own(self, *indexes: int, offsets: dict[int, int] | None = None) -> None:
        """Join, be assigned partitions and have their committed offsets."""
        self.cluster()
        self.beat(accepted(2, parts(*indexes)))
        self.cluster()
        self.beat(accepted(2))
        self.until(m.OffsetFetchRequest)
        self.answer(Channel.OFFSETS, committed(offsets or dict.fromkeys(indexes, 0)))


def accepted(epoch: int, assignment: Assignment | None = None) -> m.HeartbeatResponse:
    return m.HeartbeatResponse(
        member_epoch=epoch, heartbeat_interval_ms=5_000, assignment=assignment
    )


def described(
    member_id: str, epoch: int, target: Assignment, current: Assignment | None = None
) -> m.DescribeGroupResponse:
    return m.DescribeGroupResponse(
        group_state="Stable",
        group_epoch=epoch,
        assignment_epoch=epoch,
        members=(
            m.DescribedMember(
                member_id=member_id,
                member_epoch=epoch,
                assignment=target if current is None else current,
                target_assignment=target,
            ),
        ),
    )


def all_of(request: m.Request | None, code: ErrorCode = ErrorCode.NONE) -> m.OffsetCommitResponse:
    """The same answer for every partition of a commit."""
    assert isinstance(request, m.OffsetCommitRequest)
    return m.OffsetCommitResponse(errors=dict.fromkeys(request.offsets, int(code)))


def ends(offsets: dict[int, int]) -> dict[TopicIdPartition, int]:
    return {key(index): offset for index, offset in offsets.items()}


def offsets_of(request: m.OffsetCommitRequest) -> dict[int, int]:
    return {each.partition: value.committed_offset for each, value in request.offsets.items()}


def indexes(keys: Iterable[TopicIdPartition]) -> list[int]:
    return sorted(each.partition for each in keys)
