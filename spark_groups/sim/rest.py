"""When a group has come to rest: stable, everything read, everything committed."""

from __future__ import annotations

from collections.abc import Iterator

from spark_groups.sim.scene import Scene


def restless(scene: Scene) -> Iterator[str]:
    """Yield why a group has not come to rest."""
    coordination = scene.coordination
    state = coordination.group.state.value
    if state != "Stable" and any(each.member for each in scene.participants):
        yield f"the group is {state}"
    for each in scene.participants:
        if why := each.restless():
            yield why
    for key, log in scene.storage.logs.items():
        committed = coordination.committed(key)
        if committed != log.end_offset:
            yield f"{key} is committed at {committed} of {log.end_offset}"
