"""One heartbeat through the whole protocol: the records in their order, and the answer."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from group_lab.coordinator import heartbeat, subscriptions
from group_lab.coordinator import messages as m
from group_lab.coordinator.effects import RefusedError, TimerKey, TimerKind
from group_lab.coordinator.group import GroupState
from group_lab.coordinator.log import Log
from group_lab.coordinator.member import ReconciliationState
from group_lab.coordinator.profile import (
    KAFKA_4_0,
    KAFKA_4_2,
    KAFKA_4_3,
    KAFKA_4_4,
    KIP_848,
    PROFILES,
    Profile,
)
from group_lab.coordinator.settings import BrokerSettings, Settings
from group_lab.coordinator.shard import Shard
from group_lab.coordinator.topic_images import TopicImage, TopicsImage
from lab.tests.coordinator.driving import AT_ONCE, JOIN, Driven, bar, foo, record_types
from spark_groups.errors import ErrorCode
from spark_groups.group.member.messages import HeartbeatRequest, HeartbeatResponse
from spark_groups.types import NO_PARTITIONS, Assignment, TopicId

EVERY = pytest.mark.parametrize("profile", PROFILES.values(), ids=PROFILES)


def key(kind: TimerKind, member_id: str) -> TimerKey:
    return TimerKey(kind, "g", member_id)


class TestJoin:
    @pytest.mark.parametrize(
        ("profile", "epoch", "types"),
        [
            (KIP_848, 1, [5, 4, 3, 7, 6, 8]),
            (KAFKA_4_0, 1, [5, 4, 3, 7, 6, 8]),
            (KAFKA_4_3, 2, [5, 3, 7, 6, 8]),
        ],
    )
    def test_the_first_member_gets_everything(
        self, profile: Profile, epoch: int, types: list[int]
    ) -> None:
        driven = Driven(profile)
        outcome = driven.decide("m1", 0, **JOIN, subscribed_topic_names=("foo",))
        assert record_types(outcome) == types
        answer = outcome.response
        assert (answer.error_code, answer.member_id, answer.member_epoch) == (0, "m1", epoch)
        assert answer.assignment == foo(0, 1, 2, 3, 4, 5)
        assert answer.heartbeat_interval_ms == 5000
        assert driven.group.state is GroupState.STABLE
        assert driven.timers[key(TimerKind.SESSION, "m1")].at == driven.now + 45.0

    @EVERY
    def test_a_second_member_waits_for_revocations_of_the_first(self, profile: Profile) -> None:
        driven = Driven(profile)
        first = driven.join("m1", "foo").member_epoch
        joined = driven.join("m2", "foo")
        assert (joined.member_epoch, joined.assignment) == (first + 1, NO_PARTITIONS)
        answer = driven.beat("m1")
        assert (answer.member_epoch, answer.assignment) == (first, foo(0, 1, 2))
        timer = driven.timers[key(TimerKind.REBALANCE, "m1")]
        assert (timer.at, timer.member_epoch) == (driven.now + 30.0, first)
        assert driven.beat("m1").assignment is None or profile is KIP_848
        acknowledged = driven.beat("m1", topic_partitions=foo(0, 1, 2))
        assert acknowledged.member_epoch == first + 1
        assert key(TimerKind.REBALANCE, "m1") not in driven.timers
        assert driven.beat("m2").assignment == foo(3, 4, 5)
        assert driven.group.state is GroupState.STABLE

    @EVERY
    def test_a_duplicate_of_a_join_writes_nothing_and_is_answered_alike(
        self, profile: Profile
    ) -> None:
        driven = Driven(profile)
        first = driven.join("m1", "foo")
        again = driven.decide("m1", 0, **JOIN, subscribed_topic_names=("foo",))
        assert again.records == ()
        assert again.response == first

    @pytest.mark.parametrize(("profile", "epoch"), [(KAFKA_4_0, 1), (KAFKA_4_3, 1), (KIP_848, 1)])
    def test_a_group_that_subscribes_to_nothing_has_an_epoch_all_the_same(
        self, profile: Profile, epoch: int
    ) -> None:
        driven = Driven(profile)
        answer = driven.join("m1")
        assert (answer.member_epoch, answer.assignment) == (epoch, NO_PARTITIONS)
        assert driven.group.state is GroupState.STABLE

    def test_the_kip_counts_every_join(self) -> None:
        driven = Driven(KIP_848)
        assert [driven.join("m1").member_epoch, driven.join("m2").member_epoch] == [1, 2]
        later = Driven(KAFKA_4_3)
        assert [later.join("m1").member_epoch, later.join("m2").member_epoch] == [1, 1]

    @pytest.mark.parametrize(("profile", "api_version"), [(KIP_848, 1), (KAFKA_4_3, 0)])
    def test_the_coordinator_makes_member_ids(self, profile: Profile, api_version: int) -> None:
        driven = Driven(profile, api_version=api_version)
        assert driven.join("", "foo").member_id == "made-here"
        assert list(driven.group.members) == ["made-here"]


class TestRegular:
    @pytest.fixture
    def driven(self) -> Driven:
        driven = Driven()
        driven.join("m1", "foo")
        return driven

    @EVERY
    def test_a_heartbeat_without_changes_only_extends_the_session(self, profile: Profile) -> None:
        driven = Driven(profile)
        epoch = driven.join("m1", "foo").member_epoch
        driven.now += 5
        outcome = driven.decide("m1", epoch)
        assert outcome.records == ()
        assert outcome.response.assignment is None
        assert [(each.key, each.at) for each in outcome.timers] == [
            (key(TimerKind.SESSION, "m1"), driven.now + 45.0)
        ]

    @pytest.mark.parametrize(
        ("left_out", "has_assignment"),
        [
            (None, True),
            ("rebalance_timeout_ms", False),
            ("subscribed_topic_names", False),
            ("topic_partitions", False),
        ],
    )
    def test_only_a_full_request_gets_an_unchanged_assignment(
        self, driven: Driven, left_out: str | None, has_assignment: bool
    ) -> None:
        full: dict[str, Any] = {
            "rebalance_timeout_ms": 30_000,
            "subscribed_topic_names": ("foo",),
            "topic_partitions": foo(0, 1, 2, 3, 4, 5),
        }
        sent = {name: value for name, value in full.items() if name != left_out}
        outcome = driven.decide("m1", 2, **sent)
        assert (outcome.response.assignment is not None) == has_assignment
        assert outcome.records == ()

    @pytest.mark.parametrize(
        ("field", "value"),
        [
            ("rack_id", "r"),
            ("rebalance_timeout_ms", 60_000),
            ("server_assignor", "range"),
        ],
    )
    def test_the_metadata_of_a_member_is_kept(
        self, driven: Driven, field: str, value: object
    ) -> None:
        outcome = driven.decide("m1", 2, **{field: value})
        assert record_types(outcome) == [5]
        assert getattr(driven.member("m1"), field) == value
        assert driven.decide("m1", 2, **{field: value}).records == ()

    def test_another_client_host_is_kept_too(self, driven: Driven) -> None:
        assert driven.member("m1").client_host == "/host"
        assert driven.member("m1").client_id == "client"

    def test_other_topics_are_another_target(self, driven: Driven) -> None:
        outcome = driven.decide("m1", 2, subscribed_topic_names=("foo", "bar"))
        assert record_types(outcome) == [5, 3, 7, 6, 8]
        assert outcome.response.member_epoch == 3
        assert outcome.response.assignment == foo(0, 1, 2, 3, 4, 5) | bar(0, 1, 2, 3)

    def test_unsubscribed_topics_are_revoked_in_the_same_answer(self, driven: Driven) -> None:
        driven.beat("m1", subscribed_topic_names=("foo", "bar"))
        answer = driven.beat("m1", subscribed_topic_names=("bar",))
        assert (answer.member_epoch, answer.assignment) == (3, bar(0, 1, 2, 3))
        member = driven.member("m1")
        assert member.state is ReconciliationState.UNREVOKED_PARTITIONS
        assert driven.beat("m1", topic_partitions=bar(0, 1, 2, 3)).member_epoch == 4

    def test_more_partitions_are_noticed_by_the_next_heartbeat(self, driven: Driven) -> None:
        grown = replace(driven.topics.by_name["foo"], partition_count=7)
        driven.topics = driven.topics.with_topic(grown)
        outcome = driven.decide("m1", 2)
        assert record_types(outcome) == [3, 7, 6, 8]
        assert outcome.response.assignment == foo(*range(7))
        assert outcome.topics_version == driven.topics.version
        assert driven.decide("m1", 3).topics_version is None

    def test_a_lost_answer_is_repeated(self, driven: Driven) -> None:
        driven.join("m2", "foo")
        driven.beat("m1")
        driven.beat("m1", topic_partitions=foo(0, 1, 2))
        lost = driven.decide("m1", 2, **FULL | {"topic_partitions": foo(0, 1, 2)})
        assert lost.records == ()
        assert (lost.response.member_epoch, lost.response.assignment) == (3, foo(0, 1, 2))

    def test_a_step_at_the_same_epoch_fences_the_previous_epoch(self) -> None:
        driven = Driven()
        driven.join("m1", "foo")
        driven.join("m2", "foo")
        assert driven.member("m2").previous_member_epoch == 0
        assert record_types(driven.decide("m2", 3)) == [8]
        assert driven.member("m2").previous_member_epoch == 3
        assert driven.decide("m2", 3).records == ()


FULL: dict[str, Any] = {"rebalance_timeout_ms": 30_000, "subscribed_topic_names": ("foo",)}


class TestRefused:
    def test_an_error_has_a_code_and_a_sentence_and_changes_nothing(self) -> None:
        driven = Driven()
        driven.join("m1", "foo")
        before = list(driven.group.records())
        outcome = driven.decide("m1", 7)
        assert outcome.response.error_code == ErrorCode.FENCED_MEMBER_EPOCH
        assert "greater member epoch (7)" in (outcome.response.error_message or "")
        assert (outcome.response.member_id, outcome.response.member_epoch) == (None, 0)
        assert (outcome.records, outcome.timers) == ((), ())
        assert list(driven.group.records()) == before

    @pytest.mark.parametrize(
        ("member_epoch", "message"),
        [(3, "Consumer group g not found."), (-1, "Group g not found.")],
    )
    def test_a_group_that_does_not_exist(self, member_epoch: int, message: str) -> None:
        answer = Driven().send("m1", member_epoch)
        assert answer.error_code == ErrorCode.GROUP_ID_NOT_FOUND
        assert answer.error_message == message

    def test_an_assignor_that_cannot_assign_is_a_server_error_without_a_reason(self) -> None:
        driven = Driven()
        driven.join("m1", "foo", server_assignor="range")
        driven.settings = Settings(BrokerSettings(assignors=("uniform",)))
        driven.now += 10
        answer = driven.beat("m1", subscribed_topic_names=("foo", "bar"))
        assert answer.error_code == ErrorCode.UNKNOWN_SERVER_ERROR
        assert answer.error_message is None
        assert driven.group.group_epoch == 2


class TestStatic:
    def test_a_static_member_returns_to_its_assignment(self) -> None:
        driven = Driven()
        driven.join("m1", "foo", instance_id="i1")
        driven.join("m2", "foo", instance_id="i2")
        driven.beat("m1", instance_id="i1")
        driven.beat("m1", instance_id="i1", topic_partitions=foo(0, 1, 2))
        driven.beat("m2", instance_id="i2")
        timer = driven.timers[key(TimerKind.SESSION, "m1")]
        driven.now += 20
        away = driven.send("m1", -2, instance_id="i1")
        assert (away.member_id, away.member_epoch, away.heartbeat_interval_ms) == ("m1", -2, 0)
        assert driven.timers[key(TimerKind.SESSION, "m1")] == timer
        assert driven.group.state is GroupState.RECONCILING
        # No other member gets its partitions meanwhile.
        assert driven.beat("m2", instance_id="i2").assignment is None
        outcome = driven.decide("m3", 0, **JOIN, subscribed_topic_names=("foo",), instance_id="i1")
        assert record_types(outcome) == [-8, -7, -5, 5, 7, 8, 8]
        assert outcome.response.member_epoch == 3
        assert outcome.response.assignment == foo(0, 1, 2)
        assert (driven.group.group_epoch, driven.group.state) == (3, GroupState.STABLE)
        assert driven.timers[key(TimerKind.SESSION, "m3")].at == driven.now + 45

    def test_a_successor_with_another_subscription_is_another_target(self) -> None:
        driven = Driven()
        driven.join("m1", "foo", instance_id="i1")
        driven.send("m1", -2, instance_id="i1")
        outcome = driven.decide("m2", 0, **JOIN, subscribed_topic_names=("bar",), instance_id="i1")
        assert record_types(outcome) == [-8, -7, -5, 5, 7, 8, 5, 3, 7, 6, 8]
        assert outcome.response.assignment == bar(0, 1, 2, 3)
        assert driven.group.targets.keys() == {"m2"}

    def test_partitions_of_an_absent_static_member_stay(self) -> None:
        driven = Driven()
        driven.join("m1", "foo", instance_id="i1")
        driven.send("m1", -2, instance_id="i1")
        assert driven.join("m2", "foo").assignment == NO_PARTITIONS
        assert driven.beat("m2").assignment is None
        driven.fire(TimerKind.SESSION, "m1")
        assert driven.beat("m2").assignment == foo(0, 1, 2, 3, 4, 5)


class TestKip:
    def test_the_case_study_basic(self) -> None:
        driven = Driven(KIP_848)
        foo_3 = replace(driven.topics.by_name["foo"], partition_count=3)
        driven.topics = driven.topics.with_topic(foo_3)
        a = driven.join("a", "foo")
        assert (a.member_epoch, a.assignment) == (1, foo(0, 1, 2))
        b = driven.join("b", "foo")
        assert (b.member_epoch, b.assignment, pending(b)) == (2, NO_PARTITIONS, foo(2))
        a = driven.beat("a")
        assert (a.member_epoch, a.assignment, pending(a)) == (1, foo(0, 1), NO_PARTITIONS)
        a = driven.beat("a", topic_partitions=foo(0, 1))
        assert a.member_epoch == 2
        b = driven.beat("b")
        assert (b.member_epoch, b.assignment, pending(b)) == (2, foo(2), NO_PARTITIONS)


def pending(answer: object) -> Assignment:
    """Return what an answer says is not released yet."""
    found = getattr(answer, "pending_topic_partitions", None)
    assert isinstance(found, Assignment)
    return found


EVERY_2_S = Settings(by_group={"g": {"consumer.assignment.interval.ms": "2000"}})


@pytest.mark.parametrize(
    ("profile", "settings", "waited_s", "is_computed"),
    [
        (KAFKA_4_3, Settings(), 0.0, False),
        (KAFKA_4_3, Settings(), 0.999, False),
        (KAFKA_4_3, Settings(), 1.0, True),
        (KAFKA_4_3, EVERY_2_S, 1.999, False),
        (KAFKA_4_3, EVERY_2_S, 2.0, True),
        (KAFKA_4_3, AT_ONCE, 0.0, True),
        (KAFKA_4_2, Settings(), 0.0, True),
    ],
)
def test_a_target_is_not_computed_again_within_the_interval(
    profile: Profile, settings: Settings, waited_s: float, is_computed: bool
) -> None:
    driven = Driven(profile, settings=settings)
    first = driven.join("m1", "foo").member_epoch
    driven.now += waited_s
    assert driven.join("m2", "foo").member_epoch == first + is_computed
    assert (driven.group.state is GroupState.ASSIGNING) is not is_computed


@pytest.mark.parametrize(
    "first",
    [{"subscribed_topic_names": ()}, {"subscribed_topic_regex": "nothing.*"}],
    ids=["no topic", "a pattern"],
)
@pytest.mark.parametrize("stays", [True, False])
def test_a_first_member_without_topics_starts_no_interval(
    first: dict[str, Any], stays: bool
) -> None:
    driven = Driven(settings=Settings())
    assert driven.send("m1", 0, **JOIN, **first).member_epoch == 1
    assert driven.group.state is GroupState.STABLE
    if not stays:
        driven.send("m1", -1)
    joined = driven.join("m2", "foo")
    assert joined.member_epoch == driven.group.group_epoch
    assert joined.assignment == foo(0, 1, 2, 3, 4, 5)
    assert driven.join("m3", "foo").assignment == NO_PARTITIONS
    assert driven.group.state is GroupState.ASSIGNING


def test_a_member_that_subscribes_later_has_its_first_target_at_once() -> None:
    driven = Driven(settings=Settings())
    driven.join("m1")
    assert driven.beat("m1", subscribed_topic_names=("foo",)).member_epoch == 2
    driven.now += 0.5
    assert driven.beat("m1", subscribed_topic_names=("foo", "bar")).member_epoch == 2
    assert driven.group.state is GroupState.ASSIGNING


@pytest.mark.parametrize(("profile", "waits"), [(KAFKA_4_3, True), (KAFKA_4_4, False)])
def test_until_4_3_the_interval_continues_after_the_last_leave(
    profile: Profile, waits: bool
) -> None:
    driven = Driven(profile, settings=Settings())
    driven.join("m1", "foo")
    driven.send("m1", -1)
    assert (driven.join("m2", "foo").assignment == NO_PARTITIONS) is waits


def test_a_join_within_the_interval_waits_at_the_last_target_epoch() -> None:
    driven = Driven(settings=Settings())
    driven.join("m1", "foo")
    joined = driven.join("m2", "foo")
    assert (joined.member_epoch, joined.assignment) == (2, NO_PARTITIONS)
    assert driven.beat("m1").assignment is None
    driven.now += 1.0
    assert driven.beat("m1").assignment == foo(0, 1, 2)
    driven.beat("m1", topic_partitions=foo(0, 1, 2))
    assert driven.beat("m2").assignment == foo(3, 4, 5)


def test_a_successor_has_the_target_of_the_one_before() -> None:
    driven = Driven(settings=Settings())
    driven.join("m1", "foo", instance_id="i1")
    driven.send("m1", -2, instance_id="i1")
    assert driven.join("m2", "foo", instance_id="i1").assignment == foo(0, 1, 2, 3, 4, 5)
    driven.now += 5.0
    assert driven.beat("m2", instance_id="i1").assignment is None


def test_a_member_with_a_new_instance_id_has_no_target_until_the_next_one() -> None:
    """Kafka looks a static member's target up by its instance id, which no member had."""
    driven = Driven(settings=Settings())
    driven.join("m1", "foo")
    driven.now += 5.0
    driven.join("m2", "foo")
    answer = driven.join("m1", "foo", instance_id="i1")
    assert answer.assignment == NO_PARTITIONS


