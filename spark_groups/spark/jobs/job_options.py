"""The configuration of the jobs in `jobs/`: a TOML file each, with overrides on the command line.

Keys are Spark's own names. `[source]` takes every option of `format("kafka-group")`. One error
lists all problems, each with its file or argument, before a session starts.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import fields
from enum import Enum
from pathlib import Path
from typing import Annotated, Any, ClassVar, Final, Literal, TypeVar, get_args, get_type_hints

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ValidationError,
    create_model,
)
from pydantic.alias_generators import to_camel

from spark_groups.errors import OptionsError
from spark_groups.group.member.near_names import nearest
from spark_groups.spark.options.option_values import parse_duration_s
from spark_groups.spark.options.range_settings import RangeSettings
from spark_groups.spark.options.source_options import SourceOptions
from spark_groups.spark.processing.budget import budget_of
from spark_groups.spark.processing.strategies import (
    DEAD_LETTER_TOPIC,
    RETRY_TOPIC,
    AtLast,
    SkipOrDeadLetter,
    Strategy,
)
from spark_groups.text_files import decoded
from spark_groups.wire.named_functions import named_function

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

AVAILABLE_NOW: Final = "availableNow"

_FILE_BYTES_MAX: Final = 200_000
"""Limit for a file: parsing some inputs takes quadratic time."""
_TABLES: Final = ("source", "sink.options", "target.options")
"""Tables of options with any names; TOML reads the dots of a name as sub-tables."""
_TEXTS: Final = ("source.", "target.options.")
"""Where every value becomes text: an error about another type would show the value."""
_STRATEGIES: Final[Mapping[str, Any]] = {each.__name__: each for each in get_args(Strategy)}
AT_LAST: Final[Mapping[str, AtLast | None]] = {
    "fail": None,
    "skip": AtLast.SKIP,
    "dead-letter": AtLast.DEAD_LETTER,
}
"""What becomes of a record that a table cannot have, by the value of `onError`."""
TOPIC: Final = "{topic}"
"""What the name of a table has in the place of the topic's name, if each topic has a table."""
LETTER_TABLE: Final = "deadLetterTable"
"""The option with a table for dead letters, in the database of the table."""
_FOR_TABLES: Final = 'is for the tables of sink.format = "delta", "iceberg" and "postgres"'
_ON_ERROR: Final = "onError"
_LETTERS: Final = "deadLetterTopic"
_ENVELOPE: Final = "envelope"
_EVOLVE: Final = "evolve"
_ARGUMENTS: Final = {
    "partitionBy": "partition_by",
    _EVOLVE: "evolve",
    "mergeOn": "merge_on",
    "deleteWhen": "delete_when",
    "orderBy": "order_by",
}
"""The options of tables that are arguments of the functions which make them."""
_LISTS: Final = frozenset({"partitionBy", "mergeOn"})
"""Those with several values, separated by commas."""
_ONLY_FOR: Final = {
    LETTER_TABLE: ("postgres",),
    "partitionBy": ("delta", "iceberg"),
    _EVOLVE: ("delta", "iceberg", "postgres"),
    **dict.fromkeys(("mergeOn", "deleteWhen", "orderBy", _ENVELOPE), ("delta", "postgres")),
}
"""The formats that take an option."""
_OF_WRITER: Final = frozenset({_ON_ERROR, _LETTERS, _ENVELOPE, *_ARGUMENTS})
"""Options that are not those of the store of a table."""
_WORDS: Final = {"millisecond": "ms", "second": "s", "minute": "m", "hour": "h", "day": "d"}


def _duration_s(value: object) -> float:
    """Parse a duration, whose unit may be written out, as in "2 seconds"."""
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
            f"{value!r} cannot name a directory: use letters, digits, '.', '_' and '-'"
        )
    return value


def _sink_options(value: object) -> object:
    if isinstance(value, dict) and "path" in {str(key).lower() for key in value}:
        raise ValueError("set sink.path instead of an option named path")
    return value


def _cluster_options(value: dict[str, str]) -> dict[str, str]:
    try:
        if value:
            connected(value)
    except OptionsError as error:
        raise ValueError(str(error)) from error
    return value


def _function(name: str) -> str:
    try:
        named_function(name)
    except (ImportError, ValueError) as error:
        raise ValueError(
            f"{name!r} cannot be loaded: {error}. Write module:function; the module has to be on"
            " PYTHONPATH or among --py-files"
        ) from None
    return name


