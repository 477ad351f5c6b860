"""Lets Spark find the source; the wheel contains this as the module pyspark_kafka_group_state.

Spark registers one `DefaultSource` per module, so each source needs its own.
"""

from spark_groups.spark.state.source import KafkaGroupStateDataSource as DefaultSource

__all__ = ["DefaultSource"]