@pytest.mark.parametrize("profile", [KAFKA_4_0, KAFKA_4_3])
def test_the_new_holder_of_an_old_instance_id_has_the_target_of_the_old_one(
    profile: Profile,
) -> None:
    driven = Driven(profile)
    everything = foo(0, 1, 2, 3, 4, 5)
    driven.join("m1", "foo", instance_id="i2")
    driven.join("m1", "foo", instance_id="i4")
    driven.send("m1", -2, instance_id="i4")
    taken = driven.join("m2", "foo", instance_id="i2")
    assert taken.assignment == everything
    # Another topic is another target: the assignor, too, takes it for the one before.
    answer = driven.beat("m2", instance_id="i2", subscribed_topic_names=("foo", "bar"))
    assert answer.assignment == everything | bar(0, 1, 2, 3)
    assert driven.group.state is GroupState.STABLE


@pytest.mark.parametrize("profile", [KAFKA_4_0, KAFKA_4_3, KAFKA_4_4])
def test_old_partitions_of_a_successor_are_free_until_the_next_target(
    profile: Profile,
) -> None:
    driven = Driven(profile)
    driven.join("m1", instance_id="i1")
    driven.send("m1", -2, instance_id="i1")
    assert driven.join("m2", "foo").assignment == foo(0, 1, 2, 3, 4, 5)
    assert driven.join("m2", "foo", instance_id="i1").assignment == NO_PARTITIONS
    assert driven.group.state is GroupState.STABLE
    assert driven.beat("m2", instance_id="i1").assignment is None
    joined = driven.join("m3", "foo")
    assert joined.assignment
    answer = driven.beat("m2", instance_id="i1", topic_partitions=NO_PARTITIONS)
    assert answer.assignment == foo(0, 1, 2, 3, 4, 5) - joined.assignment


