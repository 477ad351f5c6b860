"""Validation of load() options, with errors that name the options.

Options of Spark's Kafka source and of Kafka's consumers that this source does not implement are
refused, with the reason and the alternative, rather than accepted and ignored.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from types import MappingProxyType
from typing import Annotated, Any, Final, NoReturn, TypeVar

from pydantic import Field, TypeAdapter, ValidationError

from spark_groups.errors import OptionsError
from spark_groups.group.member.near_names import nearest
from spark_groups.group.member.subscription import Subscription
from spark_groups.masking import IS_SECRET
from spark_groups.spark.options.librdkafka_options import FETCH_TUNING
from spark_groups.spark.options.option_values import (
    parse_ending_offsets,
    parse_starting_offsets,
    parse_timestamps_ms,
)
from spark_groups.types import TopicPartition
from spark_groups.wire.security.security import PLAINTEXT, Security
from spark_groups.wire.security.security_settings import (
    SECURITY_SETTINGS,
    provider_settings,
    security_of,
)

Options = TypeVar("Options")

SUBSCRIPTIONS: Final[Mapping[str, Callable[[str], Subscription]]] = {
    "subscribe": Subscription.of_names,
    "subscribePattern": Subscription.of_pattern,
}

_SERVER_SIDE: Final = (
    "the coordinator sets this for groups of the consumer protocol (KIP-848): configure it on the"
    " broker or on the group"
)
_ASSIGNOR: Final = (
    "the coordinator assigns partitions: choose its assignor with kafka.group.remote.assignor"
)
_NOT_YET: Final = "is not supported yet"

REFUSED: Final[Mapping[str, str]] = MappingProxyType(
    {
        "assign": "the coordinator assigns partitions: use subscribe or subscribePattern",
        "kafka.session.timeout.ms": (
            f"{_SERVER_SIDE} (spark-groups config GROUP --set consumer.session.timeout.ms=...)"
        ),
        "kafka.heartbeat.interval.ms": (
            f"{_SERVER_SIDE} (spark-groups config GROUP --set consumer.heartbeat.interval.ms=...)"
        ),
        "kafka.partition.assignment.strategy": _ASSIGNOR,
        "kafka.group.local.assignors": _ASSIGNOR,
        "kafka.auto.offset.reset": "use startingOffsets",
        "kafka.key.deserializer": "keys are binary: convert them in the query",
        "kafka.value.deserializer": "values are binary: convert them in the query",
        "kafka.key.serializer": "this source does not write to Kafka",
        "kafka.value.serializer": "this source does not write to Kafka",
        "kafka.enable.auto.commit": "offsets are committed when their batch is finished",
        "kafka.auto.commit.interval.ms": "offsets are committed when their batch is finished",
        "kafka.interceptor.classes": "executors do not use a Java consumer",
        "kafka.max.poll.records": "limit batches with maxOffsetsPerTrigger",
        "kafka.exclude.internal.topics": "a pattern always leaves them out; subscribe reads those"
        " that it names",
        "kafka.allow.auto.create.topics": "this source does not create topics",
        "groupIdPrefix": "use kafka.group.id",
        "fetchOffset.numRetries": "kafka.default.api.timeout.ms limits retries",
        "fetchOffset.retryIntervalMs": "kafka.default.api.timeout.ms limits retries",
        "path": "load() takes no path: name topics with subscribe",
    }
)
"""Reasons by option name."""

REFUSED_PREFIXES: Final[Mapping[str, str]] = MappingProxyType(
    {
        "kafka.sasl.kerberos.": f"Kerberos {_NOT_YET}",
        "kafka.sasl.login.": "Java login classes are not used: set kafka.sasl.jaas.config",
    }
)
"""Reasons by prefix of the option name."""
_REFUSED: Final = {name.lower(): name for name in REFUSED}


def unknown_or_refused(options: Mapping[str, str], known: Mapping[str, str]) -> Iterator[str]:
    """Yield a problem for each unknown or refused option.

    Args:
        options: Texts by name, in any case; Spark passes names in lower case.
        known: The options by their names in lower case.
    """
    spelled = {name.lower(): name for name in options}
    given = {name.lower(): text for name, text in options.items()}
    free = {f"{_PREFIX}{name}" for name in provider_settings(_without_prefix(given))}
    for name in given:
        if name in free:
            continue
        prefix = next(filter(name.startswith, REFUSED_PREFIXES), None)
        if name in _REFUSED:
            yield f"{_REFUSED[name]} is refused: {REFUSED[_REFUSED[name]]}"
        elif prefix is not None:
            yield f"{spelled[name]} is refused: {REFUSED_PREFIXES[prefix]}"
        elif f"kafka.{name}" in _REFUSED:
            yield f"{spelled[name]} is refused: {REFUSED[_REFUSED[f'kafka.{name}']]}"
        elif f"kafka.{name}" in known:
            written = known[f"kafka.{name}"]
            yield f"{spelled[name]} is not an option of this source: write {written}"
        elif name not in known:
            near = nearest(name, known, similarity=0.6)
            hint = f"; did you mean {known[near]}?" if near else ""
            shown = _spelled_like(known[near], spelled[name]) if near else spelled[name]
            yield f"{shown} is not an option of this source{hint}"


def _spelled_like(known: str, name: str) -> str:
    """Return a name with the capitals of a similar one, unless it has some of its own."""
    if name != name.lower():
        return name
    letters = list(name)
    matcher = difflib.SequenceMatcher(None, name, known.lower(), autojunk=False)
    for block in matcher.get_matching_blocks():
        letters[block.a : block.a + block.size] = known[block.b : block.b + block.size]
    return "".join(letters)


def read_subscription(given: Mapping[str, str], values: dict[str, Any]) -> Iterator[str]:
    """Parse `subscribe` and `subscribePattern` into `values`, and yield problems."""
    named = [name for name in SUBSCRIPTIONS if name.lower() in given]
    if len(named) > 1:
        yield "subscribe and subscribePattern are both set: remove one"
    for name in named:
        values[name], problem = _attempt(SUBSCRIPTIONS[name], given[name.lower()])
        if problem:
            yield f"{name}: {problem}"


_BY_PARTITION: Final[Mapping[str, Callable[[str], Iterable[TopicPartition]]]] = {
    "startingOffsets": lambda text: parse_starting_offsets(text).by_partition,
    "startingOffsetsByTimestamp": parse_timestamps_ms,
    "endingOffsets": lambda text: parse_ending_offsets(text).by_partition,
    "endingOffsetsByTimestamp": parse_timestamps_ms,
}


def uncovered_topics(given: Mapping[str, str], values: Mapping[str, Any]) -> Iterator[str]:
    """Yield a problem for each named topic that the query does not subscribe to."""
    chosen = [values[name] for name in SUBSCRIPTIONS if values.get(name) is not None]
    for option, parse in _BY_PARTITION.items():
        found, _ = _attempt(parse, given.get(option.lower(), "latest"))
        if not chosen or found is None:
            continue
        named = {each.topic for each in found}
        for topic in sorted(each for each in named if not any(one.matches(each) for one in chosen)):
            yield f"{option} names {topic!r}, which the query does not subscribe to"


def read_tuning(given: Mapping[str, str], problems: list[str]) -> tuple[tuple[str, str], ...]:
    """Return fetch tuning under librdkafka's names; add problems to `problems`."""
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
    """Return the value and None, or None and the problem."""
    try:
        return convert(text), None
    except ValidationError as error:
        return None, f"{text!r} is invalid: {error.errors()[0]['msg']}"
    except ValueError as error:
        return None, str(error)


