"""Where records go that do not decode: a topic, with the error and the record's coordinates, the value untouched.

A letter's key is the record's place, and the topic is compacted: a task that runs twice leaves one letter. It is
written before the rest of its batch goes on, so a record that is missing from the results is in the topic.
"""

import time
from collections.abc import Mapping

from headrace.client.admin import ensure_topic
from headrace.client.cluster import Cluster
from headrace.client.writer import NewRecord, Writer
from headrace.pipelines.columns.records import RecordColumns
from headrace.records import Header

SUFFIX = ".dead-letters"


def topic_for(topic: str, chosen: str | None) -> str:
    """The topic that takes what cannot be decoded of another."""
    return chosen or topic + SUFFIX


def write_letters(
    cluster: Cluster, letters_topic: str, topic: str, partition: int, records: RecordColumns, broken: Mapping[int, str],
    decoding: str,
) -> None:  # fmt: skip
    """Write a letter for every broken row; they are durable when this returns."""
    ensure_topic(cluster, letters_topic, configs={"cleanup.policy": "compact"})
    writer = Writer(cluster, letters_topic)
    for row, reason in broken.items():
        offset = int(records.offset[row])
        writer.add(
            NewRecord(
                key=f"{topic}/{partition}/{offset}".encode(),
                value=_bytes(records, "value", row),
                timestamp=int(time.time() * 1000),
                headers=[
                    Header("error", reason.encode()),
                    Header("format", decoding.encode()),
                    Header("topic", topic.encode()),
                    Header("partition", str(partition).encode()),
                    Header("offset", str(offset).encode()),
                    Header("timestamp", str(int(records.timestamp[row])).encode()),
                    Header("key", _bytes(records, "key", row)),
                ],
            )
        )
    writer.flush()


def _bytes(records: RecordColumns, part: str, row: int) -> bytes | None:
    start, size = int(getattr(records, f"{part}_at")[row]), int(getattr(records, f"{part}_size")[row])
    return None if size < 0 else records.arena[start : start + size].tobytes()