@pytest.mark.parametrize(("profile", "is_written"), [(KAFKA_4_3, False), (KAFKA_4_4, True)])
def test_from_4_4_on_targets_of_successors_are_compared_with_predecessors(
    profile: Profile, is_written: bool
) -> None:
    """Before, its own old target is the same, and what the place had stays written."""
    driven = Driven(profile)
    driven.join("m1", instance_id="i1")
    driven.send("m1", -2, instance_id="i1")
    driven.join("m2", "bar")
    driven.join("m3", "foo")
    everything = foo(0, 1, 2, 3, 4, 5)
    assert driven.group.targets["m3"].partitions == everything
    driven.join("m3", "foo", instance_id="i1")
    written = driven.group.targets["m3"].partitions
    assert written == (everything if is_written else NO_PARTITIONS)


def test_dropping_a_pattern_does_not_update_the_subscription_type() -> None:
    driven = Driven()
    driven.join("m1", "foo", subscribed_topic_regex="ba.*")
    driven.take(subscriptions.look_up_patterns(driven.group, driven.profile, driven.context))
    driven.join("m2", "foo")
    # The pattern goes after its last member.
    driven.fence("m1")
    driven.join("m3")
    assert driven.group.state is not GroupState.ASSIGNING
    assert driven.group.targets["m2"].partitions == foo(0, 1, 2, 3, 4, 5)


