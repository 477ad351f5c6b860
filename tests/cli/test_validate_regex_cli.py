"""`spark-groups validate-regex`: made up, and on a real broker."""

from __future__ import annotations

import json

import pytest

from spark_groups.broker.embedded import EmbeddedKafka
from spark_groups.cli.validate_regex_cli import render_regex, view_regex
from tests.cli.commands import invoke
from tests.cli.rendered import lines
from tests.runtime.members import queries
from workshop.parts.brokers import create_topic
from workshop.parts.waiting import wait_until


@pytest.mark.broker
def test_topics_of_the_cluster_are_matched(
    kafka: EmbeddedKafka, topic_name: str, group_id: str
) -> None:
    create_topic(kafka.bootstrap_servers, topic_name)
    address = ("--bootstrap-server", kafka.bootstrap_servers)
    valid = invoke("validate-regex", f"{topic_name[:-1]}.", "--json", *address)
    assert (valid.exit_code, json.loads(valid.stdout)["matched"]) == (0, [topic_name])
    assert json.loads(valid.stdout)["internal"] == []
    # The first group of a cluster makes the topic.
    with queries(kafka.bootstrap_servers, group_id, topic_name) as start:
        query = start()
        wait_until(lambda: query.run() or query.assigned, what="its partitions")
    matched = invoke("validate-regex", "__consumer_.*", "--json", *address)
    assert json.loads(matched.stdout)["internal"] == ["__consumer_offsets"]
    wrong = invoke("validate-regex", "(", *address)
    assert wrong.exit_code == 1
    assert wrong.stdout.startswith("The regular expression `(` is invalid")


TOPICS = ("orders-eu", "orders", "flights-1", "flights-2")


def test_whole_names_are_matched() -> None:
    view = view_regex("flights-[12]|orders", TOPICS)
    assert (view.matched, view.topics) == (("flights-1", "flights-2", "orders"), 4)
    assert (view.fault, view.hint) == ("", "")


def test_a_pattern_that_matches_less_than_it_seems_to_has_a_hint() -> None:
    view = view_regex("^orders", TOPICS)
    assert view.matched == ("orders",)
    assert "for every name that begins so write 'orders.*'" in view.hint


def test_topics_that_are_internal_to_kafka_are_marked() -> None:
    view = view_regex(".*", ("orders", "__consumer_offsets"), {"__consumer_offsets", "__other"})
    assert (view.matched, view.internal) == (
        ("__consumer_offsets", "orders"),
        ("__consumer_offsets",),
    )
    _, counted, *topics = lines(render_regex(view))
    assert counted == "It matches 2 of 2 topics."
    assert topics == ["  __consumer_offsets  internal to Kafka: assigned, not read", "  orders"]


def test_an_expression_outside_re2_gets_the_reason_and_a_cure() -> None:
    view = view_regex("(?!orders).*", TOPICS)
    assert "RE2 has neither look-ahead nor look-behind" in view.fault
    assert (view.to_json()["matched"], view.topics) == ([], 0)


def test_a_valid_pattern_lists_its_topics_and_its_surprises() -> None:
    valid, counted, topic, note = lines(render_regex(view_regex("^orders", TOPICS)))
    assert valid == "The regular expression `^orders` is valid."
    assert (counted, topic) == ("It matches 1 of 4 topics.", "  orders")
    assert note.startswith("Note: subscribePattern '^orders' matches whole topic names")


def test_an_invalid_pattern_is_one_line() -> None:
    (line,) = lines(render_regex(view_regex("(", TOPICS)))
    assert line.startswith("The regular expression `(` is invalid: '(' is not an RE2 expression")
