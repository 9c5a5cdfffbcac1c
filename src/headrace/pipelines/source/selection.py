"""Which partitions a source reads: found anew for every batch, so that new partitions and topics are noticed."""

import re

from headrace.client.cluster import Cluster
from headrace.model import TopicPartition
from headrace.pipelines.errors import BadOption
from headrace.pipelines.source.options import SourceOptions


def selected(cluster: Cluster, options: SourceOptions) -> list[TopicPartition]:
    """The partitions that there are now; raises `UnknownTopic` for one that is named and missing."""
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
    cluster.refresh(names)
    return [where for name in names for where in cluster.partitions(name, options.assigned.get(name, ()))]
