"""Shared by test_write_databases.py and other tests."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

from pyspark.sql import DataFrame

import spark_groups
from tests.spark.tables.places import Place
from tests.spark.tables.write_setup import (
    TableQuery,
)


@dataclass
class DatabaseQuery(TableQuery):
    """A query on one group that writes to a table of a database."""

    place: Place = field(default_factory=Place)

    def writer(self) -> Callable[[DataFrame, int], None]:
        return spark_groups.write_table(self.place.table(), self.transform)

    def values(self) -> Counter[bytes]:
        return Counter(bytes(value) for (value,) in self.place.run("SELECT value FROM rows"))
