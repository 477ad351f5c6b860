"""Everything that can be raised, and what a member does about each of Kafka's error codes.

SparkGroupsError
├── OptionsError             options of a source, a job or a command are wrong; lists all
├── BrokerUnreachableError   no broker answered within the time allowed; names the addresses
├── ProtocolError            an answer that cannot be read, or a legal answer nobody can act on
├── EmbeddedKafkaError       the embedded broker could not be fetched, started or stopped
├── GroupError               the group refused this member for good; carries Kafka's own message
│   ├── AccessError          who we are, or what we trust, was refused; never tried again
│   └── DeadOwnershipError   the member cannot prove that it still owns what it would plan
├── GroupNotFoundError       there is no consumer group of that name to be shown
├── RecordsError             records that a broker sent cannot be decoded; names partition, offset
│   └── MessageFormatError   they are of a message format older than v2
├── AvailableNowError        AvailableNow cannot read all that it is meant to
├── CheckpointError          the checkpoint holds what cannot be read, or is of another group
├── DeliveryError            records that had to be written were not acknowledged in time
├── RelinquishedError        a batch gave its partitions up before its deadline: start it again
├── TableError               a table cannot take what a batch would write to it
│   ├── TableGapError        records would be missing in it
│   ├── TableRestoredError   it went back to a version before the group's last commit
│   └── TableChangedError    another writer has changed what the commit was compared with
├── UnprocessableError       an application says so of a record: trying again cannot help
└── DataLossError            offsets that should be read are gone (`failOnDataLoss`)
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, IntEnum
from typing import Final


class SparkGroupsError(Exception):
    """Base of everything this package raises on purpose."""


class OptionsError(SparkGroupsError):
    """Options are unknown, missing or contradict each other; the message lists all."""


class BrokerUnreachableError(SparkGroupsError):
    """No broker answered within the time allowed."""


class ProtocolError(SparkGroupsError):
    """A peer sent bytes that are not what the protocol allows."""


class EmbeddedKafkaError(SparkGroupsError):
    """The embedded Kafka could not be fetched, started or stopped."""


class GroupError(SparkGroupsError):
    """The group refused this member for good; the message is the coordinator's, with a remedy."""


class AccessError(GroupError):
    """A broker and this client do not take each other; the message names the option to set."""


class DeadOwnershipError(GroupError):
    """The member cannot prove that it still owns its partitions, so it does not plan."""


class GroupNotFoundError(SparkGroupsError):
    """There is no such group, or it is not one of the consumer protocol; the message says which."""


class RecordsError(SparkGroupsError):
    """Records that a broker sent cannot be decoded; the message says where, and what is wrong."""


class MessageFormatError(RecordsError):
    """Records are of message format v0 or v1, older than Kafka 0.11."""


class CheckpointError(SparkGroupsError):
    """Spark's checkpoint holds an offset that cannot be read, or is one of another group."""


class DeliveryError(SparkGroupsError):
    """Records that had to be written before a batch ends were not acknowledged; says why."""


class RelinquishedError(SparkGroupsError):
    """A batch gave up its partitions before its deadline; the query may be started again."""


class TableError(SparkGroupsError):
    """A table cannot take what a batch would write to it; the message says why."""


class TableGapError(TableError):
    """A batch begins where the table does not end, so that records would be missing in it."""


class TableRestoredError(TableError):
    """A table went back to a version before the group's last commit: rows are gone."""


class TableChangedError(TableError):
    """Another writer changed the table after it was compared, so that the commit is refused."""


class UnprocessableError(SparkGroupsError):
    """Raised by an application about a record that no further attempt can get processed."""


class AvailableNowError(SparkGroupsError):
    """AvailableNow cannot read all that it is meant to: a topic or partitions are missing."""


class DataLossError(SparkGroupsError):
    """Offsets that should have been read are gone, and `failOnDataLoss` is true."""