Duration = Annotated[float, BeforeValidator(_duration_s), Field(gt=0)]
Text = Annotated[str, Field(min_length=1)]
Trigger = Annotated[
    Literal["availableNow"] | Annotated[float, Field(ge=0)], BeforeValidator(_trigger)
]
SinkOptions = Annotated[dict[str, str | int | bool], BeforeValidator(_sink_options)]
ClusterOptions = Annotated[dict[str, str], AfterValidator(_cluster_options)]


def _member_of(kind: type[Enum]) -> BeforeValidator:
    """Return what parses the name of a member, as in Python."""

    def find(value: object) -> object:
        if str(value) in kind.__members__:
            return kind[str(value)]
        raise ValueError(f"{value!r} is not one of {', '.join(kind.__members__)}")

    return BeforeValidator(find)


def _model_of(strategy: Any) -> type[BaseModel]:
    """Return a model of `sink.options`: a function, a strategy, and the strategy's arguments."""
    found: dict[str, Any] = {}
    for field_ in fields(strategy):
        kind: Any = get_type_hints(strategy)[field_.name]
        if field_.name.endswith("_s"):
            kind = Duration
        elif isinstance(kind, type) and issubclass(kind, Enum):
            kind = Annotated[kind, _member_of(kind)]
        alias = to_camel(field_.name.removesuffix("_s"))
        found[field_.name] = kind, Field(field_.default, alias=alias)
    return create_model(
        strategy.__name__,
        __config__=ConfigDict(extra="forbid"),
        function=(Annotated[str, AfterValidator(_function)], ...),
        strategy=(str, ...),
        **found,
    )


