"""Which partitions a source reads, found anew for every batch so that new ones are noticed, and where in them."""

import re
from collections.abc import Collection, Mapping

from headrace.client import offsets as log
from headrace.client.cluster import Cluster
from headrace.client.coordinators import Coordinators
from headrace.client.errors import OffsetOutOfRange, UnknownTopic
from headrace.client.groups import committed_offsets
from headrace.model import TopicPartition
from headrace.pipelines.errors import BadOption
from headrace.pipelines.source.options import OffsetSpec, SourceOptions
from headrace.pipelines.source.planning import Offsets

EARLIEST, LATEST = OffsetSpec(word="earliest"), OffsetSpec(word="latest")
_WORDS = {"earliest": log.EARLIEST, "latest": log.LATEST}


def find_offsets(
    cluster: Cluster, partitions: Collection[TopicPartition], wanted: OffsetSpec, *, committed: bool
) -> Offsets:
    """The offset in each partition that is named by a word, a time, a group, or itself."""
    if wanted.word is not None:
        return _asked(cluster, dict.fromkeys(partitions, _WORDS[wanted.word]), committed=committed)
    if wanted.timestamp_ms is not None:
        found = _asked(cluster, dict.fromkeys(partitions, wanted.timestamp_ms), committed=committed)
        young = [where for where, offset in found.items() if offset < 0]
        # Nothing that young yet: what comes from now on will be.
        return found | (_asked(cluster, dict.fromkeys(young, log.LATEST), committed=committed) if young else {})
    if wanted.group is not None:
        stands = committed_offsets(Coordinators(cluster), wanted.group)
        known = {where: stands[where].offset for where in partitions if where in stands}
        others = [where for where in partitions if where not in known]
        return known | _asked(cluster, dict.fromkeys(others, log.EARLIEST), committed=committed)
    return _given(cluster, partitions, wanted.offsets or {}, committed=committed)


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
    held = log.bounds(cluster, partitions, committed=committed)
    for where, offset in wanted.items():
        if offset >= 0 and not held[where].start <= offset <= held[where].end:
            raise OffsetOutOfRange(where, offset, held[where].start, held[where].end)
    return {
        where: offset if offset >= 0 else held[where].start if offset == log.EARLIEST else held[where].end
        for where, offset in wanted.items()
    }


def _asked(cluster: Cluster, asked: Mapping[TopicPartition, int], *, committed: bool) -> Offsets:
    return {where: found.offset for where, found in log.list_offsets(cluster, asked, committed=committed).items()}


def select_partitions(cluster: Cluster, options: SourceOptions, *, known: Collection[str] = ()) -> list[TopicPartition]:
    """The partitions that there are now; raises `UnknownTopic` for one that is named and missing, and not `known`."""
    if options.pattern is not None:
        try:
            pattern = re.compile(options.pattern)
        except re.error as error:
            raise BadOption(
                f"option 'subscribePattern' is {options.pattern!r}, which is not a regular expression: {error}"
            ) from error
        names = [topic.name for topic in cluster.topics() if pattern.fullmatch(topic.name)]
    else:
        names = list(options.topics or options.assigned)
    names = refresh_topics(cluster, names, known)
    return [where for name in names for where in cluster.partitions(name, options.assigned.get(name, ()))]


def refresh_topics(cluster: Cluster, names: Collection[str], known: Collection[str]) -> list[str]:
    """Those of some topics that there are now, looked at anew; one that is missing may only be a `known` one."""
    there = list(names)
    while True:
        try:
            cluster.refresh(there)
        except UnknownTopic as missing:
            if missing.topic not in known:
                raise
            there.remove(missing.topic)
        else:
            return there
