"""The client's principal, and the command that grants it a missing right."""

from __future__ import annotations

import shlex
from collections.abc import Iterable
from dataclasses import dataclass

from spark_groups.errors import ErrorCode, rule_for

TOPICS_MAX = 20
"""How many topics a command names."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Identity:
    """A client's identity, from its configuration.

    Args:
        principal: The brokers' name for it, such as `User:alice`; empty: only the brokers know it,
            for instance from a certificate.
        bootstrap_servers: The brokers that grant rights.
    """

    principal: str
    bootstrap_servers: tuple[str, ...]


def remedy_of(
    code: int, identity: Identity | None, *, group_id: str, topics: Iterable[str] = ()
) -> str:
    """Return the remedy for an error: for a missing right, the command that grants it.

    Args:
        code: Kafka's error code, known or not.
        identity: The client; None: unknown.
        group_id: The group.
        topics: The topics to read, or those known to be denied.
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