def validated(
    kind: type[Options], values: Mapping[str, Any], names: Iterable[str], problems: list[str]
) -> Options | None:
    """Return validated options; else None, with the problems added to `problems`."""
    try:
        return TypeAdapter(kind).validate_python(values)
    except ValidationError as error:
        problems += [describe_problem(each, names) for each in error.errors()]
        return None


def refuse_load(source: str, problems: Iterable[str], done: str = "loaded") -> NoReturn:
    """Raise an OptionsError that lists all problems of a load().

    Args:
        done: What cannot be done.
    """
    listed = "".join(f"\n  - {problem}" for problem in problems)
    raise OptionsError(f"the {source} source cannot be {done}:{listed}")


def describe_problem(error: Any, names: Iterable[str]) -> str:
    """Return a pydantic error as a problem that names the option."""
    name = ".".join(str(part) for part in error["loc"])
    name = max((option for option in names if name.startswith(option)), key=len, default=name)
    if error["type"] == "missing":
        return f"{name} is missing"
    if error["type"] == "value_error":
        return f"{name}: {error['ctx']['error']}"
    return f"{name}: {error['input']!r} is invalid: {error['msg']}"


_PREFIX: Final = "kafka."

SECURITY_OPTIONS: Final[tuple[tuple[str, str, str], ...]] = tuple(
    (f"{_PREFIX}{security_setting.name}", security_setting.default, security_setting.meaning)
    for security_setting in SECURITY_SETTINGS
)
"""Name, default and meaning of each option, for the option table."""


def _without_prefix(given: Mapping[str, str]) -> dict[str, str]:
    """Return Kafka's settings by their own names."""
    return {
        name.removeprefix(_PREFIX): text for name, text in given.items() if name.startswith(_PREFIX)
    }


_KEY_IN_THE_OPEN: Final = (
    f"{_PREFIX}ssl.keystore.key: Spark prints options with query plans and would expose an"
    " unencrypted key: set an encrypted key and kafka.ssl.key.password, or"
    " kafka.ssl.keystore.location, or a reference such as ${env:NAME} or ${directory:PATH:FILE}"
)


_PROVIDED: Final = "sasl.oauthbearer."
_SPARK_HIDES: Final = re.compile(r"secret|password|token|access[.]?key", re.IGNORECASE)
"""The default of `spark.redaction.regex`."""
_IS_REFERENCE: Final = re.compile(r"\$\{(env|file|directory):[^}]*\}")


def read_security(given: Mapping[str, str], problems: list[str]) -> Security:
    """Return TLS and SASL settings; problems never contain secrets."""
    settings = _without_prefix(given)
    key = settings.get("ssl.keystore.key", "")
    if "PRIVATE KEY-----" in key and "ENCRYPTED PRIVATE KEY-----" not in key:
        problems.append(_KEY_IN_THE_OPEN)
    problems += [
        f"{_PREFIX}{name}: Spark prints options with query plans, and does not know that this one"
        " is a secret: set a reference such as ${env:NAME} or ${directory:PATH:FILE}"
        for name in provider_settings(settings)
        if IS_SECRET.search(name.removeprefix(_PROVIDED))
        and not _SPARK_HIDES.search(name)
        and not _IS_REFERENCE.fullmatch(settings[name].strip())
    ]
    try:
        return security_of(settings, prefix=_PREFIX)
    except OptionsError as error:
        problems += str(error).splitlines()
        return PLAINTEXT
