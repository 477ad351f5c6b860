"""Configurations of a job: files, overrides, and the problems in one error."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from spark_groups.errors import OptionsError
from spark_groups.spark.jobs.job_options import (
    ConsumeOptions,
    CopyOptions,
    CountOptions,
    JobOptions,
    ReplayOptions,
    connected,
    load_job,
)
from spark_groups.spark.processing.strategies import (
    AtLast,
    NoDeadline,
    ProgressDeadline,
    Recirculate,
    Relinquish,
    RetryTo,
    SkipOrDeadLetter,
)
from workshop.tools.docs_options import option_table

ROOT = Path(__file__).resolve().parents[3]
SCHEMAS = ("schemaRegistry", "valueM", "valueS", "keyM", "keyS")
"""Beginnings of options that contradict the formats of the examples."""
EXAMPLE = ROOT / ConsumeOptions.example
MINIMAL = """
[source]
kafka.bootstrap.servers = "broker:9092"
kafka.group.id = "readers"
subscribe = "flights"
"""


def written(directory: Path, text: str) -> Path:
    path = directory / "job.toml"
    path.write_text(text, encoding="utf-8")
    return path


def refusal(path: Path | None, *settings: tuple[str, str, str]) -> str:
    with pytest.raises(OptionsError) as caught:
        load_job(ConsumeOptions, path, settings)
    return str(caught.value)


def test_example_is_right() -> None:
    options = load_job(ConsumeOptions, EXAMPLE)
    assert options.application_name == "flights-job-1"
    assert options.source["kafka.bootstrap.servers"] == "localhost:9092"
    assert options.source["maxOffsetsPerTrigger"] == "100000"
    assert options.trigger_s == 2.0
    assert "topic" in options.select_expr


def test_example_names_every_option_of_the_source() -> None:
    text = EXAMPLE.read_text(encoding="utf-8")
    names = re.findall(r"^\| `([^`]+)`", option_table(), re.MULTILINE)
    assert len(names) > 20
    of_batches = option_table("Batch reads")
    missing = [name for name in names if f"{name} = " not in text]
    assert [name for name in missing if f"`{name}`" not in of_batches] == []


def test_example_with_everything_uncommented_is_right(tmp_path: Path) -> None:
    lines = EXAMPLE.read_text(encoding="utf-8").splitlines()
    shown = [re.sub(r"^# ([\w.]+ = )", r"\1", line) for line in lines]
    shown = [re.sub(r"\s+\(console\)$", "", line) for line in shown]
    # What secures connections wants files and a login: test_authentication.py has them.
    alternatives = ("subscribePattern", "kafka.ssl.", "kafka.sasl.", *SCHEMAS)
    text = "\n".join(line for line in shown if not line.startswith(alternatives))
    options = load_job(ConsumeOptions, written(tmp_path, text))
    assert options.source["kafka.group.instance.id"] == "flights-job-1"
    assert options.stop_timeout_s == 30.0


def test_defaults(tmp_path: Path) -> None:
    options = load_job(ConsumeOptions, written(tmp_path, MINIMAL))
    assert options.application_name is None
    assert (options.sink_format, options.sink_path) == ("parquet", "output")
    assert options.checkpoint_location == "checkpoints"
    assert (options.trigger_s, options.stop_timeout_s) == (0.0, 30.0)
    assert options.select_expr == ()


@pytest.mark.parametrize(
    ("written_as", "seconds"),
    [
        ('"2s"', 2.0),
        ('"2 seconds"', 2.0),
        ('"1 minute"', 60.0),
        ('"500 milliseconds"', 0.5),
        ('"0s"', 0.0),
        ('"availableNow"', "availableNow"),
        ('"availablenow"', "availableNow"),
    ],
)
def test_triggers(tmp_path: Path, written_as: str, seconds: float | str) -> None:
    path = written(tmp_path, f"{MINIMAL}[query]\ntrigger = {written_as}\n")
    assert load_job(ConsumeOptions, path).trigger_s == seconds


@pytest.mark.parametrize("trigger", ['"2"', "2", '"soon"', '"once"', '"continuous"', "true"])
def test_wrong_triggers_are_refused_with_the_key(tmp_path: Path, trigger: str) -> None:
    path = written(tmp_path, f"{MINIMAL}[query]\ntrigger = {trigger}\n")
    assert f"{path}: query.trigger: " in refusal(path)


def test_keys_with_dots_may_be_quoted_or_not(tmp_path: Path) -> None:
    quoted = MINIMAL.replace("kafka.group.id", '"kafka.group.id"')
    assert (
        load_job(ConsumeOptions, written(tmp_path, quoted)).source
        == load_job(ConsumeOptions, written(tmp_path, MINIMAL)).source
    )


def test_values_become_the_texts_that_spark_takes(tmp_path: Path) -> None:
    more = 'includeHeaders = true\nminPartitions = 3\n[sink.options]\nsome.key = "x"\n'
    text = MINIMAL.replace('"flights"', '["flights", "weather"]') + more
    options = load_job(ConsumeOptions, written(tmp_path, text))
    assert options.source["includeHeaders"] == "true"
    assert options.source["minPartitions"] == "3"
    assert options.source["subscribe"] == "flights,weather"
    assert options.sink_options == {"some.key": "x"}


def test_command_line_overrides_the_file(tmp_path: Path) -> None:
    options = load_job(
        ConsumeOptions,
        written(tmp_path, MINIMAL),
        [
            ("--group", "source.kafka.group.id", "others"),
            ("--set", "source.maxOffsetsPerTrigger", "1000"),
            ("--set", "query.selectExpr", '["topic", "offset"]'),
            ("--set", "query.stopTimeout", "5s"),
            ("--set", "sink.options.numRows", "3"),
            ("--output", "sink.path", "elsewhere"),
        ],
    )
    assert options.source["kafka.group.id"] == "others"
    assert options.source["maxOffsetsPerTrigger"] == "1000"
    assert options.select_expr == ("topic", "offset")
    assert options.stop_timeout_s == 5.0
    assert options.sink_options == {"numRows": 3}
    assert options.sink_path == "elsewhere"


def test_topics_replace_a_pattern(tmp_path: Path) -> None:
    pattern = MINIMAL.replace('subscribe = "flights"', 'subscribePattern = "f.*"')
    options = load_job(
        ConsumeOptions, written(tmp_path, pattern), [("--topics", "source.subscribe", "weather")]
    )
    assert options.source["subscribe"] == "weather"
    assert "subscribePattern" not in options.source


def test_no_file_is_needed() -> None:
    settings = [
        ("--bootstrap-servers", "source.kafka.bootstrap.servers", "b:1"),
        ("--group", "source.kafka.group.id", "g"),
        ("--topics", "source.subscribe", "t"),
    ]
    assert load_job(ConsumeOptions, None, settings).source["subscribe"] == "t"


def test_one_error_lists_everything_with_file_and_key(tmp_path: Path) -> None:
    path = written(
        tmp_path,
        """
        [aplication]
        name = "x"
        [source]
        kafka.bootstrap.servers = "broker"
        subscribe = "flights"
        maxOffetsPerTrigger = 5
        kafka.session.timeout.ms = 1000
        [query]
        triger = "2s"
        [sink]
        format = "orc"
        """,
    )
    text = refusal(path, ("--name", "application.name", "a/b"))
    for line in (
        f"{path}: aplication: is not a known key; did you mean application?",
        f"{path}: source.kafka.bootstrap.servers: ",
        f"{path}: source.kafka.group.id: is missing",
        f"{path}: source.maxOffetsPerTrigger: is not an option of this source; did you mean max",
        f"{path}: source.kafka.session.timeout.ms: is refused: ",
        f"{path}: query.triger: is not a known key; did you mean trigger?",
        f"{path}: sink.format: 'orc' is invalid: ",
        "--name: application.name: 'a/b' cannot name a directory",
    ):
        assert f"\n  - {line}" in text, text


def test_section_that_is_no_table(tmp_path: Path) -> None:
    assert "query: is not a section: write [query] above" in refusal(
        written(tmp_path, f"query = 3\n{MINIMAL}")
    )


@pytest.mark.parametrize("source", ["source = 1", "[[source]]"])
def test_a_source_that_is_no_table(tmp_path: Path, source: str) -> None:
    assert "source: is not a section" in refusal(written(tmp_path, source))


def test_a_file_that_no_parser_should_be_given(tmp_path: Path) -> None:
    for text in ("a = " + "[" * 2000, f"[source]\n{'a.' * 3000}b = 1"):
        assert "is not TOML: it is nested too deeply" in refusal(written(tmp_path, text))
    assert "is too large for a configuration" in refusal(written(tmp_path, "a." * 200_000))


def test_number_of_thousands_of_digits_is_refused(tmp_path: Path) -> None:
    for number in ("9" * 5_000, "0x" + "f" * 5_000):
        for place in ("maxOffsetsPerTrigger", "[query]\ntrigger"):
            assert refusal(written(tmp_path, f"{MINIMAL}{place} = {number}\n"))
        with pytest.raises(OptionsError):
            load_job(ConsumeOptions, None, [("--set", "query.trigger", number)])


def test_a_setting_that_is_nested_too_deeply_is_a_text() -> None:
    with pytest.raises(OptionsError):
        load_job(ConsumeOptions, None, [("--set", "query.trigger", "[" * 2000)])


def test_file_that_is_not_there(tmp_path: Path) -> None:
    path = tmp_path / "none.toml"
    assert refusal(path).startswith(f"{path} cannot be read: No such file")


def test_file_that_is_not_toml(tmp_path: Path) -> None:
    path = written(tmp_path, "[source\n")
    assert refusal(path).startswith(f"{path} is not TOML: ")


@pytest.mark.parametrize("key", ["maxOffsetsPerTrigger", "sorce.subscribe", "source."])
def test_setting_without_a_section(key: str) -> None:
    assert "write section.key=value" in refusal(None, ("--set", key, "1"))


@pytest.mark.parametrize("kind", [ConsumeOptions, CopyOptions, CountOptions, ReplayOptions])
def test_example_of_every_job_is_right_also_with_everything_uncommented(
    kind: type[JobOptions], tmp_path: Path
) -> None:
    text = (ROOT / kind.example).read_text(encoding="utf-8")
    load_job(kind, ROOT / kind.example)
    shown = re.sub(r"^# (\[[\w.]+\]|[\w.]+ = (?!\.))", r"\1", text, flags=re.MULTILINE)
    left_out = ("subscribePattern", "kafka.ssl.", "kafka.sasl.", "numRows", "truncate", "repair")
    left_out += SCHEMAS
    lines = [line for line in shown.splitlines() if not line.startswith(left_out)]
    assert len([line for line in lines if not line.startswith("#")]) > 8
    load_job(kind, written(tmp_path, "\n".join(lines)))


def test_options_that_a_job_needs_of_its_source_are_set_unless_given() -> None:
    path = ROOT / CopyOptions.example
    assert load_job(CopyOptions, path).source["includeHeaders"] == "true"
    otherwise = [("--set", "source.includeHeaders", "false")]
    assert load_job(CopyOptions, path, otherwise).source["includeHeaders"] == "false"


def test_another_cluster_is_checked_as_a_source_is(tmp_path: Path) -> None:
    text = (ROOT / CopyOptions.example).read_text(encoding="utf-8")
    more = '[target.options]\nkafka.bootstrap.servers = "other:9092"\n'
    options = load_job(CopyOptions, written(tmp_path, text + more))
    assert connected(options.cluster).bootstrap_servers == ("other:9092",)
    assert connected(options.source).bootstrap_servers == ("localhost:9092",)
    wrong = written(tmp_path, text + more.replace("other:9092", "other"))
    with pytest.raises(OptionsError, match=r"target\.options: .*\n?.*kafka\.bootstrap\.servers"):
        load_job(CopyOptions, wrong)


def test_numbers_are_texts_there_too_and_no_password_is_shown(tmp_path: Path) -> None:
    text = (ROOT / CopyOptions.example).read_text(encoding="utf-8")
    more = """
