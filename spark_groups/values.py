"""Dataclasses for what is made with every request: frozen for type checkers, fast at run time."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

__all__ = ["dataclass"]

if TYPE_CHECKING:
    from dataclasses import dataclass
else:
    from dataclasses import dataclass as _dataclass

    def dataclass(*, frozen: bool = False, **options: Any) -> Any:
        """Make a dataclass as the standard library does, but leave `frozen` to type checkers.

        At run time it would cost a call for each field: an object of eight fields takes four times
        as long to make. Hashes and comparisons are those of a frozen dataclass. What users of the
        package hold in their hands is frozen in earnest.

        Args:
            frozen: Whether it has a hash, and mypy refuses to change it.
            options: The other options of `dataclasses.dataclass`.
        """
        return _dataclass(unsafe_hash=frozen, **options)
