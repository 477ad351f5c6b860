"""Checks of the options of a load(): each error is in the words of the options.

A setting that is accepted and then not obeyed is worse than an error at load(). So the options that
people bring along from Spark's own Kafka source and from Kafka's consumers, and that this source
does not follow, are refused with the reason and with what to do instead.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable, Iterator, Mapping
from types import MappingProxyType
from typing import Annotated, Any, Final, NoReturn, TypeVar

from pydantic import Field, TypeAdapter, ValidationError

from spark_groups.errors import OptionsError
from spark_groups.protocol.subscription import Subscription
from spark_groups.spark.options.values import parse_starting_offsets
from spark_groups.spark.reading.fetch_tuning import FETCH_TUNING
from spark_groups.wire.security.security import PLAINTEXT, Security
from spark_groups.wire.security.settings import SECURITY_SETTINGS, security_of

Options = TypeVar("Options")

SUBSCRIPTIONS: Final[Mapping[str, Callable[[str], Subscription]]] = {
    "subscribe": Subscription.of_names,
    "subscribePattern": Subscription.of_pattern,
}

_SERVER_SIDE: Final = (
    "the coordinator decides it for a group of the consumer protocol (KIP-848): set it on the"
    " broker or on the group"
)
_NOT_YET: Final = "is not supported yet"
_ENDS: Final = (
    "a stream has no end: use Trigger.AvailableNow; a batch reads until the end of the log: filter"
    " its rows by offset or timestamp"
)

REFUSED: Final[Mapping[str, str]] = MappingProxyType(
    {
        "assign": "the group's coordinator assigns partitions: use subscribe or subscribePattern",
        "kafka.session.timeout.ms": (
            f"{_SERVER_SIDE} (spark-groups config GROUP --set consumer.session.timeout.ms=...)"
        ),
        "kafka.heartbeat.interval.ms": (
            f"{_SERVER_SIDE} (spark-groups config GROUP --set consumer.heartbeat.interval.ms=...)"
        ),
        "kafka.partition.assignment.strategy": (
            "the coordinator assigns: kafka.group.remote.assignor names one of its assignors"
        ),
        "kafka.group.local.assignors": (
            "the coordinator assigns: kafka.group.remote.assignor names one of its assignors"
        ),
        "kafka.auto.offset.reset": "use startingOffsets",
        "kafka.key.deserializer": "keys are binary: convert them in the query",
        "kafka.value.deserializer": "values are binary: convert them in the query",
        "kafka.key.serializer": "this is a source: it writes nothing to Kafka",
        "kafka.value.serializer": "this is a source: it writes nothing to Kafka",
        "kafka.enable.auto.commit": "a batch is committed once it is finished, never before",
        "kafka.auto.commit.interval.ms": "a batch is committed once it is finished, never before",
        "kafka.interceptor.classes": "executors read without a JVM consumer",
        "kafka.max.poll.records": "batches are cut by size: use maxRecordsPerPartition for tasks",
        "kafka.exclude.internal.topics": "a pattern covers what the coordinator lets it cover",
        "kafka.allow.auto.create.topics": "a source creates no topics",
        "groupIdPrefix": "kafka.group.id names the group",
        "startingTimestamp": f"{_NOT_YET}: use startingOffsets",
        "startingOffsetsByTimestamp": f"{_NOT_YET}: use startingOffsets",
        "startingOffsetsByTimestampStrategy": f"{_NOT_YET}: use startingOffsets",
        "endingOffsets": _ENDS,
        "endingTimestamp": _ENDS,
        "endingOffsetsByTimestamp": _ENDS,
        "fetchOffset.numRetries": "kafka.default.api.timeout.ms bounds every retry",
        "fetchOffset.retryIntervalMs": "kafka.default.api.timeout.ms bounds every retry",
        "path": "load() takes no path: subscribe names the topics",
    }
)
"""Reasons by the name as Spark or Kafka spells it."""

REFUSED_PREFIXES: Final[Mapping[str, str]] = MappingProxyType(
    {
        "kafka.sasl.kerberos.": f"Kerberos {_NOT_YET}",
        "kafka.sasl.login.": "it is about Java classes: kafka.sasl.jaas.config says who logs in",
    }
)
"""Reasons by how the names begin."""
_REFUSED: Final = {name.lower(): name for name in REFUSED}


def unknown_or_refused(given: Mapping[str, str], known: Mapping[str, str]) -> Iterator[str]:
    """Say which options this source does not have, or refuses, and why."""
    for name in given:
        prefix = next((each for each in REFUSED_PREFIXES if name.startswith(each)), None)
        if name in _REFUSED:
            yield f"{_REFUSED[name]} is refused: {REFUSED[_REFUSED[name]]}"
        elif prefix is not None:
            yield f"{name} is refused: {REFUSED_PREFIXES[prefix]}"
        elif f"kafka.{name}" in _REFUSED:
            yield f"{name} is refused: {REFUSED[_REFUSED[f'kafka.{name}']]}"
        elif f"kafka.{name}" in known:
            yield f"{name} is not an option of this source: write {known[f'kafka.{name}']}"
        elif name not in known:
            near = difflib.get_close_matches(name, known, n=1)
            hint = f"; did you mean {known[near[0]]}?" if near else ""
            yield f"{name} is not an option of this source{hint}"


def read_subscription(given: Mapping[str, str], values: dict[str, Any]) -> Iterator[str]:
    """Turn the two names of a subscription into one value; say what is wrong with it."""
    named = [name for name in SUBSCRIPTIONS if name.lower() in given]
    if len(named) > 1:
        yield "subscribe and subscribePattern are both set: give one of them"
    for name in named:
        values[name], problem = _attempt(SUBSCRIPTIONS[name], given[name.lower()])
        if problem:
            yield f"{name}: {problem}"


def uncovered_topics(given: Mapping[str, str], values: Mapping[str, Any]) -> Iterator[str]:
    """Say which topics `startingOffsets` names that are not subscribed."""
    chosen = [values[name] for name in SUBSCRIPTIONS if values.get(name) is not None]
    offsets, _ = _attempt(parse_starting_offsets, given.get("startingoffsets", "latest"))
    if not chosen or offsets is None:
        return
    named = {each.topic for each in offsets.by_partition}
    for topic in sorted(each for each in named if not any(one.matches(each) for one in chosen)):
        yield f"startingOffsets names {topic!r}, which the query does not subscribe to"


def read_tuning(given: Mapping[str, str], problems: list[str]) -> tuple[tuple[str, str], ...]:
    """Return what is given of the fetch tuning, in librdkafka's words."""
    settings = []
    for tuning in FETCH_TUNING:
        if tuning.name in given:
            kind: Any = bool
            if tuning.at_least is not None:
                kind = Annotated[int, Field(ge=tuning.at_least, le=tuning.at_most)]
            check = TypeAdapter[Any](kind).validate_python
            value, problem = _attempt(check, given[tuning.name])
            if problem:
                problems.append(f"{tuning.name}: {problem}")
            else:
                settings.append((tuning.setting, str(value).lower()))
    return tuple(settings)


