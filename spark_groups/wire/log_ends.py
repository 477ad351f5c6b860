"""The ends of the logs that a member may read, listed for each plan."""

from __future__ import annotations

import logging

from spark_groups.errors import ErrorCode, GroupError, ProtocolError, Reaction, rule_for
from spark_groups.protocol.messages import (
    LATEST_TIMESTAMP,
    ListOffsetsRequest,
    ListOffsetsResponse,
)
from spark_groups.types import TopicIdPartition
from spark_groups.wire.cluster import Cluster
from spark_groups.wire.connection import RequestError

logger = logging.getLogger(__name__)


class LogEnds:
    """Lists log ends; what cannot be listed is left out and said once.

    Args:
        cluster: The cluster, with connections of its own.
        read_committed: True for last stable offsets.
    """

    def __init__(self, cluster: Cluster, *, read_committed: bool) -> None:
        self.problem = ""
        """Why the last listing lacks partitions, empty if it does not."""
        self._cluster = cluster
        self._read_committed = read_committed

    def list(self, keys: frozenset[TopicIdPartition]) -> ListOffsetsResponse:
        """Return ends of partitions with their leader epochs, without what could not be listed.

        Args:
            keys: The partitions.

        Raises:
            GroupError: A broker refuses to list them for good.
        """
        if not keys:
            return ListOffsetsResponse()
        request = ListOffsetsRequest(
            partitions=keys,
            timestamp_ms=LATEST_TIMESTAMP,
            read_committed=self._read_committed,
        )
        try:
            response = self._cluster.list_offsets(request)
        except (RequestError, ProtocolError) as error:
            self._note(str(error))
            return ListOffsetsResponse()
        codes = sorted(set(response.errors.values()))
        problem = ", ".join(ErrorCode.name_of(code) for code in codes)
        self._note(f"{len(response.errors)} partitions: {problem}" if codes else "")
        for code in codes:
            if rule_for(code).lookup is Reaction.FAIL:
                raise GroupError(f"log ends cannot be listed: {problem}: {rule_for(code).remedy}")
        return response

    def shutdown(self) -> None:
        """Make the listing under way, and all later ones, fail at once; for any thread."""
        self._cluster.shutdown()

    def _note(self, problem: str) -> None:
        if problem and problem != self.problem:
            logger.warning("log ends could not be listed: %s", problem)
        self.problem = problem
