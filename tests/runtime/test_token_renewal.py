"""Members and readers whose tokens expire several times while they work."""

from __future__ import annotations

import logging
import time

import pytest

from spark_groups.spark.options.range_settings import RangeSettings, ReaderChoice
from spark_groups.spark.reading.reader import read_ranges
from spark_groups.types import OffsetRange
from spark_groups.wire.security.security_settings import security_of
from tests.runtime.members import all_at, committed, queries
from tests.secured import SecuredKafka
from tests.spark.reading.both_readers import topic_ids
from workshop.parts.brokers import Row, create_topic, produce
from workshop.parts.waiting import LONG_S, wait_until

pytestmark = [pytest.mark.broker, pytest.mark.long]

LIFETIME_S = 8
LIFETIMES = 5


@pytest.fixture
def topic(secured: SecuredKafka, topic_name: str, group_id: str) -> str:
    create_topic(secured.kafka.bootstrap_servers, topic_name, 1)
    secured.allow("bob", "TOPIC", topic_name, "READ")
    secured.allow("bob", "GROUP", group_id, "READ")
    return topic_name


def issued(secured: SecuredKafka, nonce: str) -> int:
    """Return how many tokens a provider fetched; those of other tests are still renewed."""
    return sum(each == nonce for _, each in secured.issuer.provided)


def test_a_member_outlives_its_tokens(
    secured: SecuredKafka, topic: str, group_id: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "spark_groups")
    rows = 0
    with queries(secured.kafka.listener("SHORT"), group_id, topic) as start:
        query = start(security=security_of(secured.provided(LIFETIME_S, nonce=group_id)))
        seen = set()
        began_at = time.monotonic()
        while issued(secured, group_id) <= LIFETIMES:
            produce(secured.kafka.bootstrap_servers, topic, [Row(b"v", partition=0)])
            rows += 1
            plan = query.plan_rows()
            seen.add((plan.member_id, plan.member_epoch))
        # One when it starts, then one after 80 % to 85 % of each lifetime, in whole seconds.
        shortest_s = (LIFETIME_S - 1) * 0.8
        took_s = time.monotonic() - began_at
        assert issued(secured, group_id) * shortest_s < took_s + LIFETIME_S
        query.commit_all()
    assert len(seen) == 1, "it lost no session"
    assert committed(secured.kafka.bootstrap_servers, group_id) == all_at(topic, 1, rows)
    assert secured.issuer.token().split(".")[0] not in caplog.text


def test_a_provider_that_fails_is_called_again_while_the_token_lasts(
    secured: SecuredKafka, topic: str, group_id: str, caplog: pytest.LogCaptureFixture
) -> None:
    lifetime_s = 20
    with queries(secured.kafka.listener("SHORT"), group_id, topic) as start:
        query = start(security=security_of(secured.provided(lifetime_s)))
        produce(secured.kafka.bootstrap_servers, topic, [Row(b"v", partition=0)])
        first = query.plan_rows()
        secured.issuer.is_down = True
        try:
            failed = "'tests.provided_tokens:provided' failed with HTTPError"
            wait_until(
                lambda: query.run() or failed in caplog.text,
                what="the failure of the provider",
            )
        finally:
            secured.issuer.is_down = False
        until = time.monotonic() + lifetime_s
        wait_until(lambda: query.run() is None and time.monotonic() > until)
        produce(secured.kafka.bootstrap_servers, topic, [Row(b"v", partition=0)])
        plan = query.plan_rows()
        assert (plan.member_id, plan.member_epoch) == (first.member_id, first.member_epoch)
    assert caplog.text.count(failed) == 1
    assert "the current token is used for another" in caplog.text


@pytest.mark.parametrize("reader", [ReaderChoice.FAST, ReaderChoice.LIBRDKAFKA])
def test_a_reader_outlives_its_tokens(
    secured: SecuredKafka, topic: str, group_id: str, reader: ReaderChoice
) -> None:
    security = security_of(secured.provided(LIFETIME_S, nonce=group_id))
    settings = RangeSettings(
        bootstrap_servers=(secured.kafka.listener("SHORT"),),
        group_id=group_id,
        reader=reader,
        security=security,
        poll_timeout_s=LONG_S,
    )
    topic_id = topic_ids(settings, [topic])[topic]
    produce(secured.kafka.bootstrap_servers, topic, [Row(b"v", partition=0)] * 500)

    def read() -> bool:
        ranges = [OffsetRange(topic_id, topic, 0, 0, 500)]
        return sum(batch.num_rows for batch in read_ranges(settings, ranges)) == 500

    # The first one may compile the decoder.
    assert read()
    until = issued(secured, group_id) + LIFETIMES
    wait_until(lambda: not read() or issued(secured, group_id) >= until, LONG_S, "five more tokens")
    assert read()


def test_a_member_outlives_refused_tokens(
    secured: SecuredKafka, topic: str, group_id: str, caplog: pytest.LogCaptureFixture
) -> None:
    """The issuer's tokens are refused for two logins in a row, as while it changes its keys."""
    issuer = secured.issuer
    given = secured.tokens(security__protocol="SASL_PLAINTEXT", sasl__oauthbearer__scope=group_id)
    issuer.lifetime_s = LIFETIME_S
    try:
        with queries(secured.kafka.listener("SHORT"), group_id, topic) as start:
            query = start(security=security_of(given))
            produce(secured.kafka.bootstrap_servers, topic, [Row(b"v", partition=0)])
            joined = query.plan_rows()
            issuer.audience = "another-service"

            def refusals() -> list[str]:
                said = [each.getMessage() for each in caplog.records]
                return [each for each in said if "Other tokens are tried" in each]

            (warning,) = wait_until(refusals, what="a refused token")
            issuer.audience = "kafka"
            produce(secured.kafka.bootstrap_servers, topic, [Row(b"v", partition=0)])
            plan = query.plan_rows()
            query.commit_all()
    finally:
        issuer.audience, issuer.lifetime_s = "kafka", 300.0
    assert "rejected the token of 'batch-client'" in warning
    assert (plan.member_id, plan.member_epoch) == (joined.member_id, joined.member_epoch)
    assert committed(secured.kafka.bootstrap_servers, group_id) == all_at(topic, 1, 2)