[target.options]
kafka.bootstrap.servers = "other:9092"
kafka.request.timeout.ms = 5000
"""
    path = written(tmp_path, text + more)
    assert connected(load_job(CopyOptions, path).cluster).request_timeout_s == 5
    again = [("--set", "target.options.kafka.request.timeout.ms", "6000")]
    assert connected(load_job(CopyOptions, path, again).cluster).request_timeout_s == 6
    wrong = written(tmp_path, text + more + "kafka.ssl.key.password = 98765")
    with pytest.raises(OptionsError) as caught:
        load_job(CopyOptions, wrong)
    assert "98765" not in str(caught.value)


def test_a_missing_key_is_named_without_the_values_beside_it(tmp_path: Path) -> None:
    text = (ROOT / CopyOptions.example).read_text(encoding="utf-8")
    head, _, _ = text.partition("[target]")
    more = '[target.options]\nkafka.bootstrap.servers = "b:1"\nkafka.ssl.key.password = "98765"\n'
    with pytest.raises(OptionsError) as caught:
        load_job(CopyOptions, written(tmp_path, head + more))
    assert "98765" not in str(caught.value)
    assert "target.topic: is missing" in str(caught.value)
    again = more.replace("[target.options]", "[[target]]")
    with pytest.raises(OptionsError) as caught:
        load_job(CopyOptions, written(tmp_path, head + again))
    assert "98765" not in str(caught.value)


@pytest.mark.parametrize("emit", ["records", "ranges"])
def test_fields_of_values_can_be_selected_from_records_and_from_ranges(
    tmp_path: Path, emit: str
) -> None:
    more = f"""emit = "{emit}"
