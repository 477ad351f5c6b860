"""The generated parts of the docs: options, commands, errors, events, jobs, Python, the install.

    make reference

A page has each part between `<!-- NAME: begin -->` and `<!-- NAME: end -->`. A test fails if one
is older than the code.
"""

from __future__ import annotations

import ast
import inspect
import posixpath
import re
from collections.abc import Callable, Iterable, Iterator
from enum import Enum
from pathlib import Path
from typing import Any, Final

import typer
from typer.main import get_command

from spark_groups.cli.lag_rules import STATUS_MEANINGS
from spark_groups.cli.main import DISTRIBUTION, app
from spark_groups.errors import ERROR_RULES, REPORT_IT, ErrorCode, Reaction, rule_for
from spark_groups.group.ledger import events as offset_events
from spark_groups.group.ledger.starting_rules import RULES, Rule, Start
from spark_groups.group.member import events as member_events
from spark_groups.group.member.events import Event, MemberEvent
from spark_groups.observation.views import STATE_MEANINGS
from spark_groups.spark.jobs.run import ExitCode
from spark_groups.spark.options.checks import REFUSED
from workshop.tools.docs_options import grouped_options, options_on_restart
from workshop.tools.docs_python import python_reference

ROOT: Final = Path(__file__).resolve().parents[2]
DOCS: Final = ROOT / "docs"
LEVELS: Final = ("ERROR", "WARNING", "INFO", "DEBUG")


