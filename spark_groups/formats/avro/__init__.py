"""Avro's schemas, their resolution, and the decoding of records into Arrow."""
