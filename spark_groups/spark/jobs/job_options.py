"""The configurations of the jobs in `jobs/`: their sections, checked all at once.

Keys are Spark's own names. `[source]` takes every option of `format("kafka-group")`, and is checked
by what checks a load(), so that a wrong option is found before a session is started.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator, Mapping
from typing import Annotated, Any, ClassVar, Final, Literal, TypeVar

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from spark_groups.errors import OptionsError
from spark_groups.spark.options.range_settings import RangeSettings
from spark_groups.spark.options.source_options import SourceOptions
from spark_groups.spark.options.values import parse_duration_s
from spark_groups.spark.processing.strategies import RETRY_TOPIC

AVAILABLE_NOW: Final = "availableNow"

_ANY_GROUP: Final = {"kafka.group.id": "none", "subscribe": "none"}
"""What the options of a source have to have, where only its cluster matters."""
_WORDS: Final = {"millisecond": "ms", "second": "s", "minute": "m", "hour": "h", "day": "d"}


def _duration_s(value: object) -> float:
    """Read a duration, also with its unit written out, as in "2 seconds"."""
    text = str(value).strip()
    found = re.fullmatch(r"(\d+)\s*([a-z]+?)s?", text)
    if found and found[2] in _WORDS:
        text = found[1] + _WORDS[found[2]]
    if text.isdigit():
        raise ValueError(f"{value!r} has no unit: write {text}s for seconds")
    return parse_duration_s(text)


def _trigger(value: object) -> object:
    if str(value).lower() == AVAILABLE_NOW.lower():
        return AVAILABLE_NOW
    if str(value).lower() in {"once", "continuous", "realtime"}:
        raise ValueError(f"{value!r} is not supported: use {AVAILABLE_NOW} or an interval")
    try:
        return _duration_s(value)
    except ValueError as error:
        raise ValueError(f"{error}; or {AVAILABLE_NOW}") from error


def _name(value: object) -> object:
    if not re.fullmatch(r"\w[\w.-]*", str(value)):
        raise ValueError(
            f"{value!r} cannot be the name of a directory: letters, digits, '.', '_', '-'"
        )
    return value


def _sink_options(value: object) -> object:
    if isinstance(value, dict) and "path" in {str(key).lower() for key in value}:
        raise ValueError("path is a key of [sink] itself")
    return value


def _cluster_options(value: dict[str, str]) -> dict[str, str]:
    if value:
        try:
            connected(value)
        except OptionsError as error:
            raise ValueError(str(error)) from error
    return value


Duration = Annotated[float, BeforeValidator(_duration_s), Field(gt=0)]
Text = Annotated[str, Field(min_length=1)]


class _Section(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, populate_by_name=True)


class ApplicationSection(_Section):
    """What tells this application from the others of its group.

    Args:
        name: Its name, and that of its directories; None is Spark's application id, which is
            another one in every run, so that nothing is resumed.
    """

    name: Annotated[str, BeforeValidator(_name)] | None = None


class QuerySection(_Section):
    """How the query runs.

    Args:
        checkpoint_location: The directory that holds a checkpoint for each application.
        trigger_s: Seconds between two batches, or availableNow.
        select_expr: SQL expressions of the columns that are written; empty: all columns.
        stop_timeout_s: Seconds that the running batch may take after SIGTERM.
    """

    checkpoint_location: Text = Field(default="checkpoints", alias="checkpointLocation")
    trigger_s: Annotated[
        Literal["availableNow"] | Annotated[float, Field(ge=0)], BeforeValidator(_trigger)
    ] = Field(default=0.0, alias="trigger")
    select_expr: tuple[Text, ...] = Field(default=(), alias="selectExpr")
    stop_timeout_s: Duration = Field(default=30.0, alias="stopTimeout")


class SinkSection(_Section):
    """Where the rows go.

    Args:
        format: What writes them; delta needs the package of Delta Lake.
        path: The directory that holds a directory for each application; not for the console.
        options: Options of the format.
    """

    format: Literal["parquet", "delta", "console"] = "parquet"
    path: Text = "output"
    options: Annotated[dict[str, str | int | bool], BeforeValidator(_sink_options)] = Field(
        default_factory=dict
    )


class TargetSection(_Section):
    """Where a copy goes.

    Args:
        topic: The topic that is written.
        partition: Whether records keep the number of their partition, or their key decides.
        options: `kafka.*` options of another cluster; empty: the cluster that is read.
    """

    topic: Text
    partition: Literal["same", "key"] = "same"
    options: Annotated[dict[str, str], AfterValidator(_cluster_options)] = Field(
        default_factory=dict
    )


class WindowSection(_Section):
    """What is counted.

    Args:
        length: How long a window is, as Spark writes intervals.
        slide: From the start of one to the start of the next; None: as long as it is.
        watermark: How late a record may be: then its window is counted and written.
        group_by: SQL expressions beside the window.
    """

    length: Text = "1 minute"
    slide: Text | None = None
    watermark: Text = "10 minutes"
    group_by: tuple[Text, ...] = Field(default=(), alias="groupBy")


class ReplaySection(_Section):
    """How dead letters are sent back.

    Args:
        to: To the topic that they stood in first, or to their group's topic for retries.
        retry_topic: The name of that one, made of `{topic}` and `{group}`.
        dry_run: Whether it is only shown.
    """

    to: Literal["original", "retry"] = "original"
    retry_topic: Text = Field(default=RETRY_TOPIC, alias="retryTopic")
    dry_run: bool = Field(default=False, alias="dryRun")


class JobOptions(_Section):
    """What every job has.

    Args:
        application: What tells this application from others.
        source: Options of the source, by their own names.
        query: How the query runs.
    """

    example: ClassVar[str]
    """The file that shows all of its keys."""
    needed: ClassVar[Mapping[str, str]] = {}
    """What is set of the source where nothing else is said."""

    application: ApplicationSection = Field(default_factory=ApplicationSection)
    source: Mapping[str, str]
    query: QuerySection = Field(default_factory=QuerySection)

    @classmethod
    def sections(cls) -> tuple[str, ...]:
        """Return the names of the sections."""
        return tuple(cls.model_fields)

    @property
    def files(self) -> SinkSection | None:
        """What files are written; None: none."""
        return None


Job = TypeVar("Job", bound=JobOptions)


class _SinkOptions(JobOptions):
    """A job whose rows go into a sink of Spark's own.

    Args:
        sink: Which.
    """

    sink: SinkSection = Field(default_factory=SinkSection)

    @property
    def files(self) -> SinkSection | None:
        """What files are written; None: none."""
        return None if self.sink.format == "console" else self.sink


class ConsumeOptions(_SinkOptions):
    """The configuration of `jobs/consume.py`."""

    example: ClassVar[str] = "conf/consume.toml"


class CountOptions(_SinkOptions):
    """The configuration of `jobs/count_by_window.py`.

    Args:
        window: What is counted.
    """

    example: ClassVar[str] = "conf/count_by_window.toml"

    window: WindowSection = Field(default_factory=WindowSection)


class CopyOptions(JobOptions):
    """The configuration of `jobs/copy_topic.py`.

    Args:
        target: Where the copy goes.
    """

    example: ClassVar[str] = "conf/copy_topic.toml"
    needed: ClassVar[Mapping[str, str]] = {"includeHeaders": "true"}

    target: TargetSection


class ReplayOptions(JobOptions):
    """The configuration of `jobs/replay_dead_letters.py`.

    Args:
        replay: How they are sent back.
    """

    example: ClassVar[str] = "conf/replay_dead_letters.toml"
    needed: ClassVar[Mapping[str, str]] = {
        "includeHeaders": "true",
        "startingOffsets": "earliest",
    }

    replay: ReplaySection = Field(default_factory=ReplaySection)


def connected(options: Mapping[str, str]) -> RangeSettings:
    """Return how a cluster is connected to, by the options of a source that reads it.

    Args:
        options: At least `kafka.bootstrap.servers`.

    Raises:
        OptionsError: Some of them are wrong.
    """
    of_cluster = {name: value for name, value in options.items() if name.startswith("kafka.")}
    return SourceOptions.of({**of_cluster, **_ANY_GROUP}).range_settings()


def check_job(
    kind: type[Job], table: Mapping[str, Any]
) -> tuple[Job | None, list[tuple[str, str]]]:
    """Check a configuration.

    Args:
        kind: What it consists of.
        table: Its sections; those of `source` are flat, its values texts.

    Returns:
        The checked options, and nothing wrong; or None, and all that is wrong as pairs of the
        place (`section.key`) and the reason.
    """
    source = table.get("source", {})
    if not isinstance(source, dict):
        return None, [("source", "is no section with options: write [source] above them")]
    given = {**table, "source": {**kind.needed, **source}}
    problems = [*_source_problems(given["source"])]
    try:
        options = kind.model_validate(given)
    except ValidationError as error:
        return None, [*problems, *(_problem(kind, each) for each in error.errors())]
    return (None if problems else options), problems


def _source_problems(source: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """Say what a load() would say, with the option's name in front of it."""
    try:
        SourceOptions.of(source)
    except OptionsError as error:
        known = sorted((*source, "kafka.bootstrap.servers", "kafka.group.id"), key=len)[::-1]
        for problem in str(error).split("\n  - ")[1:]:
            name = next((each for each in known if problem.lower().startswith(each.lower())), "")
            reason = problem[len(name) :].lstrip(": ") if name else problem
            yield (f"source.{name}" if name else "source"), reason


def _problem(kind: type[JobOptions], error: Any) -> tuple[str, str]:
    place = [str(part) for part in error["loc"] if str(part) not in _UNION_MEMBERS]
    where = ".".join(place)
    if error["type"] == "extra_forbidden":
        near = difflib.get_close_matches(place[-1], _known_keys(kind, place[:-1]), n=1)
        hint = f"; did you mean {near[0]}?" if near else ""
        return where, f"there is no such key{hint}"
    if error["type"] == "value_error":
        return where, str(error["ctx"]["error"])
    if error["type"] == "missing":
        return where, "is missing"
    if isinstance(error["input"], dict | list):
        # There may be passwords in it.
        return where, error["msg"]
    return where, f"{error['input']!r} is wrong: {error['msg']}"


_UNION_MEMBERS: Final = frozenset({"literal['availableNow']", "constrained-float", "float"})


def _known_keys(kind: type[JobOptions], place: list[str]) -> list[str]:
    model: Any = kind
    if place:
        field = kind.model_fields.get(place[0])
        model = field.annotation if field is not None else None
    fields = getattr(model, "model_fields", {})
    return [field.alias or name for name, field in fields.items()]
