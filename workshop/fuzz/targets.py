"""The targets: a table of functions that take bytes, with inputs that they must accept.

Each returns, or raises an error of this package (or a ValueError, where that is what callers
expect). It must round-trip any accepted input: the value read is written and read again.
"""

from __future__ import annotations

import contextlib
import itertools
import random
import socket
import struct
import tempfile
import threading
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Final, TypeVar

import numpy as np

from group_lab.assignors.embedded import (
    ProposedAssignment,
    decode_proposed_assignment,
    encode_assignment,
    encode_proposed_assignment,
    encode_subscription,
)
from group_lab.assignors.streams_metadata import (
    AssignmentMetadata,
    MemberMetadata,
    TaskId,
    decode_assignment_metadata,
    decode_member,
    encode_assignment_metadata,
    encode_member,
)
from spark_groups.errors import OptionsError, ProtocolError, SparkGroupsError
from spark_groups.group.ledger.commit_metadata import commit_metadata, mark_of, partition_count_in
from spark_groups.group.ledger.plan_text import parse_plan_text, plan_text, planner_of
from spark_groups.group.member.embedded import (
    EmbeddedAssignment,
    Subscription,
    decode_assignment,
    decode_subscription,
)
from spark_groups.group.member.messages import OffsetAndMetadata
from spark_groups.spark.control.control_messages import (
    BatchReported,
    Drain,
    Introduced,
    PartitionsChanged,
    as_line,
    from_line,
)
from spark_groups.spark.jobs.job_options import (
    ConsumeOptions,
    CopyOptions,
    CountOptions,
    ReplayOptions,
    load_job,
)
from spark_groups.spark.options.source_options import SourceOptions
from spark_groups.spark.reading.compiled import prepare
from spark_groups.spark.state.state_options import StateOptions
from spark_groups.types import Assignment, BatchPlan, OffsetRange, PlanTopic, TopicPartition
from spark_groups.wire.connection import Connection
from spark_groups.wire.fetch.fetch_messages import fetch_from_wire
from spark_groups.wire.fetch.first_unread import Passed, find_missed, find_record
from spark_groups.wire.schemas import wire_messages
from spark_groups.wire.schemas.codec import decode, encode
from spark_groups.wire.schemas.wire_messages import (
    API_VERSIONS_V4,
    FETCH,
    METADATA,
    SASL_AUTHENTICATE,
    SASL_HANDSHAKE,
    Field,
    Message,
    Primitive,
    Struct,
)
from spark_groups.wire.security.sasl import Mechanism, PasswordLogin
from spark_groups.wire.security.security import Security
from spark_groups.wire.transport import FrameBuffer
from workshop.fuzz import avro, tables, texts
from workshop.fuzz import json_and_protobuf as values
from workshop.parts.guard import guarded
from workshop.tools.docs_options import option_table

T = TypeVar("T")


@dataclass(frozen=True)
class Target:
    """One function that reads what others wrote.

    Args:
        name: Its name.
        corpus: Returns inputs that it takes, and pieces of such.
        feed: Gives it an input.
    """

    name: str
    corpus: Callable[[], Sequence[bytes]]
    feed: Callable[[bytes], None]


# Records of fetch responses.

BATCH_BYTES_MAX: Final = 1 << 22


def _record_corpus() -> list[bytes]:
    from workshop.parts.decoding import random_batches  # noqa: PLC0415
    from workshop.parts.encoding import compress, encode_records  # noqa: PLC0415

    corpus = []
    for seed in range(60):
        batches = random_batches(random.Random(seed), 3)
        corpus.append(b"".join(batch.encode() for batch in batches))
        # Compressed in two parts, with something behind them.
        for batch in (each for each in batches if each.codec and len(each.records) > 1):
            halves = encode_records(batch.records[:1]), encode_records(batch.records[1:])
            parts = (compress(batch.codec, each, is_xerial=True) for each in halves)
            corpus.append(batch.encode(b"".join(parts) + bytes(seed)))
    return corpus


