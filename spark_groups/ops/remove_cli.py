"""`spark-groups remove`: members that are to leave a group and do not do it themselves.

The group is read first, so that an id that is not there, or belongs to another member, is told from
one that is; the coordinator then has the last word.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from enum import Enum
from typing import Annotated, Any, Final

import typer
from rich.console import Group, RenderableType
from rich.text import Text

from spark_groups.errors import ErrorCode, printable, rule_for
from spark_groups.observation.observe import describe_consumer_group
from spark_groups.ops.connecting import Brokers, DryRunFlag, GroupArgument, JsonFlag, connects
from spark_groups.ops.output import dry_run_note, output_for
from spark_groups.protocol.messages import DescribedMember
from spark_groups.wire.cluster import Cluster
from spark_groups.wire.configuration import refuse
from spark_groups.wire.group_admin import MemberIdentity, leave_group

REASON: Final = "removed by an operator"
"""What the coordinator's log says."""


class IdKind(Enum):
    """What an id that was given names."""

    INSTANCE_ID = "instance id"
    MEMBER_ID = "member id"


class Outcome(Enum):
    """What became of an id that was given."""

    REMOVED = "removed"
    UNKNOWN = "unknown"
    FENCED = "fenced"
    REFUSED = "refused"


@dataclass(frozen=True, slots=True, kw_only=True)
class Removal:
    """What became of one id.

    Args:
        id_kind: What it names.
        given: The id as it was given.
        outcome: What became of it.
        member_id: The member that has it; None: no member has.
        instance_id: That member's instance id; None: it has none.
        remark: Why it was not removed, or what else there is to know.
    """

    id_kind: IdKind
    given: str
    outcome: Outcome
    member_id: str | None = None
    instance_id: str | None = None
    remark: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class RemovalView:
    """What became of every id that was given.

    Args:
        group_id: The group.
        removals: Instance ids first, in the order in which they were given.
        is_dry_run: Whether nobody was removed: this is what would become of them.
    """

    group_id: str
    removals: tuple[Removal, ...]
    is_dry_run: bool = False

    @property
    def is_complete(self) -> bool:
        """Whether nobody who was named is left in the group."""
        return all(each.outcome is Outcome.REMOVED for each in self.removals)

    def to_json(self) -> dict[str, Any]:
        """Return the view as plain values."""
        return {
            "group_id": self.group_id,
            "removals": [
                asdict(each) | {"id_kind": each.id_kind.value, "outcome": each.outcome.value}
                for each in self.removals
            ],
            "is_dry_run": self.is_dry_run,
        }


def remove_members(
    cluster: Cluster,
    group_id: str,
    instance_ids: Sequence[str],
    member_ids: Sequence[str],
    *,
    is_dry_run: bool = False,
) -> RemovalView:
    """Remove members from a group for good; a static member's instance id is free at once.

    Args:
        cluster: The cluster.
        group_id: The group.
        instance_ids: Whoever has these instance ids.
        member_ids: These members. Beside instance ids, a static member among them must have one of
            those.
        is_dry_run: Whether to say only what would become of them.

    Raises:
        GroupNotFoundError: There is no such group, or it is of another protocol.
        RequestError: The coordinator did not answer in time; some may have been removed.
        ProtocolError: The coordinator refused the request as a whole.
    """
    members = describe_consumer_group(cluster, group_id).members
    checked = check_ids(members, list(dict.fromkeys(instance_ids)), list(dict.fromkeys(member_ids)))
    if is_dry_run:
        return RemovalView(group_id=group_id, removals=checked, is_dry_run=True)
    identities = _identities(checked)
    codes: dict[str, int] = {}
    if identities:
        answer = leave_group(cluster, group_id, list(identities.values()), REASON)
        refuse(answer.error_code, f"LeaveGroup of {group_id!r}")
        # What the coordinator does not answer for is not known to be removed.
        codes = dict(zip(identities, answer.member_error_codes, strict=False))
    return RemovalView(group_id=group_id, removals=with_answers(checked, codes))


