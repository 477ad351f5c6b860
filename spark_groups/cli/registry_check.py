"""The options with which commands check a schema registry, and the check."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Final

import typer

from spark_groups.errors import OptionsError, SparkGroupsError

REGISTRY: Final = "schema registry"
CURE: Final = "check --schema-registry, --subject, and schemaRegistry.* in --command-config"

RegistryUrl = Annotated[
    str | None,
    typer.Option(
        "--schema-registry",
        metavar="URL",
        help="The schemaRegistryUrl of a query; settings named schemaRegistry.* are those of"
        " --command-config.",
    ),
]
Subject = Annotated[
    str | None,
    typer.Option(metavar="SUBJECT", help="A subject whose latest Avro schema is checked, too."),
]


@dataclass(frozen=True, slots=True)
class RegistryAnswer:
    """What a registry has answered.

    Args:
        is_well: Whether a query that needs the registry could start.
        text: The schema, or the reason.
    """

    is_well: bool
    text: str


def ask_registry(
    urls: str | None, subject: str | None, settings: Mapping[str, str]
) -> RegistryAnswer | None:
    """Ask whether a registry answers, and whether rows can have the schema of a subject.

    Args:
        urls: Its addresses, separated by commas; None: there is none to ask.
        subject: The subject; None: any answer will do.
        settings: Its settings, named schemaRegistry.*; others are ignored.

    Returns:
        The answer; None: there is no registry to ask.

    Raises:
        OptionsError: There is a subject, and no registry.
    """
    if urls is None:
        if subject is not None:
            raise OptionsError("a subject is one of a schema registry: name the registry, too")
        return None
    # Only this check needs the client of registries, and pyarrow.
    from spark_groups.spark.schemas.checked import checked_registry  # noqa: PLC0415

    try:
        return RegistryAnswer(True, checked_registry(urls, subject, settings))
    except SparkGroupsError as error:
        return RegistryAnswer(False, str(error))
