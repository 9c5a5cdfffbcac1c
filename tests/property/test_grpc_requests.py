"""Requests of gRPC: any that can be sent is records or a status with a sentence; responses are never too large."""

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.client.reader import ReadRecord
from headrace.gateways.gateway import Progress
from headrace.gateways.grpc.consuming import cut, record_message
from headrace.gateways.grpc.errors import CallFailed
from headrace.gateways.grpc.kind import KIND
from headrace.gateways.grpc.producing import Producing
from headrace.gateways.grpc.settings import GrpcSettings, is_allowed
from headrace.gateways.grpc.watch import Watch
from headrace.gateways.grpc.wire import message
from headrace.gateways.inlet import Inlet
from headrace.model import TopicPartition
from headrace.records import Header, Record
from headrace.section_keys import with_defaults
from tests.property.storage_model import count_examples

SETTINGS = GrpcSettings.of("test", with_defaults(KIND.keys, {"produce": ["orders*"]}))
PRODUCING = Producing(Inlet([], "test", Progress()), SETTINGS, Watch([], "test"))
value = st.none() | st.binary(max_size=8)
record = st.fixed_dictionaries(
    {},
    optional={
        "key": st.binary(max_size=4), "value": st.binary(max_size=8), "timestamp_ms": st.integers(-(2**63), 2**63 - 1),
        "headers": st.lists(st.fixed_dictionaries({"key": st.text(max_size=3)}, optional={"value": st.binary()}),
                            max_size=2),
    },
)  # fmt: skip
request = st.fixed_dictionaries(
    {},
    optional={
        "topic": st.text(max_size=8) | st.sampled_from(["orders", "orders.eu", "__offsets", "orders/..", "x" * 300]),
        "records": st.lists(record, max_size=3), "partition": st.integers(-(2**31), 2**31 - 1),
    },
)  # fmt: skip


@settings(max_examples=count_examples(300))
@given(request)
def test_a_request_is_records_or_a_sentence(given: dict[str, Any]) -> None:
    asked = message("ProduceRequest").FromString(message("ProduceRequest")(**given).SerializeToString())
    try:
        lot = PRODUCING.lot(asked)
    except CallFailed:
        is_bad = not given.get("topic", "").startswith("orders") or "/" in given["topic"] or not given.get("records")
        is_bad = is_bad or any(each.get("timestamp_ms", 0) < 0 for each in given["records"])
        assert is_bad or given.get("partition", 0) < 0
        return
    assert lot.topic == given["topic"]
    assert lot.partition == given.get("partition")
    assert [(key, held) for key, held, _, _ in lot.entries] == [
        (each.get("key"), each.get("value")) for each in given["records"]
    ]
    assert [headers for _, _, _, headers in lot.entries] == [
        tuple((header["key"], header.get("value", b"")) for header in each.get("headers", ()))
        for each in given["records"]
    ]


@settings(max_examples=count_examples(200))
@given(
    st.lists(st.builds(lambda key, held, headers: Record(0, 5, key, held, tuple(headers)), value,
                       st.none() | st.binary(max_size=300), st.lists(st.builds(Header, st.text(max_size=3), value))),
             max_size=20),
    st.integers(1, 8), st.integers(400, 3000),
)  # fmt: skip
def test_pieces_are_whole_and_small_enough(found: list[Record], most: int, message_bytes: int) -> None:
    read = [ReadRecord(TopicPartition("orders", 1), each) for each in found]
    pieces = list(cut(read, most, message_bytes))
    assert [one for piece in pieces for one in piece] == read
    for piece in pieces:
        assert 0 < len(piece) <= most
        made = message("ConsumeResponse")(records=map(record_message, piece))
        assert len(piece) == 1 or made.ByteSize() <= message_bytes


def test_internal_topics_are_named_on_purpose() -> None:
    assert is_allowed("orders", ["*"])
    assert not is_allowed("__offsets", ["*"])
    assert is_allowed("__offsets", ["__*"])
