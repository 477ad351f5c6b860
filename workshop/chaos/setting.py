"""The settings of all processes of a run, and the places of its files."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path

from workshop.chaos.faults.schedule import QueryTraits
from workshop.chaos.plants import Plant
from workshop.chaos.systems.tables import Form, Places


@dataclass(frozen=True, slots=True)
class Setting:
    """What a run is made of.

    Args:
        bootstrap_servers: The broker.
        sides: Where a member reaches the brokers, if not there.
        group_id: The consumer group of all members.
        topics: Ids of the topics, as Kafka's tools write them, by name.
        session_s: The group's session timeout, in seconds.
        rebalance_timeout_ms: `kafka.max.poll.interval.ms` of all members.
        queries: The queries, by name.
        sinks: The kinds of the tables that are written.
        postgres: How libpq reaches the server; None: no table needs it.
        is_slow: Whether batches are few and large.
        plant: The bug that is planted; None: there is none.
        short_lived: Topics whose records may be deleted before they are read.
        later: Topics that members subscribe to, and that may not exist yet.
        registry: The address of the registry with the schemas of values; None: they are text.
        forms: What tables there are that are not plain ones.
    """

    bootstrap_servers: str
    sides: dict[str, str]
    group_id: str
    topics: dict[str, str]
    session_s: float
    rebalance_timeout_ms: int
    queries: dict[str, QueryTraits]
    sinks: tuple[str, ...]
    postgres: str | None
    is_slow: bool
    plant: Plant | None
    short_lived: tuple[str, ...] = ()
    later: tuple[str, ...] = ()
    registry: str | None = None
    forms: tuple[str, ...] = ()

    @property
    def subscribed(self) -> tuple[str, ...]:
        """The topics that members subscribe to."""
        return tuple(dict.fromkeys((*self.topics, *self.later)))

    def save(self, directory: Path) -> None:
        """Write it where `load` finds it.

        Args:
            directory: The run's directory.
        """
        text = json.dumps(asdict(self), indent=1)
        (directory / "setting.json").write_text(text, encoding="ascii")

    @classmethod
    def load(cls, directory: Path) -> Setting:
        """Read the saved settings.

        Args:
            directory: The run's directory.
        """
        values = json.loads((directory / "setting.json").read_text(encoding="ascii"))
        queries = {name: QueryTraits(**traits) for name, traits in values.pop("queries").items()}
        lists = ("sinks", "short_lived", "later", "forms")
        values |= {name: tuple(values[name]) for name in lists}
        plant = values.pop("plant")
        return cls(queries=queries, plant=plant and Plant(plant), **values)

    def servers_of(self, member: str) -> str:
        """Return where a member reaches the brokers.

        Args:
            member: Its name.
        """
        return self.sides.get(member, self.bootstrap_servers)

    def places(self, files: Files) -> Places:
        """Return where the tables are.

        Args:
            files: The files of the run.
        """
        return Places(files.tables, self.postgres, Form.PARTITIONED in self.forms)


@dataclass(frozen=True, slots=True)
class Files:
    """The files of a run.

    Args:
        directory: Where all of them lie that are of interest afterwards.
        sockets: A directory with a short name, as sockets want it.
    """

    directory: Path
    sockets: Path

    def make(self) -> None:
        """Make the directories."""
        members = self.directory / "members"
        for each in (self.journals, self.appended, self.logs, self.tables, members):
            each.mkdir(parents=True)

    @property
    def journals(self) -> Path:
        """What processes note: a file for each."""
        return self.directory / "journals"

    @property
    def appended(self) -> Path:
        """The append sink: a file for each member."""
        return self.directory / "appended"

    @property
    def tables(self) -> Path:
        """The tables, but for those of PostgreSQL."""
        return self.directory / "tables"

    @property
    def logs(self) -> Path:
        """What processes log: a file for each member."""
        return self.directory / "logs"

    def member(self, name: str) -> Path:
        """Return the directory of one member: its checkpoint, and its orders.

        Args:
            name: The member.
        """
        return self.directory / "members" / name

    def clock(self, name: str) -> Path:
        """Return the file that a member's clock follows, if clocks jump.

        Args:
            name: The member.
        """
        return self.member(name) / "clock"

    def checkpoint(self, name: str) -> Path:
        """Return the directory of a query's checkpoint.

        Args:
            name: The member.
        """
        return self.member(name) / "checkpoint"

    def orders(self, name: str) -> Path:
        """Return the file with the order for a member at a point.

        Args:
            name: The member.
        """
        return self.member(name) / "order.json"
