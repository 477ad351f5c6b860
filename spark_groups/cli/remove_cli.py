"""`spark-groups remove`: remove members from a group.

The group is described first, to report unknown ids and ids of different members; the coordinator
then decides.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from typing import Annotated, Final

import typer
from rich.console import Group, RenderableType
from rich.text import Text

from spark_groups.cli.connecting import Brokers, DryRunFlag, GroupArgument, JsonFlag, connects
from spark_groups.cli.output import dry_run_note, show
from spark_groups.errors import ErrorCode, printable, rule_for
from spark_groups.group.member.messages import DescribedMember
from spark_groups.observation.observe import describe_any_group
from spark_groups.observation.plain_values import View
from spark_groups.wire.cluster import Cluster
from spark_groups.wire.configuration import refuse
from spark_groups.wire.group_admin import MemberIdentity, leave_group

REASON: Final = "removed by an operator"
"""The reason in the coordinator's log."""


class IdKind(Enum):
    """Whether an id is an instance id or a member id."""

    INSTANCE_ID = "instance id"
    MEMBER_ID = "member id"


class Outcome(Enum):
    """The result for one id."""

    REMOVED = "removed"
    UNKNOWN = "unknown"
    FENCED = "fenced"
    REFUSED = "refused"


@dataclass(frozen=True, slots=True, kw_only=True)
class Removal:
    """The result for one id.

    Args:
        member_id: The member with this id; None: unknown id.
        instance_id: That member's instance id; None: the member is dynamic.
        remark: Why the member was not removed, or a note.
    """

    id_kind: IdKind
    given: str
    outcome: Outcome
    member_id: str | None = None
    instance_id: str | None = None
    remark: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class RemovalView(View):
    """The results for all ids, instance ids first; with `is_dry_run`, the expected results."""

    group_id: str
    removals: tuple[Removal, ...]
    is_dry_run: bool = False

    @property
    def is_complete(self) -> bool:
        """Whether every id was removed."""
        return all(removal.outcome is Outcome.REMOVED for removal in self.removals)


def remove_members(
    cluster: Cluster,
    group_id: str,
    instance_ids: Sequence[str],
    member_ids: Sequence[str],
    *,
    all_members: bool = False,
    reason: str = REASON,
    is_dry_run: bool = False,
) -> RemovalView:
    """Remove members from a group of either protocol; a static one's instance id is free at once.

    Args:
        member_ids: If instance ids are given too, a static member among these must have one of
            them.
        all_members: Remove all members that the group has now; no ids are given then.
        reason: Appears in the coordinator's log.

    Raises:
        GroupNotFoundError: The group does not exist, or is no group of consumers.
        RequestError: The coordinator did not answer in time; some may have been removed.
        ProtocolError: The coordinator rejected the whole request.
    """
    members = describe_any_group(cluster, group_id)[1].members
    if all_members:
        # A dynamic member has no instance id, and a static one may be replaced meanwhile.
        instance_ids = [member.instance_id for member in members if member.instance_id is not None]
        member_ids = [member.member_id for member in members if member.instance_id is None]
    checked = check_ids(members, list(dict.fromkeys(instance_ids)), list(dict.fromkeys(member_ids)))
    if is_dry_run:
        return RemovalView(group_id=group_id, removals=checked, is_dry_run=True)
    identities = _identities(checked)
    codes: dict[str, int] = {}
    if identities:
        answer = leave_group(cluster, group_id, list(identities.values()), reason)
        refuse(answer.error_code, f"LeaveGroup of {group_id!r}")
        # A member without a result in the response may not have been removed.
        codes = dict(zip(identities, answer.member_error_codes, strict=False))
    return RemovalView(group_id=group_id, removals=with_answers(checked, codes))


def check_ids(
    members: Sequence[DescribedMember], instance_ids: Sequence[str], member_ids: Sequence[str]
) -> tuple[Removal, ...]:
    """Return the expected result for each id; REMOVED if no check fails."""
    by_member_id = {each.member_id: each for each in members}
    by_instance_id = {each.instance_id: each for each in members if each.instance_id is not None}
    of_members = []
    for given in member_ids:
        member = by_member_id.get(given)
        is_free = member is None or member.instance_id in (None, *instance_ids)
        others = () if is_free else instance_ids
        of_members.append(
            _check_id(
                IdKind.MEMBER_ID, given, member, others, is_other_kind=given in by_instance_id
            )
        )
    fenced = [each.given for each in of_members if each.outcome is Outcome.FENCED]
    named = {each.given for each in of_members if each.outcome is Outcome.REMOVED}
    of_instances = []
    for given in instance_ids:
        member = by_instance_id.get(given)
        # A fenced member id may have been meant for this instance id: it may be wrong too.
        others = () if member is None or member.member_id in named else fenced
        of_instances.append(
            _check_id(
                IdKind.INSTANCE_ID, given, member, others, is_other_kind=given in by_member_id
            )
        )
    return (*of_instances, *of_members)


def _check_id(
    kind: IdKind,
    given: str,
    member: DescribedMember | None,
    others: Sequence[str],
    *,
    is_other_kind: bool,
) -> Removal:
    """Return the expected result for one id.

    Args:
        member: The member with this id; None: there is none.
        others: The given ids of the other kind that exclude this member; empty: none does.
        is_other_kind: Whether a member has this id as its id of the other kind.
    """
    if member is None:
        remark, hint = _MISSING[kind]
        remark += hint if is_other_kind else ""
        return Removal(id_kind=kind, given=given, outcome=Outcome.UNKNOWN, remark=remark)
    found = Removal(
        id_kind=kind,
        given=given,
        outcome=Outcome.REMOVED,
        member_id=member.member_id,
        instance_id=member.instance_id,
    )
    if not others:
        return found
    other = f"instance id {member.instance_id}"
    if kind is IdKind.INSTANCE_ID:
        other = f"member id {member.member_id}"
    remark = f"{kind.value} {given} belongs to {other}, not {', '.join(others)}"
    return replace(found, outcome=Outcome.FENCED, remark=remark)


