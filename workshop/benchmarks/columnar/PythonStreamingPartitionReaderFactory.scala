package org.apache.spark.sql.execution.datasources.v2.python

import org.apache.spark.TaskContext
import org.apache.spark.api.python.ChainedPythonFunctions
import org.apache.spark.sql.catalyst.InternalRow
import org.apache.spark.sql.connector.metric.CustomTaskMetric
import org.apache.spark.sql.connector.read.{InputPartition, PartitionReader, PartitionReaderFactory}
import org.apache.spark.sql.execution.metric.SQLMetric
import org.apache.spark.sql.execution.python.{ArrowPythonRunner, PythonColumns}
import org.apache.spark.sql.internal.SQLConf
import org.apache.spark.sql.types.StructType
import org.apache.spark.sql.vectorized.{ArrowColumnVector, ColumnarBatch, ColumnVector}

/**
 * In place of Spark's class of this name: it passes on the columns that Python sends. It cannot
 * read the blocks of a SimpleDataSourceStreamReader, which this benchmark does not measure.
 */
class PythonStreamingPartitionReaderFactory(
    source: UserDefinedPythonDataSource,
    pickledReadFunc: Array[Byte],
    outputSchema: StructType,
    jobArtifactUUID: Option[String],
    sessionUUID: Option[String])
  extends PartitionReaderFactory {

  // Taken on the driver, like the settings of Spark's own class.
  private val timeZone = SQLConf.get.sessionLocalTimeZone
  private val largeTypes = SQLConf.get.arrowUseLargeVarTypes
  private val runnerConf = ArrowPythonRunner.getPythonRunnerConfMap(SQLConf.get)
  private val inputSchema = UserDefinedPythonDataSource.readInputSchema

  override def supportColumnarReads(partition: InputPartition): Boolean = true

  override def createReader(partition: InputPartition): PartitionReader[InternalRow] = {
    val measured = PythonCustomMetric.pythonMetrics
    val (index, packed) = input(partition)
    val rows = source
      .createMapInBatchEvaluatorFactory(
        pickledReadFunc, "read_from_data_source", inputSchema, outputSchema, measured,
        jobArtifactUUID, sessionUUID)
      .createEvaluator()
      .eval(index, Iterator.single(InternalRow(packed)))
    new Reader(rows, measured)
  }

  override def createColumnarReader(partition: InputPartition): PartitionReader[ColumnarBatch] = {
    val measured = PythonCustomMetric.pythonMetrics
    val (_, packed) = input(partition)
    val function = ChainedPythonFunctions(Seq(source.createPythonFunction(pickledReadFunc)))
    val runner = new PythonColumns(
      function, inputSchema, timeZone, largeTypes, runnerConf, measured, jobArtifactUUID,
      sessionUUID)
    val task = TaskContext.get()
    val given = Iterator.single(Iterator.single(InternalRow(InternalRow(packed))))
    new Reader(runner.compute(given, task.partitionId(), task).map(children), measured)
  }

  private def input(partition: InputPartition): (Int, Array[Byte]) = partition match {
    case PythonStreamingInputPartition(index, packed, None) => (index, packed)
    case other => throw new UnsupportedOperationException(s"not measured here: $other")
  }

  /** Python sends the columns as the children of one struct. */
  private def children(batch: ColumnarBatch): ColumnarBatch = {
    val struct = batch.column(0).asInstanceOf[ArrowColumnVector]
    val columns = Array.tabulate[ColumnVector](outputSchema.length)(struct.getChild(_))
    new ColumnarBatch(columns, batch.numRows())
  }

  private class Reader[T](found: Iterator[T], measured: Map[String, SQLMetric])
    extends PartitionReader[T] {

    override def next(): Boolean = found.hasNext

    override def get(): T = found.next()

    override def close(): Unit = ()

    override def currentMetricsValues(): Array[CustomTaskMetric] =
      source.createPythonTaskMetrics(measured.map { case (name, metric) => name -> metric.value })
  }
}