@cache
def _guard_columns() -> None:
    """Have every buffer that compiled code reads or fills end at a page without access."""
    prepare()
    from spark_groups.records import codecs as codecs_module  # noqa: PLC0415
    from spark_groups.records import row_buffers  # noqa: PLC0415

    parts: Any = row_buffers
    codecs: Any = codecs_module
    make, resize = parts.new_columns, row_buffers.RowBuffers._resize

    def new_columns(rows: int, octets: int) -> Any:
        made = make(rows, octets)
        return type(made)(*map(guarded, made))

    def resized(self: Any, name: str, size: int) -> None:
        resize(self, name, size)
        larger = guarded(getattr(self.columns, name))
        self.columns = self.columns._replace(**{name: larger})

    parts.new_columns = new_columns
    row_buffers.RowBuffers._resize = resized  # type: ignore[method-assign]
    codecs.new_octets = lambda size: guarded(np.empty(size, np.uint8))


def _feed_records(octets: bytes) -> None:
    _guard_columns()
    from spark_groups.records.arrow_batches import RecordDecoder, next_fetch_offset  # noqa: PLC0415
    from spark_groups.spark.reading.rows import ROW_SCHEMA, ROW_SCHEMA_WITH_HEADERS  # noqa: PLC0415
    from spark_groups.types import RangeCursor  # noqa: PLC0415

    for at_end, schema in ((True, ROW_SCHEMA_WITH_HEADERS), (False, ROW_SCHEMA)):
        wire: Any = guarded(np.frombuffer(octets, np.uint8), at_end=at_end)
        decoder = RecordDecoder(
            schema, rows_max=50, bytes_max=300, batch_bytes_max=BATCH_BYTES_MAX, check_crcs=False
        )
        next_fetch_offset(memoryview(wire), 0)
        made: list[Any] = []
        with contextlib.suppress(SparkGroupsError):
            made += decoder.decode(
                memoryview(wire), RangeCursor(TopicPartition("flights", 3), 0, 2**62)
            )
        rest = decoder.take()
        for batch in [*made, rest] if rest is not None else made:
            batch.validate(full=True)


def _feed_first_record(octets: bytes) -> None:
    for from_offset in (0, 7, 2**62):
        with contextlib.suppress(ProtocolError):
            found = find_record(octets, from_offset, ((1, 0), (2, 5)))
            assert found.next_offset >= from_offset
        for missing in ([range(7, 9)], [range(3), range(5, 70), range(600, 2**40)]):
            with contextlib.suppress(ProtocolError):
                passed = Passed(range(missing[-1].stop), missing)
                found = find_missed(octets, from_offset, passed, ((1, 0), (2, 5)))
                assert found.next_offset >= from_offset
                missed = found.record
                assert missed is None or any(missed.offset in each for each in missing)


def _block_corpus() -> list[bytes]:
    from workshop.parts.blocks import body_of, forms  # noqa: PLC0415

    bodies = [body_of(random.Random(seed))[:5_000] for seed in range(40)]
    return [bytes([codec]) + octets for body in bodies for codec, octets in forms(body)]


def _feed_blocks(octets: bytes) -> None:
    prepare()
    from spark_groups.records.blocks import REFUSED, unpack  # noqa: PLC0415
    from spark_groups.records.codecs import Decompressor  # noqa: PLC0415

    for at_end, room_bytes in ((True, 6_000), (False, 3_000)):
        wire: Any = guarded(np.frombuffer(octets[1:], np.uint8), at_end=at_end)
        room: Any = guarded(np.empty(room_bytes, np.uint8), at_end=at_end)
        size = unpack(octets[0] if octets else 0, wire, 0, len(wire), room)
        if size == REFUSED:
            continue
        expected = Decompressor(room_bytes).decompress(octets[0], wire)
        if room[:size].tobytes() != expected.tobytes():
            raise AssertionError(f"{size} bytes differ from pyarrow's {len(expected)}")


# The codec.

MESSAGES: Final = tuple(each for each in vars(wire_messages).values() if isinstance(each, Message))
STRUCTS: Final = tuple(each for message in MESSAGES for each in (message.request, message.response))
_BITS: Final = {"b": 8, "h": 16, "i": 32, "q": 64}


