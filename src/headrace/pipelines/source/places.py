"""From the name of a place (earliest, a time, where a group stands) to an offset in each partition."""

from collections.abc import Collection, Mapping

from headrace.client.cluster import Cluster
from headrace.client.coordinators import Coordinators
from headrace.client.errors import OffsetOutOfRange
from headrace.client.groups import committed_offsets
from headrace.client.offsets import EARLIEST, LATEST, bounds, list_offsets
from headrace.model import TopicPartition
from headrace.pipelines.errors import BadOption
from headrace.pipelines.source.options import Place
from headrace.pipelines.source.planning import Offsets

_WORDS = {"earliest": EARLIEST, "latest": LATEST}


def find(cluster: Cluster, partitions: Collection[TopicPartition], place: Place, *, committed: bool) -> Offsets:
    """The offset of a place in each partition."""
    if place.word is not None:
        return _asked(cluster, dict.fromkeys(partitions, _WORDS[place.word]), committed=committed)
    if place.timestamp_ms is not None:
        found = _asked(cluster, dict.fromkeys(partitions, place.timestamp_ms), committed=committed)
        young = [where for where, offset in found.items() if offset < 0]
        # Nothing that young yet: what comes from now on will be.
        return found | (_asked(cluster, dict.fromkeys(young, LATEST), committed=committed) if young else {})
    if place.group is not None:
        stands = committed_offsets(Coordinators(cluster), place.group)
        known = {where: stands[where].offset for where in partitions if where in stands}
        others = [where for where in partitions if where not in known]
        return known | _asked(cluster, dict.fromkeys(others, EARLIEST), committed=committed)
    return _given(cluster, partitions, place.offsets or {}, committed=committed)


def _given(
    cluster: Cluster,
    partitions: Collection[TopicPartition],
    offsets: Mapping[str, Mapping[int, int]],
    *,
    committed: bool,
) -> Offsets:
    wanted = {TopicPartition(topic, index): offset for topic, of in offsets.items() for index, offset in of.items()}
    missing = [where for where in partitions if where not in wanted]
    surplus = [where for where in wanted if where not in set(partitions)]
    if missing or surplus:
        said = f"{missing[0]} has no offset there" if missing else f"{surplus[0]} is not among what is read"
        raise BadOption(f"startingOffsets and endingOffsets name every partition that is read and no other: {said}")
    held = bounds(cluster, partitions, committed=committed)
    for where, offset in wanted.items():
        if offset >= 0 and not held[where].start <= offset <= held[where].end:
            raise OffsetOutOfRange(where, offset, held[where].start, held[where].end)
    return {
        where: offset if offset >= 0 else held[where].start if offset == EARLIEST else held[where].end
        for where, offset in wanted.items()
    }


def _asked(cluster: Cluster, asked: Mapping[TopicPartition, int], *, committed: bool) -> Offsets:
    return {where: found.offset for where, found in list_offsets(cluster, asked, committed=committed).items()}
