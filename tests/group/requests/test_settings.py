"""When the group's settings are read, and how long a heartbeat proves ownership."""

from __future__ import annotations

import pytest

from spark_groups.group.member.events import SessionTimeoutKnown, SessionTooShort, SettingsUnknown
from spark_groups.group.member.messages import GroupSettingsResponse
from spark_groups.group.requests.settings import ASK_AGAIN_S, READ_AGAIN_S, SessionTimeout
from tests.group.harness import ClientHarness, accepted, indexes


def known(session_timeout_ms: int) -> GroupSettingsResponse:
    return GroupSettingsResponse(session_timeout_ms=session_timeout_ms)


def read(watch: SessionTimeout, response: GroupSettingsResponse, now: float) -> bool:
    watch.asked()
    return watch.handle_response(response, now)


def test_settings_are_read_at_the_start_and_periodically() -> None:
    watch = SessionTimeout(45_000)
    assert watch.due_at == 0.0
    watch.asked()
    assert watch.due_at is None
    assert watch.handle_response(known(30_000), 1.0)
    assert watch.due_at == 1.0 + READ_AGAIN_S
    assert not read(watch, known(30_000), 61.0), "the same is no news"
    assert read(watch, known(10_000), 121.0)
    watch.asked()
    watch.unanswered(200.0)
    assert watch.due_at == 200.0 + ASK_AGAIN_S
    assert watch.session_timeout_ms == 10_000


def test_another_heartbeat_interval_has_them_read_at_once() -> None:
    watch = SessionTimeout(45_000)
    watch.follow(5.0, 0.5)
    read(watch, known(45_000), 1.0)
    watch.follow(5.0, 6.0)
    assert watch.due_at == 1.0 + READ_AGAIN_S
    watch.follow(0.5, 7.0)
    assert watch.due_at == 7.0


def test_interval_that_changes_while_they_are_read_has_them_read_once_more() -> None:
    watch = SessionTimeout(45_000)
    watch.follow(5.0, 0.0)
    watch.asked()
    watch.follow(0.5, 1.0)
    watch.handle_response(known(45_000), 1.5)
    assert watch.due_at == 1.5
    assert watch.proven_for_s(0.5) == 6.0, "not believed yet"
    read(watch, known(2_000), 2.0)
    assert watch.proven_for_s(0.5) == 2.0


@pytest.mark.parametrize(
    ("interval_s", "assumed_ms", "proven_s"),
    [(5.0, 45_000, 15.0), (0.5, 45_000, 6.0), (5.0, 4_000, 4.0)],
)
def test_without_the_session_timeout_a_few_heartbeats_may_be_missed(
    interval_s: float, assumed_ms: int, proven_s: float
) -> None:
    watch = SessionTimeout(assumed_ms)
    watch.follow(interval_s, 0.0)
    assert watch.proven_for_s(interval_s) == proven_s
    assert read(watch, GroupSettingsResponse(reason="not authorized"), 1.0)
    assert (watch.reason, watch.session_timeout_ms) == ("not authorized", None)
    assert watch.proven_for_s(interval_s) == proven_s


def test_session_timeout_that_is_known_is_what_proves() -> None:
    watch = SessionTimeout(45_000)
    watch.follow(5.0, 0.0)
    read(watch, known(60_000), 1.0)
    assert watch.proven_for_s(5.0) == 60.0
    watch.follow(0.5, 2.0)
    assert watch.proven_for_s(0.5) == 6.0, "in doubt until it is read again"


@pytest.mark.parametrize(
    ("session_ms", "restart_s", "wanted_ms"),
    [(45_000, 44.0, None), (45_000, None, None), (45_000, 46.0, 105_000), (6_000, 7.0, 15_000)],
)
def test_restart_that_outlasts_the_session_gets_the_command_that_raises_it(
    session_ms: int, restart_s: float | None, wanted_ms: int | None
) -> None:
    watch = SessionTimeout(45_000)
    assert watch.command_for_restart("g", restart_s) is None, "nothing is known yet"
    read(watch, known(session_ms), 1.0)
    command = watch.command_for_restart("g", restart_s)
    wanted = f"spark-groups config g --set consumer.session.timeout.ms={wanted_ms}"
    assert command == (wanted if wanted_ms else None)


@pytest.mark.parametrize(("maximum_ms", "is_said"), [(60_000, True), (1_800_000, False)])
def test_command_that_the_brokers_would_refuse_says_what_to_raise_first(
    maximum_ms: int, is_said: bool
) -> None:
    watch = SessionTimeout(45_000)
    response = GroupSettingsResponse(session_timeout_ms=45_000, session_timeout_max_ms=maximum_ms)
    read(watch, response, 1.0)
    command = watch.command_for_restart("g", 61.0) or ""
    assert ("the brokers accept at most 60000" in command) is is_said


def test_restart_that_fits_into_the_brokers_limit_gets_a_command_that_they_accept() -> None:
    watch = SessionTimeout(45_000)
    response = GroupSettingsResponse(session_timeout_ms=45_000, session_timeout_max_ms=60_000)
    read(watch, response, 1.0)
    assert watch.command_for_restart("g", 50.0) == (
        "spark-groups config g --set consumer.session.timeout.ms=60000"
    )


def test_client_owns_nothing_once_its_session_may_be_over() -> None:
    harness = ClientHarness()
    harness.settings = known(8_000)
    harness.own(0, offsets={0: 5})
    assert harness.client.parts.member.session_timeout_ms == 8_000
    proven_at = harness.client.parts.member.last_accepted_sent_at or 0.0
    assert indexes(harness.client.parts.next_batch.readable(proven_at + 8.0)) == [0]
    assert not harness.client.parts.next_batch.readable(proven_at + 8.1)
    (event,) = harness.find(SessionTimeoutKnown)
    assert isinstance(event, SessionTimeoutKnown)
    assert event.session_timeout_ms == 8_000


def test_client_without_permission_warns_once_and_continues() -> None:
    harness = ClientHarness()
    harness.own(0, offsets={0: 5})
    for _ in range(30):
        harness.wait(5.0)
        harness.beat(accepted(harness.client.parts.member.member_epoch))
    assert harness.settings_read >= 3
    assert len(harness.find(SettingsUnknown)) == 1
    assert indexes(harness.client.parts.next_batch.readable(harness.now)) == [0]


@pytest.mark.parametrize(("instance_id", "warned"), [("i1", 1), (None, 0)])
def test_only_static_members_are_warned_of_a_session_that_a_restart_outlasts(
    instance_id: str | None, warned: int
) -> None:
    harness = ClientHarness(instance_id=instance_id, restart_s=61.0)
    harness.settings = known(45_000)
    harness.own(0, offsets={0: 5})
    found = harness.find(SessionTooShort)
    assert len(found) == warned
    assert all(
        isinstance(each, SessionTooShort) and "session.timeout.ms=135000" in each.command
        for each in found
    )
