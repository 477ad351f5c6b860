"""The exceptions of this package, and what a member does about each of Kafka's error codes."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from enum import Enum, IntEnum
from typing import Final


class SparkGroupsError(Exception):
    """Base of everything this package raises on purpose."""


class NotInstalledError(SparkGroupsError, ImportError):
    """A command or function belongs to a package that is not installed."""


class OptionsError(SparkGroupsError):
    """Options of a source, a job or a command are unknown, missing or contradictory; lists all."""


@contextmanager
def needs(extra: str) -> Iterator[None]:
    """Import what an extra installs, in a block.

    Raises:
        OptionsError: An import fails; names the extra.
    """
    try:
        yield
    except ImportError as error:
        raise OptionsError(f"{error}: install spark-groups[{extra}]") from error


class UnsupportedSystemError(SparkGroupsError):
    """The package does not run on this operating system."""


class BrokerUnreachableError(SparkGroupsError):
    """No broker, or no source of tokens, answered in time; the message names the addresses."""


class ProtocolError(SparkGroupsError):
    """A broker sent bytes that the protocol does not allow, or an answer of no use."""


class EmbeddedKafkaError(SparkGroupsError):
    """The embedded Kafka could not be fetched, started or stopped."""


class GroupError(SparkGroupsError):
    """The coordinator refused this member for good; carries Kafka's message and a remedy."""


class AccessError(GroupError):
    """TLS or authentication failed and is not retried; the message names the option to set."""


class DeadOwnershipError(GroupError):
    """The member cannot prove that it still owns its partitions, so it does not plan."""


class GroupNotFoundError(SparkGroupsError):
    """The group does not exist, or is not a consumer group; the message says which."""


class RecordsError(SparkGroupsError):
    """Records from a broker cannot be decoded; the message names partition and offset."""


class MessageFormatError(RecordsError):
    """Records have message format v0 or v1, older than Kafka 0.11."""


class SchemaError(SparkGroupsError):
    """A schema cannot be used: malformed, too large, or with a type that rows cannot have."""


class SchemaLookupError(SparkGroupsError):
    """A schema registry did not give a schema: it is away, refuses, or answers what it must not."""


class UnknownSchemaIdError(SchemaLookupError):
    """A schema registry says that it has no schema with an id."""


class CheckpointError(SparkGroupsError):
    """A checkpoint cannot be read, or belongs to another source, group or cluster."""


class DeliveryError(SparkGroupsError):
    """Records that a batch must write were not acknowledged in time."""


class QueryStartError(SparkGroupsError):
    """Spark could not start the query's Python process in time, as often as it was tried."""


class RelinquishedError(SparkGroupsError):
    """A batch released its partitions before its deadline; the query may be restarted."""


class TableError(SparkGroupsError):
    """A table cannot be read or written to; the message has the reason."""


class RecordRefusedError(TableError):
    """A record cannot be written: the transform fails, or the table takes no such value.

    Args:
        message: The reason, with the record where that is known.
        problem: The column, and why its value does not fit; empty: the transform fails.
    """

    def __init__(self, message: str, problem: str = "") -> None:
        super().__init__(message)
        self.problem = problem


class TableGapError(TableError):
    """A batch does not begin at the table's next offset, so the table would lack records."""


class TableRestoredError(TableError):
    """A table was dropped, or restored to before the group's last commit, so it lacks rows."""


class TableChangedError(TableError):
    """Another writer changed the table after the comparison, so the table refused the commit."""


class ColumnsChangedError(TableChangedError):
    """Another writer changed columns, and staged rows do not fit: they are staged again."""


class UnprocessableError(SparkGroupsError):
    """An application raises this for a record that no retry can process."""


class AvailableNowError(SparkGroupsError):
    """A topic or partitions are missing that AvailableNow has to read."""


class DataLossError(SparkGroupsError):
    """Offsets that the query has to read are gone, and `failOnDataLoss` is true."""


class ErrorCode(IntEnum):
    """Kafka's error codes in answers to members and operators.

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
        """Return the name of a code, known or not."""
        try:
            return cls(code).name
        except ValueError:
            return f"error {code}"


class Reaction(Enum):
    """What a member does about an error; the gravest last."""

    ACCEPT = "the request succeeded"
    RETRY = "retry after a pause"
    REFRESH_TOPICS = "fetch fresh metadata, then retry"
    DROP_TOPIC = "the topic is gone: drop its partitions and report it"
    REFRESH_EPOCH = (
        "wait for the next heartbeat's member epoch, then commit the partitions still owned"
    )
    REDISCOVER = "look up the coordinator, then retry"
    AWAIT_INSTANCE = "wait for the instance id, at most twice the session timeout"
    REJOIN_SAME_ID = "all partitions are lost: rejoin under the same member id"
    REJOIN_NEW_ID = "all partitions are lost: rejoin under a new member id"
    FAIL = "fail with a message that says what to do"


_BY_GRAVITY: Final = tuple(Reaction)


def printable(text: str) -> str:
    """Return a text with a question mark for each character that could move a terminal's cursor."""
    return text if text.isprintable() else "".join(c if c.isprintable() else "?" for c in text)