class JobOptions(BaseModel):
    """The keys of every job; subclasses add sections.

    Args:
        application_name: Names the application, its member and its directories; None uses Spark's
            application ID for the directories, which changes with each run, so no run resumes
            another.
        trigger_s: Seconds between batches, or availableNow.
        select_expr: SQL expressions of the columns to write; empty means all columns.
        stop_timeout_s: Seconds that the running batch may take after SIGTERM.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    example: ClassVar[str]
    """The example file, which shows every key."""
    needed: ClassVar[Mapping[str, str]] = {}
    """Defaults of source options that the job requires."""

    application_name: Annotated[str, BeforeValidator(_name)] | None = Field(
        None, alias="application.name"
    )
    source: Mapping[str, str]
    checkpoint_location: Text = Field("checkpoints", alias="query.checkpointLocation")
    trigger_s: Trigger = Field(0.0, alias="query.trigger")
    select_expr: tuple[Text, ...] = Field((), alias="query.selectExpr")
    stop_timeout_s: Duration = Field(30.0, alias="query.stopTimeout")

    def problems(self) -> Iterator[tuple[str, str]]:
        """Yield the place and the reason of problems that two keys have only together."""
        yield from ()


Job = TypeVar("Job", bound=JobOptions)


class ConsumeOptions(JobOptions):
    """The configuration of `jobs/consume.py`.

    Args:
        sink_format: `delta`, `iceberg` and `postgres` hold each record exactly once.
        sink_path: Parent directory of outputs, one per application; for `delta` the table itself,
            shared by all applications of the group. With `{topic}` in it, as in the `table` of
            `postgres` and the `identifier` of `iceberg`, each topic has its own table.
        sink_options: Options of Spark's writer; for `delta` those of its object store, for
            `postgres` `dsn` and `table`, for `iceberg` `identifier`, `catalog` and properties of
            the catalog, for `function` the `function` as `module:name`, the `strategy` by its name,
            and the strategy's arguments, such as `recordDeadline`. A table takes `onError`, and
            `deadLetterTopic`, for records that it cannot have, and `evolve`; `delta` and `iceberg`
            take `partitionBy`; `delta` and `postgres` take `mergeOn`, `deleteWhen`, `orderBy` and
            `envelope`.
    """

    example = "conf/consume.toml"

    sink_format: Literal["parquet", "delta", "iceberg", "postgres", "console", "function"] = Field(
        "parquet", alias="sink.format"
    )
    sink_path: Text = Field("output", alias="sink.path")
    sink_options: SinkOptions = Field({}, alias="sink.options")

    @property
    def is_fenced(self) -> bool:
        """Whether a table is written by `spark_groups.write_table`."""
        return self.sink_format in {"delta", "iceberg", "postgres"}

    @property
    def is_routed(self) -> bool:
        """Whether each topic has a table of its own, in whose name the topic's name stands."""
        named = {"postgres": "table", "iceberg": "identifier"}.get(self.sink_format)
        return TOPIC in str(self.sink_options.get(named, "") if named else self.sink_path)

    @property
    def table_options(self) -> Mapping[str, str | int | bool]:
        """The options of a table's store: without how records are written, or left out."""
        return {name: value for name, value in self.sink_options.items() if name not in _OF_WRITER}

    @property
    def table_arguments(self) -> Mapping[str, Any]:
        """The arguments of the table: how it is partitioned and grows, and the key of its rows."""
        given: dict[str, Any] = {
            argument: self.sink_options[name]
            for name, argument in _ARGUMENTS.items()
            if name in self.sink_options
        }
        for argument in given.keys() & {_ARGUMENTS[each] for each in _LISTS}:
            # Commas between parentheses do not separate values: day(ts), bucket(16, id).
            values = re.findall(r"[^,(]+(?:\([^)]*\))?", str(given[argument]))
            given[argument] = tuple(each.strip() for each in values if each.strip())
        return given

    @property
    def envelope(self) -> Any:
        """The form of values that say how a row was changed; None: they have none."""
        return self.sink_options.get(_ENVELOPE)

    @property
    def expand(self) -> tuple[str, ...]:
        """The columns whose fields alone `query.selectExpr` selects, if it does."""
        found = [re.fullmatch(r"(key|value)\.\*", each.strip()) for each in self.select_expr]
        return tuple(each[1] for each in found if each) if all(found) else ()

    def on_error(self) -> SkipOrDeadLetter | None:
        """Return what becomes of records that a table cannot have; None: the query fails.

        Raises:
            OptionsError: The name of the dead-letter topic lacks `{topic}`.
        """
        chosen = AT_LAST[str(self.sink_options.get(_ON_ERROR, "fail"))]
        if chosen is None:
            return None
        topic = str(self.sink_options.get(_LETTERS, DEAD_LETTER_TOPIC))
        return SkipOrDeadLetter(at_last=chosen, dead_letter_topic=topic)

    def strategy(self) -> Strategy:
        """Return the strategy for records that the function of `sink.options` cannot process."""
        kind = _STRATEGIES[str(self.sink_options["strategy"])]
        found = _model_of(kind).model_validate(self.sink_options)
        strategy: Strategy = kind(**found.model_dump(exclude={"function", "strategy"}))
        return strategy

    def problems(self) -> Iterator[tuple[str, str]]:
        """Yield the place and the reason of problems of a table or a function."""
        if self.sink_format == "function":
            yield from self._function_problems()
        needed = {"postgres": ("dsn", "table"), "iceberg": ("identifier",)}
        for name in needed.get(self.sink_format, ()):
            if not isinstance(self.sink_options.get(name), str):
                yield f"sink.options.{name}", "is missing"
        yield from self._option_problems()
        if self.is_routed and not self.is_fenced:
            yield "sink.path", f'has {TOPIC}, which only a table of sink.format = "delta" takes'
        is_expression = self.select_expr and not self.expand
        if self.is_fenced and is_expression and self.source.get("emit") == "ranges":
            why = 'needs the rows of source.emit = "records", unless it is ["value.*"]'
            yield "query.selectExpr", why
        if _ON_ERROR in self.sink_options:
            yield from self._on_error_problems()

    def _option_problems(self) -> Iterator[tuple[str, str]]:
        for name, formats in _ONLY_FOR.items():
            if name in self.sink_options and self.sink_format not in formats:
                shown = " and ".join(f'"{each}"' for each in formats)
                yield f"sink.options.{name}", f"is for sink.format = {shown}"
        if self.sink_format == "postgres":
            known = ("dsn", "table", LETTER_TABLE, *sorted(_OF_WRITER))
            for name in self.sink_options.keys() - {*known}:
                yield f"sink.options.{name}", _unknown_key(name, known)
        if self.sink_options.get(_EVOLVE) not in {None, "add"}:
            yield f"sink.options.{_EVOLVE}", f'is {self.sink_options[_EVOLVE]!r}, not "add"'

    def _on_error_problems(self) -> Iterator[tuple[str, str]]:
        place, given = f"sink.options.{_ON_ERROR}", self.sink_options[_ON_ERROR]
        if not self.is_fenced:
            yield place, _FOR_TABLES
        elif given not in AT_LAST:
            yield place, f"is {given!r}, not one of {', '.join(AT_LAST)}"
        elif given == "dead-letter":
            if self.source.get("includeHeaders", "").lower() != "true":
                yield place, "needs source.includeHeaders = true: dead letters keep their headers"
            try:
                self.on_error()
            except OptionsError as error:
                yield f"sink.options.{_LETTERS}", str(error)

    def _function_problems(self) -> Iterator[tuple[str, str]]:
        if self.select_expr or self.source.get("emit") == "ranges":
            where = "query.selectExpr" if self.select_expr else "source.emit"
            yield where, 'cannot be set with sink.format = "function", which gets whole records'
        name = str(self.sink_options.get("strategy", ""))
        if name not in _STRATEGIES:
            yield "sink.options.strategy", f"is {name!r}, not one of {', '.join(_STRATEGIES)}"
            return
        keys = [
            f"sink.options.{model_field.alias or name}"
            for name, model_field in _model_of(_STRATEGIES[name]).model_fields.items()
        ]
        try:
            strategy = self.strategy()
            if not any(_source_problems(self.source)):
                budget_of(strategy, SourceOptions.of(self.source))
        except ValidationError as error:
            for each in error.errors():
                place, *index = each["loc"]
                yield _problem({**each, "loc": (f"sink.options.{place}", *index)}, keys)
        except OptionsError as error:
            yield "sink.options.strategy", str(error)


