"""The end of AvailableNow on a real broker: what it says, refuses and waits for."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from spark_groups.broker.embedded import EmbeddedKafka
from spark_groups.errors import AvailableNowError
from spark_groups.group.batches.planning import PlanLimit
from spark_groups.group.batches.settling import Settling, WhenUnsettled
from spark_groups.group.member.messages import ListedOffset, MetadataRequest, MetadataResponse
from spark_groups.group.member.subscription import Subscription
from spark_groups.group.requests.metadata import BELIEVED_S
from spark_groups.runtime import driver as driver_module
from spark_groups.runtime.driver import POLL_AGAIN_S, GroupDriver
from spark_groups.wire.security.security import Security
from tests.group.harness import ClientHarness, ends
from tests.runtime.members import QueryLike, fill, queries
from workshop.parts.brokers import create_topic
from workshop.parts.waiting import wait_until

pytestmark = pytest.mark.broker

SHORT_SESSION = {
    "group.consumer.min.session.timeout.ms": "1000",
    "group.consumer.session.timeout.ms": "6000",
}


@pytest.fixture(scope="module")
def impatient() -> Iterator[EmbeddedKafka]:
    """A broker on which the session of a member that is gone ends soon."""
    with EmbeddedKafka(server_properties=SHORT_SESSION) as broker:
        yield broker


def available_now(query: QueryLike) -> QueryLike:
    query.driver.prepare_available_now()
    return query


def read_all(query: QueryLike) -> int:
    """Run until the end; how many rows were read."""
    while query.run() is not None:
        pass
    return sum(until - start for _, _, start, until in query.ranges)


@pytest.mark.parametrize("when", [WhenUnsettled.WARN, WhenUnsettled.FAIL])
def test_partitions_of_a_killed_member_are_named_with_their_rows_and_their_holder(
    when: WhenUnsettled, kafka: EmbeddedKafka, topic_name: str, group_id: str
) -> None:
    create_topic(kafka.bootstrap_servers, topic_name, 2)
    fill(kafka.bootstrap_servers, topic_name, 2, 200)
    with queries(kafka.bootstrap_servers, group_id, topic_name) as start:
        killed = start()
        wait_until(lambda: killed.run() or len(killed.assigned) == 2, what="its partitions")
        killed_id = killed.member_id
        killed.vanish()
        query = available_now(start(settling=Settling(2.0, when)))
        if when is WhenUnsettled.WARN:
            assert read_all(query) == 0
            said = query.timeline
        else:
            with pytest.raises(AvailableNowError) as caught:
                read_all(query)
            said = str(caught.value)
    assert f"{topic_name}-" in said
    assert f"[0, 200) are not released by {killed_id} (client query-like, host 127.0.0.1)" in said
    assert "200 rows" in said
    assert "availableNowUnsettled=wait" in said


def test_wait_goes_on_until_the_session_of_the_killed_member_is_over(
    impatient: EmbeddedKafka, topic_name: str, group_id: str
) -> None:
    servers = impatient.bootstrap_servers
    create_topic(servers, topic_name, 2)
    fill(servers, topic_name, 2, 200)
    with queries(servers, group_id, topic_name) as start:
        killed = start()
        wait_until(lambda: killed.run() or len(killed.assigned) == 2, what="its partitions")
        killed.vanish()
        query = available_now(start(settling=Settling(0.5, WhenUnsettled.WAIT)))
        assert read_all(query) == 400


def test_topic_that_does_not_exist_is_an_error_that_names_it(
    kafka: EmbeddedKafka, topic_name: str, group_id: str
) -> None:
    create_topic(kafka.bootstrap_servers, topic_name, 1)
    fill(kafka.bootstrap_servers, topic_name, 1, 5)
    with queries(kafka.bootstrap_servers, group_id, f"{topic_name},flihgts") as start:
        query = available_now(start())
        with pytest.raises(AvailableNowError, match=r"topics that do not exist .*: flihgts"):
            read_all(query)
        assert query.ranges == []


def test_pattern_that_matches_nothing_is_a_warning(
    kafka: EmbeddedKafka, topic_name: str, group_id: str
) -> None:
    with queries(kafka.bootstrap_servers, group_id, topic_name) as start:
        subscription = Subscription.of_pattern(f"{topic_name}.*")
        query = available_now(start(member={"subscription": subscription}))
        assert read_all(query) == 0
        assert "matches no topic that exists" in query.timeline


def test_log_ends_are_listed_now_and_then_while_a_topic_is_in_doubt(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A settled member that may not end yet, without a broker: each question waits a moment."""
    harness = ClientHarness()
    harness.client.prepare_available_now()
    harness.own(0)
    client = harness.client
    first = client.plan(PlanLimit(), ends({0: 0}), harness.now)
    assert first is not None
    client.finish(first, harness.now)
    assert client.is_settled
    names = MetadataRequest(topic_names=frozenset({"flihgts"}))
    client.absent.learn(names, MetadataResponse(), harness.now)
    driver = GroupDriver(
        client.config, bootstrap_servers=("localhost:1",), client_id="test", security=Security()
    )
    listed = {key: ListedOffset(end) for key, end in ends({0: 0}).items()}
    waits_s: list[float] = []

    def wait_for(condition: Callable[[], bool], timeout_s: float) -> bool:
        if not condition():
            waits_s.append(timeout_s)
        if len(waits_s) == 5:
            harness.now += BELIEVED_S
            client.absent.learn(names, MetadataResponse(), harness.now)
        return condition()

    engine = driver._engine
    engine.client = client
    monkeypatch.setattr(engine, "wait_for", wait_for)
    monkeypatch.setattr(engine, "pump", lambda: None)
    monkeypatch.setattr(driver_module, "suspension_clock", lambda: harness.now)
    monkeypatch.setattr(driver, "_ends_to_plan", lambda client: listed)
    with pytest.raises(AvailableNowError, match="flihgts"):
        driver._plan_available_now(client, PlanLimit(), harness.now)
    assert waits_s == [POLL_AGAIN_S] * 5
