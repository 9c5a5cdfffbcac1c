"""What `headrace group` is told and says: places to go on from, topics with partitions, lengths of time, warnings."""

import click
import pytest

from headrace.cli.group import _merge_topics
from headrace.cli.group_text import warnings_of
from headrace.cli.moment import InvalidMoment, parse_target
from headrace.cli.output import human_duration
from headrace.cli.parameters import TOPIC_PARTITIONS
from headrace.client.address import Address
from headrace.client.groups import Committed, Group
from headrace.client.lag import GroupLag, PartitionLag, Retention
from headrace.client.offsets import Start, StartKind
from headrace.client.resets import Shift
from headrace.model import TopicPartition

NOW = 1_800_000_000_000


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("earliest", Start(StartKind.EARLIEST)),
        (" latest ", Start(StartKind.LATEST)),
        ("0", Start(StartKind.OFFSET, 0)),
        ("1200", Start(StartKind.OFFSET, 1200)),
        ("-10", Shift(-10)),
        ("+10", Shift(10)),
        ("10m", Start(StartKind.TIME, NOW - 600_000)),
        ("1970-01-01T00:00:05Z", Start(StartKind.TIME, 5000)),
    ],
)
def test_targets(text, expected):
    assert parse_target(text, NOW) == expected


@pytest.mark.parametrize("text", ["", "soon", "+", "-", "+-1", "1.5", "--1", "+1h", "٣"])
def test_no_targets(text):
    with pytest.raises(InvalidMoment, match="is not a place to continue from: write earliest, latest"):
        parse_target(text, NOW)


@pytest.mark.parametrize(
    ("text", "expected"),
    [("orders", ("orders", ())), ("orders:0", ("orders", (0,))), ("orders:2, 0", ("orders", (2, 0)))],
)
def test_topics_with_partitions(text, expected):
    assert TOPIC_PARTITIONS.convert(text, None, None) == expected


@pytest.mark.parametrize("text", ["", ":1", "orders:", "orders:a", "orders:-1", "orders:0,,1", "orders:1:2"])
def test_no_topics_with_partitions(text):
    with pytest.raises(click.BadParameter, match="write for example orders or orders:0,2"):
        TOPIC_PARTITIONS.convert(text, None, None)


def test_a_topic_named_twice():
    assert _merge_topics((("a", (0,)), ("b", ()), ("a", (2, 0)))) == {"a": (0, 2), "b": ()}
    assert _merge_topics((("a", (0,)), ("a", ()))) == {"a": ()}
    assert _merge_topics((("a", ()), ("a", (1,)), ("a", (2,)))) == {"a": ()}


@pytest.mark.parametrize(
    ("ms", "text"),
    [
        (0, "0 ms"),
        (999, "999 ms"),
        (1000, "1 s"),
        (61_500, "1 min 1 s"),
        (3_600_000, "1 h"),
        (3_601_000, "1 h"),
        (90 * 60_000, "1 h 30 min"),
        (51 * 3_600_000, "2 d 3 h"),
    ],
)
def test_durations(ms, text):
    assert human_duration(ms) == text


def test_warnings():
    hour = 3_600_000
    lags = [
        PartitionLag(TopicPartition("t", 0), 1, 0, 9),
        PartitionLag(TopicPartition("t", 1), 4, 5, 9),
        PartitionLag(TopicPartition("t", 2), 0, 2000, 3000),
        PartitionLag(TopicPartition("t", 3), 12, 0, 9),
        PartitionLag(TopicPartition("t", 4), 1, 0, 9, next_ms=NOW - 9 * hour, retention=Retention(9 * hour + 90_000)),
        PartitionLag(TopicPartition("t", 5), 1, 0, 9, next_ms=NOW - 9 * hour, retention=Retention(hour)),
        PartitionLag(TopicPartition("t", 6), 0, 0, 9, size_bytes=95, retention=Retention(size_bytes=100)),
    ]
    group = Group("g", "classic", "Empty", "consumer", "", 1, Address("h", 1), ())
    described = GroupLag(group, lags, {TopicPartition("gone", 0): Committed(3, "")})
    texts = [warned.text for warned in warnings_of(described, NOW)]
    reset = "read: the log starts at {}, and auto.offset.reset decides where to go on"
    assert texts == [
        "t-1: 1 record was removed before it was " + reset.format(5),
        "t-2: 2,000 records were removed before they were " + reset.format(2000),
        "t-3: offset 12 is past the end of the log, 9: was the topic made anew?",
        "t-4: records will be removed before they are read, in about 1 min 30 s (retention.ms)",
        "t-5: records will be removed before they are read, at any time (retention.ms)",
        "t-6: records will be removed before they are read, soon (5% of the space is left) (retention.bytes)",
        "gone-0: offset 3 is committed, but the partition does not exist any more",
    ]
