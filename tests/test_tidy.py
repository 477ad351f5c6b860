"""The rules of the house, each with a snippet that breaks it.

A rule is a function from a source file to sentences about its problems. `RULES` says which
files it is for; every rule is run over the repository and shown to object to its own bad snippet.
"""

from __future__ import annotations

import ast
import json
import re
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache, cached_property
from graphlib import CycleError, TopologicalSorter
from pathlib import Path, PurePosixPath

import pytest

ROOT = Path(__file__).resolve().parent.parent
MODULE_LINES_MAX = 700
FUNCTION_LINES_MAX = 70
LINE_COLUMNS_MAX = 100

PYTHON_ROOMS = (
    "spark_groups",
    "lab",
    "pyspark_kafka_group",
    "jobs",
    "tests",
    "demo",
    "examples",
    "workshop",
    "conftest",
)
LIBRARIES = ("spark_groups/", "lab/group_lab/")
PURE = (
    "spark_groups/errors.py",
    "spark_groups/types.py",
    "spark_groups/values.py",
    "spark_groups/systems.py",
    "spark_groups/fence/",
    "spark_groups/group/",
    "lab/group_lab/assignors/",
    "lab/group_lab/coordinator/",
    "spark_groups/records/",
    "spark_groups/formats/",
    "lab/group_lab/sim/",
    "workshop/benchmarks/elastic_rule.py",
    "workshop/chaos/results/account.py",
    "workshop/chaos/results/commit_history.py",
    "workshop/chaos/results/facts.py",
    "workshop/chaos/systems/record.py",
    "workshop/chaos/results/recovery.py",
    "workshop/chaos/results/report.py",
    "workshop/chaos/faults/link.py",
    "workshop/chaos/faults/network_schedule.py",
    "workshop/chaos/faults/schedule.py",
    "workshop/chaos/results/timeline.py",
)
TEXT_SUFFIXES = (".py", ".md", ".toml", ".sh", ".yml", ".ipynb", ".cfg", ".txt")
TEXT_NAMES = ("Makefile", "run", ".gitignore")

# It only re-exports, and imports what somebody asks it for.
PACKAGE = "spark_groups"

IMPURE_MODULES = frozenset(
    {
        *("asyncio", "logging.handlers", "multiprocessing", "os", "pathlib", "random", "secrets"),
        *("selectors", "signal", "socket", "ssl", "subprocess", "threading", "time"),
    }
)
IMPURE_CALLS = frozenset({"open", "print", "input"})
IMPURE_ATTRIBUTES = frozenset({"datetime.now", "datetime.utcnow", "date.today", "uuid.uuid4"})
BANNED_WORDS = frozenset(
    word + plural for word in ("manager", "handler", "util", "helper") for plural in ("", "s")
)
# Put together from parts, so that this file does not break its own rule.
COMMENT = "#"
PRIVATE_PATHS = tuple("/" + part + "/" for part in ("work", "root", "home"))
PRIVATE_HOST = re.compile(
    r"https?://[\w.-]*(?:\.(?:internal|intranet|corp|lan)\b|artifactory|nexus|devpi)"
    r"|(?:--?|\b)(?:extra-)?index-url[ =]|\bfind-links[ =]",
    re.IGNORECASE,
)

