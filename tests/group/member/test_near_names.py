"""Which existing name was meant by one that does not exist."""

from __future__ import annotations

from spark_groups.group.member.near_names import COMPARED_MAX, HINTS_MAX, hint, near_names, nearest


def test_nearest_name_is_similar() -> None:
    assert nearest("flihgts", ["flights", "freights", "orders"]) == "flights"
    assert nearest("flihgts", ["orders", "payments"]) is None
    assert nearest("flihgts", []) is None


def test_only_missing_names_with_a_near_one_have_one() -> None:
    near = near_names(["flihgts", "nothing-like-it"], {"flights", "orders"})
    assert near == {"flihgts": "flights"}
    assert hint("flihgts", near) == " (did you mean 'flights'?)"
    assert not hint("nothing-like-it", near)


def test_names_of_the_same_length_are_compared_first() -> None:
    many = [f"a-much-longer-name-{number}" for number in range(COMPARED_MAX)]
    assert nearest("flihgts", [*many, "flights"]) == "flights"


def test_hints_are_limited() -> None:
    missing = [f"topic-{number}x" for number in range(HINTS_MAX + 5)]
    assert len(near_names(missing, [f"topic-{n}" for n in range(100)])) == HINTS_MAX
