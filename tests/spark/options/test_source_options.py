"""Options: every refusal with its reason, all at once, and the table that documents them."""

from __future__ import annotations

import pickle
from math import inf

import pytest
from confluent_kafka import Consumer, KafkaException

from spark_groups.errors import OptionsError
from spark_groups.group.batches.liveness import LivenessLimits
from spark_groups.group.ledger.starting import StartingPoint
from spark_groups.spark.options.checks import REFUSED, REFUSED_PREFIXES
from spark_groups.spark.options.librdkafka_options import FETCH_TUNING
from spark_groups.spark.options.option_values import Emit, MoveWithState
from spark_groups.spark.options.range_settings import ReaderChoice
from spark_groups.spark.options.source_options import SourceOptions
from spark_groups.types import TopicPartition
from workshop.tools.docs_options import grouped_options, option_table

NEEDED = {
    "kafka.bootstrap.servers": "one:9092,two:9093",
    "kafka.group.id": "flights",
    "subscribe": "departures",
}


def options(**changes: str | None) -> SourceOptions:
    """Check the needed options with changes; `__` stands for a dot, None takes one away."""
    given: dict[str, str] = dict(NEEDED)
    for name, value in changes.items():
        if value is None:
            del given[name.replace("__", ".")]
        else:
            given[name.replace("__", ".")] = value
    # Spark hands the names over in lower case.
    return SourceOptions.of({name.lower(): value for name, value in given.items()})


def test_defaults_are_those_of_spark_and_kafka() -> None:
    checked = options()
    assert checked.bootstrap_servers == ("one:9092", "two:9093")
    assert checked.subscription.topic_names == ("departures",)
    assert checked.starting_offsets.default is StartingPoint.LATEST
    assert (checked.fail_on_data_loss, checked.include_headers) == (True, False)
    member = checked.client_config().member
    assert (member.group_id, member.rebalance_timeout_ms) == ("flights", 300_000)
    assert (member.instance_id, member.rack_id, member.server_assignor) == (None, None, None)
    assert checked.plan_limit().max_offsets is None
    assert checked.plan_limit().max_trigger_delay_s == 900.0
    settings = checked.range_settings()
    assert (settings.read_committed, settings.poll_timeout_s) == (False, 120.0)
    assert (settings.reader, settings.memory_bytes) == (ReaderChoice.AUTO, 2**28)
    assert checked.emit is Emit.RECORDS
    assert checked.security.protocol == "PLAINTEXT"
    assert (checked.move_with_state, checked.settle_timeout_s) == (MoveWithState.WARN, 10.0)


def test_options_reach_the_member_the_plan_and_the_reader() -> None:
    checked = options(
        kafka__group__instance__id="one",
        kafka__group__remote__assignor="range",
        kafka__client__rack="r1",
        kafka__max__poll__interval__ms="60000",
        kafka__isolation__level="read_committed",
        maxOffsetsPerTrigger="1000",
        minOffsetsPerTrigger="10",
        maxTriggerDelay="90s",
        failOnDataLoss="false",
        includeHeaders="true",
        partitionMoveWithState="Fail",
        availableNowSettleTimeout="3s",
        **{"kafkaConsumer.pollTimeoutMs": "5000", "kafka.fetch.max.wait.ms": "20"},
        kafka__check__crcs="true",
    )
    config = checked.client_config()
    assert config.member.instance_id == "one"
    assert config.member.server_assignor == "range"
    assert config.member.rack_id == "r1"
    assert config.member.rebalance_timeout_ms == 60_000
    assert (config.read_committed, config.fail_on_data_loss) == (True, False)
    assert config.command_options.startswith("--bootstrap-server ")
    assert (checked.move_with_state, checked.settle_timeout_s) == (MoveWithState.FAIL, 3.0)
    limit = checked.plan_limit()
    assert (limit.max_offsets, limit.min_offsets, limit.max_trigger_delay_s) == (1000, 10, 90.0)
    settings = checked.range_settings()
    assert settings.read_committed
    assert settings.include_headers
    assert not settings.fail_on_data_loss
    assert settings.poll_timeout_s == 5.0
    assert dict(settings.tuning) == {"fetch.wait.max.ms": "20", "check.crcs": "true"}


