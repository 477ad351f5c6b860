"""`spark-groups table`: show the fence of a table, change it, and delete orphans.

These commands need the tables of spark/, and the output and brokers of cli/.
"""

from __future__ import annotations

import shlex
import time
import uuid
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Annotated, Final

import typer
from rich.console import Group, RenderableType
from rich.text import Text

from spark_groups.cli.connecting import Brokers, GroupArgument, JsonFlag, connects, usage_errors
from spark_groups.cli.output import Column, number, plain, show, table_of, working
from spark_groups.cli.reset_cli import NOT_EXECUTED
from spark_groups.cli.reset_plan import INACTIVE_STATES
from spark_groups.cli.table_names import (
    FORMS,
    MaintainedTable,
    RestorableTable,
    TableKind,
    opened_table,
    parse_table,
    reached,
    read_existing,
)
from spark_groups.cli.table_plan import (
    ChangeRow,
    ChangeView,
    OffsetsView,
    OrphanRow,
    Planned,
    VacuumView,
    key_of,
    offset_row,
    parse_age,
    parse_new_offsets,
    plan_change,
    plan_copy,
    plan_repair,
)
from spark_groups.cli.topic_partitions import is_chosen, parse_topics
from spark_groups.errors import (
    GroupNotFoundError,
    OptionsError,
    TableError,
    TableRestoredError,
    printable,
)
from spark_groups.fence.compare import NEW_CHECKPOINT, Decision, check_not_restored
from spark_groups.fence.entries import Entry, FenceKey, TableState
from spark_groups.group.ledger.commit_metadata import is_reset
from spark_groups.group.member.messages import (
    NO_OFFSET,
    Fetched,
    MetadataRequest,
    OffsetAndMetadata,
    PartitionError,
)
from spark_groups.group.member.near_names import hint
from spark_groups.observation.observe import describe_any_group, known_offsets
from spark_groups.spark.tables.table import Attempt
from spark_groups.types import TopicId, TopicIdPartition, TopicPartition, topic_id_text

NO_BATCH: Final = -1
"""The batch id that the commit of a command records."""
ORPHAN_AGE_MIN_S: Final = 3_600
"""Younger files may belong to a batch in progress."""

table_app = typer.Typer(
    help="Show and change the offsets that a table of write_table has of each group.",
    no_args_is_help=True,
)

_TABLE_HELP: Final = f"The table: {FORMS}."
TableArgument = Annotated[str, typer.Argument(metavar="TABLE", help=_TABLE_HELP)]
TableOption = Annotated[str, typer.Option("--table", metavar="TABLE", help=_TABLE_HELP)]
ExecuteFlag = Annotated[bool, typer.Option("--execute", help="Change the table's entries.")]


@table_app.command()
@connects
def offsets(
    table: TableArgument,
    brokers: Brokers,
    group: Annotated[
        str | None, typer.Option(metavar="GROUP", help="Only this group; default: all.")
    ] = None,
    as_json: JsonFlag = False,
) -> None:
    """Show a table's offsets beside the committed offsets of its groups.

    Example: spark-groups table offsets delta:/data/flights --group flight-readers

    DIFFERENCE is the committed offset minus the table's. Below zero, the table is ahead: a query
    skips these offsets, and below TABLE-START it is refused. Above zero, offsets would be missing:
    a query is refused.

    Exit code 1 if a group's next batch would be refused.
    """
    with usage_errors("TABLE"):
        opened = opened_table(table)
    view = view_offsets(brokers, opened, group)
    is_success = not view.problems and not any(row.is_refused for row in view.rows)
    show(view, render_offsets, as_json=as_json, is_success=is_success)