PLAIN_PYTHON = (
    *("spark_groups", "lab", "jobs", "demo", "examples", "workshop", "tests", "conftest.py"),
)
PLAIN_DOCUMENTS = (
    *("README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "docs", "notebooks", "conf", "examples"),
)
# A form that a reader stumbles over, and the words to use for it.
BANNED_FORMS = {
    r"time-outs?": "timeout",
    r"nobody|no\s+one": "the actor: no member, no broker, the user ... not",
    r"(?:who|what|wher)ever": "the caller, any ..., all ...",
    r"told": "reported, received, learned, notified",
    r"so\s+too|anew|asunder": "also, again, apart",
    r"(?:is|are|was|were|be)\s+said|says\s+so": "is reported, is logged, states",
    r"at\s+last": "finally, at the end",
    r"(?:goes|go|went)\s+by": "uses, follows",
    r"(?:goes|go|went|gone)\s+on": "continues",
    r"mended": "fixed",
    r"farewells?|aiming|narrat\w+": "leave, target assignment, event text",
    r"(?<![\"'])tally(?![\"'])": "metrics, counts",
    r"heard": "received",
    r"(?:found|finds?)\s+out": "detects, learns",
    r"now\s+and\s+(?:again|then)": "every N s, periodically",
    r"thereof|hence|thereby|wherein|in\s+its\s+stead": "of it, therefore, instead",
    r"what\s+(?:is|are|was|were|has|have|had)(?![^.;]*\?)": "the thing: the missing topics",
}
ANY_BANNED_FORM = re.compile(
    rf"\b(?:{'|'.join(f'({form})' for form in BANNED_FORMS)})\b", re.IGNORECASE
)

# A full stop before a capital letter ends a sentence, so there is none before the last one.
ONE_SENTENCE = re.compile(r"(?:(?!\. [A-Z]).)*[.?!]")


@dataclass(frozen=True)
class Source:
    """A file of the repository.

    Args:
        path: Where it is, from the root of the repository.
        text: What it says.
    """

    path: PurePosixPath
    text: str

    @cached_property
    def lines(self) -> list[str]:
        return self.text.splitlines()

    @cached_property
    def tree(self) -> ast.Module:
        return ast.parse(self.text, filename=str(self.path))

    @cached_property
    def walked(self) -> list[ast.AST]:
        return list(ast.walk(self.tree))

    @property
    def is_python(self) -> bool:
        return self.path.suffix == ".py"

    def nodes(self, *kinds: type[ast.AST]) -> Iterator[ast.AST]:
        return (node for node in self.walked if isinstance(node, kinds))


FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)


def is_python(source: Source) -> bool:
    return source.is_python and PurePosixPath(source.path.parts[0]).stem in PYTHON_ROOMS


def is_library(source: Source) -> bool:
    return source.is_python and str(source.path).startswith(LIBRARIES)


def is_pure(source: Source) -> bool:
    return source.is_python and str(source.path).startswith(PURE)


def is_outside_the_group(source: Source) -> bool:
    rooms = ("spark_groups/group/", "tests/", "lab/tests/", "workshop/tests/")
    return is_python(source) and not str(source.path).startswith(rooms)


def is_plain_prose(source: Source) -> bool:
    room = source.path.parts[0]
    return room in PLAIN_DOCUMENTS or (source.is_python and room in PLAIN_PYTHON)


def is_workflow(source: Source) -> bool:
    return source.path.parts[:2] == (".github", "workflows")


def is_package_init(source: Source) -> bool:
    return is_library(source) and source.path.name == "__init__.py"


def is_text(source: Source) -> bool:
    return source.path.suffix in TEXT_SUFFIXES or source.path.name in TEXT_NAMES


def module_is_short(source: Source) -> Iterator[str]:
    if len(source.lines) > MODULE_LINES_MAX:
        yield f"{len(source.lines)} lines; at most {MODULE_LINES_MAX}"


def lines_are_narrow(source: Source) -> Iterator[str]:
    for number, line in enumerate(source.lines, start=1):
        if len(line) > LINE_COLUMNS_MAX:
            yield f"line {number} has {len(line)} columns; at most {LINE_COLUMNS_MAX}"


def functions_are_short(source: Source) -> Iterator[str]:
    for node in source.nodes(*FUNCTIONS):
        length = node.end_lineno - node.lineno + 1
        if length > FUNCTION_LINES_MAX:
            yield f"{node.name} has {length} lines; at most {FUNCTION_LINES_MAX}"


def init_only_reexports(source: Source) -> Iterator[str]:
    for node in source.tree.body:
        match node:
            case ast.Import() | ast.ImportFrom() | ast.Expr(value=ast.Constant()):
                continue
            case ast.FunctionDef(name="__getattr__" | "__dir__"):
                continue
            case ast.If(test=ast.Name(id="TYPE_CHECKING")):
                continue
            case ast.Assign(targets=[ast.Name(id=name)]) | ast.AnnAssign(target=ast.Name(id=name)):
                if name == "__all__" or re.fullmatch(r"_[A-Z_]+|__version__", name):
                    continue
        yield f"line {node.lineno} does more than re-export"