def table(head: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    """Return a table in Markdown, with pipes in cells escaped."""
    columns = list(head)
    lines = [columns, ["---"] * len(columns), *rows]
    return "\n".join("| " + " | ".join(map(_cell, line)) + " |" for line in lines)


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


def refused_options() -> str:
    """Return the options of Kafka and Spark that the source refuses, with reasons."""
    rows = [(f"`{name}`", why) for name, why in REFUSED.items()]
    return table(("refused", "why"), rows)


def commands() -> str:
    """Return every command with its arguments and options."""
    return "\n\n".join(_command(f"{DISTRIBUTION} {name}", each) for name, each in command_tree())


def command_tree() -> Iterator[tuple[str, Any]]:
    """Yield every command that is not a group, with its name after `spark-groups`."""
    for name, command in get_command(app).commands.items():
        if isinstance(command, typer.core.TyperGroup):
            yield from ((f"{name} {under}", each) for under, each in command.commands.items())
        else:
            yield name, command


def _command(name: str, command: Any) -> str:
    shown = [param for param in command.params if param.name != "help"]
    arguments = [each for each in shown if each.param_type_name == "argument"]
    options = [each for each in shown if each.param_type_name == "option"]
    usage = " ".join(
        [name, *(_metavar(argument) for argument in arguments), "[OPTIONS]" * bool(options)]
    )
    parts = [f"## {name}", f"```text\n{usage.strip()}\n```", _prose(command.help or "")]
    if arguments:
        rows = [(f"`{_metavar(argument)}`", _help(argument)) for argument in arguments]
        parts.append(table(("argument", "meaning"), rows))
    if options:
        rows = [(_names(option), _default(option), _help(option)) for option in options]
        parts.append(table(("flag", "default", "meaning"), rows))
    return "\n\n".join(parts)


def _prose(text: str) -> str:
    """Return a help text with its example as code."""
    apart = re.sub(r"\n(?=Example: )", "\n\n", inspect.cleandoc(text))
    paragraphs = [" ".join(each.split()) for each in re.split(r"\n\n+", apart)]
    example = re.compile(r"^Example: (.+)$")
    return "\n\n".join(example.sub(r"Example: `\1`", paragraph) for paragraph in paragraphs)


def _metavar(parameter: Any) -> str:
    return parameter.metavar or parameter.name.upper()


def _names(option: Any) -> str:
    names = ", ".join(f"`{each}`" for each in (*option.opts, *option.secondary_opts))
    return names if option.is_flag else f"{names} `{option.metavar or _value(option.default)}`"


def _value(default: object) -> str:
    """Return an option's placeholder, by the type of its default."""
    if isinstance(default, Enum):
        return " or ".join(each.value for each in type(default))
    return "NUMBER" if isinstance(default, (int, float)) else "VALUE"


def _default(option: Any) -> str:
    default = option.default
    if option.required:
        return "required"
    if default is None or default is False or callable(default) or default in ((), []):
        return "none"
    return f"`{getattr(default, 'value', default)}`"


def _help(parameter: Any) -> str:
    text = " ".join((parameter.help or "").split())
    variable = getattr(parameter, "envvar", None)
    return f"{text} Environment: `{variable}`." if variable else text


def error_codes() -> str:
    """Return a member's reaction to each of Kafka's error codes."""
    rows = [
        (
            str(int(code)),
            f"`{code.name}`",
            *(each.name for each in (rule.heartbeat, rule.offsets, rule.lookup)),
            "" if rule.remedy == REPORT_IT else rule.remedy,
        )
        for code, rule in sorted((each, rule_for(each)) for each in ErrorCode)
        if code in ERROR_RULES and code is not ErrorCode.NONE
    ]
    head = ("code", "name", "heartbeat", "offset commit or fetch", "other requests", "what to do")
    return table(head, rows)


def reactions() -> str:
    """Return the meanings of the reactions in the error table."""
    return table(("word", "meaning"), [(each.name, each.value) for each in Reaction])


def events() -> str:
    """Return the messages that a driver logs about its group, the most severe first."""
    logged = sorted(_logged(), key=lambda each: LEVELS.index(each[1]))
    rows = [(level, f"`{event}`", text.replace("……", "…")) for event, level, text in logged]
    return table(("level", "event", "message"), rows)


def _logged() -> Iterator[tuple[str, str, str]]:
    """Yield name, severity and message of each class of events."""
    for module in (member_events, offset_events):
        for kind in ast.parse(inspect.getsource(module)).body:
            if isinstance(kind, ast.ClassDef) and _is_kind(getattr(module, kind.name)):
                template = getattr(module, kind.name)._TEXT
                texts = [template] if template else [_sentence(each) for each in _texts(kind)]
                levels = [
                    each.attr
                    for method in kind.body
                    if isinstance(method, ast.FunctionDef)
                    for each in ast.walk(method)
                    if isinstance(each, ast.Attribute) and ast.unparse(each.value) == "Severity"
                ]
                levels = levels or [getattr(module, kind.name)._SEVERITY.name]
                if template:
                    texts *= len(levels)
                for level, text in zip(levels, texts, strict=True):
                    yield kind.name, level, re.sub(r"\{[^}]*\}", "…", text)


def _is_kind(kind: type) -> bool:
    bases = (Event, MemberEvent, offset_events.BatchEvent, offset_events.PartitionsStarted)
    return issubclass(kind, Event) and kind not in bases


def _texts(kind: ast.ClassDef) -> Iterator[ast.expr]:
    for each in kind.body:
        match each:
            case ast.FunctionDef(name="_message"):
                returns = (node for node in ast.walk(each) if isinstance(node, ast.Return))
                yield from (node.value for node in sorted(returns, key=_line) if node.value)


def _line(node: ast.Return) -> int:
    return node.lineno


def _sentence(text: ast.expr) -> str:
    """Return an f-string or a template with an ellipsis for each value."""
    match text:
        case ast.Constant(value=str(value)):
            return value
        case ast.JoinedStr(values=values):
            return "".join(_sentence(each) for each in values)
        case ast.Call(func=ast.Attribute(value=ast.JoinedStr() as joined)):
            return _sentence(joined)
        case _:
            return "…"


def group_states() -> str:
    """Return the meanings of the states of groups."""
    return table(("state", "meaning"), STATE_MEANINGS.items())


def lag_statuses() -> str:
    """Return the meanings of the results of `lag --check`."""
    return table(
        ("status", "meaning"),
        [(status_meaning.value, why) for status_meaning, why in STATUS_MEANINGS.items()],
    )


def jobs() -> str:
    """Return the docstring and the configuration file of each job."""
    return "\n\n".join(_job(ROOT / "spark_groups" / "jobs" / f"{name}.py") for name in job_names())


def job_names() -> list[str]:
    """Return the names of the jobs: those of their modules."""
    return sorted(path.stem for path in (ROOT / "jobs").glob("[a-z]*.py"))


def exit_codes() -> str:
    """Return the exit codes of jobs, with their meanings."""
    return table(("code", "meaning"), [(str(int(each)), each.meaning) for each in ExitCode])


def _job(path: Path) -> str:
    text = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""
    settings = (ROOT / "conf" / path.with_suffix(".toml").name).read_text(encoding="utf-8")
    return f"## {path.name}\n\n{text}\n\n```toml\n{settings.strip()}\n```"


def starting_rules() -> str:
    """Return where a partition starts, by the facts that decide."""
    rows = [
        (str(number), _facts_of(rule), rule.start.value, _reported(rule))
        for number, rule in enumerate(RULES, 1)
    ]
    return table(("", "if", "it starts at", "reported"), rows)


def _facts_of(rule: Rule) -> str:
    kinds = dict.fromkeys(type(fact) for fact in rule.facts)
    facts = [
        ", or ".join(fact.value for fact in rule.facts if isinstance(fact, kind)) for kind in kinds
    ]
    return "; ".join(facts) or "none of the above holds"


def _reported(rule: Rule) -> str:
    if rule.is_loss:
        return "`DataLost`; the query fails if `failOnDataLoss` is true"
    if rule.start is Start.REFUSED:
        return "`CheckpointError`"
    return f"`{rule.warning.__name__}`" if rule.warning else ""


def install() -> str:
    """Return the section of the README that installs the package and reads a topic."""
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    (section,) = re.findall(r"^## Install.*?(?=^## )", readme, re.MULTILINE | re.DOTALL)
    return re.sub(
        r"\]\((?!https?:|#)([^)\s#]+)",
        lambda found: f"]({posixpath.relpath(found[1], DOCS.name)}",
        section.strip(),
    )


PARTS: Final[dict[str, Callable[[], str]]] = {
    "options": grouped_options,
    "options_on_restart": options_on_restart,
    "refused_options": refused_options,
    "commands": commands,
    "error_codes": error_codes,
    "reactions": reactions,
    "events": events,
    "starting_rules": starting_rules,
    "group_states": group_states,
    "lag_statuses": lag_statuses,
    "jobs": jobs,
    "exit_codes": exit_codes,
    "python": python_reference,
    "install": install,
}
"""The functions that generate parts, by the name in the markers."""
PART: Final = re.compile(
    rf"^<!-- (?P<name>{'|'.join(PARTS)}): begin -->\n.*?^<!-- (?P=name): end -->$",
    re.MULTILINE | re.DOTALL,
)


def fill(markdown: str) -> str:
    """Return a page with its parts as the code has them now."""

    def generated(found: re.Match[str]) -> str:
        name = found["name"]
        return f"<!-- {name}: begin -->\n\n{PARTS[name]()}\n\n<!-- {name}: end -->"

    return PART.sub(generated, markdown)


def main() -> None:
    """Write the parts into their pages."""
    for path in sorted(DOCS.rglob("*.md")):
        text = path.read_text(encoding="utf-8")
        if (filled := fill(text)) != text:
            path.write_text(filled, encoding="utf-8")


if __name__ == "__main__":
    main()