_MISSING: Final[Mapping[IdKind, tuple[str, str]]] = {
    IdKind.MEMBER_ID: ("the group has no member of this id", ": it is an instance id"),
    IdKind.INSTANCE_ID: ("no member of the group has this instance id", ": it is a member id"),
}


def _identities(checked: Sequence[Removal]) -> dict[str, MemberIdentity]:
    """Return the members to remove, by member id, each once."""
    found: dict[str, MemberIdentity] = {}
    for each in checked:
        if each.outcome is not Outcome.REMOVED or each.member_id is None:
            continue
        by_member_id = each.id_kind is IdKind.MEMBER_ID
        # An instance id alone also removes a member that has just replaced the described one.
        found[each.member_id] = MemberIdentity(
            member_id=each.member_id if by_member_id else None, instance_id=each.instance_id
        )
    return found


def with_answers(checked: Sequence[Removal], codes: Mapping[str, int]) -> tuple[Removal, ...]:
    """Return the results after LeaveGroup, with Kafka's error code by member id."""
    return tuple(
        _with_answer(each, codes.get(each.member_id, ErrorCode.UNKNOWN_SERVER_ERROR.value))
        if each.outcome is Outcome.REMOVED and each.member_id is not None
        else each
        for each in checked
    )


def _with_answer(removal: Removal, code: int) -> Removal:
    refused = Outcome.REFUSED, f"{ErrorCode.name_of(code)}: {rule_for(code).remedy}"
    outcome, remark = _ANSWERS.get(code, refused)
    return replace(removal, outcome=outcome, remark=remark)


_ANSWERS: Final[Mapping[int, tuple[Outcome, str]]] = {
    ErrorCode.NONE.value: (Outcome.REMOVED, ""),
    ErrorCode.UNKNOWN_MEMBER_ID.value: (Outcome.REMOVED, "it had already left"),
    ErrorCode.FENCED_INSTANCE_ID.value: (
        Outcome.FENCED,
        "another member has just joined with its instance id",
    ),
}
"""Results by LeaveGroup error code, for a member that was just described."""


@connects
def remove(  # noqa: PLR0917
    group: GroupArgument,
    brokers: Brokers,
    instance_ids: Annotated[
        list[str] | None,
        typer.Option(
            "--instance-id",
            metavar="ID",
            help="Remove the member with this instance id; repeatable.",
        ),
    ] = None,
    member_ids: Annotated[
        list[str] | None,
        typer.Option(
            "--member-id", metavar="ID", help="Remove the member with this member id; repeatable."
        ),
    ] = None,
    all_members: Annotated[
        bool, typer.Option("--all", help="Remove all members, in place of ids.")
    ] = False,
    reason: Annotated[
        str, typer.Option(metavar="TEXT", help="The reason in the coordinator's log.")
    ] = REASON,
    dry_run: DryRunFlag = False,
    as_json: JsonFlag = False,
) -> None:
    """Remove members from a group, which frees their partitions and instance ids at once.

    The group may be a consumer group or a classic one.

    Each id has its own result: removed, unknown, or fenced if it belongs to another member. If both
    kinds of ids are given, the member id of a static member must match one of the instance ids. A
    running query joins again by itself: stop it first.

    Example: spark-groups remove flight-readers --instance-id gate-1 --reason "host gate-1 is gone"

    Exit code 1 if any member is not removed, or would not be with --dry-run.
    """
    if bool(instance_ids or member_ids) == all_members:
        raise typer.BadParameter("give at least one --instance-id or --member-id, or --all")
    if not all((group, *(instance_ids or ()), *(member_ids or ()))):
        raise typer.BadParameter("an id must not be empty")
    with brokers.cluster() as cluster:
        view = remove_members(
            cluster,
            group,
            instance_ids or (),
            member_ids or (),
            all_members=all_members,
            reason=reason,
            is_dry_run=dry_run,
        )
    show(view, render_removals, as_json=as_json, is_success=view.is_complete)


_STYLES: Final[Mapping[Outcome, str]] = {
    Outcome.REMOVED: "green",
    Outcome.UNKNOWN: "yellow",
    Outcome.FENCED: "red",
    Outcome.REFUSED: "red",
}


def render_removals(view: RemovalView) -> RenderableType:
    """Return one line for each id."""
    lines = [_line(removal, is_dry_run=view.is_dry_run) for removal in view.removals]
    lines = lines or [Text(f"group {printable(view.group_id)!r} has no members")]
    return Group(*lines, *dry_run_note(is_dry_run=view.is_dry_run))


def _line(removal: Removal, *, is_dry_run: bool) -> Text:
    outcome = removal.outcome.value
    if is_dry_run and removal.outcome is Outcome.REMOVED:
        outcome = "would be removed"
    notes = [each for each in (_other_id(removal), removal.remark) if each]
    return Text.assemble(
        f"{removal.id_kind.value} {printable(removal.given)}: ",
        (outcome, _STYLES[removal.outcome]),
        printable(f" ({'; '.join(notes)})" if notes else ""),
    )


def _other_id(removal: Removal) -> str:
    if removal.outcome is not Outcome.REMOVED:
        return ""
    if removal.id_kind is IdKind.INSTANCE_ID:
        return f"member id {removal.member_id}"
    return f"instance id {removal.instance_id}" if removal.instance_id else ""
