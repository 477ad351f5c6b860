"""Topic names and RE2 patterns: accepted, refused and matching ones."""

from __future__ import annotations

import pytest

from spark_groups.group.member.subscription import Subscription, surprising, why_not_re2


@pytest.mark.parametrize(
    ("given", "names"),
    [
        ("orders", ("orders",)),
        (" b , a,b,, ", ("a", "b")),
        (["b", "a", "a"], ("a", "b")),
        (".x_-9", (".x_-9",)),
        ("x" * 249, ("x" * 249,)),
    ],
)
def test_names_are_stripped_sorted_and_single(
    given: str | list[str], names: tuple[str, ...]
) -> None:
    assert Subscription.of_names(given).topic_names == names


@pytest.mark.parametrize("given", ["", " , ", []])
def test_no_name_is_refused(given: str | list[str]) -> None:
    with pytest.raises(ValueError, match="names no topic"):
        Subscription.of_names(given)


@pytest.mark.parametrize("given", ["a b", "a/b", "x" * 250, ".", "..", "übung", "a*"])
def test_illegal_name_is_refused_by_name(given: str) -> None:
    with pytest.raises(ValueError, match="is not a legal topic name") as caught:
        Subscription.of_names(["fine", given])
    assert repr(given) in str(caught.value)


@pytest.mark.parametrize(
    ("pattern", "topic", "does"),
    [
        ("^orders", "orders", True),
        ("^orders", "orders-eu", False),
        ("^orders.*", "orders-eu", True),
        ("orders|bills", "bills", True),
        ("orders|bills", "bills2", False),
        ("order", "orders", False),
        ("(?i)ORDERS", "orders", True),
        (r"t\d{2}", "t01", True),
    ],
)
def test_pattern_matches_whole_names(pattern: str, topic: str, does: bool) -> None:
    assert Subscription.of_pattern(pattern).matches(topic) is does


@pytest.mark.parametrize("pattern", ["(", "a**b(", r"(?=x)", r"(a)\1"])
def test_what_re2_does_not_have_is_refused(pattern: str) -> None:
    with pytest.raises(ValueError, match="is not an RE2 expression"):
        Subscription.of_pattern(pattern)


def test_reason_of_re2_is_text() -> None:
    with pytest.raises(ValueError, match=r"expression: missing \): \(ü$"):
        Subscription.of_pattern("(ü")


def test_empty_pattern_is_refused() -> None:
    with pytest.raises(ValueError, match="is empty"):
        Subscription.of_pattern("")


def test_names_match_themselves_only() -> None:
    subscription = Subscription.of_names("a,b")
    assert [each for each in ("a", "b", "c", "ab") if subscription.matches(each)] == ["a", "b"]


@pytest.mark.parametrize(
    ("one", "other", "shares"),
    [
        (Subscription.of_names("a,b"), Subscription.of_names("b,c"), True),
        (Subscription.of_names("a"), Subscription.of_names("b"), False),
        (Subscription.of_names("a,b"), Subscription.of_pattern("b|c"), True),
        (Subscription.of_names("a"), Subscription.of_pattern("b.*"), False),
        (Subscription.of_pattern("a.*"), Subscription.of_pattern("a.*"), True),
        # Whether any topic matches both is not known here.
        (Subscription.of_pattern("a.*"), Subscription.of_pattern(".*a"), False),
    ],
)
def test_subscriptions_that_are_certain_to_share_topics(
    one: Subscription, other: Subscription, shares: bool
) -> None:
    assert one.shares_topics_with(other) is shares
    assert other.shares_topics_with(one) is shares


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
