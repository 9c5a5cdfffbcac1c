"""The assignment of a classic consumer, as bytes."""

import struct

import pytest

from headrace.client.groups import assigned_partitions
from headrace.model import TopicPartition

TWO_TOPICS = struct.pack(">hih6si2ih5si1ii", 3, 2, 6, b"orders", 2, 1, 0, 5, b"users", 1, 7, -1)


def test_partitions_in_order():
    assert assigned_partitions(TWO_TOPICS) == (
        TopicPartition("orders", 0),
        TopicPartition("orders", 1),
        TopicPartition("users", 7),
    )


@pytest.mark.parametrize("data", [b"", b"\x00", b"not an assignment at all", TWO_TOPICS[:20], b"\xff" * 40])
def test_what_is_none(data):
    assert assigned_partitions(data) == ()
