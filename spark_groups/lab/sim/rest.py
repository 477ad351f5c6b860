"""When a group has come to rest: stable, everything read, everything committed."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from spark_groups.lab.sim.scene import Scene
from spark_groups.types import TopicIdPartition


def restless(
    scene: Scene,
    is_excused: Callable[[TopicIdPartition, int | None], bool] = lambda _key, _committed: False,
) -> Iterator[str]:
    """Yield why a group has not come to rest.

    Args:
        scene: The run.
        is_excused: Whether a partition may stay at this committed offset.
    """
    coordination = scene.coordination
    state = coordination.group.state.value
    if state != "Stable" and any(each.member for each in scene.participants):
        yield f"the group is {state}"
    members = coordination.group.members.values()
    held = {key for member in members for key in member.assigned}
    # Whoever has not heard that a topic came, grew or went cannot say that nothing is left.
    for key in sorted(scene.storage.logs.keys() ^ held) if members else ():
        yield f"{key} is {'held, but gone' if key in held else 'not held'}"
    for each in scene.participants:
        if why := each.restless():
            yield why
    for key, log in scene.storage.logs.items():
        committed = coordination.committed(key)
        if committed != log.end_offset and not is_excused(key, committed):
            yield f"{key} is committed at {committed} of {log.end_offset}"