def _value(spec: Field, chance: random.Random) -> Any:
    if spec.nullable and chance.random() < 0.2:
        return None
    if spec.array:
        return tuple(_single(spec.kind, chance) for _ in range(chance.choice((0, 1, 2, 5))))
    return _single(spec.kind, chance)


def _single(kind: Primitive | Struct, chance: random.Random) -> Any:
    if isinstance(kind, Struct):
        return {field_.name: _value(field_, chance) for field_ in kind.fields if field_.tag is None}
    if kind.value in _BITS:
        most = 1 << (_BITS[kind.value] - 1)
        return chance.choice((0, 1, -1, most - 1, -most))
    if kind is Primitive.BOOL:
        return chance.random() < 0.5
    if kind is Primitive.UUID:
        return uuid.UUID(int=chance.getrandbits(128))
    if kind in (Primitive.BYTES, Primitive.RECORDS):
        return chance.randbytes(chance.choice((0, 3, 200)))
    return chance.choice(("", "orders", "größe", "x" * 200))


def _codec_corpus() -> list[bytes]:
    chance = random.Random(0)
    return [
        bytes([number]) + encode(each, _single(each, chance))
        for number, each in enumerate(STRUCTS)
        for _ in range(3)
    ]


def _feed_codec(octets: bytes) -> None:
    if not octets:
        return
    schema = STRUCTS[octets[0] % len(STRUCTS)]
    try:
        values = decode(schema, memoryview(octets)[1:])
    except ProtocolError:
        return
    again = decode(schema, encode(schema, values))
    # Tagged fields are read and never written.
    if untagged(schema, again) != untagged(schema, values):
        raise AssertionError(f"{schema.name} differs after a round trip: {values!r}, {again!r}")


def untagged(schema: Struct, values: Any) -> Any:
    """Return the values of a structure without those of tagged fields.

    Args:
        schema: The structure.
        values: Its values by name; None for null.
    """
    if values is None:
        return None
    found: dict[str, Any] = {}
    for field_ in schema.fields:
        value = values[field_.name]
        if field_.tag is not None:
            continue
        if isinstance(field_.kind, Struct):
            kind = field_.kind
            found[field_.name] = (
                [untagged(kind, item) for item in value]
                if field_.array and value is not None
                else untagged(kind, value)
            )
        else:
            found[field_.name] = bytes(value) if isinstance(value, memoryview) else value
    return found


# Metadata that members of the classic protocol embed.


def _embedded_corpus() -> list[bytes]:
    owned = frozenset({TopicPartition("orders", 0), TopicPartition("größe", 2**31 - 1)})
    subscriptions = [
        Subscription(
            topics=("orders", "größe"),
            user_data=user_data,
            owned_partitions=owned,
            generation_id=7,
            rack_id=rack_id,
            version=version,
        )
        for version in range(4)
        for user_data, rack_id in ((None, None), (b"\0\1", "r1"))
    ]
    assignments = [
        EmbeddedAssignment(partitions=owned, user_data=user_data) for user_data in (None, b"", b"x")
    ]
    proposed = [
        ProposedAssignment(assigned=owned, version=0),
        ProposedAssignment(revoked=owned, scheduled_rebalance_timeout_ms=300_000),
    ]
    return [
        *map(encode_subscription, subscriptions),
        *map(encode_assignment, assignments),
        *map(encode_proposed_assignment, proposed),
        b"",
    ]


def _check_round_trip(
    octets: bytes, read: Callable[[bytes], T], write: Callable[[T], bytes]
) -> None:
    with contextlib.suppress(ProtocolError):
        value = read(octets)
        if read(write(value)) != value:
            raise AssertionError(f"{value!r} differs after a round trip")


def _feed_embedded(octets: bytes) -> None:
    _check_round_trip(octets, decode_subscription, encode_subscription)
    _check_round_trip(octets, decode_assignment, encode_assignment)
    _check_round_trip(octets, decode_proposed_assignment, encode_proposed_assignment)


