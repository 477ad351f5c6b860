package org.apache.spark.sql.execution.datasources.v2.python

import org.apache.spark.sql.connector.metric.CustomMetric
import org.apache.spark.sql.connector.read.{Batch, Scan}
import org.apache.spark.sql.connector.read.Scan.ColumnarSupportMode
import org.apache.spark.sql.connector.read.streaming.MicroBatchStream
import org.apache.spark.sql.internal.SQLConf
import org.apache.spark.sql.internal.connector.SupportsMetadata
import org.apache.spark.sql.sources.Filter
import org.apache.spark.sql.types.StructType
import org.apache.spark.sql.util.CaseInsensitiveStringMap

/** In place of Spark's class of this name: the rows of a stream may stay in columns. */
class PythonScan(
    ds: PythonDataSourceV2,
    shortName: String,
    outputSchema: StructType,
    options: CaseInsensitiveStringMap,
    supportedFilters: Array[Filter])
  extends Scan with SupportsMetadata {

  /** The change: Spark's class answers UNSUPPORTED. A batch query answers for each partition. */
  override def columnarSupportMode: ColumnarSupportMode =
    if (SQLConf.get.getConfString(PythonScan.Columnar, "false").toBoolean) {
      ColumnarSupportMode.PARTITION_DEFINED
    } else {
      ColumnarSupportMode.UNSUPPORTED
    }

  override def toBatch: Batch = new PythonBatch(ds, shortName, outputSchema, options)

  override def toMicroBatchStream(checkpoint: String): MicroBatchStream = {
    val runner = PythonMicroBatchStream
      .createPythonStreamingSourceRunner(ds, shortName, outputSchema, options)
    runner.init()
    val features = runner.checkSupportedFeatures()
    if (features.triggerAvailableNow) {
      new PythonMicroBatchStreamWithTriggerAvailableNow(
        ds, shortName, outputSchema, options, runner)
    } else if (features.admissionControl) {
      new PythonMicroBatchStreamWithAdmissionControl(ds, shortName, outputSchema, options, runner)
    } else {
      new PythonMicroBatchStream(ds, shortName, outputSchema, options, runner)
    }
  }

  override def description: String = "(Python)"

  override def readSchema: StructType = outputSchema

  override def supportedCustomMetrics: Array[CustomMetric] = ds.source.createPythonMetrics()

  override def getMetaData(): Map[String, String] = Map(
    "PushedFilters" -> supportedFilters.mkString("[", ", ", "]"),
    "ReadSchema" -> outputSchema.simpleString)
}

object PythonScan {
  /** Set on a session, so that one JVM can measure both. */
  val Columnar = "spark.sql.execution.pythonDataSource.columnar"
}