class ErrorCode(IntEnum):
    """Kafka's error codes that requests of members and operators can be answered with.

    Source: org.apache.kafka.common.protocol.Errors.
    """

    UNKNOWN_SERVER_ERROR = -1
    NONE = 0
    OFFSET_OUT_OF_RANGE = 1
    UNKNOWN_TOPIC_OR_PARTITION = 3
    LEADER_NOT_AVAILABLE = 5
    NOT_LEADER_OR_FOLLOWER = 6
    REQUEST_TIMED_OUT = 7
    REPLICA_NOT_AVAILABLE = 9
    OFFSET_METADATA_TOO_LARGE = 12
    NETWORK_EXCEPTION = 13
    COORDINATOR_LOAD_IN_PROGRESS = 14
    COORDINATOR_NOT_AVAILABLE = 15
    NOT_COORDINATOR = 16
    ILLEGAL_GENERATION = 22
    UNKNOWN_MEMBER_ID = 25
    INVALID_COMMIT_OFFSET_SIZE = 28
    TOPIC_AUTHORIZATION_FAILED = 29
    GROUP_AUTHORIZATION_FAILED = 30
    CLUSTER_AUTHORIZATION_FAILED = 31
    UNSUPPORTED_SASL_MECHANISM = 33
    ILLEGAL_SASL_STATE = 34
    UNSUPPORTED_VERSION = 35
    INVALID_CONFIG = 40
    INVALID_REQUEST = 42
    KAFKA_STORAGE_ERROR = 56
    SASL_AUTHENTICATION_FAILED = 58
    NON_EMPTY_GROUP = 68
    GROUP_ID_NOT_FOUND = 69
    FENCED_LEADER_EPOCH = 74
    UNKNOWN_LEADER_EPOCH = 75
    OFFSET_NOT_AVAILABLE = 78
    GROUP_MAX_SIZE_REACHED = 81
    FENCED_INSTANCE_ID = 82
    GROUP_SUBSCRIBED_TO_TOPIC = 86
    UNSTABLE_OFFSET_COMMIT = 88
    THROTTLING_QUOTA_EXCEEDED = 89
    UNKNOWN_TOPIC_ID = 100
    INCONSISTENT_TOPIC_ID = 103
    FENCED_MEMBER_EPOCH = 110
    UNRELEASED_INSTANCE_ID = 111
    UNSUPPORTED_ASSIGNOR = 112
    STALE_MEMBER_EPOCH = 113
    INVALID_REGULAR_EXPRESSION = 128

    @classmethod
    def name_of(cls, code: int) -> str:
        """Return the name of a code, also of one that this table does not have."""
        try:
            return cls(code).name
        except ValueError:
            return f"error {code}"


class Reaction(Enum):
    """What a member does about an error."""

    ACCEPT = "the request succeeded"
    RETRY = "send it again after a pause"
    REDISCOVER = "ask who the coordinator is, then send it again"
    REJOIN_SAME_ID = "everything is lost: join again under the same member id"
    REJOIN_NEW_ID = "everything is lost: join again under a new member id"
    AWAIT_INSTANCE = "wait for the instance id, at most for twice the session time-out"
    REFRESH_EPOCH = "wait for the next heartbeat's member epoch, then check what is still owned"
    REFRESH_TOPICS = "ask for fresh metadata, then send it again"
    DROP_TOPIC = "the topic is gone: drop its partitions and say so"
    FAIL = "give up with a message that says what to do"


GRAVITY: Final = (
    Reaction.ACCEPT,
    Reaction.RETRY,
    Reaction.REFRESH_TOPICS,
    Reaction.DROP_TOPIC,
    Reaction.REFRESH_EPOCH,
    Reaction.REDISCOVER,
    Reaction.AWAIT_INSTANCE,
    Reaction.REJOIN_SAME_ID,
    Reaction.REJOIN_NEW_ID,
    Reaction.FAIL,
)
"""All reactions, the gravest last: where partitions of one answer differ, it is what counts."""


def printable(text: str) -> str:
    """Return a text with a question mark for all that could move a terminal's cursor.

    Args:
        text: What a broker, a peer or a file said.
    """
    return text if text.isprintable() else "".join(c if c.isprintable() else "?" for c in text)


def is_graver(reaction: Reaction, other: Reaction) -> bool:
    """Tell whether a reaction is graver than another."""
    return GRAVITY.index(reaction) > GRAVITY.index(other)


REPORT_IT: Final = "try again; if that does not help, report it with the broker's version"


@dataclass(frozen=True, slots=True)
class ErrorRule:
    """What a member does when a request of each kind is answered with one code.

    Args:
        heartbeat: Reaction to it in a ConsumerGroupHeartbeat.
        offsets: Reaction to it in an OffsetCommit or an OffsetFetch.
        lookup: Reaction to it in FindCoordinator, Metadata, ListOffsets, ConsumerGroupDescribe.
        remedy: What a person does about it, where the member gives up.
    """

    heartbeat: Reaction
    offsets: Reaction
    lookup: Reaction
    remedy: str = REPORT_IT