def test_a_group_keeps_its_maximum_number_of_members() -> None:
    driven = Driven()
    for member_id in ("m1", "m2", "m3"):
        driven.join(member_id, "foo")
    driven.fence("m1", "m2")
    assert (len(driven.group.members), driven.group.room) == (1, 4)


FOO = TopicImage(TopicId(int=1), "foo", 2)
TOPICS = TopicsImage.of([FOO])


def foo_ids(*partitions: int) -> Assignment:
    return Assignment.of({FOO.topic_id: partitions})


class Members:
    """Members of one group; each keeps the last epoch it received."""

    def __init__(self) -> None:
        self.shard = Shard(KIP_848, Settings(), TOPICS, Log(), 0.0)
        self.epochs: dict[str, int] = {}
        self.now = 0.0

    def join(self, member_id: str) -> m.KipHeartbeatResponse:
        return self.beat(
            member_id,
            NO_PARTITIONS,
            rebalance_timeout_ms=60_000,
            subscribed_topic_names=("foo",),
        )

    def beat(
        self, member_id: str, owned: Assignment | None = None, **fields: Any
    ) -> m.KipHeartbeatResponse:
        self.now += 1.0
        self.shard.wake(self.now)
        request = HeartbeatRequest(
            group_id="g",
            member_id=member_id,
            member_epoch=self.epochs.get(member_id, 0),
            topic_partitions=owned,
            **fields,
        )
        response = self.shard.ask(request, self.now)
        assert isinstance(response, m.KipHeartbeatResponse), response
        self.epochs[member_id] = response.member_epoch
        return response


