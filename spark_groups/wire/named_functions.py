"""Functions that a user names in an option, as `package.module:function`."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any

from spark_groups.errors import printable


def named_function(name: str) -> Callable[..., Any]:
    """Return a function by its name; imports its module.

    Args:
        name: Such as `package.module:function`.

    Raises:
        ImportError: Its module cannot be imported.
        ValueError: Its module has no such function.
    """
    module_name, _, function_name = name.partition(":")
    try:
        found: Any = import_module(module_name)
    except Exception as error:
        raise ImportError(
            f"importing {module_name} failed with {type(error).__name__}: {printable(str(error))}"
        ) from None
    for part in function_name.split("."):
        found = getattr(found, part, None)
    if callable(found):
        function: Callable[..., Any] = found
        return function
    raise ValueError(f"{module_name} has no function {function_name}")
