"""What people who know other regular expressions are told."""

from __future__ import annotations

import pytest

from spark_groups.protocol.pattern_hints import surprising, why_not_re2
from spark_groups.protocol.subscription import Subscription


@pytest.mark.parametrize(
    ("pattern", "advice"),
    [
        ("orders(?!-test).*", "neither look-ahead"),
        ("(?<=eu-)orders", "look-behind"),
        (r"(a|b)-\1", "back-references"),
        ("orders.*+", "possessive"),
        ("(?>orders).*", "atomic"),
        (r"orders.*\Z", r"leave \Z out"),
        ("*", "write .* for anything"),
    ],
)
def test_pattern_that_re2_refuses_says_what_to_write_instead(pattern: str, advice: str) -> None:
    assert advice in why_not_re2(pattern)
    with pytest.raises(ValueError, match="is not an RE2 expression") as refused:
        Subscription.of_pattern(pattern)
    assert advice in str(refused.value)


def test_pattern_that_is_wrong_everywhere_gets_re2s_own_words() -> None:
    assert why_not_re2("orders(") == ""
    with pytest.raises(ValueError, match="missing"):
        Subscription.of_pattern("orders(")


@pytest.mark.parametrize(
    ("pattern", "instead"),
    [
        ("^orders", "'orders.*'"),
        ("^orders-[0-9]", "'orders-[0-9].*'"),
        ("^(orders|bills)", "'(orders|bills).*'"),
        ("orders$", "'.*orders'"),
    ],
)
def test_pattern_that_matches_less_than_it_seems_to(pattern: str, instead: str) -> None:
    said = surprising(pattern)
    assert said is not None
    assert said.endswith(instead)
    assert Subscription.of_pattern(instead.strip("'")).matches(
        "orders" if "$" in pattern else "orders-1"
    )


def test_lone_name_is_named() -> None:
    assert "nothing but 'orders'" in (surprising("^orders") or "")
    assert Subscription.of_pattern("^orders").matches("orders")
    assert not Subscription.of_pattern("^orders").matches("orders-eu")


@pytest.mark.parametrize(
    "pattern",
    [
        "orders.*",
        "^orders.*",
        "^orders.*$",
        "orders",
        "^orders$",
        "(orders|bills)",
        "^orders[0-9]+",
        "^orders[0-9]{2}",
        ".*-orders$",
        "^(orders-.*)",
    ],
)
def test_pattern_that_means_what_it_says_is_left_alone(pattern: str) -> None:
    assert surprising(pattern) is None
