"""The commands that errors, log lines and outputs print, run as somebody does who follows them."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Mapping, Sequence
from typing import Any

from tests.cli.commands import invoke

_WORD = re.compile(r"'[^']*'|[^\s']+")
_ENDS = ".;,:)"


def printed(text: str) -> list[str]:
    """Return the commands with --execute in a text, in their order.

    A command ends with its line, at a backtick, or at a word that ends with a punctuation mark.

    Args:
        text: A message or an output.
    """
    commands = []
    for part in text.split("spark-groups ")[1:]:
        words: list[str] = []
        for word in _WORD.findall(re.split(r"[`\n]", part)[0]):
            words.append(word.rstrip(_ENDS))
            if words[-1] != word:
                break
        if "--execute" in words:
            commands.append(" ".join(words))
    return commands


def follow(commands: Sequence[str], servers: str, names: Mapping[str, str]) -> list[dict[str, Any]]:
    """Run printed commands one after the other, all of them with success; return their documents.

    Args:
        commands: From `printed`.
        servers: The brokers, for commands that do not name them.
        names: What stands for the words in capitals: `TABLE`, `GROUP` and others.
    """
    documents = []
    for command in commands:
        words = [names.get(word, word) for word in shlex.split(command)]
        if "--bootstrap-server" not in words:
            words += ["--bootstrap-server", servers]
        done = invoke(*words, "--json")
        assert done.exit_code == 0, (command, done.output, done.exception)
        documents.append(json.loads(done.stdout))
    return documents