def both(answer: m.KipHeartbeatResponse) -> tuple[Assignment | None, Assignment]:
    return answer.assignment, answer.pending_topic_partitions


def test_partitions_are_pending_until_they_are_released() -> None:
    group = Members()
    assert both(group.join("a")) == (foo_ids(0, 1), NO_PARTITIONS)
    joined = group.join("b")
    kept = 0 if joined.pending_topic_partitions == foo_ids(1) else 1
    assert both(joined) == (NO_PARTITIONS, foo_ids(1 - kept))
    assert both(group.beat("a", foo_ids(0, 1))) == (foo_ids(kept), NO_PARTITIONS)
    assert both(group.beat("b", NO_PARTITIONS)) == (None, NO_PARTITIONS)
    released = group.beat("a", foo_ids(kept))
    assert (both(released), released.member_epoch) == ((foo_ids(kept), NO_PARTITIONS), 2)
    assert both(group.beat("b", NO_PARTITIONS)) == (foo_ids(1 - kept), NO_PARTITIONS)


def test_an_assignment_is_repeated_until_the_member_reports_it() -> None:
    group = Members()
    group.join("a")
    assert group.beat("a", NO_PARTITIONS).assignment == foo_ids(0, 1)
    assert group.beat("a", foo_ids(0, 1)).assignment is None
    assert group.beat("a").assignment is None