valueFormat = "avro"
schemaRegistryUrl = "http://localhost:8081"
schemaRegistry.ssl.ca.location = "/ca.pem"
[query]
selectExpr = ["value.*"]
[sink]
format = "delta"
"""
    options = load_job(ConsumeOptions, written(tmp_path, MINIMAL + more))
    assert options.expand == ("value",)
    assert options.source["schemaRegistry.ssl.ca.location"] == "/ca.pem"


def test_missing_options_of_a_table_are_named_before_a_session_is_started(tmp_path: Path) -> None:
    text = (
        MINIMAL
        + """emit = "ranges"
[query]
selectExpr = ["value"]
[sink]
format = "postgres"
[sink.options]
tabel = "flights"
"""
    )
    told = refusal(written(tmp_path, text))
    assert "sink.options.dsn: is missing" in told
    assert "sink.options.table: is missing" in told
    assert "sink.options.tabel: is not a known key; did you mean table?" in told
    assert 'query.selectExpr: needs the rows of source.emit = "records"' in told
    settings = [("--set", "sink.options.dsn", "dbname=x"), ("--set", "sink.options.table", "t")]
    options = load_job(
        ConsumeOptions,
        written(tmp_path, MINIMAL + '[sink]\nformat = "postgres"\n'),
        settings,
    )
    assert options.is_fenced
    assert dict(options.sink_options) == {"dsn": "dbname=x", "table": "t"}


def test_iceberg_takes_a_table_and_properties_of_its_catalog(tmp_path: Path) -> None:
    text = MINIMAL + '[sink]\nformat = "iceberg"\n[sink.options]\n'
    assert "sink.options.identifier: is missing" in refusal(written(tmp_path, text))
    text += """identifier = "lake.flights"
