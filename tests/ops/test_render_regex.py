"""A topic pattern and what it matches, as text."""

from __future__ import annotations

from spark_groups.ops.regex_view import view_regex
from spark_groups.ops.render_regex import render_regex
from tests.ops.rendered import lines
from tests.ops.test_regex_view import TOPICS


def test_a_valid_pattern_lists_what_it_matches_and_what_is_surprising() -> None:
    valid, counted, topic, note = lines(render_regex(view_regex("^orders", TOPICS)))
    assert valid == "The regular expression `^orders` is valid."
    assert (counted, topic) == ("It matches 1 of 4 topics.", "  orders")
    assert note.startswith("Note: subscribePattern '^orders' matches whole topic names")


def test_an_invalid_pattern_is_one_line() -> None:
    (line,) = lines(render_regex(view_regex("(", TOPICS)))
    assert line.startswith("The regular expression `(` is invalid: '(' is not an RE2 expression")