def test_options_are_values() -> None:
    assert pickle.loads(pickle.dumps(options())) == options()
    assert hash(options().range_settings()) == hash(options().range_settings())


@pytest.mark.parametrize("name", REFUSED)
def test_refused_option_gives_its_reason(name: str) -> None:
    with pytest.raises(OptionsError) as caught:
        SourceOptions.of({**NEEDED, name.lower(): "x"})
    assert f"{name} is refused: {REFUSED[name]}" in str(caught.value)


@pytest.mark.parametrize("prefix", REFUSED_PREFIXES)
def test_refused_family_gives_its_reason(prefix: str) -> None:
    with pytest.raises(OptionsError) as caught:
        SourceOptions.of({**NEEDED, f"{prefix}anything": "x"})
    assert REFUSED_PREFIXES[prefix] in str(caught.value)


@pytest.mark.parametrize(
    ("given", "meant"),
    [
        ("startingOffset", "startingOffsets"),
        ("maxOffsetPerTrigger", "maxOffsetsPerTrigger"),
        ("subscribepatern", "subscribePattern"),
        ("kafka.groupid", "kafka.group.id"),
        ("kafka.fetch.wait.max.ms", "kafka.fetch.max.wait.ms"),
    ],
)
def test_unknown_option_names_the_nearest(given: str, meant: str) -> None:
    with pytest.raises(OptionsError, match=f"did you mean {meant}\\?"):
        SourceOptions.of({**NEEDED, given.lower(): "x"})


def test_option_has_its_own_capitals_in_an_error_although_spark_passes_none() -> None:
    given = {"startingoffset": "x", "failondataloss": "perhaps", "fooBar": "1"}
    with pytest.raises(OptionsError) as caught:
        SourceOptions.of({**NEEDED, **given})
    text = str(caught.value)
    assert "- startingOffset is not an option of this source; did you mean startingOffsets?" in text
    assert "- failOnDataLoss: 'perhaps' is invalid" in text
    assert "- fooBar is not an option of this source" in text


def test_unknown_option_without_a_near_one_is_only_named() -> None:
    with pytest.raises(OptionsError, match=r"zzzz is not an option of this source$"):
        options(zzzz="1")


WRONG = {
    "kafka.bootstrap.servers": ("nowhere", "'nowhere' is not host:port"),
    "kafka.group.id": (" ", "is empty"),
    "subscribe": ("a b", "not a legal topic name"),
    "startingOffsets": ("first", "neither earliest nor latest nor JSON"),
    "maxOffsetsPerTrigger": ("-3", "a whole number of at least 1"),
    "minOffsetsPerTrigger": ("many", "a whole number of at least 1"),
    "maxTriggerDelay": ("soon", "is not a duration"),
    "minPartitions": ("0", "of at least 1"),
    "maxRecordsPerPartition": ("1.5", "a whole number"),
    "failOnDataLoss": ("perhaps", "write true or false"),
    "kafka.isolation.level": ("serializable", "neither read_uncommitted nor read_committed"),
    "kafka.group.protocol": ("classic", "KIP-848"),
    "kafka.security.protocol": ("TLS", "'TLS' is none of PLAINTEXT, SSL"),
    "kafka.fetch.min.bytes": ("0", "from 1 to 100000000"),
    "kafka.check.crcs": ("x", "write true or false"),
    "kafka.fetch.max.bytes": ("999999", "a whole number from 1000000 to 2147483135"),
    "kafka.fetch.max.wait.ms": ("300001", "from 0 to 300000"),
    "kafka.max.partition.fetch.bytes": ("1000000001", "from 1 to 1000000000"),
    "kafka.metadata.max.age.ms": ("0", "a whole number from 1 to "),
    "maxMemoryPerTask": ("15m", "'15m' is less than 16m"),
    "emit": ("offsets", "neither records nor ranges"),
    "partitionMoveWithState": ("stop", "neither warn nor fail nor ignore"),
    "availableNowSettleTimeout": ("soon", "is not a duration"),
    "availableNowUnsettled": ("end", "neither warn nor fail nor wait"),
    "logLevel": ("loud", "neither debug nor info nor warn nor error nor off"),
    "kafka.max.poll.interval.ms": ("2147483648", "from 1 to 2147483647"),
}


