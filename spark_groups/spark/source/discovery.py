"""How Spark finds the source by itself; the wheel holds this as the module pyspark_kafka_group.

Spark imports every top-level module named pyspark_* and takes its `DefaultSource`.
"""

from spark_groups.spark.source.source import KafkaGroupDataSource as DefaultSource

__all__ = ["DefaultSource"]