@table_app.command("set-offsets")
@connects
def set_offsets(  # noqa: PLR0917
    group: GroupArgument,
    table: TableOption,
    brokers: Brokers,
    topics: Annotated[
        list[str] | None,
        typer.Option(
            "--topic",
            metavar="TOPIC:PARTITION=OFFSET",
            help="Set a partition's entry to this offset; repeatable. With --to-current"
            " TOPIC:0,1,2 or TOPIC: only these partitions.",
        ),
    ] = None,
    to_current: Annotated[
        bool, typer.Option("--to-current", help="Set the group's entries to its committed offsets.")
    ] = False,
    from_group: Annotated[
        str | None,
        typer.Option(metavar="OTHER", help="Copy the entries of another group, without members."),
    ] = None,
    backwards: Annotated[
        bool,
        typer.Option(
            "--backwards",
            help="Also set entries back: only if you have deleted the rows from there on. With"
            " --to-current only those of partitions that reset-offsets has set.",
        ),
    ] = False,
    execute: ExecuteFlag = False,
    as_json: JsonFlag = False,
) -> None:
    """Plan new offsets in a table's fence, and set them with --execute: no row changes.

    Forward accepts a gap on purpose: the offsets in it stay missing. Backwards makes queries write
    deleted records again. The plan is always shown. It is executed for all partitions or none.

    Example: spark-groups table set-offsets flight-readers --table delta:/data/flights --to-current
    --execute

    Exit code 1 if the plan cannot be executed.
    """
    ways = [bool(topics) and not to_current, to_current, from_group is not None]
    if ways.count(True) != 1:
        raise typer.BadParameter("choose one of --topic, --to-current and --from-group")
    if from_group == group:
        raise typer.BadParameter("name another group", param_hint="--from-group")
    if backwards and from_group is not None:
        raise typer.BadParameter("--backwards is for --topic and --to-current")
    with usage_errors("--topic"):
        given = None if to_current else parse_new_offsets(topics or ())
        chosen = parse_topics(topics) if to_current and topics else None
    with usage_errors("TABLE"):
        opened = opened_table(table)
    if from_group is not None:
        view = copy_entries(brokers, opened, group, from_group, execute=execute)
    else:
        view = set_table_offsets(
            brokers, opened, group, given, chosen=chosen, is_backwards=backwards, execute=execute
        )
    show(view, render_change, as_json=as_json, is_success=not view.refusal)


@table_app.command()
@connects
def repair(  # noqa: PLR0917
    table: TableArgument,
    brokers: Brokers,
    group: Annotated[str, typer.Option(metavar="GROUP", help="The consumer group's id.")],
    restored_to: Annotated[
        int | None,
        typer.Option(
            metavar="VERSION",
            help="The version that the table was restored to; needed if it was restored to a time.",
            min=0,
        ),
    ] = None,
    execute: ExecuteFlag = False,
    as_json: JsonFlag = False,
) -> None:
    """Plan a fence that fits the rows of a restored table, and set it with --execute.

    Delta's RESTORE and a rollback of Iceberg bring old rows back, but not the fence of that time; a
    table that was created in the place of another one has none of its rows.
    After this command, set the group's offsets with `reset-offsets --from-table`, and start the
    query with a new checkpointLocation: it then reads the missing records again. PostgreSQL and
    SQLite restore rows and fence together.

    Example: spark-groups table repair delta:/data/flights --group flight-readers --execute

    Exit code 1 if there is nothing to repair, or the plan cannot be executed.
    """
    with usage_errors("TABLE"):
        opened = opened_table(table)
    view = repair_table(brokers, opened, group, table, restored_to, execute=execute)
    show(view, render_change, as_json=as_json, is_success=not view.refusal)


@table_app.command()
def vacuum(
    table: TableArgument,
    older_than: Annotated[
        str,
        typer.Option(
            metavar="AGE",
            help="The least age of an orphan, such as 36h or 7d; at least 1h. Choose more than any"
            " batch takes, pauses of its driver included.",
        ),
    ] = "1d",
    execute: Annotated[bool, typer.Option("--execute", help="Delete the orphans.")] = False,
    as_json: JsonFlag = False,
) -> None:
    """List orphans, which no version of the table has; --execute deletes them.

    Orphans are files of crashed attempts, or the tables in which their tasks have staged rows.
    Files that were part of a Delta table once stay for its own VACUUM.

    Example: spark-groups table vacuum delta:/data/flights --older-than 7d --execute
    """
    with usage_errors("--older-than"):
        age_s = parse_age(older_than, at_least_s=ORPHAN_AGE_MIN_S)
    with usage_errors("TABLE"):
        opened = opened_table(table)
    with reached(str(opened)), working("looking for orphans"):
        found = opened.orphans(age_s)
    if execute:
        with reached(str(opened)), working(f"deleting {len(found)} orphans"):
            opened.remove(found)
    now_s = time.time()
    rows = tuple(
        OrphanRow(
            name=each.name, size_bytes=each.size_bytes, age_s=max(0, int(now_s - each.modified_s))
        )
        for each in found
    )
    view = VacuumView(table=str(opened), rows=rows, is_executed=execute)
    show(view, render_vacuum, as_json=as_json)


