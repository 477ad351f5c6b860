"""Makes the source known to a session where Spark does not find it by itself."""

from __future__ import annotations

from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession

from spark_groups.spark.source import KafkaGroupDataSource


def register(spark: SparkSession) -> None:
    """Register `format("kafka-group")` with a session.

    It is not needed where the package is installed on the driver: Spark then finds it by itself.

    Args:
        spark: The session.
    """
    try:
        spark.dataSource.register(KafkaGroupDataSource)
    except AnalysisException as error:
        # Spark 4.0 refuses what it has found by itself.
        if error.getCondition() != "DATA_SOURCE_ALREADY_EXISTS":
            raise
