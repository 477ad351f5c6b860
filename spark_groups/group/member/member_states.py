"""The states of a member and the table of legal transitions; nothing else writes the state.

The coordinator's answers and the owner's progress are reduced to a `MemberInput`; the table gives
the next state. A pair that is not in the table is a bug of the caller: it raises and leaves the
state unchanged. Names are those of Kafka's client
(org.apache.kafka.clients.consumer.internals.MemberState).
"""

from __future__ import annotations

from enum import Enum
from typing import Final


class MemberState(Enum):
    """The states of a member."""

    UNSUBSCRIBED = "not a member; sends nothing"
    WARMING_UP = "sends no heartbeat: it joins once its query has warmed up"
    JOINING = "sends a full heartbeat with epoch 0 until it is answered"
    RECONCILING = "must revoke partitions; reports them as owned until the revocation is done"
    ACKNOWLEDGING = "owns exactly its assignment and must report it at once"
    STABLE = "owns its assignment, and the coordinator knows it"
    FENCED = "lost its membership; has dropped all partitions and will rejoin"
    PREPARE_LEAVING = "commits finished batches; heartbeats continue"
    LEAVING = "sends the last heartbeat, with epoch -1 or -2"
    FATAL = "failed for good; sends nothing, the reason is kept"


class MemberInput(Enum):
    """The inputs of the state machine."""

    WARM_UP = "its owner warms up before it wants to be a member"
    JOIN = "its owner wants to be a member"
    UNCHANGED = "a heartbeat was accepted; the assignment is unchanged"
    ADDED = "a heartbeat was accepted; partitions were added, none revoked"
    REVOKE = "a heartbeat was accepted; partitions must be revoked"
    REVOKED = "its owner has finished with all revoked partitions"
    LOST = "the coordinator does not know the member, or not at this epoch"
    LEAVE = "its owner wants to leave"
    LEAVE_READY = "nothing is left to commit"
    LEFT = "the last heartbeat was answered, or timed out"
    FAILED = "the coordinator refused the member for good"


SILENT: Final = (MemberState.UNSUBSCRIBED, MemberState.FATAL)
"""Sends nothing."""
ACTIVE: Final = (
    MemberState.JOINING,
    MemberState.STABLE,
    MemberState.RECONCILING,
    MemberState.ACKNOWLEDGING,
    MemberState.FENCED,
)
"""A member, or joining; neither leaving nor failed."""
PLANNING: Final = (MemberState.STABLE, MemberState.RECONCILING, MemberState.ACKNOWLEDGING)
"""May read its assignment."""

_S = MemberState
_I = MemberInput

TRANSITIONS: dict[MemberState, dict[MemberInput, MemberState]] = {
    _S.UNSUBSCRIBED: {
        _I.WARM_UP: _S.WARMING_UP,
        _I.JOIN: _S.JOINING,
        _I.LEAVE: _S.UNSUBSCRIBED,
    },
    _S.WARMING_UP: {
        _I.JOIN: _S.JOINING,
        _I.LEAVE: _S.PREPARE_LEAVING,
        _I.FAILED: _S.FATAL,
    },
    _S.JOINING: {
        _I.UNCHANGED: _S.STABLE,
        _I.ADDED: _S.ACKNOWLEDGING,
        _I.LOST: _S.FENCED,
        _I.LEAVE: _S.PREPARE_LEAVING,
        _I.FAILED: _S.FATAL,
    },
    _S.RECONCILING: {
        _I.UNCHANGED: _S.ACKNOWLEDGING,
        _I.ADDED: _S.ACKNOWLEDGING,
        _I.REVOKE: _S.RECONCILING,
        _I.REVOKED: _S.ACKNOWLEDGING,
        _I.LOST: _S.FENCED,
        _I.LEAVE: _S.PREPARE_LEAVING,
        _I.FAILED: _S.FATAL,
    },
    _S.ACKNOWLEDGING: {
        _I.UNCHANGED: _S.STABLE,
        _I.ADDED: _S.ACKNOWLEDGING,
        _I.REVOKE: _S.RECONCILING,
        _I.LOST: _S.FENCED,
        _I.LEAVE: _S.PREPARE_LEAVING,
        _I.FAILED: _S.FATAL,
    },
    _S.STABLE: {
        _I.UNCHANGED: _S.STABLE,
        _I.ADDED: _S.ACKNOWLEDGING,
        _I.REVOKE: _S.RECONCILING,
        _I.LOST: _S.FENCED,
        _I.LEAVE: _S.PREPARE_LEAVING,
        _I.FAILED: _S.FATAL,
    },
    _S.FENCED: {
        _I.JOIN: _S.JOINING,
        _I.LOST: _S.FENCED,
        _I.LEAVE: _S.PREPARE_LEAVING,
        _I.FAILED: _S.FATAL,
    },
    _S.PREPARE_LEAVING: {
        _I.UNCHANGED: _S.PREPARE_LEAVING,
        _I.ADDED: _S.PREPARE_LEAVING,
        _I.REVOKE: _S.PREPARE_LEAVING,
        _I.REVOKED: _S.PREPARE_LEAVING,
        _I.LOST: _S.PREPARE_LEAVING,
        _I.LEAVE: _S.PREPARE_LEAVING,
        _I.LEAVE_READY: _S.LEAVING,
        _I.FAILED: _S.LEAVING,
    },
    _S.LEAVING: {
        _I.LOST: _S.UNSUBSCRIBED,
        _I.LEAVE: _S.LEAVING,
        _I.LEFT: _S.UNSUBSCRIBED,
        _I.FAILED: _S.UNSUBSCRIBED,
    },
    _S.FATAL: {
        _I.LOST: _S.FATAL,
        _I.LEAVE: _S.PREPARE_LEAVING,
        _I.FAILED: _S.FATAL,
    },
}


class IllegalTransitionError(Exception):
    """A member in this state cannot have this input; the state is unchanged."""


def next_state(state: MemberState, member_input: MemberInput) -> MemberState:
    """Return the next state.

    Raises:
        IllegalTransitionError: The table has no such transition.
    """
    try:
        return TRANSITIONS[state][member_input]
    except KeyError:
        raise IllegalTransitionError(
            f"a member that is {state.name} cannot have {member_input.name} ({member_input.value})"
        ) from None
