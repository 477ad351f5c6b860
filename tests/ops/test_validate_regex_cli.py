"""`spark-groups validate-regex` on a real broker."""

from __future__ import annotations

import json

import pytest

from spark_groups.lab.broker.embedded import EmbeddedKafka
from tests.brokers import create_topic
from tests.ops.commands import invoke


@pytest.mark.broker
def test_topics_of_the_cluster_are_matched(kafka: EmbeddedKafka, topic_name: str) -> None:
    create_topic(kafka.bootstrap_servers, topic_name)
    address = ("--bootstrap-server", kafka.bootstrap_servers)
    valid = invoke("validate-regex", f"{topic_name[:-1]}.", "--json", *address)
    assert (valid.exit_code, json.loads(valid.stdout)["matched"]) == (0, [topic_name])
    wrong = invoke("validate-regex", "(", *address)
    assert wrong.exit_code == 1
    assert wrong.stdout.startswith("The regular expression `(` is invalid")