@pytest.mark.parametrize("name", WRONG)
def test_wrong_value_is_named_with_the_reason(name: str) -> None:
    value, reason = WRONG[name]
    with pytest.raises(OptionsError) as caught:
        SourceOptions.of({**NEEDED, name: value})
    assert name in str(caught.value)
    assert reason in str(caught.value)


NUMBERS = {each.name: each for each in FETCH_TUNING if each.at_least is not None}


@pytest.mark.parametrize("name", NUMBERS)
def test_bounds_are_those_of_librdkafka(name: str) -> None:
    tuning = NUMBERS[name]
    assert tuning.at_least is not None
    # The pauses to reconnect are also compared with each other.
    others = {"reconnect.backoff.ms": 0, "reconnect.backoff.max.ms": 3_600_000}
    needed = {"bootstrap.servers": "127.0.0.1:1", "group.id": "g", "log_level": 0}
    for value in (tuning.at_least, tuning.at_most):
        Consumer({**needed, **others, tuning.setting: value}).close()
    for value in (tuning.at_least - 1, tuning.at_most + 1):
        with pytest.raises(OptionsError, match=rf"{name}: '{value}' is invalid"):
            SourceOptions.of({**NEEDED, name: str(value)})
        with pytest.raises(KafkaException):
            Consumer({**needed, **others, tuning.setting: value})


def test_everything_wrong_is_in_one_error() -> None:
    with pytest.raises(OptionsError) as caught:
        SourceOptions.of(
            {name: value for name, (value, _) in WRONG.items()} | {"assign": "x", "what": "y"}
        )
    text = str(caught.value)
    assert text.count("\n") == len(WRONG) + 2
    assert all(name in text for name in (*WRONG, "assign", "what"))


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"kafka__bootstrap__servers": None}, "kafka.bootstrap.servers is missing"),
        ({"kafka__group__id": None}, "kafka.group.id is missing"),
        ({"subscribePattern": "d.*"}, "both set"),
        (
            {"minOffsetsPerTrigger": "9", "maxOffsetsPerTrigger": "3"},
            r"minOffsetsPerTrigger \(9\) exceeds maxOffsetsPerTrigger \(3\)",
        ),
        (
            {"kafka__reconnect__backoff__ms": "10001"},
            r"kafka.reconnect.backoff.ms \(10001\) exceeds kafka.reconnect.backoff.max.ms",
        ),
        (
            {"kafka__reconnect__backoff__max__ms": "99"},
            r"kafka.reconnect.backoff.ms \(100\) exceeds kafka.reconnect.backoff.max.ms",
        ),
    ],
)
def test_missing_and_contradicting_options(changes: dict[str, str | None], reason: str) -> None:
    with pytest.raises(OptionsError, match=reason):
        options(**changes)


