"""Makes the sources known to a session where Spark does not find them by itself."""

from __future__ import annotations

from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession
from pyspark.sql.datasource import DataSource

from spark_groups.spark.source import KafkaGroupDataSource
from spark_groups.spark.state.source import KafkaGroupStateDataSource


def register(spark: SparkSession) -> None:
    """Register `format("kafka-group")` and `format("kafka-group-state")` with a session.

    It is not needed where the package is installed on the driver: Spark then finds them by itself.

    Args:
        spark: The session.
    """
    for source in (KafkaGroupDataSource, KafkaGroupStateDataSource):
        _register(spark, source)


def _register(spark: SparkSession, source: type[DataSource]) -> None:
    try:
        spark.dataSource.register(source)
    except AnalysisException as error:
        # Spark 4.0 refuses what it has found by itself.
        if error.getCondition() != "DATA_SOURCE_ALREADY_EXISTS":
            raise
