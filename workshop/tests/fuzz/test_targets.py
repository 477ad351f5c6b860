"""The table of fuzz targets."""

from __future__ import annotations

import pytest

from spark_groups.errors import ProtocolError
from spark_groups.wire.schemas.codec import decode
from spark_groups.wire.schemas.wire_messages import METADATA
from workshop.fuzz.targets import TARGETS, Target, untagged


@pytest.mark.parametrize("target", TARGETS, ids=lambda each: each.name)
def test_names_differ_and_corpora_are_made_again(target: Target) -> None:
    assert [each.name for each in TARGETS].count(target.name) == 1
    assert len(target.corpus()) > 10
    assert list(target.corpus()) == list(target.corpus())


def test_tagged_fields_are_left_out_of_a_comparison() -> None:
    with pytest.raises(ProtocolError):
        decode(METADATA.response, b"")
    assert untagged(METADATA.response, None) is None
