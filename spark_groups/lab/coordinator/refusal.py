"""A request that is refused: the error it is answered with, and nothing else happens."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import IntEnum
from typing import Generic, TypeVar

from spark_groups.errors import ErrorCode

T = TypeVar("T")


class CoordinatorErrorCode(IntEnum):
    """Error codes that no client of this package can meet.

    INVALID_ASSIGNMENT never got a number in Kafka: this one is the model's own.
    """

    INVALID_GROUP_ID = 24
    INVALID_ASSIGNMENT = -848


class RefusedError(Exception):
    """Raised where a request is refused, with Kafka's code and text.

    Args:
        code: The error code of the answer.
        message: Its error message; None where Kafka gives none.
    """

    def __init__(self, code: int, message: str | None) -> None:
        super().__init__(message)
        self.code = code
        self.message = message


@dataclass(frozen=True, slots=True)
class Rule(Generic[T]):
    """One sentence about what a request says.

    Args:
        is_broken: Whether something breaks it.
        message: What the member is told then.
    """

    is_broken: Callable[[T], bool]
    message: str


def check_rules(said: T, rules: Iterable[Rule[T]]) -> None:
    """Refuse what breaks a rule; the first one that is broken counts.

    Raises:
        RefusedError: INVALID_REQUEST.
    """
    for rule in rules:
        if rule.is_broken(said):
            raise RefusedError(ErrorCode.INVALID_REQUEST, rule.message)
