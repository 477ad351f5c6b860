"""What is wrong with the options of a load(), said in the words of the options."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Annotated, Any, Final, NoReturn, TypeVar

from pydantic import Field, TypeAdapter, ValidationError

from spark_groups.errors import OptionsError
from spark_groups.protocol.subscription import Subscription
from spark_groups.spark.options.refusals import REFUSED, REFUSED_PREFIXES
from spark_groups.spark.options.values import parse_starting_offsets
from spark_groups.spark.reading.fetch_tuning import FETCH_TUNING

Options = TypeVar("Options")

SUBSCRIPTIONS: Final[Mapping[str, Callable[[str], Subscription]]] = {
    "subscribe": Subscription.of_names,
    "subscribePattern": Subscription.of_pattern,
}
_REFUSED: Final = {name.lower(): name for name in REFUSED}


def unknown_or_refused(given: Mapping[str, str], known: Mapping[str, str]) -> Iterator[str]:
    """Say which options this source does not have, or refuses, and why.

    Args:
        given: Texts by name in lower case.
        known: Names of the options by their lower case.
    """
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
    """Return options as their class takes them; None if it does not.

    Args:
        kind: A dataclass of pydantic's.
        values: What was given, by name.
        names: Names of all options.
        problems: Takes what is wrong.
    """
    try:
        return TypeAdapter(kind).validate_python(values)
    except ValidationError as error:
        problems += [describe_problem(each, names) for each in error.errors()]
        return None


def refuse_load(source: str, problems: Iterable[str]) -> NoReturn:
    """Raise with everything that is wrong with the options of a load().

    Args:
        source: The name of the format.
        problems: What is wrong, in words.

    Raises:
        OptionsError: Always.
    """
    listed = "".join(f"\n  - {each}" for each in problems)
    raise OptionsError(f"the {source} source cannot be loaded:{listed}")


def describe_problem(error: Any, names: Iterable[str]) -> str:
    """Say what pydantic found, in the words of the options.

    Args:
        error: One of `ValidationError.errors()`.
        names: Names of all options.
    """
    name = ".".join(str(part) for part in error["loc"])
    name = next((option for option in names if name.startswith(option)), name)
    if error["type"] == "missing":
        return f"{name} is missing"
    if error["type"] == "value_error":
        return f"{name}: {error['ctx']['error']}"
    return f"{name}: {error['input']!r} is wrong: {error['msg']}"
