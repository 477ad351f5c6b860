"""What an answer decided about positions, taken over by the whole client."""

from __future__ import annotations

from spark_groups.client import Lane
from spark_groups.offsets.events import DataLost
from spark_groups.offsets.resolution import Resolved
from spark_groups.protocol import messages as m
from tests.client.hands import Hands, key


def test_position_that_moved_back_is_committed_at_once() -> None:
    hands = Hands()
    hands.own(0, 1, offsets={0: 8, 1: 4})
    hands.client.ledger.owned[key(0)].stand_at(5, 3)
    event = DataLost(hands.now, "it was cut")
    hands.client.parts.take(Resolved(events=[event], to_commit=[key(0)]))
    hands.pump()
    request = hands.request(Lane.OFFSETS)
    assert isinstance(request, m.OffsetCommitRequest)
    assert {each.partition for each in request.offsets} == {0}
    assert request.offsets[key(0)].committed_offset == 5
    assert request.offsets[key(0)].leader_epoch == 3
    assert hands.find(DataLost) == [event]
    assert hands.client.parts.data_loss is None


def test_data_loss_that_is_final_is_kept() -> None:
    hands = Hands()
    hands.client.parts.take(Resolved(data_loss="it was cut"))
    hands.client.parts.take(Resolved())
    assert hands.client.parts.data_loss == "it was cut"


def test_a_query_that_must_fail_asks_nothing_more() -> None:
    hands = Hands()
    assert not hands.client.parts.must_fail
    hands.client.parts.take(Resolved(refusal="it is of another group"))
    hands.client.parts.take(Resolved())
    assert (hands.client.parts.refusal, hands.client.parts.must_fail) == (
        "it is of another group",
        True,
    )
