"""How Spark finds the source by itself; the wheel holds this as pyspark_kafka_group_state.

Spark takes one `DefaultSource` of each module, so each source needs a module of its own.
"""

from spark_groups.spark.state.source import KafkaGroupStateDataSource as DefaultSource

__all__ = ["DefaultSource"]
