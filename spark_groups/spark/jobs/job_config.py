"""Reads the configuration of a job: a TOML file, and what the command line sets instead.

Every value remembers where it came from, so that one error can list all that is wrong together
with the file and key, or the argument, that has to be changed.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from spark_groups.errors import OptionsError
from spark_groups.spark.jobs.job_options import Job, check_job

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

_CHARACTERS_MAX: Final = 200_000
"""How long a file may be: some that no person would write take the parser as long as its square."""
_NESTED: Final = ("source", "sink.options", "target.options")
"""Sections whose keys may contain dots: their sub-tables are only a way to write such keys."""
_TEXTS: Final = ("source.", "target.options.")
"""Where every value is a text: an error about another kind of value would show it."""


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
    values: dict[str, Any] = {}
    origins: dict[str, str] = {}
    if path is not None:
        for key, value in _read(path, kind.example):
            values[key], origins[key] = value, str(path)
    for argument, key, text in settings:
        section, _, name = key.partition(".")
        if section not in kind.sections() or not name:
            raise OptionsError(
                f"{argument}: {key!r} is not a setting: write section.key=value, with one of the"
                f" sections {', '.join(kind.sections())}"
            )
        if key == "source.subscribe":
            values.pop("source.subscribePattern", None)
        values[key] = text if key.startswith(_TEXTS) else _value(text)
        origins[key] = argument
    options, problems = check_job(kind, _nested(values))
    if options is None or problems:
        raise OptionsError(_message(problems, origins, path))
    return options


def _read(path: Path, example: str) -> list[tuple[str, Any]]:
    """Return `section.key` and value of everything in a file."""
    try:
        with path.open(encoding="utf-8") as file:
            text = file.read(_CHARACTERS_MAX + 1)
        if len(text) > _CHARACTERS_MAX:
            raise OptionsError(
                f"{path} is too large for a configuration: at most {_CHARACTERS_MAX} characters"
            )
        return list(_flat(tomllib.loads(text)))
    except OSError as error:
        raise OptionsError(
            f"{path} cannot be read: {error.strerror}; {example} is an example"
        ) from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise OptionsError(f"{path} is not TOML: {error}") from error
    except RecursionError:
        raise OptionsError(f"{path} is not TOML: it is nested too deeply") from None


def _flat(table: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """Return `section.key` and value of everything; a section that is no table is itself."""
    for section, keys in table.items():
        if not isinstance(keys, dict):
            yield section, keys
            continue
        for key, value in keys.items():
            place = f"{section}.{key}"
            if isinstance(value, dict) and (section == "source" or place in _NESTED):
                yield from _dotted(place, value)
            elif section == "source":
                yield place, _text(value)
            else:
                yield place, value


def _dotted(prefix: str, table: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    for key, value in table.items():
        place = f"{prefix}.{key}"
        if isinstance(value, dict):
            yield from _dotted(place, value)
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


def _nested(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return tables by section; the keys of the nested ones keep their dots."""
    tables: dict[str, Any] = {}
    for place, value in values.items():
        section, _, key = place.partition(".")
        if not key:
            tables[section] = value
            continue
        table = tables.setdefault(section, {})
        if not isinstance(table, dict):
            continue
        nested = next((each for each in _NESTED if place.startswith(f"{each}.")), section)
        if nested != section:
            table, key = table.setdefault("options", {}), place.removeprefix(f"{nested}.")
        table[key] = value
    return tables


def _message(
    problems: Iterable[tuple[str, str]], origins: Mapping[str, str], path: Path | None
) -> str:
    where = path or "the command line"
    lines = []
    for place, reason in problems:
        said_by = origins.get(place) or next(
            (origin for key, origin in origins.items() if key.startswith(f"{place}.")), str(where)
        )
        lines.append(f"\n  - {said_by}: {place}: {reason}")
    return "the job's configuration is wrong:" + "".join(lines)
