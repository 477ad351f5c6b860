"""The public Python names as Markdown, from the docstrings, by griffe."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Final

import griffe

import spark_groups

ROOT: Final = Path(__file__).resolve().parents[2]
PACKAGE: Final = "spark_groups"
_LINE: Final = 88
"""The longest signature on one line."""


@dataclass(frozen=True, slots=True)
class Section:
    """A section of the page.

    Args:
        title: Its heading.
        names: Public names, or paths of what they return.
        homes: Packages: all their public names that no section before has.
        text: What stands before the names.
    """

    title: str
    names: tuple[str, ...] = ()
    homes: tuple[str, ...] = ()
    text: str = ""


SECTIONS: Final = (
    Section("Start here", ("write_table", "delta_table", "listen")),
    Section("Other tables", homes=("spark_groups.spark.tables",)),
    Section("Queries", homes=("spark_groups.spark.source", "spark_groups.spark.control")),
    Section("Records", homes=("spark_groups.spark.processing",)),
    Section("Groups", homes=("spark_groups.observation", "spark_groups.cli")),
    Section("Everything else", homes=(PACKAGE,)),
    Section(
        "The result of a simulation",
        (
            "group_lab.commands.simulation.simulate",
            "group_lab.commands.simulation.Simulation",
            "group_lab.sim.figures.Figures",
            "group_lab.commands.simulation.OwnedFor",
            "group_lab.commands.simulation.Incident",
        ),
        text="`spark_groups.simulate`, from the package kafka-group-lab, returns a `Simulation`.",
    ),
    Section(
        "The decision that a store of your own gets",
        ("spark_groups.fence.compare.Decision", "spark_groups.fence.entries.EntryChange"),
        text="`own_table` calls `write` with a `Decision`.",
    ),
    Section(
        "The result of describe",
        tuple(
            f"spark_groups.observation.views.{name}"
            for name in ("GroupView", "MemberView", "PartitionView", "GroupTotals")
        ),
        text="`describe` returns a `GroupView`; `spark-groups describe --json` prints a list of"
        " them.",
    ),
    Section(
        "The results of groups, lag, config, remove and preflight",
        (
            "spark_groups.cli.groups_cli.GroupListView",
            "spark_groups.cli.lag_cli.LagView",
            "spark_groups.cli.lag_cli.GroupLag",
            "spark_groups.cli.config_cli.SettingsView",
            "spark_groups.cli.remove_cli.RemovalView",
            "spark_groups.cli.preflight_checks.PreflightView",
        ),
        text="They return what the commands of these names print with `--json`: `to_json()` is that"
        " document.",
    ),
)


def python_reference() -> str:
    """Return all sections of the page."""
    shown: set[str] = set()
    parts = []
    for section in SECTIONS:
        names = section.names or _of_homes(section.homes, shown)
        shown.update(names)
        parts += [f"## {section.title}", section.text, *map(_described, names)]
    return "\n\n".join(filter(None, parts))


def _of_homes(homes: Iterable[str], shown: set[str]) -> tuple[str, ...]:
    """Return the public names whose modules are in these packages, without those shown already."""
    return tuple(
        name
        for name in spark_groups.__all__
        if name not in shown and _found(name).path.startswith(tuple(f"{home}." for home in homes))
    )


@cache
def _modules() -> griffe.ModulesCollection:
    """Return the sources, read and not run."""
    loader = griffe.GriffeLoader(search_paths=[ROOT, ROOT / "lab"], allow_inspection=False)
    for package in (PACKAGE, "group_lab"):
        loader.load(package)
    return loader.modules_collection


def _found(name: str) -> Any:
    """Return what a public name, or a path, stands for."""
    found: Any = _modules()[name if "." in name else f"{PACKAGE}.{name}"]
    return found.final_target if found.is_alias else found


def _described(name: str) -> str:
    found = _found(name)
    parts = [f"### {found.name}", *_body(found, found.name)]
    if found.is_class:
        for member in filter(_is_shown, found.members.values()):
            parts += [f"#### {found.name}.{member.name}", *_body(member, member.name)]
    return "\n\n".join(parts)


def _is_shown(member: Any) -> bool:
    """Return whether a member of a class has a heading: a method or property that users call."""
    if member.is_alias or member.name.startswith("_") or not member.docstring:
        return False
    return bool(member.is_function or "property" in member.labels)


def _body(found: Any, name: str) -> Iterator[str]:
    if found.is_function or (found.is_class and "__init__" in found.members):
        # Not `python`: blocks of that language are programs, which tests compile.
        yield f"```py\n{_signature(found, name)}\n```"
    if found.docstring:
        parsed = found.docstring.parse("google", returns_multiple_items=False)
        yield from map(_section, parsed)
    if found.is_class:
        values = [f"- `{each.name}`{_meaning(each)}" for each in _values(found)]
        if values:
            yield "\n".join(values)


def _values(found: Any) -> Iterator[Any]:
    """Yield the members of an enum."""
    if any(str(base) in ("Enum", "IntEnum", "StrEnum") for base in found.bases):
        yield from (each for each in found.members.values() if each.is_attribute and each.value)


def _meaning(member: Any) -> str:
    return f": {_on_one_line(member.docstring.value)}" if member.docstring else ""


def _signature(found: Any, name: str) -> str:
    """Return the call, on one line or with an argument on each."""
    shown = list(_parameters(each for each in found.parameters if each.name not in ("self", "cls")))
    returns = f" -> {found.returns}" if found.is_function and found.returns else ""
    line = f"{name}({', '.join(shown)}){returns}"
    if len(line) <= _LINE:
        return line
    return "\n".join([f"{name}(", *(f"    {each}," for each in shown), f"){returns}"])


def _parameters(parameters: Iterable[Any]) -> Iterator[str]:
    """Yield parameters as a call's definition writes them, with the signs between their kinds."""
    kind = griffe.ParameterKind
    prefixes = {kind.var_positional: "*", kind.var_keyword: "**"}
    has_star = False
    for each in parameters:
        if each.kind is kind.keyword_only and not has_star:
            yield "*"
        has_star = has_star or each.kind in (kind.keyword_only, kind.var_positional)
        annotation = f": {each.annotation}" if each.annotation else ""
        is_optional = each.default is not None and each.kind not in prefixes
        equals = " = " if annotation else "="
        default = f"{equals}{each.default}" if is_optional else ""
        yield f"{prefixes.get(each.kind, '')}{each.name}{annotation}{default}"


def _section(section: Any) -> str:
    """Return one section of a docstring.

    Raises:
        ValueError: Its kind is not one that docstrings here have.
    """
    kind = griffe.DocstringSectionKind
    match section.kind:
        case kind.text:
            return str(section.value)
        case kind.parameters | kind.attributes:
            return _list("Arguments", ((f"`{each.name}`", each) for each in section.value))
        case kind.returns | kind.yields:
            return _list("Returns", ((_type(each), each) for each in section.value))
        case kind.raises:
            return _list("Raises", ((_type(each), each) for each in section.value))
    raise ValueError(f"a docstring has a section of {section.kind}: {section.value}")


def _type(item: Any) -> str:
    return f"`{item.annotation}`" if item.annotation else ""


def _list(title: str, items: Iterable[tuple[str, Any]]) -> str:
    rows = [
        f"- {': '.join(filter(None, (head, _on_one_line(each.description))))}"
        for head, each in items
    ]
    return "\n".join([f"{title}:", "", *rows])


def _on_one_line(text: str) -> str:
    return " ".join(text.split())
