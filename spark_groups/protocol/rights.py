"""Who a client is to the brokers, and the command that grants it a right that it lacks."""

from __future__ import annotations

import shlex
from collections.abc import Iterable
from dataclasses import dataclass

from spark_groups.errors import ErrorCode, rule_for

TOPICS_MAX = 20
"""How many topics a command names at most."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Identity:
    """Who a client is, as far as its configuration says.

    Args:
        principal: What brokers call it, such as `User:alice`; empty: only they know, for instance
            by its certificate.
        bootstrap_servers: The brokers that whoever grants rights talks to.
    """

    principal: str
    bootstrap_servers: tuple[str, ...]


def remedy_of(
    code: int, identity: Identity | None, *, group_id: str, topics: Iterable[str] = ()
) -> str:
    """Return what a person does about an error: for a missing right, the command that grants it.

    Args:
        code: Kafka's error code, known or not.
        identity: Who lacks the right; None: nothing is known.
        group_id: The group.
        topics: Topics that are read, or those that are known to be refused.
    """
    remedy = rule_for(code).remedy
    if identity is None:
        return remedy
    if code == ErrorCode.GROUP_AUTHORIZATION_FAILED:
        resources = ["--group", group_id]
    elif code == ErrorCode.TOPIC_AUTHORIZATION_FAILED:
        named = sorted(topics)[:TOPICS_MAX] or ["TOPIC"]
        resources = [part for topic in named for part in ("--topic", topic)]
    else:
        return remedy
    who = identity.principal
    command = [
        "kafka-acls.sh",
        *("--bootstrap-server", ",".join(identity.bootstrap_servers)),
        *("--command-config", "admin.properties", "--add"),
        *("--allow-principal", who or "User:NAME"),
        *("--operation", "Read", "--operation", "Describe"),
        *resources,
    ]
    unknown = "" if who else "; the broker's log says which principal User:NAME is"
    said = remedy.replace("the principal", f"the principal {who}") if who else remedy
    return f"{said}; grant it by: {shlex.join(command)}{unknown}"
