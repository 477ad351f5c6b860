"""One Spark query as one member of a consumer group: all that the driver decides, and no I/O."""

from spark_groups.client.client_config import ClientConfig
from spark_groups.client.group_client import GroupClient
from spark_groups.client.lanes import Lane, Outgoing

__all__ = ["ClientConfig", "GroupClient", "Lane", "Outgoing"]
