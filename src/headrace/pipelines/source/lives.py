"""What became of the topics between two looks: deleted, made again under the same name, cut short. Pure.

A topic is known by its id. Where a broker has none (before Kafka 2.8), or a checkpoint is from before ids were kept in
it, a partition that ends before where the query stands tells as much.
"""

from collections.abc import Collection, Mapping
from typing import NamedTuple

from headrace.model import TopicPartition
from headrace.pipelines.source.planning import Offsets

Ids = Mapping[str, str]  # by name; empty where a broker has none


class Position(NamedTuple):
    """Where a query stands, or goes to: offsets, and the ids of the topics that they are of."""

    offsets: Offsets
    ids: Ids


class Followed(NamedTuple):
    """Where the next batch begins, without partitions that begin at their first record; and what was lost."""

    starts: Offsets
    losses: tuple[str, ...]


def follow(stands: Position, there: Position) -> Followed:
    """From where a query stands to what is there now, `there` being the ends of all that is read."""
    starts = dict(stands.offsets)
    losses = []
    for topic in sorted({where.topic for where in starts}):
        before, now = stands.ids.get(topic, ""), there.ids.get(topic)
        mine = [where for where in starts if where.topic == topic]
        if now is None:
            losses.append(f"topic {topic!r} was deleted")
            continue
        cut = [where for where in mine if where in there.offsets and there.offsets[where] < starts[where]]
        if before and now and before != now:
            losses.append(
                f"topic {topic!r} was deleted and made again since the last batch (its id was {before} and is {now})"
            )
        else:
            losses += [
                f"{where} has been read up to offset {starts[where]} and ends at {there.offsets[where]} now: topic "
                f"{topic!r} was made again, or its broker has lost records"
                for where in cut
            ]
        if is_another(before, now, is_cut=bool(cut)):
            for where in mine:
                del starts[where]
        else:
            starts |= {where: there.offsets[where] for where in cut}
    return Followed(starts, tuple(losses))


def is_another(before: str, now: str, *, is_cut: bool) -> bool:
    """Whether a topic is not the one it was; without ids, one that is shorter than what was read of it is another."""
    return before != now if before and now else is_cut


def planned_starts(start: Position, end: Position) -> Offsets:
    """Where a planned batch begins, as it was planned: without partitions that begin at their first record."""
    starts = dict(start.offsets)
    for topic in {where.topic for where in starts}:
        mine = [where for where in starts if where.topic == topic]
        is_cut = any(end.offsets.get(where, starts[where]) < starts[where] for where in mine)
        if is_another(start.ids.get(topic, ""), end.ids.get(topic, ""), is_cut=is_cut):
            for where in mine:
                del starts[where]
    return starts


def find_gone(end: Position, there: Ids, wanted: Collection[TopicPartition]) -> dict[str, str]:
    """Of what a planned batch wants to read: the topics that are no longer there, each with what became of it."""
    found = {}
    for topic in sorted({where.topic for where in wanted}):
        planned, now = end.ids.get(topic, ""), there.get(topic)
        if now is None:
            found[topic] = f"topic {topic!r} was deleted before its batch was read"
        elif planned and now and planned != now:
            found[topic] = (
                f"topic {topic!r} was deleted and made again before its batch was read (its id was {planned} and is "
                f"{now})"
            )
    return found
