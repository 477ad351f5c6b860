"""The operating systems that this package runs on."""

from __future__ import annotations

from spark_groups.errors import UnsupportedSystemError


def check_system(platform: str) -> None:
    """Refuse Windows, before anything fails without a reason.

    Args:
        platform: The system, as `sys.platform` names it.

    Raises:
        UnsupportedSystemError: The system is Windows.
    """
    if platform in {"win32", "cygwin"}:
        raise UnsupportedSystemError(
            "spark-groups does not run on Windows: the processes of a query find each other"
            " through unix sockets, keep each other out with locks on files (fcntl), and end after"
            " SIGTERM. Use Linux, also in WSL 2 or a container, or macOS"
        )
