"""Kafka's record batches to Arrow's: bytes in, columns out; nothing here knows of a network."""
