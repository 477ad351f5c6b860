"""Who owned which partition when."""

from __future__ import annotations

from itertools import pairwise

from group_lab.sim.scene import Listeners, Scene
from group_lab.sim.swarm import Deploy, Swarm
from group_lab.sim.timeline import Timeline, TimelineRecorder
from lab.tests.sim.scenes import world


def recorded(swarm: Swarm, seed: int = 2) -> Timeline:
    recorders = []

    def listen(scene: Scene) -> Listeners:
        recorders.append(TimelineRecorder(scene))
        return recorders[0].listeners()

    world(swarm, "kafka-4.3", seed, listen).run()
    return recorders[0].finish()


def test_every_partition_has_one_owner_at_a_time_until_the_end() -> None:
    timeline = recorded(Swarm(queries=3, partitions=6, deploy=Deploy.ROLLING, batch_s=4.0))
    assert sorted(timeline.names.values()) == [f"orders1-{each}" for each in range(6)]
    for spans in timeline.spans.values():
        assert all(before.ends <= after.begins for before, after in pairwise(spans))
        assert spans[-1].ends == timeline.ends_at
        assert len({span.member_id for span in spans}) > 1
    assert any(span.is_revoking for spans in timeline.spans.values() for span in spans)


def test_a_static_member_that_is_away_has_its_partitions_and_counting_is_marked() -> None:
    timeline = recorded(
        Swarm(queries=2, static=2, planned=1, deploy=Deploy.ROLLING, restart_s=4.0, chaos_s=20.0)
    )
    away = [span for spans in timeline.spans.values() for span in spans if span.is_away]
    assert {span.member_id for span in away} == {"q1.1.1", "q2.1.1"}
    assert all(3.9 < span.ends - span.begins < 4.1 for span in away)
    marks = [text for _, text in timeline.incidents]
    assert (marks[0], marks[-1]) == ("counting begins", "counting ends")


def test_batches_and_incidents_are_drawn_where_they_were() -> None:
    timeline = recorded(Swarm(queries=2, crashes=9, forgetting=1.0, batch_s=20.0, growth=1), 3)
    finished = [batch for batch in timeline.batches if batch.ends is not None]
    assert all(batch.begins < (batch.ends or 0) <= timeline.ends_at for batch in finished)
    assert len(finished) < len(timeline.batches), "a batch that was forgotten never finished"
    kinds = {text.split()[0] for _, text in timeline.incidents}
    assert kinds == {"grows", "dies", "leaves"}, "others leave while a batch is run again"
