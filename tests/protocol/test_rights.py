"""Commands that grant what is missing."""

from __future__ import annotations

from spark_groups.errors import ErrorCode, rule_for
from spark_groups.protocol.rights import TOPICS_MAX, Identity, remedy_of

ALICE = Identity(principal="User:alice", bootstrap_servers=("a:9092", "b:9092"))
GROUP, TOPIC = ErrorCode.GROUP_AUTHORIZATION_FAILED, ErrorCode.TOPIC_AUTHORIZATION_FAILED
COMMAND = "kafka-acls.sh --bootstrap-server a:9092,b:9092 --command-config admin.properties --add"


def test_a_right_on_the_group_is_granted_to_the_principal() -> None:
    assert remedy_of(GROUP, ALICE, group_id="all flights") == (
        "the principal User:alice needs READ and DESCRIBE on the group; grant it by:"
        f" {COMMAND} --allow-principal User:alice --operation Read --operation Describe"
        " --group 'all flights'"
    )


def test_a_right_on_topics_names_them_up_to_a_bound() -> None:
    said = remedy_of(TOPIC, ALICE, group_id="g", topics={"b", "a"})
    assert said.endswith("--operation Describe --topic a --topic b")
    many = [f"t{number}" for number in range(TOPICS_MAX + 5)]
    assert remedy_of(TOPIC, ALICE, group_id="g", topics=many).count("--topic") == TOPICS_MAX
    assert remedy_of(TOPIC, ALICE, group_id="g").endswith("--topic TOPIC")


def test_a_principal_that_only_brokers_know_is_left_to_be_looked_up() -> None:
    nobody = Identity(principal="", bootstrap_servers=("a:9092",))
    said = remedy_of(GROUP, nobody, group_id="g")
    assert "--allow-principal User:NAME " in said
    assert said.endswith("the broker's log says which principal User:NAME is")


def test_what_is_no_missing_right_has_its_own_remedy() -> None:
    code = ErrorCode.UNSUPPORTED_ASSIGNOR
    assert remedy_of(code, ALICE, group_id="g") == rule_for(code).remedy
    assert remedy_of(GROUP, None, group_id="g") == rule_for(GROUP).remedy
    assert remedy_of(-77, ALICE, group_id="g") == rule_for(-77).remedy
