"""Validation of load() options, with errors that name the options.

Options of Spark's Kafka source and of Kafka's consumers that this source does not implement are
refused, with the reason and the alternative, rather than accepted and ignored.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from types import MappingProxyType
from typing import Any, Final, NoReturn

from spark_groups.errors import OptionsError
from spark_groups.group.member.near_names import nearest
from spark_groups.group.member.subscription import Subscription
from spark_groups.masking import IS_SECRET
from spark_groups.spark.options.librdkafka_options import FETCH_TUNING
from spark_groups.spark.options.option_values import parse_boolean, whole_number
from spark_groups.wire.security.security import PLAINTEXT, Security
from spark_groups.wire.security.security_settings import (
    SECURITY_SETTINGS,
    provider_settings,
    security_of,
)

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


_BY_PARTITION: Final[Mapping[str, str]] = {
    "starting_offsets": "startingOffsets",
    "starting_timestamps_ms": "startingOffsetsByTimestamp",
    "ending_offsets": "endingOffsets",
    "ending_timestamps_ms": "endingOffsetsByTimestamp",
}
"""Options that name partitions, by field."""


def uncovered_topics(chosen: Iterable[Subscription], values: Mapping[str, Any]) -> Iterator[str]:
    """Yield a problem for each named topic that the query does not subscribe to.

    Args:
        chosen: The subscriptions, if they are valid.
        values: Values by field.
    """
    if not (subscriptions := [*chosen]):
        return
    for name in filter(values.get, _BY_PARTITION):
        partitions = getattr(values[name], "by_partition", values[name])
        for topic in sorted({each.topic for each in partitions}):
            if not any(each.matches(topic) for each in subscriptions):
                yield (
                    f"{_BY_PARTITION[name]} names {topic!r}, which the query does not subscribe to"
                )


def read_tuning(given: Mapping[str, str], problems: list[str]) -> tuple[tuple[str, str], ...]:
    """Return fetch tuning under librdkafka's names; add problems to `problems`."""
    settings = []
    for tuning in FETCH_TUNING:
        parse: Callable[[str], int] = parse_boolean
        if tuning.at_least is not None:
            parse = whole_number(tuning.at_least, tuning.at_most)
        if tuning.name in given:
            try:
                settings.append((tuning.setting, str(parse(given[tuning.name])).lower()))
            except ValueError as error:
                problems.append(f"{tuning.name}: {error}")
    return tuple(settings)


def refuse_load(source: str, problems: Iterable[str], done: str = "loaded") -> NoReturn:
    """Raise an OptionsError that lists all problems of a load().

    Args:
        done: What cannot be done.
    """
    listed = "".join(f"\n  - {problem}" for problem in problems)
    raise OptionsError(f"the {source} source cannot be {done}:{listed}")


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
