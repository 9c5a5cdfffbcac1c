"""Records written and read back by our own client, on whatever cluster it was given."""

from headrace.client import admin
from headrace.client.offsets import Start, StartKind, find_stretch
from headrace.client.reader import read_records
from headrace.client.writer import NewRecord, Writer


def write_and_read(cluster, topic, *, count=500, value_bytes=150):
    """Through several batches, so that answers are longer than one TLS record."""
    admin.create_topic(cluster, topic, partitions=3)
    values = {number: (b"%d," % number * value_bytes)[:value_bytes] for number in range(count)}
    writer = Writer(cluster, topic, batch_bytes=20_000)
    for number, value in values.items():
        writer.add(NewRecord(b"%d" % number, value, 1_700_000_000_000))
    writer.flush()
    stretch = find_stretch(cluster, cluster.partitions(topic), Start(StartKind.EARLIEST))
    groups = read_records(cluster, stretch.starts, until=stretch.ends)
    read = {int(found.record.key): found.record.value for group in groups for found in group}
    assert read == values
