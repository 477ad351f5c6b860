"""The summary of a run names every version, with its counts and seeds."""

from __future__ import annotations

from lab.tests.conformance.tally import Played, lines


def test_each_version_has_a_line_with_its_seeds() -> None:
    scripts = [Played("4.4.0", "consumer", seed, 250, seed == 2) for seed in (0, 2, 1, 815)]
    classic = Played("4.4.0", "classic", 3, 250, 0)
    assert lines([*scripts, classic, Played("4.0.0", "consumer", 7, 5000, 0)]) == [
        "Kafka 4.0.0 and the model agree on 5,000 requests about consumer groups in 1 scripts,"
        " seeds 7; groups left because the broker was slow: 0",
        "Kafka 4.4.0 and the model agree on 250 requests about classic groups in 1 scripts,"
        " seeds 3; groups left because the broker was slow: 0",
        "Kafka 4.4.0 and the model agree on 1,000 requests about consumer groups in 4 scripts,"
        " seeds 0-2, 815; groups left because the broker was slow: 1",
    ]
