"""Which partitions a source reads: found anew for every batch, so that new partitions and topics are noticed."""

import re
from collections.abc import Collection

from headrace.client.cluster import Cluster
from headrace.client.errors import UnknownTopic
from headrace.model import TopicPartition
from headrace.pipelines.errors import BadOption
from headrace.pipelines.source.options import SourceOptions


def selected(cluster: Cluster, options: SourceOptions, *, known: Collection[str] = ()) -> list[TopicPartition]:
    """The partitions that there are now; raises `UnknownTopic` for one that is named and missing, and not `known`."""
    if options.pattern is not None:
        try:
            pattern = re.compile(options.pattern)
        except re.error as error:
            raise BadOption(
                f"option 'subscribePattern' is {options.pattern!r}, no regular expression: {error}"
            ) from error
        names = [topic.name for topic in cluster.topics() if pattern.fullmatch(topic.name)]
    else:
        names = list(options.topics or options.assigned)
    names = refreshed(cluster, names, known)
    return [where for name in names for where in cluster.partitions(name, options.assigned.get(name, ()))]


def refreshed(cluster: Cluster, names: Collection[str], known: Collection[str]) -> list[str]:
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