def check_ids(
    members: Sequence[DescribedMember], instance_ids: Sequence[str], member_ids: Sequence[str]
) -> tuple[Removal, ...]:
    """Tell who is meant; those that nothing speaks against are REMOVED, as far as this goes.

    Args:
        members: The members of the group.
        instance_ids: Instance ids that were given, each once.
        member_ids: Member ids that were given, each once.
    """
    by_member_id = {each.member_id: each for each in members}
    by_instance_id = {each.instance_id: each for each in members if each.instance_id is not None}
    of_members = [
        _check_member_id(each, by_member_id.get(each), instance_ids, by_instance_id)
        for each in member_ids
    ]
    strangers = [each.given for each in of_members if each.outcome is Outcome.FENCED]
    named = {each.given for each in of_members if each.outcome is Outcome.REMOVED}
    return (
        *(
            _check_instance_id(each, by_instance_id.get(each), named, strangers, by_member_id)
            for each in instance_ids
        ),
        *of_members,
    )


def _check_member_id(
    given: str,
    member: DescribedMember | None,
    instance_ids: Sequence[str],
    by_instance_id: Mapping[str, DescribedMember],
) -> Removal:
    kind = IdKind.MEMBER_ID
    if member is None:
        hint = ": it is an instance id" if given in by_instance_id else ""
        remark = f"the group has no member of this id{hint}"
        return Removal(id_kind=kind, given=given, outcome=Outcome.UNKNOWN, remark=remark)
    outcome, remark, instance_id = Outcome.REMOVED, "", member.instance_id
    if instance_ids and instance_id is not None and instance_id not in instance_ids:
        outcome = Outcome.FENCED
        others = ", ".join(instance_ids)
        remark = f"member id {given} belongs to instance id {instance_id}, not {others}"
    return Removal(
        id_kind=kind,
        given=given,
        outcome=outcome,
        member_id=given,
        instance_id=instance_id,
        remark=remark,
    )


def _check_instance_id(
    given: str,
    member: DescribedMember | None,
    named: set[str],
    strangers: list[str],
    by_member_id: Mapping[str, DescribedMember],
) -> Removal:
    kind = IdKind.INSTANCE_ID
    if member is None:
        hint = ": it is a member id" if given in by_member_id else ""
        remark = f"no member of the group has this instance id{hint}"
        return Removal(id_kind=kind, given=given, outcome=Outcome.UNKNOWN, remark=remark)
    outcome, remark = Outcome.REMOVED, ""
    if strangers and member.member_id not in named:
        # Somebody took this instance id to be another member's: so it may be the wrong one, too.
        outcome = Outcome.FENCED
        remark = f"instance id {given} belongs to member id {member.member_id}, not " + ", ".join(
            strangers
        )
    return Removal(
        id_kind=kind,
        given=given,
        outcome=outcome,
        member_id=member.member_id,
        instance_id=given,
        remark=remark,
    )


def _identities(checked: Sequence[Removal]) -> dict[str, MemberIdentity]:
    """Return whom to remove by member id; a member that is named twice is removed once."""
    found: dict[str, MemberIdentity] = {}
    for each in checked:
        if each.outcome is not Outcome.REMOVED or each.member_id is None:
            continue
        by_member_id = each.id_kind is IdKind.MEMBER_ID
        # By its instance id alone a member is removed even if it was replaced a moment ago.
        found[each.member_id] = MemberIdentity(
            member_id=each.member_id if by_member_id else None, instance_id=each.instance_id
        )
    return found


def with_answers(checked: Sequence[Removal], codes: Mapping[str, int]) -> tuple[Removal, ...]:
    """Return what became of ids, once the coordinator has answered.

    Args:
        checked: What `check_ids` made of them.
        codes: Kafka's error code for each member, by member id.
    """
    return tuple(_with_answer(each, codes) for each in checked)


