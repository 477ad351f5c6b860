"""The configurations of the jobs in `jobs/`: a TOML file each, and what the command line overrides.

Keys are Spark's own names. `[source]` takes every option of `format("kafka-group")`, and is checked
by what checks a load(), so that a wrong option is found before a session is started. One error
lists all that is wrong, with the file or the argument that has to be changed.
"""

from __future__ import annotations

import difflib
import re
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, ClassVar, Final, Literal, TypeVar

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from spark_groups.errors import OptionsError
from spark_groups.spark.options.range_settings import RangeSettings
from spark_groups.spark.options.source_options import SourceOptions
from spark_groups.spark.options.values import parse_duration_s
from spark_groups.spark.processing.strategies import RETRY_TOPIC

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

AVAILABLE_NOW: Final = "availableNow"

_CHARACTERS_MAX: Final = 200_000
"""How long a file may be: some that no person would write take the parser as long as its square."""
_TABLES: Final = ("source", "sink.options", "target.options")
"""What holds options of any name, which may have dots: sub-tables are only a way to write those."""
_TEXTS: Final = ("source.", "target.options.")
"""Where every value is a text: an error about another kind of value would show it."""
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
Trigger = Annotated[
    Literal["availableNow"] | Annotated[float, Field(ge=0)], BeforeValidator(_trigger)
]
SinkOptions = Annotated[dict[str, str | int | bool], BeforeValidator(_sink_options)]
ClusterOptions = Annotated[dict[str, str], AfterValidator(_cluster_options)]


