package org.apache.spark.sql.execution.python

import org.apache.spark.api.python.{ChainedPythonFunctions, PythonEvalType}
import org.apache.spark.sql.execution.metric.SQLMetric
import org.apache.spark.sql.types.{StructField, StructType}

/** The exchange with a Python worker, as in Spark's MapInBatchEvaluator; it stays in columns. */
private[sql] class PythonColumns(
    function: ChainedPythonFunctions,
    inputSchema: StructType,
    timeZone: String,
    largeTypes: Boolean,
    runnerConf: Map[String, String],
    measured: Map[String, SQLMetric],
    jobArtifactUUID: Option[String],
    sessionUUID: Option[String])
  extends ArrowPythonRunner(
    Seq((function, 0L)), PythonEvalType.SQL_MAP_ARROW_ITER_UDF, Array(Array(0)),
    StructType(Array(StructField("struct", inputSchema))), timeZone, largeTypes, runnerConf,
    measured, jobArtifactUUID, sessionUUID)
  with BatchedPythonArrowInput