# Metadata of Kafka Streams.


def _tasks_corpus() -> list[bytes]:
    inputs = Assignment.of({uuid.UUID(int=5): [0, 2**31 - 1], uuid.UUID(int=6): [1]})
    tasks = (TaskId(0, 0), TaskId(2**31 - 1, 3))
    members = [
        MemberMetadata(
            process_id=uuid.UUID(int=1),
            user_end_point=host,
            client_tags={"zone": "größe", "": ""},
            topology_hash=uuid.UUID(int=2),
            task_lag=dict.fromkeys(tasks[:count], 2**63 - 1),
        )
        for host in (None, b"", b"host:80")
        for count in range(3)
    ]
    assigned = [
        AssignmentMetadata(
            active_tasks=tasks[:count],
            standby_tasks=dict.fromkeys(tasks[:count], inputs),
            warmup_tasks=dict.fromkeys(tasks[count:], inputs),
            partitions_by_host={b"": Assignment(), b"host:80": inputs},
        )
        for count in range(3)
    ]
    return [*map(encode_member, members), *map(encode_assignment_metadata, assigned), b""]


def _feed_tasks(octets: bytes) -> None:
    _check_round_trip(octets, decode_member, encode_member)
    _check_round_trip(octets, decode_assignment_metadata, encode_assignment_metadata)


# A broker that is none.

ANSWER_S: Final = 2.0
_KNOWN: Final = tuple({"api_key": key, "min_version": 0, "max_version": 20} for key in range(70))


def _frame(message: Message, correlation_id: int, values: Any) -> bytes:
    head = encode(message.response_header, {"correlation_id": correlation_id})
    body = head + encode(message.response, values)
    return struct.pack(">i", len(body)) + body


def _stream_corpus() -> list[bytes]:
    chance = random.Random(0)
    known = {"error_code": 0, "api_keys": _KNOWN, "throttle_time_ms": 0}
    hello = _frame(API_VERSIONS_V4, 1, known)
    return [
        hello
        + _frame(METADATA, 2, _single(METADATA.response, chance))
        + _frame(FETCH, 3, _single(FETCH.response, chance))
        for _ in range(20)
    ] + [hello]


def _login_corpus() -> list[bytes]:
    known = {"error_code": 0, "api_keys": _KNOWN, "throttle_time_ms": 0}
    hello = _frame(API_VERSIONS_V4, 1, known)
    mechanisms = ("PLAIN", "SCRAM-SHA-256")
    shaken = _frame(SASL_HANDSHAKE, 2, {"error_code": 0, "mechanisms": mechanisms})
    said = (
        b"",
        b"r=abc,s=MDEyMzQ1Njc4OWFiY2RlZg==,i=4096",
        b"v=AAAA",
        b"e=other-error",
        b'{"status": "invalid"}',
    )
    answers = [
        _frame(
            SASL_AUTHENTICATE,
            number,
            {
                "error_code": code,
                "error_message": None,
                "auth_bytes": each,
                "session_lifetime_ms": 0,
            },
        )
        for each in said
        for number in (3, 4)
        for code in (0, 58)
    ]
    return [hello + shaken + answer for answer in answers] + [*answers, hello, shaken, *said]


class _Stranger:
    """Sends given bytes to each client, then closes the connection."""

    def __init__(self) -> None:
        self._server = socket.create_server(("127.0.0.1", 0))
        self.port = self._server.getsockname()[1]
        self.stream = b""
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        while True:
            peer, _ = self._server.accept()
            with contextlib.suppress(OSError), peer:
                peer.sendall(self.stream)
                peer.shutdown(socket.SHUT_WR)
                while peer.recv(65536):
                    pass


_stranger: Final = cache(_Stranger)