def test_kafka_answers_without_the_fields_of_the_kip() -> None:
    shard = Shard(KAFKA_4_3, Settings(), TOPICS, Log(), 0.0)
    request = m.KipHeartbeatRequest(
        group_id="g",
        member_id="a",
        member_epoch=0,
        rebalance_timeout_ms=60_000,
        subscribed_topic_names=("foo",),
        topic_partitions=NO_PARTITIONS,
        client_assignors=(),
    )
    assert type(shard.ask(request, 0.0)) is HeartbeatResponse


JOIN_REQUEST = HeartbeatRequest(
    group_id="g",
    member_id="m",
    member_epoch=0,
    rebalance_timeout_ms=30_000,
    subscribed_topic_names=("foo",),
    topic_partitions=NO_PARTITIONS,
)
REGULAR_REQUEST = HeartbeatRequest(group_id="g", member_id="m", member_epoch=4)
LEAVE_REQUEST = replace(REGULAR_REQUEST, member_epoch=-1)
STATIC_LEAVE_REQUEST = replace(REGULAR_REQUEST, member_epoch=-2, instance_id="i")

FAULTS = [
    (replace(JOIN_REQUEST, member_id=""), "MemberId can't be empty."),
    (replace(REGULAR_REQUEST, member_id=""), "MemberId can't be empty."),
    (replace(LEAVE_REQUEST, member_id=""), "MemberId can't be empty."),
    (replace(STATIC_LEAVE_REQUEST, member_id=""), "MemberId can't be empty."),
    (replace(JOIN_REQUEST, group_id=""), "GroupId can't be empty."),
    (replace(JOIN_REQUEST, instance_id=""), "InstanceId can't be empty."),
    (replace(JOIN_REQUEST, rack_id=""), "RackId can't be empty."),
    (replace(JOIN_REQUEST, instance_id=" \t"), "InstanceId can't be empty."),
    (replace(REGULAR_REQUEST, member_id=" "), "MemberId can't be empty."),
    (
        replace(JOIN_REQUEST, rebalance_timeout_ms=-1),
        "RebalanceTimeoutMs must be provided in first",
    ),
    (
        replace(JOIN_REQUEST, topic_partitions=None),
        "TopicPartitions must be empty when (re-)joining.",
    ),
    (
        replace(JOIN_REQUEST, topic_partitions=foo(1)),
        "TopicPartitions must be empty when (re-)joining.",
    ),
    (
        replace(JOIN_REQUEST, subscribed_topic_names=None),
        "Either SubscribedTopicNames or SubscribedTopicRegex must be non-null when (re-)joining.",
    ),
    (replace(STATIC_LEAVE_REQUEST, instance_id=None), "InstanceId can't be null."),
    (replace(REGULAR_REQUEST, member_epoch=-3), "MemberEpoch is invalid."),
]


