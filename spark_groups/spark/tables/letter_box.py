"""The dead letters of a table's batches: written before the table's commit, each letter once."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace

from spark_groups.errors import OptionsError
from spark_groups.spark.control.running_query import RunningQuery, cluster_of
from spark_groups.spark.options.source_options import SourceOptions
from spark_groups.spark.processing.destinations import destinations
from spark_groups.spark.processing.letters import Addresses, Letter, dead_letter, own_origin
from spark_groups.spark.processing.record_writer import WRITERS
from spark_groups.spark.processing.strategies import AtLast, SkipOrDeadLetter
from spark_groups.spark.tables.left_out import LeftOut, Letters, RefusedRecord, place_of
from spark_groups.spark.tables.table import Piece


class LetterBox:
    """Writes the dead letters of batches, each letter of a batch once; lives on the driver.

    Args:
        strategy: Whether records that cannot be written become dead letters, and where.
        is_in_table: Whether the table keeps the letters, so that there is no topic.

    Raises:
        OptionsError: The strategy has a setting that has no meaning for tables.
    """

    def __init__(self, strategy: SkipOrDeadLetter, *, is_in_table: bool = False) -> None:
        if not isinstance(strategy, SkipOrDeadLetter):
            raise OptionsError(
                f"on_error is {type(strategy).__name__}, but a table takes a record now or never:"
                " pass SkipOrDeadLetter(), which leaves the record out; without on_error the batch"
                " fails"
            )
        if strategy.record_deadline_s is not None:
            raise OptionsError(
                "on_error has a record_deadline_s, but a transform gets many records at once and is"
                " not interrupted: leave it out"
            )
        self.strategy = strategy
        self._is_in_table = is_in_table
        self._addresses: dict[str, Addresses] = {}
        self._batch: tuple[str, int] = ("", -1)
        self._written: set[tuple[str, int, int]] = set()
        """Records of the batch whose letters were written: a batch may be compared again."""

    def check(self, options: SourceOptions, topics: Collection[str]) -> None:
        """Refuse now what the first batch would be refused for, of topics with known names.

        Args:
            options: The options of the stream.
            topics: Those topics.

        Raises:
            OptionsError: The stream has no headers, or a dead-letter topic does not exist.
        """
        _check_headers(self.strategy, options)
        if topics and not self._is_in_table:
            with cluster_of(options) as cluster:
                destinations(cluster, self.strategy, topics, options)

    def open(self, running: RunningQuery) -> None:
        """Learn the dead-letter topics of a batch.

        Args:
            running: The query, before its batch is written.

        Raises:
            OptionsError: The stream has no headers, or a dead-letter topic does not exist.
        """
        _check_headers(self.strategy, running.checked)
        topics = {each.topic for each in running.ranges} - set(self._addresses)
        if topics and not self._is_in_table:
            with running.cluster() as cluster:
                self._addresses |= destinations(cluster, self.strategy, topics, running.checked)

    def write(
        self, left_out: Iterable[LeftOut], running: RunningQuery, batch_id: int
    ) -> Sequence[Piece]:
        """Write the dead letters of a batch, and wait until all replicas have them.

        Args:
            left_out: What tasks have left out.
            running: The query.
            batch_id: Spark's number for the batch.

        Returns:
            The letters for the commit of a table that keeps them; else nothing.

        Raises:
            DeliveryError: A letter was not acknowledged.
        """
        if self._batch != (running.run_id, batch_id):
            self._batch, self._written = (running.run_id, batch_id), set()
        letters = {place_of(each.record): each for out in left_out for each in out.letters}
        if self._is_in_table:
            return [Letters("", 0, refused=tuple(letters.values()))] if letters else []
        new = [each for place, each in letters.items() if place not in self._written]
        if not new:
            return []
        with WRITERS.borrow(running.range_settings()) as writer:
            for each in new:
                writer.write(self._letter(each, running.checked.group_id))
            writer.await_delivery()
        self._written.update(letters)
        return []

    def _letter(self, refused: RefusedRecord, group_id: str) -> Letter:
        addresses = self._addresses[refused.record.topic]
        assert addresses.dead_letter is not None
        origin = replace(own_origin(refused.record, addresses.first), group_id=group_id)
        return dead_letter(refused.record, origin, refused.error, addresses.dead_letter)


def _check_headers(strategy: SkipOrDeadLetter, options: SourceOptions) -> None:
    """Refuse a stream whose dead letters would lack the headers of their records.

    Raises:
        OptionsError: The stream has no headers.
    """
    if strategy.at_last is AtLast.DEAD_LETTER and not options.include_headers:
        raise OptionsError(
            "includeHeaders must be true: dead letters keep the headers of their records. The"
            " transform may leave the column headers out of the table"
        )