catalog = "production"
s3.region = "eu-west-1"
s3.force-virtual-addressing = true
"""
    options = load_job(ConsumeOptions, written(tmp_path, text))
    assert options.is_fenced
    assert dict(options.sink_options) == {
        "identifier": "lake.flights",
        "catalog": "production",
        "s3.region": "eu-west-1",
        "s3.force-virtual-addressing": True,
    }


@pytest.mark.parametrize("kind", ["delta", "iceberg", "postgres"])
def test_records_that_a_table_cannot_have_fail_the_query_unless_the_job_says_otherwise(
    tmp_path: Path, kind: str
) -> None:
    given = {"iceberg": {"identifier": "lake.rows"}, "postgres": {"dsn": "d", "table": "t"}}
    own = "".join(f'{name} = "{value}"\n' for name, value in given.get(kind, {}).items())
    text = MINIMAL + f'includeHeaders = true\n[sink]\nformat = "{kind}"\n[sink.options]\n{own}'
    assert load_job(ConsumeOptions, written(tmp_path, text)).on_error() is None
    for more, wanted in (
        ('onError = "fail"', None),
        ('onError = "skip"', SkipOrDeadLetter(at_last=AtLast.SKIP)),
        ('onError = "dead-letter"', SkipOrDeadLetter()),
        (
            'onError = "dead-letter"\ndeadLetterTopic = "{topic}.bad"',
            SkipOrDeadLetter(dead_letter_topic="{topic}.bad"),
        ),
    ):
        options = load_job(ConsumeOptions, written(tmp_path, text + more + "\n"))
        assert options.on_error() == wanted
        assert dict(options.table_options) == given.get(kind, {})


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (
            'format = "parquet"\n[sink.options]\nonError = "skip"',
            "is for the tables of sink.format",
        ),
        ('format = "delta"\n[sink.options]\nonError = "ignore"', "is 'ignore', not one of fail, "),
        (
            'format = "delta"\n[sink.options]\nonError = "dead-letter"',
            "needs source.includeHeaders = true",
        ),
    ],
)
def test_choice_that_cannot_be_is_named_before_a_session_is_started(
    tmp_path: Path, text: str, problem: str
) -> None:
    assert f"sink.options.onError: {problem}" in refusal(
        written(tmp_path, f"{MINIMAL}[sink]\n{text}\n")
    )


def test_table_of_dead_letters_is_one_of_postgresql(tmp_path: Path) -> None:
    name = 'deadLetterTable = "letters"'
    text = MINIMAL + f'[sink]\nformat = "delta"\n[sink.options]\n{name}\n'
    problem = 'sink.options.deadLetterTable: is for sink.format = "postgres"'
    assert problem in refusal(written(tmp_path, text))
    text = (
        MINIMAL + f'[sink]\nformat = "postgres"\n[sink.options]\ndsn = "d"\ntable = "t"\n{name}\n'
    )
    options = load_job(ConsumeOptions, written(tmp_path, text))
    assert options.table_options["deadLetterTable"] == "letters"


def test_partitions_are_those_of_a_fenced_table_of_files(tmp_path: Path) -> None:
    by = 'partitionBy = "topic, bucket(16, offset)"'
    text = MINIMAL + f'[sink]\nformat = "parquet"\n[sink.options]\n{by}\n'
    assert "sink.options.partitionBy: is for sink.format" in refusal(written(tmp_path, text))
    text = text.replace('"parquet"', '"iceberg"') + 'identifier = "lake.rows"\n'
    assert load_job(ConsumeOptions, written(tmp_path, text)).sink_format == "iceberg"


@pytest.mark.parametrize(
    ("text", "is_routed"),
    [
        ('format = "delta"\npath = "lake/{topic}"', True),
        ('format = "delta"\npath = "lake"', False),
        ('format = "postgres"\n[sink.options]\ndsn = "d"\ntable = "raw.{topic}"', True),
        ('format = "postgres"\npath = "{topic}"\n[sink.options]\ndsn = "d"\ntable = "t"', False),
        ('format = "iceberg"\n[sink.options]\nidentifier = "lake.{topic}"', True),
    ],
)
def test_topic_in_the_name_of_a_table_gives_each_topic_a_table(
    tmp_path: Path, text: str, is_routed: bool
) -> None:
    options = load_job(ConsumeOptions, written(tmp_path, f"{MINIMAL}[sink]\n{text}\n"))
    assert options.is_routed is is_routed


def test_topic_in_the_name_of_a_directory_is_refused(tmp_path: Path) -> None:
    path = written(tmp_path, MINIMAL + '[sink]\npath = "out/{topic}"\n')
    assert "sink.path: has {topic}, which only a table of" in refusal(path)


def test_counts_are_written_by_spark_alone(tmp_path: Path) -> None:
    delta = written(tmp_path, MINIMAL + '[sink]\nformat = "delta"\n')
    assert load_job(ConsumeOptions, delta).is_fenced
    assert not load_job(CountOptions, delta).is_fenced
    with pytest.raises(OptionsError, match=r"sink\.format"):
        load_job(CountOptions, written(tmp_path, MINIMAL + '[sink]\nformat = "postgres"\n'))


def test_a_repair_that_cannot_be_loaded_is_refused_before_anything_starts(tmp_path: Path) -> None:
    path = ROOT / ReplayOptions.example
    for name, reason in (
        ("no_such:repaired", "importing no_such failed with ModuleNotFoundError"),
        ("json:repaired", "json has no function repaired"),
    ):
        with pytest.raises(OptionsError, match=rf"--set: replay\.repair: .*{reason}.*PYTHONPATH"):
            load_job(ReplayOptions, path, [("--set", "replay.repair", name)])
    given = load_job(ReplayOptions, path, [("--set", "replay.repair", "json:loads")])
    assert given.repair == "json:loads"


FUNCTION_SINK = (
    MINIMAL
    + """