class JobOptions(BaseModel):
    """What every job has; each kind adds keys of its own, in sections of their own.

    Args:
        application_name: Names the application and its directories; None is Spark's application
            id, which is another one in every run, so that nothing is resumed.
        source: Options of the source, by their own names.
        checkpoint_location: The directory that holds a checkpoint for each application.
        trigger_s: Seconds between two batches, or availableNow.
        select_expr: SQL expressions of the columns that are written; empty: all columns.
        stop_timeout_s: Seconds that the running batch may take after SIGTERM.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    example: ClassVar[str]
    """The file that shows all of its keys."""
    needed: ClassVar[Mapping[str, str]] = {}
    """What is set of the source where nothing else is said."""

    application_name: Annotated[str, BeforeValidator(_name)] | None = Field(
        None, alias="application.name"
    )
    source: Mapping[str, str]
    checkpoint_location: Text = Field("checkpoints", alias="query.checkpointLocation")
    trigger_s: Trigger = Field(0.0, alias="query.trigger")
    select_expr: tuple[Text, ...] = Field((), alias="query.selectExpr")
    stop_timeout_s: Duration = Field(30.0, alias="query.stopTimeout")

    def problems(self) -> Iterator[tuple[str, str]]:
        """Yield the place and the reason of what is wrong only beside something else."""
        yield from ()


Job = TypeVar("Job", bound=JobOptions)


class ConsumeOptions(JobOptions):
    """The configuration of `jobs/consume.py`.

    Args:
        sink_format: What writes the rows; to delta and postgres, each record exactly once.
        sink_path: The directory that holds a directory for each application; for delta the table
            itself, which all applications of the group share.
        sink_options: Options of the format; for delta those of its store, for postgres `dsn` and
            `table`.
    """

    example = "conf/consume.toml"

    sink_format: Literal["parquet", "delta", "postgres", "console"] = Field(
        "parquet", alias="sink.format"
    )
    sink_path: Text = Field("output", alias="sink.path")
    sink_options: SinkOptions = Field({}, alias="sink.options")

    @property
    def is_fenced(self) -> bool:
        """Whether a table is written by `spark_groups.write_table`."""
        return self.sink_format in {"delta", "postgres"}

    def problems(self) -> Iterator[tuple[str, str]]:
        """Yield the place and the reason of what a table does not go together with."""
        if self.sink_format == "postgres":
            for name in ("dsn", "table"):
                if not isinstance(self.sink_options.get(name), str):
                    yield f"sink.options.{name}", "is missing"
            for name in self.sink_options:
                if name not in {"dsn", "table"}:
                    yield f"sink.options.{name}", _no_such_key(name, ("dsn", "table"))
        if self.is_fenced and self.select_expr and self.source.get("emit") == "ranges":
            yield "query.selectExpr", 'needs the rows of source.emit = "records"'


class CountOptions(ConsumeOptions):
    """The configuration of `jobs/count_by_window.py`.

    Args:
        sink_format: What writes the counts, by Spark; delta needs the package of Delta Lake.
        length: How long a window is, as Spark writes intervals.
        slide: From the start of one to the start of the next; None: as long as it is.
        watermark: How late a record may be: then its window is counted and written.
        group_by: SQL expressions beside the window.
    """

    example = "conf/count_by_window.toml"

    sink_format: Literal["parquet", "delta", "console"] = Field("parquet", alias="sink.format")
    length: Text = Field("1 minute", alias="window.length")
    slide: Text | None = Field(None, alias="window.slide")
    watermark: Text = Field("10 minutes", alias="window.watermark")
    group_by: tuple[Text, ...] = Field((), alias="window.groupBy")

    @property
    def is_fenced(self) -> bool:
        """Whether a table is written by `write_table`: counts are not what a batch has read."""
        return False


class CopyOptions(JobOptions):
    """The configuration of `jobs/copy_topic.py`.

    Args:
        topic: The topic that is written.
        partition: Whether records keep the number of their partition, or their key decides.
        cluster: `kafka.*` options of another cluster; empty: the cluster that is read.
    """

    example = "conf/copy_topic.toml"
    needed = {"includeHeaders": "true"}

    topic: Text = Field(alias="target.topic")
    partition: Literal["same", "key"] = Field("same", alias="target.partition")
    cluster: ClusterOptions = Field({}, alias="target.options")


class ReplayOptions(JobOptions):
    """The configuration of `jobs/replay_dead_letters.py`.

    Args:
        to: To the topic that the letters stood in first, or to their group's topic for retries.
        retry_topic: The name of that one, made of `{topic}` and `{group}`.
        dry_run: Whether it is only shown.
    """

    example = "conf/replay_dead_letters.toml"
    needed = {"includeHeaders": "true", "startingOffsets": "earliest"}

    to: Literal["original", "retry"] = Field("original", alias="replay.to")
    retry_topic: Text = Field(RETRY_TOPIC, alias="replay.retryTopic")
    dry_run: bool = Field(False, alias="replay.dryRun")


def connected(options: Mapping[str, str]) -> RangeSettings:
    """Return how a cluster is connected to, by the options of a source that reads it.

    Args:
        options: At least `kafka.bootstrap.servers`.

    Raises:
        OptionsError: Some of them are wrong.
    """
    of_cluster = {name: value for name, value in options.items() if name.startswith("kafka.")}
    return SourceOptions.of({**of_cluster, **_ANY_GROUP}).range_settings()


def load_job(
    kind: type[Job], path: Path | None, settings: Iterable[tuple[str, str, str]] = ()
) -> Job:
    """Return the checked configuration of a job.

    Args:
        kind: What it consists of.
        path: A TOML file; None: everything is set on the command line.
        settings: What overrides the file, in order: the argument that says so, `section.key`, and
            the value as text.

    Raises:
        OptionsError: The file cannot be read, or something in it or in the settings is wrong;
            lists everything, each with its place.
    """
    values = dict(_read(path, kind.example)) if path is not None else {}
    origins = dict.fromkeys(values, str(path))
    keys = [each.alias or name for name, each in kind.model_fields.items()]
    sections = list(dict.fromkeys(key.partition(".")[0] for key in keys))
    for argument, key, text in settings:
        section, _, name = key.partition(".")
        if section not in sections or not name:
            raise OptionsError(
                f"{argument}: {key!r} is not a setting: write section.key=value, with one of the"
                f" sections {', '.join(sections)}"
            )
        if key == "source.subscribe":
            values.pop("source.subscribePattern", None)
        values[key] = text if key.startswith(_TEXTS) else _value(text)
        origins[key] = argument
    given, problems = _given(kind, values, keys, sections)
    try:
        options = kind.model_validate(given)
    except ValidationError as error:
        problems += [_problem(each, keys) for each in error.errors()]
    else:
        problems += options.problems()
    if not problems:
        return options
    lines = []
    for place, reason in dict.fromkeys(problems):
        under = (origin for key, origin in origins.items() if key.startswith(f"{place}."))
        where = origins.get(place) or next(under, None) or path or "the command line"
        lines.append(f"\n  - {where}: {place}: {reason}")
    raise OptionsError("the job's configuration is wrong:" + "".join(lines))


def _given(
    kind: type[JobOptions], values: Mapping[str, Any], keys: Sequence[str], sections: Sequence[str]
) -> tuple[dict[str, Any], list[tuple[str, str]]]:
    """Return what is given of each key, and what is wrong with sections and the source."""
    given: dict[str, Any] = {"source": dict(kind.needed)}
    problems: list[tuple[str, str]] = []
    for place, value in values.items():
        section = place.partition(".")[0]
        table = next((each for each in _TABLES if place.startswith(f"{each}.")), None)
        if section not in sections:
            problems.append((section, _no_such_key(section, sections)))
        elif place in sections:
            reason = f"is no section with options: write [{place}] above them"
            problems.append((place, reason))
        elif table is None or table not in keys:
            given[place] = value
        elif isinstance(inside := given.setdefault(table, {}), dict):
            inside[place.removeprefix(f"{table}.")] = value
    if "source" not in values:
        problems += _source_problems(given["source"])
    return given, problems


def _read(path: Path, example: str) -> Iterable[tuple[str, Any]]:
    """Return `section.key` and value of everything in a file."""
    try:
        with path.open(encoding="utf-8") as file:
            text = file.read(_CHARACTERS_MAX + 1)
        if len(text) > _CHARACTERS_MAX:
            raise OptionsError(
                f"{path} is too large for a configuration: at most {_CHARACTERS_MAX} characters"
            )
        return list(_flat("", tomllib.loads(text)))
    except OSError as error:
        raise OptionsError(
            f"{path} cannot be read: {error.strerror}; {example} is an example"
        ) from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise OptionsError(f"{path} is not TOML: {error}") from error
    except RecursionError:
        raise OptionsError(f"{path} is not TOML: it is nested too deeply") from None


def _flat(prefix: str, table: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """Yield what is in a table of TOML by its place; a section that is no table is itself."""
    for key, value in table.items():
        place = prefix + key
        is_table = not prefix or f"{place}.".startswith(tuple(f"{each}." for each in _TABLES))
        if isinstance(value, dict) and is_table:
            yield from _flat(f"{place}.", value)
        else:
            yield place, _text(value) if place.startswith(_TEXTS) else value


def _text(value: object) -> str:
    """Return a value of TOML as the text that Spark wants of an option."""
    if isinstance(value, bool):
        return str(value).lower()
    return ",".join(map(str, value)) if isinstance(value, list) else str(value)


def _value(text: str) -> Any:
    """Read a setting as TOML if it is a list or a number, else as a text."""
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except (tomllib.TOMLDecodeError, RecursionError):
        return text


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


def _problem(error: Any, keys: Iterable[str]) -> tuple[str, str]:
    """Return the place and the reason of what pydantic found, which has an index for a list."""
    place, *index = (str(part) for part in error["loc"] if str(part) not in _UNION_MEMBERS)
    where = ".".join((place, *index))
    match error["type"]:
        case "extra_forbidden":
            section, _, key = place.partition(".")
            inside = [each.partition(".")[2] for each in keys if each.startswith(f"{section}.")]
            return where, _no_such_key(key, inside)
        case "value_error":
            return where, str(error["ctx"]["error"])
        case "missing":
            return where, "is missing"
    if isinstance(error["input"], dict | list):
        # There may be passwords in it.
        return where, error["msg"]
    return where, f"{error['input']!r} is wrong: {error['msg']}"


_UNION_MEMBERS: Final = frozenset({"literal['availableNow']", "constrained-float", "float"})


def _no_such_key(key: str, known: Iterable[str]) -> str:
    near = difflib.get_close_matches(key, known, n=1)
    return f"there is no such key{f'; did you mean {near[0]}?' if near else ''}"
