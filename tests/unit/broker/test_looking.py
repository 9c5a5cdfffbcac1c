"""How much of a batch is looked into at a time."""

from typing import Any

from headrace.broker.queues.looking import BYTES_A_LOOK, Look, Looking, Verdict
from headrace.coordinator.share.partition import Span
from headrace.model import TopicPartition
from headrace.records import Codec, Record, build_batch, header_at


def test_large_values_are_looked_into_a_few_at_a_time():
    """A filter may have to parse them, and a batch of three kilobytes may have thirty megabytes of them."""
    batch = build_batch([Record(place, 0, None, bytes(BYTES_A_LOOK)) for place in range(30)], codec=Codec.ZSTD)
    looking, judged = Looking(runtime=None), []  # type: ignore[arg-type]

    def judge(record: Record) -> Verdict:
        judged.append(record.offset)
        return Verdict.DELIVER if record.offset % 2 else Verdict.FILTERED

    def look(first: int) -> Any:
        return looking.spans_of(
            Look((judge,), by_key=False), TopicPartition("t", 0), header_at(batch), memoryview(batch), first
        )

    assert look(0) == [Span(0, 0, is_deliverable=False)]
    assert look(1) == [Span(1, 1)]
    assert look(29) == [Span(29, 29)]
    assert judged == [0, 1, 29]
