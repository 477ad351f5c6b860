"""Functions that a user names, for executors that do not have their modules."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

from pyspark import cloudpickle

from spark_groups.errors import OptionsError
from spark_groups.wire.named_functions import named_function


def sent_by_value(name: str, key: str) -> Callable[..., Any]:
    """Return a function; Spark sends its module to executors as part of it.

    Args:
        name: The function, as `module:function`.
        key: The key of the configuration that names it, for an error.

    Raises:
        ImportError: The module cannot be imported.
        OptionsError: The function cannot be sent to executors.
        ValueError: The module has no such function.
    """
    function = named_function(name)
    pickling: Any = cloudpickle
    pickling.register_pickle_by_value(sys.modules[name.partition(":")[0]])
    try:
        pickling.dumps(function)
    except Exception as error:
        raise OptionsError(
            f"{key}: {name!r} cannot be sent to executors, because it uses a value that"
            f" cannot be pickled: {type(error).__name__}: {error}"
        ) from error
    return function
