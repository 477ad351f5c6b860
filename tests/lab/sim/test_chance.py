"""What the simulation asks of randomness."""

from __future__ import annotations

from random import Random

from spark_groups.lab.sim.chance import Chance


def drawn(chance: Chance) -> tuple[float, int, float, str]:
    return chance.random(), chance.randint(1, 6), chance.uniform(2.0, 3.0), chance.choice("abc")


def test_a_seeded_generator_of_the_library_will_do_and_repeats_itself() -> None:
    first = drawn(Random(7))
    assert first == drawn(Random(7)) != drawn(Random(8))
    assert 0 <= first[0] < 1 <= first[1] <= 6
    assert 2.0 <= first[2] <= 3.0
    assert first[3] in "abc"