def imported_modules(source: Source) -> Iterator[tuple[int, str]]:
    for node in source.nodes(ast.Import, ast.ImportFrom):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif node.module and not node.level:
            yield node.lineno, node.module
            yield from ((node.lineno, f"{node.module}.{alias.name}") for alias in node.names)


def pure_imports_nothing_of_the_world(source: Source) -> Iterator[str]:
    for number, module in imported_modules(source):
        if module in IMPURE_MODULES or module.split(".")[0] in IMPURE_MODULES:
            yield f"line {number} imports {module}; what it gives must be an argument"


def pure_calls_nothing_of_the_world(source: Source) -> Iterator[str]:
    for node in source.nodes(ast.Call):
        match node.func:
            case ast.Name(id=name) if name in IMPURE_CALLS | {"uuid4", "uuid1"}:
                yield f"line {node.lineno} calls {name}"
            case ast.Attribute(value=ast.Name(id=owner), attr=name) if (
                f"{owner}.{name}" in IMPURE_ATTRIBUTES
            ):
                yield f"line {node.lineno} calls {owner}.{name}"


def words_of(name: str) -> set[str]:
    parts = re.findall(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+", name)
    return {part.lower() for part in parts}


def names_are_precise(source: Source) -> Iterator[str]:
    names = [(1, source.path.stem), *((1, part) for part in source.path.parts[:-1])]
    names += [(node.lineno, node.name) for node in source.nodes(ast.ClassDef, *FUNCTIONS)]
    for number, name in names:
        for word in sorted(words_of(name) & BANNED_WORDS):
            yield f"line {number}: {name} says {word!r}; say what it does"


def mentions_no_machine(source: Source) -> Iterator[str]:
    for number, line in enumerate(source.lines, start=1):
        if any(path in line for path in PRIVATE_PATHS):
            yield f"line {number} has a path of one machine: {line.strip()[:80]}"
        if PRIVATE_HOST.search(line) and "--no-emit-index-url" not in line:
            yield f"line {number} names a private host or index: {line.strip()[:80]}"


def actions_are_pinned(source: Source) -> Iterator[str]:
    for number, line in enumerate(source.lines, start=1):
        if "uses:" in line and not re.search(r"uses: \S+@[0-9a-f]{40} # v[0-9.]+$", line):
            yield f"line {number} takes an action by a name that can be moved: {line.strip()[:80]}"


def prose_of(source: Source) -> Iterator[tuple[int, str]]:
    """Yield texts for readers, each with the number of its first line.

    Names count word by word, but that of a test is a sentence. A string without a space is a key or
    a value, not prose. Outputs of notebooks do not count.
    """
    if source.path.suffix == ".ipynb":
        for cell in json.loads(source.text)["cells"]:
            yield 1, "".join(cell["source"])
    elif not source.is_python:
        yield 1, source.text
    else:
        for node in source.nodes(ast.Constant, ast.ClassDef, ast.FunctionDef):
            match node:
                case ast.Constant(value=str(text)) if " " in text:
                    yield node.lineno, text
                case ast.FunctionDef(name=name) if name.startswith("test_"):
                    yield node.lineno, name.replace("_", " ")
                case ast.ClassDef(name=name) | ast.FunctionDef(name=name):
                    yield node.lineno, "; ".join(sorted(words_of(name)))
        # A comment, or the rest of a string: that is prose as well.
        for number, line in enumerate(source.lines, start=1):
            if "#" in line:
                yield number, line.partition("#")[2]


def words_are_plain(source: Source) -> Iterator[str]:
    for first_line, text in prose_of(source):
        for found in ANY_BANNED_FORM.finditer(text):
            number = first_line + text.count("\n", 0, found.start())
            instead = tuple(BANNED_FORMS.values())[found.lastindex - 1]
            yield f"line {number} says {' '.join(found[0].split())!r}; say instead: {instead}"


def documented_nodes(source: Source) -> Iterator[tuple[str, ast.AST]]:
    """Everything public that has a docstring of its own: not properties, nor overrides."""
    yield "the module", source.tree
    for node in source.tree.body:
        if not isinstance(node, (ast.ClassDef, *FUNCTIONS)) or node.name.startswith("_"):
            continue
        yield node.name, node
        for member in node.body if isinstance(node, ast.ClassDef) else ():
            if isinstance(member, FUNCTIONS) and not member.name.startswith("_"):
                marks = {ast.unparse(mark).split(".")[-1] for mark in member.decorator_list}
                if not marks & {"property", "cached_property", "override", "setter"}:
                    yield f"{node.name}.{member.name}", member


def public_things_are_documented(source: Source) -> Iterator[str]:
    for name, node in documented_nodes(source):
        if name == "the module" and not source.tree.body:
            continue
        docstring = ast.get_docstring(node) or ""
        first_line = docstring.split("\n", 1)[0]
        if not first_line:
            yield f"{name} has no docstring"
        elif not re.search(r"[.?!]$", first_line) or re.search(
            r"(?<!e\.g|i\.e)\. [A-Z]", first_line
        ):
            yield f"{name}: the docstring's first line is not one sentence: {first_line!r}"


def only_the_group_changes_a_member(source: Source) -> Iterator[str]:
    for node in source.nodes(ast.Attribute):
        if isinstance(node.ctx, ast.Store) and ".parts." in ast.unparse(node):
            yield f"line {node.lineno}: {ast.unparse(node)} is set; give GroupClient an input"


def room_has_its_tests(source: Source) -> Iterator[str]:
    is_lab = source.path.parts[0] == "lab"
    room = Path(*(("lab", "tests") if is_lab else ("tests",)), *source.path.parts[1 + is_lab : -1])
    if not any((ROOT / room).glob("test_*.py")):
        yield f"no test module in {room}"


@dataclass(frozen=True)
class Rule:
    """A rule, the files it is for, and a snippet that it must object to.

    Args:
        check: Describes the problems of a file.
        applies: Says which files it is for.
        bad_text: What breaks the rule.
        bad_path: Where the bad text stands.
    """

    check: Callable[[Source], Iterator[str]]
    applies: Callable[[Source], bool]
    bad_text: str
    bad_path: str = "spark_groups/group/member/bad.py"


def is_module(source: Source) -> bool:
    return is_library(source) and source.path.name != "__init__.py"


PRIVATE_URL = "https://pypi." + "corp/simple\n"
PRIVATE_INDEX = "pip install --index-" + "url x\n"
WORKFLOW = ".github/workflows/ci.yml"
LONG_FUNCTION = "def long():\n" + "    pass\n" * FUNCTION_LINES_MAX
RULES = (
    Rule(module_is_short, is_python, "x = 1\n" * (MODULE_LINES_MAX + 1)),
    Rule(lines_are_narrow, is_python, "x = '" + "x" * LINE_COLUMNS_MAX + "'\n"),
    Rule(functions_are_short, is_python, LONG_FUNCTION),
    Rule(init_only_reexports, is_package_init, "def f(): ...\n", "spark_groups/__init__.py"),
    Rule(init_only_reexports, is_package_init, "limit = 3\n", "spark_groups/cli/__init__.py"),
    Rule(pure_imports_nothing_of_the_world, is_pure, "from logging import handlers\n"),
    Rule(pure_imports_nothing_of_the_world, is_pure, "import os.path\n"),
    Rule(pure_calls_nothing_of_the_world, is_pure, "open('x')\n"),
    Rule(pure_calls_nothing_of_the_world, is_pure, "datetime.now()\n"),
    Rule(names_are_precise, is_python, "class GroupManager: ...\n"),
    Rule(names_are_precise, is_python, "", "spark_groups/wire/utils.py"),
    Rule(mentions_no_machine, is_text, f"in {PRIVATE_PATHS[0]}here\n", "docs/bad.md"),
    Rule(mentions_no_machine, is_text, PRIVATE_URL, "requirements.txt"),
    Rule(mentions_no_machine, is_text, PRIVATE_INDEX, "README.md"),
    Rule(actions_are_pinned, is_workflow, "- uses: actions/checkout@v4\n", WORKFLOW),
    Rule(public_things_are_documented, is_library, "def f(): ...\n"),
    Rule(public_things_are_documented, is_library, '"""No full stop"""\n'),
    Rule(public_things_are_documented, is_library, '"""One. Two."""\n'),
    Rule(words_are_plain, is_plain_prose, COMMENT + "nobody\n"),
    Rule(words_are_plain, is_plain_prose, "def test_it_says_so(): ...\n", "tests/test_bad.py"),
    Rule(words_are_plain, is_plain_prose, "What\nis\n", "docs/bad.md"),
    Rule(
        only_the_group_changes_a_member,
        is_outside_the_group,
        "query.client.parts.member.state = None\n",
        "spark_groups/runtime/bad.py",
    ),
    Rule(room_has_its_tests, is_module, "def f(): ...\n", "spark_groups/no_such/room.py"),
)


@cache
def sources() -> tuple[Source, ...]:
    """Every file that git knows: a new one is judged once it is added."""
    listed = subprocess.run(
        ["git", "ls-files", "-z"],
        cwd=ROOT,
        capture_output=True,
        check=True,
        text=True,
    ).stdout.split("\0")
    paths = [PurePosixPath(path) for path in listed if path and (ROOT / path).is_file()]
    texts = [Source(path, "") for path in paths]
    return tuple(
        Source(each.path, (ROOT / each.path).read_text(encoding="utf-8"))
        for each in texts
        if is_text(each) or each.is_python
    )


@pytest.mark.parametrize("check", sorted({rule.check for rule in RULES}, key=lambda c: c.__name__))
def test_repository_keeps_the_rule(check: Callable[[Source], Iterator[str]]) -> None:
    applies = next(rule.applies for rule in RULES if rule.check is check)
    problems = [
        f"{source.path}: {problem}"
        for source in sources()
        if applies(source)
        for problem in check(source)
    ]
    assert not problems, "\n" + "\n".join(problems)


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.check.__name__)
def test_rule_objects_to_its_bad_snippet(rule: Rule) -> None:
    bad = Source(PurePosixPath(rule.bad_path), rule.bad_text)
    assert rule.applies(bad)
    assert list(rule.check(bad))


