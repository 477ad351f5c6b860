"""Which of the two ways the uniform assignor goes."""

from __future__ import annotations

from spark_groups.lab.assignors.uniform import UniformAssignor
from tests.lab.assignors.groups import group, has, member


def test_members_with_the_same_topics_share_them_all() -> None:
    spec = group({"a": member("t", "u"), "b": member("t", "u")}, t=1, u=1)
    assert UniformAssignor(stable_extras=True).assign(spec) == {"a": has(t=[0]), "b": has(u=[0])}


def test_members_with_different_topics_get_their_own() -> None:
    spec = group({"a": member("t"), "b": member("u")}, t=1, u=3)
    targets = UniformAssignor(stable_extras=True).assign(spec)
    assert targets == {"a": has(t=[0]), "b": has(u=[0, 1, 2])}