def test_membership_is_as_the_options_say() -> None:
    config = options().client_config()
    assert config.liveness == LivenessLimits(max_idle_s=None, max_batch_s=inf)
    assert (config.member.fast_heartbeats, config.member.await_instance) == (True, True)
    assert config.member.restart_s is None
    assert not options().leave_on_stop
    changed = options(
        kafka__group__instance__id="i1",
        kafka__group__protocol="CONSUMER",
        leaveOnStop="true",
        unreleasedInstance="fail",
        fastHeartbeats="false",
        maxIdleTime="none",
        maxBatchTime="2h",
    )
    config = changed.client_config(restart_s=61.0)
    assert config.liveness == LivenessLimits(max_idle_s=inf, max_batch_s=7200.0)
    assert (config.member.fast_heartbeats, config.member.await_instance) == (False, False)
    assert (config.member.instance_id, config.member.restart_s) == ("i1", 61.0)
    assert changed.leave_on_stop


def test_nothing_listens_unless_a_port_is_given() -> None:
    assert (options().metrics_port, options().metrics_host) == (None, "127.0.0.1")
    given = options(metricsPort="0", metricsHost="0.0.0.0")
    assert (given.metrics_port, given.metrics_host) == (0, "0.0.0.0")
    for wrong in ("-1", "65536", "http"):
        with pytest.raises(OptionsError, match="metricsPort"):
            options(metricsPort=wrong)


@pytest.mark.parametrize("protocol", ["classic", "generic", "share", "streams"])
def test_other_protocols_are_refused_with_the_reason(protocol: str) -> None:
    with pytest.raises(OptionsError, match="uses the consumer protocol"):
        options(kafka__group__protocol=protocol)


def test_the_member_reports_the_rack_of_the_driver(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ZONE_OF_TEST", "a")
    checked = options(kafka__client__rack="${env:ZONE_OF_TEST}")
    assert checked.client_config().member.rack_id == "a"
    # Executors resolve it from their own environment.
    assert checked.range_settings().rack == "${env:ZONE_OF_TEST}"
    monkeypatch.delenv("ZONE_OF_TEST")
    assert checked.client_config().member.rack_id is None


def test_variable_that_is_not_set_is_named() -> None:
    with pytest.raises(OptionsError, match=r"kafka.group.instance.id: .* set NO_SUCH_ONE in"):
        options(kafka__group__instance__id="${NO_SUCH_ONE}")


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("session.timeout.ms", "config GROUP --set consumer.session.timeout.ms="),
        ("kafka.heartbeat.interval.ms", "config GROUP --set consumer.heartbeat.interval.ms="),
        ("group.local.assignors", "choose its assignor with kafka.group.remote.assignor"),
        ("group.instance.id", "write kafka.group.instance.id"),
    ],
)
def test_name_of_a_consumer_without_its_prefix_is_understood(name: str, reason: str) -> None:
    with pytest.raises(OptionsError, match=reason):
        SourceOptions.of({**NEEDED, name: "1"})


def test_only_a_stream_has_to_choose_topics() -> None:
    chooses_nothing = options(subscribe=None)
    assert chooses_nothing.chosen is None
    with pytest.raises(OptionsError, match="set subscribe or subscribePattern"):
        chooses_nothing.client_config()


def test_what_only_a_stream_requires_is_in_one_error() -> None:
    given = {"kafka.bootstrap.servers": "b:1", "endingTimestamp": "5"}
    with pytest.raises(OptionsError) as caught:
        SourceOptions.of(given, may_lack_group=True).check_stream()
    assert str(caught.value).splitlines() == [
        "the kafka-group source cannot be started as a stream:",
        "  - kafka.group.id is missing: a stream requires a group to join",
        "  - the query has no topics: set subscribe or subscribePattern",
        "  - endingTimestamp: a stream has no end: use Trigger.AvailableNow",
    ]


def test_pattern_is_an_re2_expression() -> None:
    assert options(subscribe=None, subscribePattern="dep.*").subscription.topic_regex == "dep.*"
    with pytest.raises(OptionsError, match=r"subscribePattern: .* is not an RE2 expression"):
        options(subscribe=None, subscribePattern="(?=x)")


