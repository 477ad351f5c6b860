"""Every scenario, played on every version of Kafka it is about.

`REWRITE=1` writes what the brokers answer into the transcripts instead of comparing: read the
difference as prose before it is committed.
"""

from __future__ import annotations

import difflib
import os
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from spark_groups.kafka.embedded import EmbeddedKafka
from tests.scenarios.broker_world import BATCHING, SERVER_PROPERTIES, BrokerWorld
from tests.scenarios.facts import list_anew
from tests.scenarios.injection import Injections
from tests.scenarios.scene import Scene
from tests.scenarios.stage import Stage
from tests.scenarios.transcript import Transcript, rewrite
from tests.scenarios.world import World

FOLDER = Path(__file__).parent
README = FOLDER / "README.md"
SCENARIOS = sorted(FOLDER.glob("*.txt"))
ERRORS = sorted((FOLDER / "errors").glob("*.txt"))
IN_EVERY_RUN = ("4.0.0", "4.3.1", "4.4.0")
"""The oldest, the first with relaxed commits and batching, the newest."""
ON_REQUEST = ("4.1.2", "4.2.1")
ON_THE_NEWEST = ("regex_new_topic",)
"""Scenarios that wait for long: on the other versions they are played on request only."""
SHOWN = 3


def minor(version: str) -> str:
    return ".".join(version.split(".")[:2])


def played() -> list[object]:
    """Every scenario on every version; those on one version run in one worker, on one broker."""
    return [
        pytest.param(path, version, marks=_marks(path, version), id=f"{path.stem}-{version}")
        for version in (*IN_EVERY_RUN, *ON_REQUEST)
        for path in SCENARIOS
    ]


def _marks(path: Path, version: str) -> list[pytest.MarkDecorator]:
    marks = [pytest.mark.broker, pytest.mark.xdist_group(f"scenarios on Kafka {version}")]
    is_left_out = path.stem in ON_THE_NEWEST and version != IN_EVERY_RUN[-1]
    if version in ON_REQUEST or is_left_out:
        marks += [pytest.mark.all_versions, pytest.mark.slow]
    return marks


@pytest.fixture(scope="session")
def broker_world() -> Iterator[Callable[[str], BrokerWorld]]:
    """A world on a broker of any version, with short time-outs; one for all scenarios."""
    brokers: dict[str, EmbeddedKafka] = {}
    worlds: dict[str, BrokerWorld] = {}

    def start(version: str) -> BrokerWorld:
        if version not in worlds:
            batching = BATCHING if minor(version) >= "4.3" else {}
            broker = EmbeddedKafka(version, server_properties={**SERVER_PROPERTIES, **batching})
            broker.start()
            brokers[version] = broker
            worlds[version] = BrokerWorld(broker.bootstrap_servers)
        return worlds[version]

    yield start
    for world in worlds.values():
        world.close()
    for broker in brokers.values():
        broker.stop()


@pytest.mark.parametrize(("path", "version"), played())
def test_brokers_answer_as_written(
    path: Path, version: str, broker_world: Callable[[str], BrokerWorld]
) -> None:
    world = broker_world(version)
    try:
        play(path, minor(version), world)
    finally:
        world.end()


@pytest.mark.parametrize("path", ERRORS, ids=lambda path: path.stem)
def test_clients_take_errors_as_written(path: Path) -> None:
    compare(path, None, Injections().play)


def play(path: Path, version: str, world: World) -> None:
    """Play a scenario in a world."""
    scene = Scene(world, f"{path.stem}-{uuid.uuid4().hex[:8]}", shown_as=path.stem)
    compare(path, version, Stage(scene).play)


def compare(path: Path, version: str | None, play_line: Callable[[str], list[str]]) -> None:
    """Run the commands of a transcript, and compare or rewrite it.

    Args:
        path: The transcript.
        version: The minor version of the broker; None if there is none.
        play_line: Runs a command and returns what it prints.
    """
    transcript = Transcript.read(path)
    outputs: list[tuple[str, ...]] = []
    wrong: list[str] = []
    for block in transcript.blocks:
        where = f"{path.relative_to(FOLDER)}:{block.line}"
        said: list[str] = []
        try:
            for command in block.commands:
                said.extend(play_line(command))
        except Exception as error:
            so_far = "\n".join([f"{where}: {error!r} after {said}", *wrong[:SHOWN]])
            raise AssertionError(so_far) from error
        outputs.append(tuple(said))
        expected = block.expected.get(version or "4.0")
        if expected is None and (said or block.expected):
            wrong.append(f"{where}: no output is written for Kafka {version}")
        elif expected is not None and expected != tuple(said):
            difference = difflib.unified_diff(
                expected, said, "written", f"Kafka {version}", lineterm="", n=20
            )
            wrong.append("\n".join([f"{where}: {' ; '.join(block.commands)}", *difference]))
    if os.environ.get("REWRITE") == "1":
        rewrite(path, version, outputs)
        list_anew(README, SCENARIOS)
    else:
        assert not wrong, "\n" + "\n\n".join(wrong[:SHOWN])
