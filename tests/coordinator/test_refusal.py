from __future__ import annotations

from spark_groups.coordinator.refusal import RefusedError
from spark_groups.errors import ErrorCode


def test_a_refusal_has_kafkas_code_and_sentence() -> None:
    refused = RefusedError(ErrorCode.UNKNOWN_MEMBER_ID, "Instance id i is unknown.")
    assert (refused.code, refused.message) == (25, "Instance id i is unknown.")
    assert str(refused) == refused.message
