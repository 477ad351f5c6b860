"""Inputs are reproducible from their seed and number, and differ from valid ones."""

from __future__ import annotations

from workshop.fuzz.mutation import SIZE_MAX, drawn

CORPUS = [b"hello world", b'{"a": 1}', b""]


def test_an_input_is_made_again_by_its_number() -> None:
    first = [drawn(7, "plan", number, CORPUS) for number in range(300)]
    assert first == [drawn(7, "plan", number, CORPUS) for number in range(300)]
    assert first != [drawn(8, "plan", number, CORPUS) for number in range(300)]
    assert first != [drawn(7, "codec", number, CORPUS) for number in range(300)]
    assert len(set(first)) > 150
    assert set(CORPUS) & set(first)


def test_inputs_have_a_bound() -> None:
    large = [b"x" * SIZE_MAX]
    assert max(len(drawn(7, "plan", number, large)) for number in range(50)) <= SIZE_MAX
