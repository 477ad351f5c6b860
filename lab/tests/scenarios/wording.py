"""How scenarios write down partitions, epochs and answers."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from spark_groups.errors import ErrorCode
from spark_groups.types import Assignment, TopicId, TopicIdPartition, TopicPartition

TOPIC_LIST = re.compile(r"([\w.]+)\[([\d,-]+)\]")

MEMBER_ID_REQUIRED = 79
CLASSIC_CODES = {
    23: "INCONSISTENT_GROUP_PROTOCOL",
    24: "INVALID_GROUP_ID",
    26: "INVALID_SESSION_TIMEOUT",
    27: "REBALANCE_IN_PROGRESS",
    MEMBER_ID_REQUIRED: "MEMBER_ID_REQUIRED",
}
"""Codes that only members of the classic protocol get (org.apache.kafka.common.protocol.Errors)."""


class Names:
    """Topics by name and id, and the epochs of groups, counted from the first one sent.

    Kafka 4.0 to 4.2 begin with epoch 1, later ones with 2; a scenario that is not about that
    counts from 1 everywhere.
    """

    def __init__(self) -> None:
        self.topic_ids: dict[str, TopicId] = {}
        self.old_ids: dict[str, TopicId] = {}
        self.absolute = False
        self.counted = False
        self._names: dict[TopicId, str] = {}
        self._before_first: dict[str, int] = {}

    def created(self, name: str, topic_id: TopicId) -> None:
        """Note a topic; one of the same name is the old one from now on."""
        if name in self.topic_ids:
            self.old_ids[name] = self.topic_ids[name]
            self._names[self.old_ids[name]] = f"{name}(old)"
        self.topic_ids[name] = topic_id
        self._names[topic_id] = name

    def name(self, topic_id: TopicId) -> str:
        return self._names.get(topic_id, "(unknown)")

    def wire_names(self) -> dict[TopicId, str]:
        """Return what each topic id was ever called on the wire."""
        return {each: name.removesuffix("(old)") for each, name in self._names.items()}

    def note_epoch(self, group_id: str, epoch: int) -> None:
        """Note the epoch in the answer to a join."""
        if epoch > 0:
            self._before_first.setdefault(group_id, epoch - 1)

    def epoch_out(self, group_id: str, epoch: int) -> int:
        """Return how an epoch is shown."""
        return epoch - self._shift(group_id) if epoch > 0 else epoch

    def epoch_in(self, group_id: str, shown: int) -> int:
        """Return the epoch that is meant by one shown."""
        return shown + self._shift(group_id) if shown > 0 else shown

    def _shift(self, group_id: str) -> int:
        return 0 if self.absolute else self._before_first.get(group_id, 0)

    def plain(self, text: str, group_id: str) -> str:
        """Return a text of the client with topic names for ids and epochs as they are shown."""
        for topic_id, name in self._names.items():
            text = text.replace(str(topic_id), name)
        return re.sub(
            r"(?<=\bepoch )(\d+)|(?<= -> )(\d+)\b",
            lambda found: str(self.epoch_out(group_id, int(found[0]))),
            text,
        )

    def partitions(self, keys: Iterable[TopicIdPartition]) -> str:
        """Write partitions as `orders[0-2,5]`, sorted by topic name."""
        by_name: dict[str, list[int]] = {}
        for key in keys:
            by_name.setdefault(self.name(key.topic_id), []).append(key.partition)
        return self.by_name(by_name)

    def by_name(self, by_name: Mapping[str, Iterable[int]]) -> str:
        """Write partitions by topic name; only how many, if that is all that is certain."""
        if not self.counted:
            return by_topic_text(by_name)
        counts = {name: len(list(by_name[name])) for name in sorted(by_name)}
        return " ".join(f"{count} of {name}" for name, count in counts.items()) or "nothing"

    def assignment(self, text: str) -> Assignment:
        """Read partitions as `partitions` writes them; `none` is the empty set."""
        by_topic: dict[TopicId, list[int]] = {}
        for name, indexes in TOPIC_LIST.findall(text):
            by_topic.setdefault(self.topic_ids[name], []).extend(_indexes(indexes))
        if not by_topic and text != "none":
            raise ValueError(f"{text!r} are no partitions: write topic[0-2,5] or none")
        return Assignment.of(by_topic)

    def key(self, text: str, *, old: bool = False) -> TopicIdPartition:
        """Read a partition as `orders-0`."""
        name, _, index = text.rpartition("-")
        return TopicIdPartition((self.old_ids if old else self.topic_ids)[name], int(index))


def by_topic_text(by_topic: Mapping[str, Iterable[int]]) -> str:
    """Write partitions by topic name as `orders[0-2,5]`."""
    texts = [f"{name}[{_ranges(sorted(by_topic[name]))}]" for name in sorted(by_topic)]
    return " ".join(texts) or "nothing"


def partitions_by_name(text: str) -> frozenset[TopicPartition]:
    """Read partitions as `by_topic_text` writes them; `none` is the empty set."""
    found = TOPIC_LIST.findall(text)
    if not found and text != "none":
        raise ValueError(f"{text!r} are no partitions: write topic[0-2,5] or none")
    return frozenset(
        TopicPartition(name, each) for name, listed in found for each in _indexes(listed)
    )


def code_text(code: int) -> str:
    """Write an error code: `ok`, or Kafka's name of it."""
    if code in CLASSIC_CODES:
        return CLASSIC_CODES[code]
    return "ok" if code == ErrorCode.NONE else ErrorCode.name_of(code)


def _ranges(indexes: list[int]) -> str:
    runs: list[list[int]] = []
    for index in indexes:
        if runs and runs[-1][-1] == index - 1:
            runs[-1].append(index)
        else:
            runs.append([index])
    return ",".join(f"{run[0]}-{run[-1]}" if len(run) > 1 else f"{run[0]}" for run in runs)


def _indexes(text: str) -> list[int]:
    found: list[int] = []
    for each in text.split(","):
        first, _, last = each.partition("-")
        found.extend(range(int(first), int(last or first) + 1))
    return found