def is_graver(reaction: Reaction, other: Reaction) -> bool:
    """Return whether a reaction is graver than another."""
    return _BY_GRAVITY.index(reaction) > _BY_GRAVITY.index(other)


REPORT_IT: Final = "try again; if that does not help, report it with the broker's version"


@dataclass(frozen=True, slots=True)
class ErrorRule:
    """What a member does when a request of each kind is answered with one code.

    Args:
        heartbeat: Reaction in a ConsumerGroupHeartbeat.
        offsets: Reaction in an OffsetCommit or an OffsetFetch.
        lookup: Reaction in FindCoordinator, Metadata, ListOffsets, ConsumerGroupDescribe.
        remedy: What the user does about it, where the member fails.
    """

    heartbeat: Reaction
    offsets: Reaction
    lookup: Reaction
    remedy: str = REPORT_IT


def _fatal(remedy: str = REPORT_IT) -> ErrorRule:
    return ErrorRule(Reaction.FAIL, Reaction.FAIL, Reaction.FAIL, remedy)


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
    ErrorCode.UNSTABLE_OFFSET_COMMIT: ErrorRule(
        _R.FAIL,
        _R.RETRY,
        _R.RETRY,
        "a producer has sent an offset of this partition in a transaction that is still open: let"
        " the producer end it, or wait until the broker aborts it after transaction.timeout.ms",
    ),
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
    ErrorCode.GROUP_AUTHORIZATION_FAILED: _fatal(
        "the principal needs READ and DESCRIBE on the group"
    ),
    ErrorCode.TOPIC_AUTHORIZATION_FAILED: _fatal(
        "the principal needs READ and DESCRIBE on every topic subscribed"
    ),
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED: _fatal("the principal has no right on this cluster"),
    ErrorCode.SASL_AUTHENTICATION_FAILED: _fatal("correct kafka.sasl.jaas.config"),
    ErrorCode.UNSUPPORTED_SASL_MECHANISM: _fatal(
        "set kafka.sasl.mechanism to one that the listener offers"
    ),
    ErrorCode.ILLEGAL_SASL_STATE: _fatal(
        "the listener has no SASL: correct kafka.security.protocol"
    ),
    ErrorCode.UNSUPPORTED_VERSION: _fatal(
        "the consumer group protocol needs Apache Kafka 4.0 or later with the feature"
        " group.version=1 (kafka-features.sh upgrade --feature group.version=1)"
    ),
    ErrorCode.INVALID_CONFIG: _fatal("choose a value that the broker accepts"),
    ErrorCode.INVALID_REQUEST: _fatal(),
    ErrorCode.GROUP_ID_NOT_FOUND: ErrorRule(
        _R.REJOIN_NEW_ID,
        _R.REJOIN_NEW_ID,
        _R.FAIL,
        "the group was deleted, or is a classic group that cannot be converted: the broker's"
        " group.consumer.migration.policy must be bidirectional or upgrade, and all consumers"
        " must use one of Kafka's assignors; or stop them first; spark-groups preflight GROUP names"
        " the reason",
    ),
    ErrorCode.NON_EMPTY_GROUP: _fatal("the group has members: stop them first"),
    ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC: _fatal(
        "members of the group subscribe to the topic: stop them first"
    ),
    ErrorCode.GROUP_MAX_SIZE_REACHED: _fatal(
        "the group is full: raise the broker's group.consumer.max.size"
    ),
    ErrorCode.UNSUPPORTED_ASSIGNOR: _fatal(
        "choose a kafka.group.remote.assignor that the broker offers"
    ),
    ErrorCode.INVALID_REGULAR_EXPRESSION: _fatal("subscribePattern must be an RE2 expression"),
    ErrorCode.OFFSET_METADATA_TOO_LARGE: _fatal("raise the broker's offset.metadata.max.bytes"),
    ErrorCode.INVALID_COMMIT_OFFSET_SIZE: ErrorRule(_R.FAIL, _R.RETRY, _R.FAIL),
    ErrorCode.ILLEGAL_GENERATION: ErrorRule(_R.FAIL, _R.REFRESH_EPOCH, _R.FAIL),
    ErrorCode.OFFSET_OUT_OF_RANGE: _fatal(
        "these offsets are gone: raise the topic's retention.ms, or set failOnDataLoss=false"
    ),
}
"""A code that is not in this table gets `UNKNOWN_RULE`."""

UNKNOWN_RULE = _fatal(
    "this version of spark-groups does not know the code: look for a newer one, or report it"
)


def rule_for(code: int) -> ErrorRule:
    """Return what to do about an error code, known or not."""
    return ERROR_RULES.get(code, UNKNOWN_RULE)