_R = Reaction
ERROR_RULES: dict[int, ErrorRule] = {
    ErrorCode.NONE: ErrorRule(_R.ACCEPT, _R.ACCEPT, _R.ACCEPT),
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS: ErrorRule(_R.RETRY, _R.RETRY, _R.RETRY),
    ErrorCode.COORDINATOR_NOT_AVAILABLE: ErrorRule(_R.REDISCOVER, _R.REDISCOVER, _R.RETRY),
    ErrorCode.NOT_COORDINATOR: ErrorRule(_R.REDISCOVER, _R.REDISCOVER, _R.REDISCOVER),
    ErrorCode.REQUEST_TIMED_OUT: ErrorRule(_R.RETRY, _R.RETRY, _R.RETRY),
    ErrorCode.NETWORK_EXCEPTION: ErrorRule(_R.RETRY, _R.RETRY, _R.RETRY),
    ErrorCode.THROTTLING_QUOTA_EXCEEDED: ErrorRule(_R.RETRY, _R.RETRY, _R.RETRY),
    ErrorCode.UNKNOWN_SERVER_ERROR: ErrorRule(_R.RETRY, _R.RETRY, _R.RETRY),
    ErrorCode.KAFKA_STORAGE_ERROR: ErrorRule(_R.RETRY, _R.RETRY, _R.REFRESH_TOPICS),
    ErrorCode.UNSTABLE_OFFSET_COMMIT: ErrorRule(_R.FAIL, _R.RETRY, _R.RETRY),
    ErrorCode.LEADER_NOT_AVAILABLE: ErrorRule(_R.FAIL, _R.RETRY, _R.REFRESH_TOPICS),
    ErrorCode.NOT_LEADER_OR_FOLLOWER: ErrorRule(_R.FAIL, _R.RETRY, _R.REFRESH_TOPICS),
    ErrorCode.REPLICA_NOT_AVAILABLE: ErrorRule(_R.FAIL, _R.RETRY, _R.REFRESH_TOPICS),
    ErrorCode.OFFSET_NOT_AVAILABLE: ErrorRule(_R.FAIL, _R.RETRY, _R.RETRY),
    ErrorCode.FENCED_LEADER_EPOCH: ErrorRule(_R.FAIL, _R.RETRY, _R.REFRESH_TOPICS),
    ErrorCode.UNKNOWN_LEADER_EPOCH: ErrorRule(_R.FAIL, _R.RETRY, _R.REFRESH_TOPICS),
    ErrorCode.FENCED_MEMBER_EPOCH: ErrorRule(_R.REJOIN_SAME_ID, _R.REJOIN_SAME_ID, _R.FAIL),
    ErrorCode.UNKNOWN_MEMBER_ID: ErrorRule(_R.REJOIN_NEW_ID, _R.REJOIN_NEW_ID, _R.FAIL),
    ErrorCode.STALE_MEMBER_EPOCH: ErrorRule(_R.REJOIN_SAME_ID, _R.REFRESH_EPOCH, _R.FAIL),
    ErrorCode.UNRELEASED_INSTANCE_ID: ErrorRule(
        _R.AWAIT_INSTANCE,
        _R.FAIL,
        _R.FAIL,
        "another member holds this kafka.group.instance.id: stop it, or give each query its own",
    ),
    ErrorCode.FENCED_INSTANCE_ID: ErrorRule(
        _R.FAIL,
        _R.REJOIN_NEW_ID,
        _R.FAIL,
        "a newer query joined with the same kafka.group.instance.id: give each query its own",
    ),
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: ErrorRule(
        _R.FAIL, _R.DROP_TOPIC, _R.REFRESH_TOPICS, "create the topic, or correct its name"
    ),
    ErrorCode.UNKNOWN_TOPIC_ID: ErrorRule(
        _R.FAIL, _R.DROP_TOPIC, _R.REFRESH_TOPICS, "the topic was deleted: try again"
    ),
    ErrorCode.INCONSISTENT_TOPIC_ID: ErrorRule(
        _R.FAIL, _R.DROP_TOPIC, _R.REFRESH_TOPICS, "the topic was created again: try again"
    ),
    ErrorCode.GROUP_AUTHORIZATION_FAILED: ErrorRule(
        _R.FAIL, _R.FAIL, _R.FAIL, "the principal needs READ and DESCRIBE on the group"
    ),
    ErrorCode.TOPIC_AUTHORIZATION_FAILED: ErrorRule(
        _R.FAIL, _R.FAIL, _R.FAIL, "the principal needs READ and DESCRIBE on every topic subscribed"
    ),
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED: ErrorRule(
        _R.FAIL, _R.FAIL, _R.FAIL, "the principal may not talk to this cluster"
    ),
    ErrorCode.SASL_AUTHENTICATION_FAILED: ErrorRule(
        _R.FAIL, _R.FAIL, _R.FAIL, "correct kafka.sasl.jaas.config"
    ),
    ErrorCode.UNSUPPORTED_SASL_MECHANISM: ErrorRule(
        _R.FAIL, _R.FAIL, _R.FAIL, "set kafka.sasl.mechanism to one that the listener offers"
    ),
    ErrorCode.ILLEGAL_SASL_STATE: ErrorRule(
        _R.FAIL, _R.FAIL, _R.FAIL, "the listener has no SASL: correct kafka.security.protocol"
    ),
    ErrorCode.UNSUPPORTED_VERSION: ErrorRule(
        _R.FAIL,
        _R.FAIL,
        _R.FAIL,
        "the consumer group protocol needs Apache Kafka 4.0 or later with the feature"
        " group.version=1 (kafka-features.sh upgrade --feature group.version=1)",
    ),
    ErrorCode.INVALID_CONFIG: ErrorRule(
        _R.FAIL, _R.FAIL, _R.FAIL, "choose a value that the broker takes"
    ),
    ErrorCode.INVALID_REQUEST: ErrorRule(_R.FAIL, _R.FAIL, _R.FAIL),
    ErrorCode.GROUP_ID_NOT_FOUND: ErrorRule(
        _R.REJOIN_NEW_ID,
        _R.REJOIN_NEW_ID,
        _R.FAIL,
        "the group is gone, or is one of classic consumers that cannot be converted: the broker's"
        " group.consumer.migration.policy has to be bidirectional or upgrade, and all consumers"
        " have to use an assignor of Kafka's own; or stop them first",
    ),
    ErrorCode.NON_EMPTY_GROUP: ErrorRule(
        _R.FAIL, _R.FAIL, _R.FAIL, "the group has members: stop them first"
    ),
    ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC: ErrorRule(
        _R.FAIL, _R.FAIL, _R.FAIL, "members of the group subscribe to the topic: stop them first"
    ),
    ErrorCode.GROUP_MAX_SIZE_REACHED: ErrorRule(
        _R.FAIL, _R.FAIL, _R.FAIL, "the group is full: raise the broker's group.consumer.max.size"
    ),
    ErrorCode.UNSUPPORTED_ASSIGNOR: ErrorRule(
        _R.FAIL, _R.FAIL, _R.FAIL, "choose a kafka.group.remote.assignor that the broker offers"
    ),
    ErrorCode.INVALID_REGULAR_EXPRESSION: ErrorRule(
        _R.FAIL, _R.FAIL, _R.FAIL, "subscribePattern must be an RE2 expression"
    ),
    ErrorCode.OFFSET_METADATA_TOO_LARGE: ErrorRule(
        _R.FAIL, _R.FAIL, _R.FAIL, "raise the broker's offset.metadata.max.bytes"
    ),
    ErrorCode.INVALID_COMMIT_OFFSET_SIZE: ErrorRule(_R.FAIL, _R.RETRY, _R.FAIL),
    ErrorCode.ILLEGAL_GENERATION: ErrorRule(_R.FAIL, _R.REFRESH_EPOCH, _R.FAIL),
    ErrorCode.OFFSET_OUT_OF_RANGE: ErrorRule(
        _R.FAIL,
        _R.FAIL,
        _R.FAIL,
        "these offsets are gone: keep them for longer (retention.ms), or set failOnDataLoss=false",
    ),
}
"""The one table. A code that is not in it gets `UNKNOWN_RULE`: fatal, but never in silence."""

UNKNOWN_RULE = ErrorRule(
    _R.FAIL,
    _R.FAIL,
    _R.FAIL,
    "this version of spark-groups does not know the code: look for a newer one, or report it",
)


def rule_for(code: int) -> ErrorRule:
    """Return what to do about an error code of any request.

    Args:
        code: Kafka's error code, known or not.
    """
    return ERROR_RULES.get(code, UNKNOWN_RULE)
