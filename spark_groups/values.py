"""Dataclasses for values made with every request: frozen for type checkers, fast at run time."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

__all__ = ["dataclass"]

if TYPE_CHECKING:
    from dataclasses import dataclass
else:
    from dataclasses import dataclass as _dataclass

    def dataclass(*, frozen: bool = False, **options: Any) -> Any:
        """Make a dataclass, frozen for type checkers only: at run time that costs time."""
        return _dataclass(unsafe_hash=frozen, **options)
