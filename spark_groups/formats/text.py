"""Text in UTF-8."""

from __future__ import annotations

import pyarrow as pa

from spark_groups.formats.decoding import DecodedColumn, Undecodable


class TextDecoder:
    """Decodes bytes as UTF-8."""

    @property
    def arrow_type(self) -> pa.DataType:
        """The type of the decoded column."""
        return pa.string()

    def decode(self, column: pa.Array) -> DecodedColumn:
        """Decode all records; bytes that are not UTF-8 are refused."""
        try:
            # Arrow checks all at once, without a copy.
            return DecodedColumn(column.cast(pa.string()))
        except pa.ArrowInvalid:
            pass
        texts: list[str | None] = []
        refused: dict[int, Undecodable] = {}
        for row, value in enumerate(column.to_pylist()):
            try:
                texts.append(None if value is None else value.decode())
            except UnicodeDecodeError as error:  # noqa: PERF203
                texts.append(None)
                refused[row] = Undecodable(
                    f"it is not UTF-8: byte {error.start} is {value[error.start]:#04x}"
                )
        return DecodedColumn(pa.array(texts, pa.string()), refused)