def test_places_that_rules_name_are_there() -> None:
    paths = {str(source.path) for source in sources()}
    assert [each for each in PURE if not any(path.startswith(each) for path in paths)] == []


def test_sources_are_found() -> None:
    found = {str(source.path) for source in sources()}
    assert {"Makefile", "spark_groups/types.py", "tests/test_tidy.py", ".ci/run"} <= found


def test_imports_between_files_have_no_circle() -> None:
    """Imports inside functions, and those for types alone, count as well."""
    files = {module_name(source): source for source in sources() if is_library(source)}
    imports = {
        name: {each for _, each in imported_modules(source)}.intersection(files) - {PACKAGE}
        for name, source in files.items()
        if name != PACKAGE
    }
    try:
        TopologicalSorter(imports).prepare()
    except CycleError as error:
        pytest.fail(" <- ".join(error.args[1]))


def module_name(source: Source) -> str:
    name = ".".join(source.path.with_suffix("").parts).removesuffix(".__init__")
    return name.removeprefix("lab.")


def test_lazy_reexports_are_allowed() -> None:
    text = (
        '"""A package."""\n'
        "from typing import TYPE_CHECKING\n"
        "if TYPE_CHECKING:\n    from spark_groups.spark.source.registration import register\n"
        "_LAZY = {}\n"
        '__all__ = ["register"]\n'
        "def __getattr__(name: str) -> object:\n    raise AttributeError(name)\n"
    )
    assert not list(init_only_reexports(Source(PurePosixPath("spark_groups/__init__.py"), text)))
