"""Topic names and RE2 patterns: what is taken, what is refused, what matches."""

from __future__ import annotations

import pytest

from spark_groups.protocol.subscription import Subscription


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