class CountOptions(ConsumeOptions):
    """The configuration of `jobs/count_by_window.py`.

    Args:
        sink_format: Written by Spark; `delta` requires the package of Delta Lake.
        slide: None means the window's length.
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
        cluster: `kafka.*` options of the target cluster; empty means the source cluster.
    """

    example = "conf/copy_topic.toml"
    needed = {"includeHeaders": "true"}

    topic: Text = Field(alias="target.topic")
    partition: Literal["same", "key"] = Field("same", alias="target.partition")
    cluster: ClusterOptions = Field({}, alias="target.options")


class ReplayOptions(JobOptions):
    """The configuration of `jobs/replay_dead_letters.py`.

    Args:
        repair: `module:function`, called with each letter as a `spark_groups.Record`; it returns
            the record to send, or None: the letter is then logged and not sent.
        topics: Topics to which any letter may be sent.
        dead_letter_topic: The template of the dead-letter topics; a letter may be sent to the topic
            that its own topic is named after.
    """

    example = "conf/replay_dead_letters.toml"
    needed = {"includeHeaders": "true", "startingOffsets": "earliest"}

    to: Literal["original", "retry"] = Field("original", alias="replay.to")
    retry_topic: Text = Field(RETRY_TOPIC, alias="replay.retryTopic")
    topics: tuple[Text, ...] = Field((), alias="replay.topics")
    dead_letter_topic: Text = Field(DEAD_LETTER_TOPIC, alias="replay.deadLetterTopic")
    repair: Annotated[str, AfterValidator(_function)] | None = Field(None, alias="replay.repair")
    dry_run: bool = Field(False, alias="replay.dryRun")


def connected(options: Mapping[str, str]) -> RangeSettings:
    """Return connection settings from the `kafka.*` options among a source's options.

    Raises:
        OptionsError: Some options are invalid.
    """
    of_cluster = {name: value for name, value in options.items() if name.startswith("kafka.")}
    # The source requires a group and topics, which a connection does not use.
    required = {"kafka.group.id": "none", "subscribe": "none"}
    return SourceOptions.of({**of_cluster, **required}).range_settings()


def load_job(
    kind: type[Job], path: Path | None, settings: Iterable[tuple[str, str, str]] = ()
) -> Job:
    """Return the validated configuration of a job.

    Args:
        path: A TOML file; None if the command line sets everything.
        settings: Overrides in order: the command-line argument, `section.key`, and the value as
            text.

    Raises:
        OptionsError: The file cannot be read, or the configuration is invalid; lists all problems.
    """
    values = _read(path, kind.example) if path is not None else {}
    origins = dict.fromkeys(values, str(path))
    keys = [model_field.alias or name for name, model_field in kind.model_fields.items()]
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
    problems: list[tuple[str, str]] = []
    nested = _nested(kind, values, keys, sections, problems)
    try:
        options = kind.model_validate(nested)
    except ValidationError as error:
        problems += [_problem(each, keys) for each in error.errors()]
    else:
        problems += options.problems()
    if not problems:
        return options
    lines = []
    for place, reason in dict.fromkeys(problems):
        inside = (origin for key, origin in origins.items() if key.startswith(f"{place}."))
        where = origins.get(place) or next(inside, None) or path or "the command line"
        lines.append(f"\n  - {where}: {place}: {reason}")
    raise OptionsError("the job's configuration is invalid:" + "".join(lines))


