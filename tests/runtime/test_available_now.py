"""The end of AvailableNow on a real broker: what it says, refuses and waits for."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from spark_groups.broker.embedded import EmbeddedKafka
from spark_groups.errors import AvailableNowError
from spark_groups.group.batches.available_now_wait import AvailableNowWait, WhenUnsettled
from spark_groups.group.member.subscription import Subscription
from tests.runtime.members import QueryLike, filled_topic, queries
from workshop.parts.brokers import SHORT_SESSION
from workshop.parts.waiting import wait_until

pytestmark = pytest.mark.broker


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
    filled_topic(kafka.bootstrap_servers, topic_name, 2, 200)
    with queries(kafka.bootstrap_servers, group_id, topic_name) as start:
        killed = start()
        wait_until(lambda: killed.run() or len(killed.assigned) == 2, what="its partitions")
        killed_id = killed.member_id
        killed.vanish()
        query = available_now(start(available_now_wait=AvailableNowWait(5.0, when)))
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


def test_wait_lasts_until_the_session_of_the_killed_member_is_over(
    impatient: EmbeddedKafka, topic_name: str, group_id: str
) -> None:
    servers = impatient.bootstrap_servers
    filled_topic(servers, topic_name, 2, 200)
    with queries(servers, group_id, topic_name) as start:
        killed = start()
        wait_until(lambda: killed.run() or len(killed.assigned) == 2, what="its partitions")
        killed.vanish()
        query = available_now(start(available_now_wait=AvailableNowWait(0.5, WhenUnsettled.WAIT)))
        assert read_all(query) == 400


def test_topic_that_does_not_exist_is_an_error_that_names_it(
    kafka: EmbeddedKafka, topic_name: str, group_id: str
) -> None:
    filled_topic(kafka.bootstrap_servers, topic_name, 1, 5)
    with queries(kafka.bootstrap_servers, group_id, f"{topic_name},flihgts") as start:
        query = available_now(start())
        with pytest.raises(AvailableNowError, match=r"topics that do not exist .*: flihgts"):
            read_all(query)
        assert query.ranges == []


def test_topic_that_was_meant_is_named(
    kafka: EmbeddedKafka, topic_name: str, group_id: str
) -> None:
    filled_topic(kafka.bootstrap_servers, topic_name, 1, 5)
    wrong = f"{topic_name}x"
    meant = rf"{wrong} \(did you mean '{topic_name}'\?\)"
    with queries(kafka.bootstrap_servers, group_id, wrong) as start:
        query = available_now(start())
        with pytest.raises(AvailableNowError, match=f"topics that do not exist .*: {meant}"):
            read_all(query)
        assert f"no such topic yet: {wrong} (did you mean '{topic_name}'?)" in query.timeline


def test_pattern_that_matches_nothing_is_a_warning(
    kafka: EmbeddedKafka, topic_name: str, group_id: str
) -> None:
    with queries(kafka.bootstrap_servers, group_id, topic_name) as start:
        subscription = Subscription.of_pattern(f"{topic_name}.*")
        query = available_now(start(member={"subscription": subscription}))
        assert read_all(query) == 0
        assert "matches no topic that exists" in query.timeline
