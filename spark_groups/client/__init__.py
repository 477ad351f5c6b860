"""One Spark query as one member of a consumer group, without I/O."""

from spark_groups.client.channels import Channel, Outgoing
from spark_groups.client.client_config import ClientConfig
from spark_groups.client.group_client import GroupClient

__all__ = ["Channel", "ClientConfig", "GroupClient", "Outgoing"]