def _nested(
    kind: type[JobOptions],
    values: Mapping[str, Any],
    keys: Sequence[str],
    sections: Sequence[str],
    problems: list[tuple[str, str]],
) -> dict[str, Any]:
    """Return the input of the model: values by key, with tables of options as mappings."""
    nested: dict[str, Any] = {"source": dict(kind.needed)}
    for place, value in values.items():
        section = place.partition(".")[0]
        table = next((each for each in _TABLES if place.startswith(f"{each}.")), None)
        if section not in sections:
            problems.append((section, _unknown_key(section, sections)))
        elif place in sections:
            problems.append((place, f"is not a section: write [{place}] above its keys"))
        elif table is None or table not in keys:
            nested[place] = value
        elif isinstance(inside := nested.setdefault(table, {}), dict):
            inside[place.removeprefix(f"{table}.")] = value
    if "source" not in values:
        problems += _source_problems(nested["source"])
    return nested


def _read(path: Path, example: str) -> dict[str, Any]:
    """Return the values of a file by `section.key`."""
    try:
        with path.open("rb") as file:
            octets = file.read(_FILE_BYTES_MAX + 1)
        if len(octets) > _FILE_BYTES_MAX:
            raise OptionsError(
                f"{path} is too large for a configuration: at most {_FILE_BYTES_MAX} bytes"
            )
        text = decoded(octets, "utf-8")
        return dict(_flat("", tomllib.loads(text)))
    except OSError as error:
        raise OptionsError(
            f"{path} cannot be read: {error.strerror}; see {example} for an example"
        ) from error
    except ValueError as error:
        # Not only TOMLDecodeError: a number of thousands of digits is one, too.
        raise OptionsError(f"{path} is not TOML: {error}") from error
    except RecursionError:
        raise OptionsError(f"{path} is not TOML: it is nested too deeply") from None


def _flat(prefix: str, table: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    for key, value in table.items():
        place = prefix + key
        is_table = not prefix or f"{place}.".startswith(tuple(f"{each}." for each in _TABLES))
        if isinstance(value, dict) and is_table:
            yield from _flat(f"{place}.", value)
        else:
            yield place, _text(value) if place.startswith(_TEXTS) else value


def _text(value: object) -> str:
    """Return a TOML value as the text of a Spark option."""
    if isinstance(value, bool):
        return str(value).lower()
    return ",".join(map(str, value)) if isinstance(value, list) else str(value)


def _value(text: str) -> Any:
    """Parse a command-line value as TOML, else keep the text."""
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except (ValueError, RecursionError):
        return text


def _source_problems(source: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """Yield the problems that load() would report, split into option and reason."""
    try:
        SourceOptions.of(source)
    except OptionsError as error:
        known = sorted((*source, "kafka.bootstrap.servers", "kafka.group.id"), key=len)[::-1]
        for problem in str(error).split("\n  - ")[1:]:
            name = next((each for each in known if problem.lower().startswith(each.lower())), "")
            reason = problem[len(name) :].lstrip(": ") if name else problem
            yield (f"source.{name}" if name else "source"), reason


def _problem(error: Any, keys: Iterable[str]) -> tuple[str, str]:
    """Return the key and the reason of a pydantic error."""
    place, *index = (str(part) for part in error["loc"] if str(part) not in _UNION_MEMBERS)
    where = ".".join((place, *index))
    match error["type"]:
        case "extra_forbidden":
            section, _, key = place.partition(".")
            inside = [each.partition(".")[2] for each in keys if each.startswith(f"{section}.")]
            return where, _unknown_key(key, inside)
        case "value_error":
            return where, str(error["ctx"]["error"])
        case "missing":
            return where, "is missing"
    if isinstance(error["input"], dict | list):
        # The input may contain passwords.
        return where, error["msg"]
    return where, f"{error['input']!r} is invalid: {error['msg']}"


_UNION_MEMBERS: Final = frozenset({"literal['availableNow']", "constrained-float", "float"})


def _unknown_key(key: str, known: Iterable[str]) -> str:
    near = nearest(key, known, similarity=0.6)
    return f"is not a known key{f'; did you mean {near}?' if near else ''}"
