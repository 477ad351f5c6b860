"""Which part of a batch a table may still get: all that decides, without I/O."""
