"""Sharing out what is to be read: how far a batch goes, and which task reads what. Pure."""

import itertools
import json
from collections.abc import Mapping
from typing import Any, NamedTuple

from headrace.model import TopicPartition

Offsets = dict[TopicPartition, int]
_ID = "id"  # beside the partitions, which are numbers
SMALL = 20_000  # records that one task reads in less time than Spark takes to start another


class Range(NamedTuple):
    """The offsets that one task reads, the end not included."""

    topic: str
    partition: int
    start: int
    end: int
    topic_id: str = ""  # the topic that the offsets are of; empty where the broker has no ids


def to_json(offsets: Mapping[TopicPartition, int], ids: Mapping[str, str] | None = None) -> dict[str, dict[str, Any]]:
    """Offsets as they stand in Spark's checkpoint, in the form of Spark's own Kafka source, each topic with its id."""
    found: dict[str, dict[str, Any]] = {}
    for where, offset in sorted(offsets.items()):
        found.setdefault(where.topic, {})[str(where.partition)] = offset
    for topic, parts in found.items():
        if ids and ids.get(topic):
            parts[_ID] = ids[topic]
    return found


def offsets_in(found: Any) -> Offsets:
    """Offsets as a checkpoint or a report has them, also as JSON; nothing where they are not a topic's."""
    if isinstance(found, str) and found.startswith("{"):
        found = json.loads(found)
    if not isinstance(found, Mapping):
        return {}
    return {
        TopicPartition(topic, int(partition)): int(offset)
        for topic, partitions in found.items()
        if isinstance(partitions, Mapping)
        for partition, offset in partitions.items()
        if str(partition).isdecimal()
    }


def ids_in(offsets: Mapping[str, Any]) -> dict[str, str]:
    """The topics' ids from Spark's checkpoint; nothing for those that were written without, or by another source."""
    return {topic: parts[_ID] for topic, parts in offsets.items() if isinstance(parts, Mapping) and _ID in parts}


def limit_offsets(
    starts: Mapping[TopicPartition, int],
    ends: Mapping[TopicPartition, int],
    budget: float,
    cost: Mapping[TopicPartition, float],
) -> Offsets:
    """How far a batch may go whose records may cost so much in all, each partition sharing by what waits in it.

    Every partition that has anything moves by at least one record, so that a small budget starves none.
    """
    waiting = {where: max(ends[where] - starts[where], 0) for where in ends}
    total = sum(count * cost[where] for where, count in waiting.items())
    if total <= budget:
        return dict(ends)
    share = budget / total
    return {
        where: starts[where] + (min(max(int(count * share), 1), count) if count else 0)
        for where, count in waiting.items()
    }


def ranges(
    starts: Mapping[TopicPartition, int],
    ends: Mapping[TopicPartition, int],
    *,
    min_tasks: int,
    records_per_task: int,
    ids: Mapping[str, str] | None = None,
) -> list[Range]:
    """A range per partition with something to read, and more of them where there is much: at least `min_tasks` in all.

    Longest first, so that the last task to start is a short one.
    """
    whole = [
        Range(where.topic, where.partition, starts[where], ends[where], (ids or {}).get(where.topic, ""))
        for where in sorted(ends)
        if ends[where] > starts[where]
    ]
    total = sum(item.end - item.start for item in whole)
    if not total:
        return []
    largest = min(records_per_task, -(-total // min_tasks)) if len(whole) < min_tasks else records_per_task
    pieces = [piece for item in whole for piece in _split(item, largest)]
    return sorted(pieces, key=lambda piece: (piece.start - piece.end, piece))


def _split(item: Range, largest: int) -> list[Range]:
    count = item.end - item.start
    pieces = -(-count // max(largest, 1))
    cuts = [item.start + count * piece // pieces for piece in range(pieces + 1)]
    return [item._replace(start=low, end=high) for low, high in itertools.pairwise(cuts)]


def tasks(pieces: list[Range], *, min_tasks: int, small: int = SMALL) -> list[tuple[Range, ...]]:
    """What each task reads: small ranges are put together, because a task costs more than reading thousands of records.

    No task gets more than `small` by that, and no more are put together than leaves `min_tasks`.
    """
    found: list[list[Range]] = []
    sizes: list[int] = []
    for left, piece in zip(range(len(pieces), 0, -1), pieces, strict=True):
        count = piece.end - piece.start
        if found and sizes[-1] + count <= small and len(found) + left > min_tasks:
            found[-1].append(piece)
            sizes[-1] += count
        else:
            found.append([piece])
            sizes.append(count)
    return [tuple(group) for group in found]
