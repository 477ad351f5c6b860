"""One Spark query as one member of a consumer group: all that decides, without I/O."""