def check_request(
    request: HeartbeatRequest, profile: Profile = KAFKA_4_3, api_version: int = 1
) -> None:
    heartbeat.check_request(request, profile, Driven(api_version=api_version).context)


@pytest.mark.parametrize("timeout_ms", [0, -5])
@pytest.mark.parametrize("request_", [JOIN_REQUEST, REGULAR_REQUEST], ids=["join", "regular"])
def test_only_the_kip_refuses_a_rebalance_timeout_that_is_over_at_once(
    request_: HeartbeatRequest, timeout_ms: int
) -> None:
    broken = replace(request_, rebalance_timeout_ms=timeout_ms)
    check_request(broken, KAFKA_4_3)
    with pytest.raises(RefusedError) as refused:
        check_request(broken, KIP_848)
    assert refused.value.code is ErrorCode.INVALID_REQUEST
    assert refused.value.message == "RebalanceTimeoutMs must be larger than zero."
    check_request(REGULAR_REQUEST, KIP_848)


@pytest.mark.parametrize(("request_", "message"), FAULTS, ids=[message for _, message in FAULTS])
def test_broken_rules(request_: HeartbeatRequest, message: str) -> None:
    with pytest.raises(RefusedError) as refused:
        check_request(request_)
    assert refused.value.code is ErrorCode.INVALID_REQUEST
    assert (refused.value.message or "").startswith(message)


