"""Columns are as Arrow wants them from the first row on."""

from __future__ import annotations

from spark_groups.records.layout import new_columns, new_cursor


def test_ends_have_one_more_than_rows_and_begin_with_zero() -> None:
    columns = new_columns(7, 100)
    for ends in (columns.key_ends, columns.value_ends, columns.header_ends):
        assert len(ends) == 7 + 1
        assert ends[0] == 0
    for ends in (columns.header_key_ends, columns.header_value_ends):
        assert len(ends) == len(columns.has_header_value) + 1
        assert ends[0] == 0


def test_cursor_begins_before_everything() -> None:
    assert set(new_cursor().tolist()) == {0}
