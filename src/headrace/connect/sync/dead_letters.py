"""Where records go that no sink can use: a topic, with the reason and the record's coordinates, the value untouched.

A letter's key is the record's place and the sink, and the topic is compacted: a batch that runs twice leaves one
letter. Letters are durable before the sink's place moves on, so a record that is missing from the target is in the
topic. The headers are those that pipelines write.
"""

import time
from collections.abc import Iterable

from headrace.client.admin import ensure_topic
from headrace.client.cluster import Cluster
from headrace.client.writer import NewRecord, Writer
from headrace.connect.sync.reduction import BrokenRecord
from headrace.records import Header

SUFFIX = ".dead-letters"


def write_letters(
    cluster: Cluster, letters_topic: str, topic: str, sink: str, broken: Iterable[BrokenRecord], form: str
) -> None:
    """Write a letter for every broken record; they are durable when this returns."""
    ensure_topic(cluster, letters_topic, configs={"cleanup.policy": "compact"})
    writer = Writer(cluster, letters_topic)
    for partition, record, reason in broken:
        writer.add(
            NewRecord(
                key=f"{topic}/{partition}/{record.offset}/{sink}".encode(),
                value=record.value,
                timestamp=int(time.time() * 1000),
                headers=[
                    Header("error", reason.encode()),
                    Header("format", form.encode()),
                    Header("topic", topic.encode()),
                    Header("partition", str(partition).encode()),
                    Header("offset", str(record.offset).encode()),
                    Header("timestamp", str(record.timestamp).encode()),
                    Header("key", record.key),
                    Header("sink", sink.encode()),
                ],
            )
        )
    writer.flush()
