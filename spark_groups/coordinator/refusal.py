"""A request that is refused: the error it is answered with, and nothing else happens."""

from __future__ import annotations


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