def view_offsets(brokers: Brokers, table: MaintainedTable, group_id: str | None) -> OffsetsView:
    """Return the entries of a table beside committed offsets.

    Args:
        group_id: The group; None: all groups of the table.

    Raises:
        BrokerUnreachableError: The brokers did not answer in time.
        TableError: The table cannot be read.
    """
    state = _read(table, group_id or "")
    keys = sorted(key for key in state.entries if group_id in {None, key.group_id})
    if group_id is not None and not keys:
        known = ", ".join(sorted({key.group_id for key in state.entries})) or "no group"
        raise TableError(f"{table} has no entries of the group {group_id!r}, but of {known}")
    names = _names(brokers, (key.topic_id for key in keys))
    groups = sorted({key.group_id for key in keys})
    committed = {group: _committed(brokers, group) for group in groups}
    problems = [_restored(group, _read(table, group), table) for group in groups]
    rows = (
        offset_row(
            key,
            state.entries[key],
            names[key.topic_id],
            _offset(committed[key.group_id].get(TopicIdPartition(key.topic_id, key.partition))),
        )
        for key in keys
    )
    return OffsetsView(
        table=str(table),
        version=state.version,
        rows=tuple(sorted(rows, key=lambda each: (each.group_id, each.topic, each.partition))),
        problems=tuple(filter(None, problems)),
    )


def set_table_offsets(
    brokers: Brokers,
    table: MaintainedTable,
    group_id: str,
    given: dict[TopicPartition, int] | None,
    *,
    chosen: Mapping[str, frozenset[int] | None] | None = None,
    is_backwards: bool,
    execute: bool,
) -> ChangeView:
    """Plan entries, and set them if `execute` and the plan is valid.

    Args:
        given: New offsets; None: the group's committed offsets of partitions with entries.
        chosen: The partitions, by topic, to which these are restricted; None: all.
        is_backwards: Whether entries may be set back.

    Raises:
        BrokerUnreachableError: The brokers did not answer in time.
        TableChangedError: Another writer changed the table meanwhile; nothing was set.
        TableError: The table cannot be read.
    """
    refusal = _active(brokers, group_id)
    # After the check that the group has no members, no query of it commits to the table.
    state = _read(table, group_id)
    wanted = (
        _current(brokers, group_id, state) if given is None else _by_id(brokers, group_id, given)
    )
    names = _names(brokers, (each.topic_id for each in wanted))
    if chosen is not None:
        wanted = {
            each: to
            for each, to in wanted.items()
            if is_chosen(TopicPartition(names[each.topic_id], each.partition), chosen)
        }
    own = {key for key in state.entries if key.group_id == group_id}
    restored = _restored(group_id, state, table)
    is_whole = given is not None and own <= {key_of(group_id, each) for each in wanted}
    is_adopted = given is None and state.replaced is not None
    if not ((is_whole and is_backwards) or is_adopted):
        # After a restore, a user who has checked the rows may set all entries back; and one who
        # has put another table in the place of the old one says that it has its rows.
        refusal = refusal or restored
    planned: list[Planned] = []
    for partition, to in wanted.items():
        key = key_of(group_id, partition)
        row, change = plan_change(
            key,
            names[key.topic_id],
            state.entries.get(key),
            to.committed_offset,
            is_backwards=is_backwards,
            is_explained=given is not None or is_reset(to.metadata),
        )
        # A query skips the offsets by which the table is ahead, so nothing has to change.
        is_refused = row.is_refused and (given is not None or is_backwards)
        planned.append((replace(row, is_refused=is_refused), change))
    must_commit = bool(restored)
    return _change_view(
        table, group_id, state, planned, refusal=refusal, execute=execute, must_commit=must_commit
    )


def copy_entries(
    brokers: Brokers, table: MaintainedTable, group_id: str, other_id: str, *, execute: bool
) -> ChangeView:
    """Plan to copy the entries of another group, and set them if `execute`.

    Raises:
        BrokerUnreachableError: The brokers did not answer in time.
        TableChangedError: Another writer changed the table meanwhile; no entry was set.
        TableError: The table cannot be read.
    """
    refusal = _active(brokers, group_id) or _active(brokers, other_id)
    refusal = refusal or _restored(other_id, _read(table, other_id), table)
    state = _read(table, group_id)
    refusal = refusal or _restored(group_id, state, table)
    others = _entries(state, other_id)
    names = _names(brokers, (key.topic_id for key in others))
    keys = {key._replace(group_id=group_id): other for key, other in others.items()}
    planned = [
        plan_copy(key, names[key.topic_id], state.entries.get(key), other)
        for key, other in keys.items()
    ]
    if not others:
        refusal = refusal or f"The table has no entries of the group {other_id!r}."
    return _change_view(table, group_id, state, planned, refusal=refusal, execute=execute)