maxOffsetsPerTrigger = 1000
[sink]
format = "function"
[sink.options]
function = "json:loads"
"""
)


def test_each_strategy_is_made_from_its_arguments(tmp_path: Path) -> None:
    with_headers = FUNCTION_SINK.replace("[sink]", "includeHeaders = true\n[sink]", 1)
    no_limit = FUNCTION_SINK.replace("[sink]", "kafka.max.poll.interval.ms = 2147483647\n[sink]", 1)
    limit = FUNCTION_SINK.replace("[sink]", 'maxBatchTime = "60s"\n[sink]', 1)
    for text, wanted in (
        (no_limit + 'strategy = "NoDeadline"', NoDeadline()),
        (limit + 'strategy = "ProgressDeadline"', ProgressDeadline()),
        (FUNCTION_SINK + 'strategy = "Relinquish"', Relinquish()),
        (FUNCTION_SINK + 'strategy = "Relinquish"\nbatchDeadline = "9s"', Relinquish(9.0)),
        (
            with_headers + 'strategy = "SkipOrDeadLetter"\natLast = "SKIP"\nrecordDeadline = "2s"',
            SkipOrDeadLetter(at_last=AtLast.SKIP, record_deadline_s=2.0),
        ),
        (
            with_headers
            + 'strategy = "Recirculate"\nto = "GROUP_TOPIC"\nmaxRetries = 5\nexpireAfter = "1h"\n'
            + 'retryTopic = "{topic}.again"\ndeadLetterTopic = "{topic}.dead"',
            Recirculate(
                to=RetryTo.GROUP_TOPIC,
                max_retries=5,
                expire_after_s=3600.0,
                retry_topic="{topic}.again",
                dead_letter_topic="{topic}.dead",
            ),
        ),
    ):
        assert load_job(ConsumeOptions, written(tmp_path, text)).strategy() == wanted


@pytest.mark.parametrize(
    ("lines", "problem"),
    [
        ("", "sink.options.strategy: is '', not one of NoDeadline, "),
        ('strategy = "Skip"', "sink.options.strategy: is 'Skip', not one of NoDeadline, "),
        ('strategy = "SkipOrDeadLetter"', "includeHeaders must be true"),
        ('strategy = "Relinquish"\natLast = "SKIP"', "sink.options.atLast: is not a known key"),
        ('strategy = "Relinquish"\nbatchDeadline = "9"', "'9' has no unit: write 9s"),
        ('strategy = "Relinquish"\nbatchDeadline = "-1s"', "sink.options.batchDeadline: "),
        ('strategy = "Recirculate"\nto = "x"', "'x' is not one of ORIGINAL_TOPIC, GROUP_TOPIC"),
        ('strategy = "Recirculate"\nmaxRetries = 0', "max_retries must be positive, not 0"),
        ('strategy = "NoDeadline"', "kafka.max.poll.interval.ms must be at least a day"),
        (
            'strategy = "Relinquish"\n[query]\nselectExpr = ["value"]',
            'query.selectExpr: cannot be set with sink.format = "function"',
        ),
    ],
)
def test_function_that_cannot_be_called_as_configured_is_refused(
    tmp_path: Path, lines: str, problem: str
) -> None:
    assert problem in refusal(written(tmp_path, FUNCTION_SINK + lines))


def test_function_that_cannot_be_loaded_is_refused(tmp_path: Path) -> None:
    text = FUNCTION_SINK.replace("json:loads", "json:nothing") + 'strategy = "Relinquish"'
    assert "json has no function nothing" in refusal(written(tmp_path, text))


def test_tables_may_evolve_and_other_sinks_may_not(tmp_path: Path) -> None:
    for kind, problem in (
        ("parquet", 'sink.options.evolve: is for sink.format = "delta"'),
        ("delta", "sink.options.evolve: is 'merge'"),
    ):
        value = "merge" if kind == "delta" else "add"
        text = MINIMAL + f'[sink]\nformat = "{kind}"\n[sink.options]\nevolve = "{value}"\n'
        assert problem in refusal(written(tmp_path, text))
    text = MINIMAL + '[sink]\nformat = "delta"\n[sink.options]\nevolve = "add"\n'
    assert load_job(ConsumeOptions, written(tmp_path, text)).table_arguments == {"evolve": "add"}


def test_key_of_rows_and_the_envelope_are_options_of_delta_and_postgresql(tmp_path: Path) -> None:
    text = (
        MINIMAL
        + """[query]
selectExpr = ["key.*", "value.*"]
[sink]
format = "delta"
[sink.options]
mergeOn = "region, id"
orderBy = "updated_at"
envelope = "debezium"
aws_region = "eu-west-1"
"""
    )
    options = load_job(ConsumeOptions, written(tmp_path, text))
    assert options.expand == ("key", "value")
    assert options.table_arguments == {"merge_on": ("region", "id"), "order_by": "updated_at"}
    assert options.envelope == "debezium"
    assert options.table_options == {"aws_region": "eu-west-1"}
    with pytest.raises(OptionsError, match=r"mergeOn: is for sink\.format"):
        load_job(ConsumeOptions, written(tmp_path, text.replace('"delta"', '"parquet"')))