def _attempt(convert: Callable[[str], Any], text: str) -> tuple[Any, str | None]:
    """Convert a text: the value and None, or None and what is wrong with the text."""
    try:
        return convert(text), None
    except ValidationError as error:
        return None, f"{text!r} is wrong: {error.errors()[0]['msg']}"
    except ValueError as error:
        return None, str(error)


def validated(
    kind: type[Options], values: Mapping[str, Any], names: Iterable[str], problems: list[str]
) -> Options | None:
    """Return options as their class takes them; None if it does not."""
    try:
        return TypeAdapter(kind).validate_python(values)
    except ValidationError as error:
        problems += [describe_problem(each, names) for each in error.errors()]
        return None


def refuse_load(source: str, problems: Iterable[str]) -> NoReturn:
    """Raise with everything that is wrong with the options of a load().

    Raises:
        OptionsError: Always.
    """
    listed = "".join(f"\n  - {each}" for each in problems)
    raise OptionsError(f"the {source} source cannot be loaded:{listed}")


def describe_problem(error: Any, names: Iterable[str]) -> str:
    """Say what pydantic found, in the words of the options."""
    name = ".".join(str(part) for part in error["loc"])
    name = next((option for option in names if name.startswith(option)), name)
    if error["type"] == "missing":
        return f"{name} is missing"
    if error["type"] == "value_error":
        return f"{name}: {error['ctx']['error']}"
    return f"{name}: {error['input']!r} is wrong: {error['msg']}"


_PREFIX: Final = "kafka."

SECURITY_OPTIONS: Final[tuple[tuple[str, str, str], ...]] = tuple(
    (f"{_PREFIX}{each.name}", each.default, each.meaning) for each in SECURITY_SETTINGS
)
"""Name, default and meaning of each, as the option table shows them."""

_KEY_IN_THE_OPEN: Final = (
    f"{_PREFIX}ssl.keystore.key: a key without a password would be shown by Spark, which prints"
    " options with its plans: give an encrypted key and kafka.ssl.key.password, or"
    " kafka.ssl.keystore.location, or a reference such as ${env:NAME} or ${directory:PATH:FILE}"
)


def read_security(given: Mapping[str, str], problems: list[str]) -> Security:
    """Return how connections are secured."""
    settings = {
        name.removeprefix(_PREFIX): given[name] for name, _, _ in SECURITY_OPTIONS if name in given
    }
    key = settings.get("ssl.keystore.key", "")
    if "PRIVATE KEY-----" in key and "ENCRYPTED PRIVATE KEY-----" not in key:
        problems.append(_KEY_IN_THE_OPEN)
    try:
        return security_of(settings, prefix=_PREFIX)
    except OptionsError as error:
        problems += str(error).splitlines()
        return PLAINTEXT