def _with_answer(removal: Removal, codes: Mapping[str, int]) -> Removal:
    if removal.outcome is not Outcome.REMOVED or removal.member_id is None:
        return removal
    code = codes.get(removal.member_id, ErrorCode.UNKNOWN_SERVER_ERROR.value)
    outcome, remark = _ANSWERS.get(code, (Outcome.REFUSED, ""))
    if outcome is Outcome.REFUSED:
        remark = f"{ErrorCode.name_of(code)}: {rule_for(code).remedy}"
    return replace(removal, outcome=outcome, remark=remark)


_ANSWERS: Final[Mapping[int, tuple[Outcome, str]]] = {
    ErrorCode.NONE.value: (Outcome.REMOVED, ""),
    ErrorCode.UNKNOWN_MEMBER_ID.value: (Outcome.REMOVED, "it had just left"),
    ErrorCode.FENCED_INSTANCE_ID.value: (
        Outcome.FENCED,
        "another member has just taken its instance id",
    ),
}
"""What LeaveGroup says of a member that was there a moment ago."""


@connects
def remove(  # noqa: PLR0917
    group: GroupArgument,
    brokers: Brokers,
    instance_ids: Annotated[
        list[str] | None,
        typer.Option(
            "--instance-id", metavar="ID", help="Whoever has this instance id; repeatable."
        ),
    ] = None,
    member_ids: Annotated[
        list[str] | None,
        typer.Option("--member-id", metavar="ID", help="This very member; repeatable."),
    ] = None,
    dry_run: DryRunFlag = False,
    as_json: JsonFlag = False,
) -> None:
    """Remove members from a group: their partitions and instance ids are free at once.

    Each id has its own result: removed, unknown, or fenced if it belongs to somebody else. Beside
    instance ids, the member id of a static member must be that of one of them. A member whose
    query still runs joins again by itself: stop it first.

    Example: spark-groups remove flight-readers --instance-id gate-1 --instance-id gate-2

    Exit code 1 if somebody who was named is not removed, or would not be.
    """
    if not instance_ids and not member_ids:
        raise typer.BadParameter("name whom to remove: --instance-id or --member-id, repeatable")
    if not all((group, *(instance_ids or ()), *(member_ids or ()))):
        raise typer.BadParameter("an id is not empty")
    with brokers.cluster() as cluster:
        view = remove_members(
            cluster, group, instance_ids or (), member_ids or (), is_dry_run=dry_run
        )
    output_for(as_json=as_json).show(view, lambda _: render_removals(view))
    if not view.is_complete:
        raise typer.Exit(1)


_STYLES: Final[Mapping[Outcome, str]] = {
    Outcome.REMOVED: "green",
    Outcome.UNKNOWN: "yellow",
    Outcome.FENCED: "red",
    Outcome.REFUSED: "red",
}


def render_removals(view: RemovalView) -> RenderableType:
    """Return one line for each id that was given.

    Args:
        view: What became of them.
    """
    lines = [_line(each, is_dry_run=view.is_dry_run) for each in view.removals]
    return Group(*lines, *dry_run_note(is_dry_run=view.is_dry_run))


def _line(removal: Removal, *, is_dry_run: bool) -> Text:
    outcome = removal.outcome.value
    if is_dry_run and removal.outcome is Outcome.REMOVED:
        outcome = "would be removed"
    said = [each for each in (_other_id(removal), removal.remark) if each]
    return Text.assemble(
        f"{removal.id_kind.value} {printable(removal.given)}: ",
        (outcome, _STYLES[removal.outcome]),
        printable(f" ({'; '.join(said)})" if said else ""),
    )


def _other_id(removal: Removal) -> str:
    if removal.outcome is not Outcome.REMOVED:
        return ""
    if removal.id_kind is IdKind.INSTANCE_ID:
        return f"member id {removal.member_id}"
    return f"instance id {removal.instance_id}" if removal.instance_id else ""