def _feed_stream(octets: bytes) -> None:
    stranger = _stranger()
    stranger.stream = octets
    connection = Connection("127.0.0.1", stranger.port, max_frame_bytes=1 << 22)
    chance = random.Random(0)
    with contextlib.suppress(SparkGroupsError), contextlib.closing(connection):
        connection.connect(ANSWER_S)
        connection.request(METADATA, _single(METADATA.request, chance), ANSWER_S)
        connection.send(FETCH, _single(FETCH.request, chance), ANSWER_S)
        fetch_from_wire(connection.receive_into(FrameBuffer(1 << 16), ANSWER_S))


def _feed_login(octets: bytes) -> None:
    stranger = _stranger()
    stranger.stream = octets
    for mechanism in (Mechanism.PLAIN, Mechanism.SCRAM_SHA_256):
        login = PasswordLogin(mechanism, "alice", "secret")
        security = Security("SASL_PLAINTEXT", login=login)
        connection = Connection("127.0.0.1", stranger.port, security=security)
        with contextlib.suppress(SparkGroupsError), contextlib.closing(connection):
            connection.connect(ANSWER_S)


# Texts.


def _plan_corpus() -> list[bytes]:
    topics = (PlanTopic(uuid.UUID(int=5), "orders", 4), PlanTopic(uuid.UUID(int=6), "größe", 1))
    plan = BatchPlan(
        group_id="flights",
        member_id="m1",
        member_epoch=3,
        ranges=(
            OffsetRange(uuid.UUID(int=5), "orders", 0, 5, 9),
            OffsetRange(uuid.UUID(int=5), "orders", 3, 0, 2**40),
            OffsetRange(uuid.UUID(int=6), "größe", 0, 0, 1),
        ),
        topics=topics,
    )
    old = plan_text(plan).replace('"version": 2', '"version": 1')
    warm_up = plan_text(BatchPlan("flights", "m1", 0, (), topics, warm_up_tasks=2))
    texts = (plan_text(plan), plan_text(None), old, warm_up)
    return [*(text.encode() for text in texts), *_JSON]


def _feed_plan(octets: bytes) -> None:
    text = octets.decode("utf-8", "surrogateescape")
    planner_of(text)
    try:
        plan = parse_plan_text(text)
    except SparkGroupsError:
        return
    if parse_plan_text(plan_text(plan)) != plan:
        raise AssertionError(f"{plan!r} is not what its text says")


_JSON: Final = (
    *(b"null", b"true", b"{}", b"[]", b'""', b"NaN", b"Infinity", b"1e999", b"-0"),
    *(b"[" * 2000, b'{"a":' * 2000, b"9" * 5000, b'"\\ud800"', b'"\\u0000"'),
)


def _metadata_corpus() -> list[bytes]:
    own = [commit_metadata(count, is_reset=count == 7) for count in (0, 7, 2**31 - 1)]
    own.append(commit_metadata(4, mark="k3Jx9aQb", offset=7))
    return [*(each.encode() for each in own), *_JSON]


def _feed_metadata(octets: bytes) -> None:
    metadata = octets.decode("utf-8", "replace")
    mark_of(OffsetAndMetadata(7, metadata))
    count = partition_count_in(metadata)
    if count is not None and partition_count_in(commit_metadata(count)) != count:
        raise AssertionError(f"{count} partitions cannot be kept")


def _control_corpus() -> list[bytes]:
    messages = (
        Introduced(pid=12, group_id="flights"),
        Drain(),
        BatchReported(
            plan="{}",
            query_id="q",
            is_stateful=False,
            trigger_interval_s=0.5,
        ),
        PartitionsChanged(
            change="revoked",
            number=7,
            group_id="flights",
            member_id="m1",
            member_epoch=3,
            partitions=(("orders", 0), ("orders", 2)),
            deadline_s=10.5,
            reason="",
        ),
    )
    return [*map(as_line, messages), *_JSON]


def _feed_control(octets: bytes) -> None:
    try:
        message = from_line(octets)
    except ValueError:
        return
    line = as_line(message)
    if as_line(from_line(line)) != line:
        raise AssertionError(f"{message!r} is not what its line says")