def repair_table(
    brokers: Brokers,
    table: MaintainedTable,
    group_id: str,
    text: str,
    restored_to: int | None,
    *,
    execute: bool,
) -> ChangeView:
    """Plan the entries that fit a restored table's rows, and set them if `execute`.

    Args:
        text: The name of the table in the command.
        restored_to: The version that it was restored to, if its log has only a time.

    Raises:
        BrokerUnreachableError: The brokers did not answer in time.
        TableChangedError: Another writer changed the table meanwhile; nothing was set.
        TableError: The table cannot be read, or its log lacks the restored version.
    """
    refusal = _active(brokers, group_id)
    state = _read(table, group_id)
    planned: list[Planned] = []
    if not isinstance(table, RestorableTable) or not _restored(group_id, state, table):
        refusal = (
            "The table was not restored after the group's last commit, nor replaced: nothing to"
            " repair."
        )
    else:
        entries = _entries(state, group_id)
        with reached(str(table)), working("reading the table's history"):
            held = table.held(group_id, restored_to)
        topics = _names(brokers, (key.topic_id for key in (*entries, *held)))
        names = {key: topics[key.topic_id] for key in (*entries, *held)}
        planned = plan_repair(entries, held, names)
    # The name of a database may hold a password.
    shown = "TABLE" if parse_table(text).kind is TableKind.POSTGRES else text
    command = shlex.join(("reset-offsets", group_id, "--from-table", shown, "--all-topics"))
    return _change_view(
        table,
        group_id,
        state,
        planned,
        refusal=refusal,
        execute=execute,
        must_commit=True,
        next_step=f"Then run: spark-groups {command} --execute; then {NEW_CHECKPOINT}",
    )


def _change_view(
    table: MaintainedTable,
    group_id: str,
    state: TableState,
    planned: Sequence[Planned],
    *,
    refusal: str,
    execute: bool,
    must_commit: bool = False,
    next_step: str = "",
) -> ChangeView:
    """Return the view of a plan; with `execute`, first set its entries if the plan is valid.

    Args:
        state: The table when the plan was made.
        refusal: Why the plan cannot be executed; empty if only a refused row prevents it.
        must_commit: Whether to commit even if no entry changes.
        next_step: The instruction for the user, unless the plan cannot be executed.
    """
    rows = sorted((row for row, _ in planned), key=lambda each: (each.topic, each.partition))
    changes = tuple(change for _, change in planned if change is not None)
    refused = sum(each.is_refused for each in rows)
    if refused and not refusal:
        refusal = f"{refused} of {len(rows)} entries cannot be set: no entry is set."
    if not (changes or must_commit or refusal):
        refusal = "There are no entries to change."
    is_executed = execute and not refusal
    if is_executed:
        attempt = Attempt(group_id, NO_BATCH, uuid.uuid4().hex[:12])
        with reached(str(table)):
            table.commit(attempt, [], Decision(changes=changes), state)
    return ChangeView(
        table=str(table),
        group_id=group_id,
        rows=tuple(rows),
        refusal=refusal,
        next_step="" if refusal else next_step,
        is_executed=is_executed,
    )


def _read(table: MaintainedTable, group_id: str) -> TableState:
    with working("reading the table"):
        return read_existing(table, group_id)


def _entries(state: TableState, group_id: str) -> dict[FenceKey, Entry]:
    return {key: entry for key, entry in state.entries.items() if key.group_id == group_id}


def _active(brokers: Brokers, group_id: str) -> str:
    """Return why a group's entries must not change; empty if it has no members."""
    # Each step connects again: a table is read in between, which may exceed a request timeout.
    try:
        with brokers.cluster() as cluster:
            _, described = describe_any_group(cluster, group_id)
    except GroupNotFoundError:
        return ""
    if described.group_state in INACTIVE_STATES:
        return ""
    return (
        f"Entries can only be set if the group {group_id!r} is inactive, but the current state is"
        f" {described.group_state}: stop its queries."
    )


def _restored(group_id: str, state: TableState, table: MaintainedTable) -> str:
    """Return the error if the table was restored after the group's last commit; else empty."""
    try:
        check_not_restored(group_id, state, table=str(table))
    except TableRestoredError as error:
        return str(error)
    return ""


def _committed(brokers: Brokers, group_id: str) -> Fetched:
    with brokers.cluster() as cluster:
        return cluster.fetch_all_offsets(group_id)


def _offset(answer: OffsetAndMetadata | PartitionError | None) -> int | PartitionError | None:
    if answer is None or isinstance(answer, PartitionError):
        return answer
    return None if answer.committed_offset == NO_OFFSET else answer.committed_offset


