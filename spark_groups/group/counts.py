"""What a client counts: names that a driver and its runners share."""

from __future__ import annotations

from enum import Enum


class Count(Enum):
    """Counters; the value is their help text."""

    HEARTBEAT = "heartbeats sent, with or without a response"
    HEARTBEAT_FAILED = "heartbeats refused, or without a response"
    COMMIT = "offset commits sent, with or without a response"
    COMMIT_FAILED = "offset commits refused, in part or as a whole, or without a response"
    COMMIT_FENCED = "offset commits refused because of the member id or the member epoch"
    REBALANCE = "rebalances completed"
    FAILED_REBALANCE = "rebalances not completed, because the membership was lost"
    MEMBERSHIPS_LOST = "times that the member was fenced, or failed for good"
    PARTITIONS_ASSIGNED = "partitions assigned"
    PARTITIONS_REVOKED = "partitions revoked"
    PARTITIONS_LOST = "partitions lost with the membership"
    PARTITIONS_GIVEN_UP = "partitions released without a commit, to keep the others"
    BATCHES_PLANNED = "batches planned"
    BATCHES_FINISHED = "batches proven finished"
    OFFSETS_FINISHED = "offsets read by finished batches"
    OFFSETS_LOST = "offsets read but not committed, which are read again"
    RECORDS_PROCESSED = "records that the function of process_records has processed"
    RECORDS_RETRIED = "records that it was called with more than once, with any outcome"
    RECORDS_RECIRCULATED = "records that failed and were written to a retry topic"
    RECORDS_DEAD_LETTERED = "records that failed and were written to a dead-letter topic"
    RECORDS_SKIPPED = "records that failed and were skipped"
    RECORDS_RELINQUISHED = "records of batches that were given up, which are read again"
    RECORDS_UNDECODABLE = "records whose key or value could not be decoded and is null"

    # The hash of the identity costs no call, unlike that of the name.
    __hash__ = object.__hash__
