"""A data source that has columns of its own, and refuses those of a user."""

from __future__ import annotations

from typing import Any

from pyspark.sql.datasource import DataSource
from pyspark.sql.types import StructType

from spark_groups.errors import OptionsError


class OwnColumns(DataSource):
    """A data source whose columns no user chooses.

    Spark asks for the columns unless the user has given some, and then pickles the source for the
    processes that plan the read: with a user's columns only when a query starts, not in load().
    """

    _is_asked = False

    def columns(self) -> str:
        """Return the columns in Spark's DDL."""
        raise NotImplementedError

    def schema(self) -> str | StructType:
        """Return the columns in Spark's DDL, and note that Spark has asked for them."""
        self._is_asked = True
        return self.columns()

    def __getstate__(self) -> dict[str, Any]:
        """Return the fields for pickling.

        Raises:
            OptionsError: The user has given columns: Spark would read with these.
        """
        if not self._is_asked:
            raise OptionsError(
                f"{self.name()} has its own columns ({self.columns()}): omit .schema(...), and"
                " change the rows after load(), for example with from_json"
            )
        return dict(self.__dict__)
