"""Which assignors there are."""

from __future__ import annotations

import pytest

from spark_groups.lab.assignors.assignor import Assignor
from spark_groups.lab.assignors.range_assignor import RangeAssignor, contiguous, sticky
from spark_groups.lab.assignors.registry import assignors
from spark_groups.lab.assignors.uniform import UniformAssignor


@pytest.mark.parametrize("stable_extras", [False, True])
@pytest.mark.parametrize(
    ("range_is_sticky", "by_range"),
    [(False, RangeAssignor(contiguous)), (True, RangeAssignor(sticky))],
)
def test_every_name_has_its_assignor(
    stable_extras: bool, range_is_sticky: bool, by_range: Assignor
) -> None:
    known = assignors(stable_extras=stable_extras, range_is_sticky=range_is_sticky)
    assert known == {"uniform": UniformAssignor(stable_extras), "range": by_range}
