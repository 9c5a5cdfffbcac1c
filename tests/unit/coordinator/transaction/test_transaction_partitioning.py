"""The hash that decides where a key is coordinated; the numbers are Java's."""

import pytest

from headrace.coordinator.transaction.records import java_hash, partition_for


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", 0),
        ("a", 97),
        ("hello", 99162322),
        ("polygenelubricants", -(2**31)),
        ("zzzzzz", -685785664),
        ("é", 233),
        ("😀", 0xD83D * 31 + 0xDE00),  # two units of UTF-16
    ],
)
def test_the_hash_is_that_of_java(text, expected):
    assert java_hash(text) == expected


@pytest.mark.parametrize(
    ("key", "count", "expected"),
    [
        ("hello", 50, 22),
        ("polygenelubricants", 50, 0),
        ("zzzzzz", 50, 14),
        ("😀", 50, 49),
        ("", 50, 0),
        ("hello", 1, 0),
    ],
)
def test_the_partition_is_that_of_kafka(key, count, expected):
    assert partition_for(key, count) == expected