def test_starting_offsets_by_partition() -> None:
    starting = options(startingOffsets='{"departures": {"0": 23, "1": -2}}').starting_offsets
    assert starting.by_partition == {
        TopicPartition("departures", 0): 23,
        TopicPartition("departures", 1): -2,
    }
    assert starting.default is StartingPoint.EARLIEST
    assert options(startingOffsets="EARLIEST").starting_offsets.default is StartingPoint.EARLIEST


@pytest.mark.parametrize("text", ["{}", "[]", "3", '{"t": {}}', '{"t": {"a": 1}}'])
def test_starting_offsets_of_another_form_are_refused(text: str) -> None:
    with pytest.raises(OptionsError, match="startingOffsets"):
        options(startingOffsets=text)


@pytest.mark.parametrize("offset", ["-3", "1.5", "true", '"1"', "null"])
def test_starting_offset_that_is_none_is_refused(offset: str) -> None:
    with pytest.raises(OptionsError, match="is not an offset of t-0"):
        options(startingOffsets=f'{{"t": {{"0": {offset}}}}}')


@pytest.mark.parametrize(
    "chosen", [{}, {"subscribe": None, "subscribePattern": "depart.*"}], ids=["names", "pattern"]
)
def test_starting_offsets_of_a_topic_that_is_not_subscribed_are_listed_with_the_rest(
    chosen: dict[str, str | None],
) -> None:
    offsets = '{"departures": {"0": 1}, "depature": {"0": 1}, "xdepartures": {"0": 1}}'
    with pytest.raises(OptionsError) as caught:
        options(startingOffsets=offsets, minPartitions="0", **chosen)
    assert "startingOffsets names 'depature', which" in str(caught.value)
    assert "startingOffsets names 'xdepartures', which" in str(caught.value)
    assert "'departures'" not in str(caught.value)
    assert "minPartitions" in str(caught.value)


FIRST, SECOND = TopicPartition("departures", 0), TopicPartition("departures", 1)


def test_timestamp_takes_precedence_as_in_spark() -> None:
    by_partition = '{"departures": {"0": 2000}}'
    given = {"startingOffsets": "latest", "startingOffsetsByTimestamp": by_partition}
    named = options(**given).starting
    assert [named.timestamp_ms(each, known_count=None) for each in (FIRST, SECOND)] == [2000, None]
    assert named.of(SECOND, known_count=None) == StartingPoint.EARLIEST.value
    assert not named.else_latest
    strategy = {"startingOffsetsByTimestampStrategy": "LATEST"}
    whole = options(**given, **strategy, startingTimestamp="1000").starting
    assert [whole.timestamp_ms(each, known_count=None) for each in (FIRST, SECOND)] == [1000, 1000]
    assert whole.else_latest
    assert (
        whole
        == options(**given, **strategy, startingTimestamp="1000")
        .client_config(1.0)
        .starting_offsets
    )


def test_ending_timestamp_takes_precedence_as_in_spark() -> None:
    by_partition = {"endingOffsetsByTimestamp": '{"departures": {"0": 2000}}'}
    offsets = {"endingOffsets": '{"departures": {"0": 5, "1": -1}}'}
    assert options(**offsets).ending.by_partition == {FIRST: 5, SECOND: -1}
    found = options(**offsets, **by_partition).ending
    assert found.by_partition == {}
    assert found.timestamps is not None
    assert found.timestamps.by_partition_ms == {FIRST: 2000}
    found = options(**offsets, **by_partition, endingTimestamp="3000").ending
    assert found.timestamps is not None
    assert (found.timestamps.default_ms, found.timestamps.option) == (3000, "endingTimestamp")