@pytest.mark.parametrize(
    "request_",
    [
        JOIN_REQUEST,
        REGULAR_REQUEST,
        LEAVE_REQUEST,
        STATIC_LEAVE_REQUEST,
        replace(JOIN_REQUEST, subscribed_topic_names=()),
        replace(JOIN_REQUEST, subscribed_topic_names=None, subscribed_topic_regex=""),
        replace(JOIN_REQUEST, server_assignor="range"),
        replace(REGULAR_REQUEST, topic_partitions=foo(1)),
    ],
)
def test_accepted_requests(request_: HeartbeatRequest) -> None:
    check_request(request_)
    with pytest.raises(RefusedError, match="GroupId"):
        check_request(replace(request_, group_id=""))


def test_the_first_rule_that_is_broken_counts() -> None:
    broken = replace(JOIN_REQUEST, group_id="", rack_id="", server_assignor="none")
    with pytest.raises(RefusedError, match="GroupId"):
        check_request(broken)
    with pytest.raises(RefusedError, match="MemberId"):
        check_request(replace(broken, member_id=""))


def test_an_unknown_assignor() -> None:
    with pytest.raises(RefusedError) as refused:
        check_request(replace(JOIN_REQUEST, server_assignor="nope"))
    assert refused.value.code is ErrorCode.UNSUPPORTED_ASSIGNOR
    assert refused.value.message == (
        "ServerAssignor nope is not supported. Supported assignors: uniform, range."
    )


@pytest.mark.parametrize(("profile", "api_version"), [(KAFKA_4_3, 0), (KIP_848, 1)])
def test_a_join_without_an_id_is_accepted_if_the_coordinator_makes_ids(
    profile: Profile, api_version: int
) -> None:
    check_request(replace(JOIN_REQUEST, member_id=""), profile, api_version)
    for request in (REGULAR_REQUEST, LEAVE_REQUEST):
        with pytest.raises(RefusedError, match="MemberId"):
            check_request(replace(request, member_id=""), profile, api_version)
