"""References in settings to where a secret is kept, as Kafka's own configuration providers have it.

    ${env:NAME}                  a variable of the environment
    ${file:PATH:KEY}             a property of a file of properties
    ${directory:PATH:FILE}       a file of a directory, as secrets are mounted into containers

So a secret need not stand where settings are shown.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Final

from spark_groups.errors import OptionsError
from spark_groups.kafka.properties_file import read_properties

_REFERENCE: Final = re.compile(r"\$\{(env|file|directory):([^}]*)\}")


def resolved(text: str) -> str:
    """Return a setting with what its references stand for.

    Args:
        text: The setting.

    Raises:
        ValueError: What is referred to is not there; never repeats what was found.
    """
    return _REFERENCE.sub(lambda found: _resolve(found[0], found[1], found[2]), text)


def _resolve(reference: str, provider: str, rest: str) -> str:
    if provider == "env":
        if rest not in os.environ:
            raise ValueError(f"{reference}: there is no such variable in the environment")
        return os.environ[rest]
    place, colon, name = rest.rpartition(":")
    if not colon or not place or not name:
        raise ValueError(f"{reference} is not ${{{provider}:PATH:NAME}}")
    try:
        if provider == "directory":
            return Path(place, name).read_text(encoding="utf-8").rstrip("\n")
        properties = read_properties(Path(place))
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
        raise ValueError(f"{reference} cannot be read: {reason}") from None
    except OptionsError as error:
        raise ValueError(f"{reference}: {error}") from None
    if name not in properties:
        raise ValueError(f"{reference}: the file has no property {name}")
    return properties[name]
