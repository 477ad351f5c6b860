"""Lets Spark find the source; the wheel contains this as the module pyspark_kafka_group.

Spark imports every top-level module named pyspark_* and registers its `DefaultSource`.
"""

from spark_groups.spark.source.source import KafkaGroupDataSource as DefaultSource

__all__ = ["DefaultSource"]