def _current(
    brokers: Brokers, group_id: str, state: TableState
) -> dict[TopicIdPartition, OffsetAndMetadata]:
    """Return the committed offsets of partitions with entries.

    Raises:
        ProtocolError: One of them is unknown.
    """
    keys = {TopicIdPartition(key.topic_id, key.partition) for key in _entries(state, group_id)}
    with brokers.cluster() as cluster:
        found = known_offsets(cluster, group_id, keys)
    return {key: each for key, each in found.items() if key in keys}


def _by_id(
    brokers: Brokers, group_id: str, given: dict[TopicPartition, int]
) -> dict[TopicIdPartition, OffsetAndMetadata]:
    """Return offsets by topic id.

    Raises:
        OptionsError: Partitions do not exist.
    """
    topics = frozenset(each.topic for each in given)
    with brokers.cluster() as cluster:
        found = cluster.metadata(MetadataRequest(topic_names=topics, wants_near=True))
    known = {each.name: each for each in found.topics}
    missing = [
        f"{each}{hint(each.topic, found.near)}"
        for each in given
        if each.topic not in known or each.partition >= known[each.topic].partition_count
    ]
    if missing:
        raise OptionsError(f"group {group_id!r}: {', '.join(sorted(missing))} do not exist")
    return {
        TopicIdPartition(known[each.topic].topic_id, each.partition): OffsetAndMetadata(offset)
        for each, offset in given.items()
    }


def _names(brokers: Brokers, topic_ids: Iterable[TopicId]) -> dict[TopicId, str]:
    """Return names by id; the id itself if the topic no longer exists."""
    wanted = frozenset(topic_ids)
    if not wanted:
        return {}
    with brokers.cluster() as cluster:
        found = cluster.metadata(MetadataRequest(topic_ids=wanted)).topics
    names = {each: topic_id_text(each) for each in wanted}
    return names | {each.topic_id: each.name for each in found if each.topic_id in wanted}


def render_offsets(view: OffsetsView) -> RenderableType:
    """Return one row for each entry, and a line for each group that cannot write."""
    table = table_of(
        view.rows,
        Column("GROUP", lambda each: each.group_id),
        Column("TOPIC", lambda each: each.topic),
        Column("PARTITION", lambda each: plain(each.partition), is_number=True),
        Column("TABLE-START", lambda each: plain(each.start_offset), is_number=True),
        Column("TABLE-OFFSET", lambda each: plain(each.next_offset), is_number=True),
        Column("CURRENT-OFFSET", lambda each: plain(each.committed_offset), is_number=True),
        Column("DIFFERENCE", lambda each: plain(each.difference), is_number=True),
        Column("REMARK", lambda each: each.remark, is_optional=True),
    )
    return Group(table, *(Text(f"Error: {printable(problem)}", "red") for problem in view.problems))


def render_change(view: ChangeView) -> RenderableType:
    """Return the plan, and its result."""
    table = table_of(
        view.rows,
        Column("GROUP", lambda _: view.group_id),
        Column("TOPIC", lambda each: each.topic),
        Column("PARTITION", lambda each: plain(each.partition), is_number=True),
        Column("TABLE-OFFSET", lambda each: plain(each.next_offset), is_number=True),
        Column("NEW-START", _new_start, is_number=True),
        Column("NEW-OFFSET", _new_next, is_number=True),
        Column("REMARK", lambda each: each.remark),
    )
    if view.refusal:
        return Group(table, Text(f"Error: {printable(view.refusal)}", "red"))
    lines = [] if view.is_executed else [NOT_EXECUTED]
    lines += [view.next_step] if view.next_step else []
    return Group(table, *(Text(printable(line)) for line in lines))


def _new_start(row: ChangeRow) -> str:
    return plain(row.start_offset if row.new_start_offset is None else row.new_start_offset)


def _new_next(row: ChangeRow) -> str:
    return plain(row.next_offset if row.new_next_offset is None else row.new_next_offset)


def render_vacuum(view: VacuumView) -> RenderableType:
    """Return one row for each orphan."""
    table = table_of(
        view.rows,
        Column("ORPHAN", lambda each: each.name),
        Column("BYTES", lambda each: number(each.size_bytes), is_number=True),
        Column("AGE-SECONDS", lambda each: number(each.age_s), is_number=True),
    )
    total = number(sum(row.size_bytes for row in view.rows))
    done = "deleted" if view.is_executed else "would be deleted"
    summary = f"{len(view.rows)} orphans with {total} bytes {done}."
    lines = [summary] if view.is_executed else [summary, NOT_EXECUTED]
    return Group(*([table] if view.rows else []), *map(Text, lines))
