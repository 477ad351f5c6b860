"""A topic pattern, tried on the topics of a cluster."""

from __future__ import annotations

from spark_groups.ops.regex_view import view_regex

TOPICS = ("orders-eu", "orders", "flights-1", "flights-2")


def test_whole_names_are_matched() -> None:
    view = view_regex("flights-[12]|orders", TOPICS)
    assert (view.matched, view.topics) == (("flights-1", "flights-2", "orders"), 4)
    assert (view.fault, view.hint) == ("", "")


def test_a_pattern_that_matches_less_than_it_seems_to_has_a_hint() -> None:
    view = view_regex("^orders", TOPICS)
    assert view.matched == ("orders",)
    assert "for every name that begins so write 'orders.*'" in view.hint


def test_what_is_no_re2_expression_says_why_and_what_to_write() -> None:
    view = view_regex("(?!orders).*", TOPICS)
    assert "RE2 has neither look-ahead nor look-behind" in view.fault
    assert (view.to_json()["matched"], view.topics) == ([], 0)