def _option_corpus() -> list[bytes]:
    given = {
        "kafka.bootstrap.servers": "localhost:9092,[::1]:9093",
        "kafka.group.id": "flights",
        "subscribe": "orders,bills",
    }
    login = "org.apache.kafka.common.security.plain.PlainLoginModule required"
    values = (
        *("1", "-1", "0", "true", "none", "10s", "1 day", "64m", "1e999", "9" * 5000),
        *("latest", "earliest", "fast", "ranges", "SASL_PLAINTEXT", "PLAIN", "range", ".*", "("),
        '{"orders": {"0": 23, "1": -2}}',
        '{"orders": {"99999999999999999999": 1}}',
        f'{login} username="a" password="b";',
        "${HOSTNAME} ${env:HOME} ${file:/no:such} ${directory:/no:such}",
        "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n",
        *(each.decode() for each in _JSON),
    )
    names = [line.split("`")[1] for line in option_table().splitlines() if line.startswith("| `")]
    pairs = [*zip(names, itertools.cycle(values), strict=False)]
    pairs += [("startingOffsets", value) for value in values]
    whole = [given, *({**given, name: value} for name, value in pairs)]
    packed = [_packed(each) for each in whole]
    return [*packed, *(value.encode() for value in values), *(name.encode() for name in names)]


def _packed(options: dict[str, str]) -> bytes:
    return "\0".join(text for pair in options.items() for text in pair).encode()


def _feed_options(octets: bytes) -> None:
    texts = octets.decode("utf-8", "replace").split("\0")
    options = dict(zip(texts[::2], texts[1::2], strict=False))
    for kind in (SourceOptions, StateOptions):
        with contextlib.suppress(OptionsError):
            repr(kind.of(options))


_JOBS: Final = (ConsumeOptions, CopyOptions, CountOptions, ReplayOptions)


def _toml_corpus() -> list[bytes]:
    examples = [(Path(__file__).parents[2] / job.example).read_bytes() for job in _JOBS]
    # Commented lines are examples, too.
    whole = [example.replace(b"\n# kafka", b"\nkafka") for example in examples]
    deep = (b"a = " + b"[" * 2000, b"[source]\n" + b"a." * 3000 + b"b = 1", b"a." * 2000)
    return [*examples, *whole, *deep, b"[[source]]", b"source = 1"]


def _feed_toml(octets: bytes) -> None:
    with tempfile.NamedTemporaryFile(suffix=".toml") as file:
        file.write(octets)
        file.flush()
        for kind in _JOBS:
            with contextlib.suppress(OptionsError):
                load_job(kind, Path(file.name))


TARGETS: Final = (
    Target("records", _record_corpus, _feed_records),
    Target("first record", _record_corpus, _feed_first_record),
    Target("blocks", _block_corpus, _feed_blocks),
    Target("codec", _codec_corpus, _feed_codec),
    Target("embedded", _embedded_corpus, _feed_embedded),
    Target("tasks", _tasks_corpus, _feed_tasks),
    Target("stream", _stream_corpus, _feed_stream),
    Target("login", _login_corpus, _feed_login),
    Target("plan", _plan_corpus, _feed_plan),
    Target("metadata", _metadata_corpus, _feed_metadata),
    Target("control", _control_corpus, _feed_control),
    Target("options", _option_corpus, _feed_options),
    Target("toml", _toml_corpus, _feed_toml),
    Target("letters", texts.letters, texts.feed_letter),
    Target("table names", texts.names, texts.feed_name),
    Target("allow-lists", texts.allow_lists, texts.feed_allow_list),
    Target("Avro records", avro.records, avro.feed_record),
    Target("Avro schemas", avro.schemas, avro.feed_schema),
    Target("DDL", values.ddls, values.feed_ddl),
    Target("JSON values", values.documents, values.feed_documents),
    Target("Protobuf values", values.messages, values.feed_messages),
    Target("descriptor sets", values.descriptor_sets, values.feed_descriptor_set),
    Target("Delta tables", tables.seeds, tables.feed_delta),
    Target("Iceberg tables", tables.seeds, tables.feed_iceberg),
    Target("PostgreSQL tables", tables.seeds, tables.feed_postgres),
)
"""All of them; the time is shared evenly."""
