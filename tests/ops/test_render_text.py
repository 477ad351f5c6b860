"""Words and numbers of all views."""

from __future__ import annotations

from spark_groups.ops.render_text import number


def test_numbers_have_separators_and_the_unknown_is_a_dash() -> None:
    assert (number(1_234_567), number(0), number(None)) == ("1,234,567", "0", "—")