@pytest.mark.parametrize(
    ("name", "text", "reason"),
    [
        ("startingTimestamp", "-1", "'-1' is not a timestamp: write milliseconds"),
        ("endingTimestamp", "2026-11-23", "is not a timestamp"),
        ("startingOffsetsByTimestamp", "1000", "expected an object of topics"),
        ("startingOffsetsByTimestamp", "earliest", "'earliest' is not JSON"),
        (
            "endingOffsetsByTimestamp",
            '{"departures": {"0": -1}}',
            "-1 is not a timestamp of departures-0: write milliseconds",
        ),
        ("startingOffsetsByTimestamp", '{"arrivals": {"0": 1}}', "names 'arrivals', which"),
        ("endingOffsets", '{"arrivals": {"0": 1}}', "names 'arrivals', which"),
        ("endingOffsets", "earliest", "ends at the earliest offset has no rows"),
        ("endingOffsets", '{"departures": {"0": -2}}', "-2 is not an offset of departures-0; -1"),
        ("endingOffsets", "3", "expected an object of topics"),
        ("startingOffsetsByTimestampStrategy", "earliest", "is neither error nor latest"),
    ],
)
def test_wrong_timestamps_and_ends_are_refused(name: str, text: str, reason: str) -> None:
    with pytest.raises(OptionsError, match=f"(?s){name}.*{reason}"):
        options(**{name: text})


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        (
            {
                "startingOffsets": '{"departures": {"0": 7}}',
                "endingOffsets": '{"departures": {"0": 6}}',
            },
            r"startingOffsets of departures-0 \(7\) exceeds endingOffsets \(6\)",
        ),
        (
            {"startingTimestamp": "9", "endingTimestamp": "8"},
            r"startingTimestamp \(9\) exceeds endingTimestamp \(8\)",
        ),
        (
            {"startingTimestamp": "9", "endingOffsetsByTimestamp": '{"departures": {"0": 8}}'},
            r"endingOffsetsByTimestamp \(8\) of departures-0",
        ),
    ],
)
def test_read_that_ends_before_it_starts_is_refused(changes: dict[str, str], reason: str) -> None:
    with pytest.raises(OptionsError, match=reason):
        options(**changes)


def test_batch_read_needs_no_group_and_then_starts_at_earliest_as_in_spark() -> None:
    given = {name: value for name, value in NEEDED.items() if name != "kafka.group.id"}
    found = SourceOptions.of(given, may_lack_group=True)
    assert found.group is None
    assert found.starting.default is StartingPoint.EARLIEST
    with pytest.raises(OptionsError, match=r"kafka\.group\.id is missing: a stream requires"):
        found.client_config()
    for text in ("latest", '{"departures": {"0": 1, "1": -1}}'):
        with pytest.raises(OptionsError, match="cannot start at latest"):
            SourceOptions.of({**given, "startingOffsets": text}, may_lack_group=True)


def test_table_has_a_row_for_every_option() -> None:
    lines = option_table().splitlines()
    names = [line.split("`")[1] for line in lines[2:]]
    assert len(names) == len(set(names))
    assert {*NEEDED, "startingOffsets", "failOnDataLoss", "kafka.client.rack"} <= set(names)
    assert {tuning.name for tuning in FETCH_TUNING} <= set(names)
    assert not set(names) & set(REFUSED)
    assert all(line.count(" | ") == 2 for line in lines[2:])


def test_grouped_tables_have_every_option_once_under_what_it_is_about() -> None:
    page = grouped_options()
    rows = [line for line in page.splitlines() if line.startswith("| `")]
    assert sorted(rows) == sorted(option_table().splitlines()[2:])
    groups = {part.partition("\n")[0]: part for part in page.split("## ")[1:]}
    assert list(groups) == [
        *("Essential", "Formats", "Batch reads", "Batch size", "Member", "Security", "Fetch"),
    ]
    assert "`schemaRegistry.ssl.ca.location`" in groups["Formats"]
    assert "`subscribe`" in groups["Essential"]
    assert "`minPartitions`" in groups["Batch size"]
    assert "`kafka.group.instance.id`" in groups["Member"]
    assert "`kafka.fetch.max.bytes`" in groups["Fetch"]
