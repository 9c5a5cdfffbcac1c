"""Topic settings by Kafka's names."""

import pytest

from headrace.storage.config import DAY_MS, LogConfig
from headrace.storage.errors import InvalidLogConfig


def test_the_defaults_are_kafkas():
    properties = LogConfig().to_properties()
    assert properties["cleanup.policy"] == "delete"
    assert properties["segment.bytes"] == "1073741824"
    assert properties["retention.ms"] == "604800000"
    assert properties["max.message.bytes"] == "1048588"
    assert properties["message.timestamp.type"] == "CreateTime"
    assert properties["min.cleanable.dirty.ratio"] == "0.5"
    assert LogConfig.from_properties(properties) == LogConfig()


def test_from_properties():
    config = LogConfig.from_properties(
        {
            "cleanup.policy": "compact, delete",
            "segment.bytes": "4096",
            "min.cleanable.dirty.ratio": "0.25",
            "message.timestamp.type": "LogAppendTime",
            "retention.ms": "-1",
        }
    )
    assert config.compacts
    assert config.deletes
    assert (config.segment_bytes, config.min_cleanable_dirty_ratio, config.retention_ms) == (4096, 0.25, -1)
    assert not config.rules.create_time
    assert config.rules.keys_required
    assert LogConfig.from_properties(config.to_properties()) == config


def test_an_unknown_name_comes_with_the_nearest():
    with pytest.raises(
        InvalidLogConfig, match=r"unknown topic setting 'retention.byte': did you mean 'retention.bytes'\?"
    ):
        LogConfig.from_properties({"retention.byte": "1"})
    with pytest.raises(InvalidLogConfig, match=r"^unknown topic setting 'xyzzy': check its name$"):
        LogConfig.from_properties({"xyzzy": "1"})
    with pytest.raises(InvalidLogConfig, match=r"did you mean 'segment.ms'"):
        LogConfig.from_properties({"segment_ms": "1"})


@pytest.mark.parametrize(
    ("name", "value", "sentence"),
    [
        ("segment.bytes", "13", "segment.bytes=13 is out of range: give a value from 14 to 2147483647"),
        ("segment.bytes", str(2**31), "out of range"),
        ("segment.ms", "0", "out of range: give a value from 1 to"),
        ("retention.ms", "-2", "out of range: give a value from -1 to"),
        ("min.cleanable.dirty.ratio", "1.5", "min.cleanable.dirty.ratio=1.5 is out of range: give a value from 0 to 1"),
        ("min.cleanable.dirty.ratio", "nan", "out of range"),
        ("max.message.bytes", "-1", "out of range"),
        ("retention.ms", "a week", "retention.ms='a week' is not a number"),
        ("segment.bytes", "1.5", "segment.bytes='1.5' is not a number"),
        ("cleanup.policy", "delete,shred", "cleanup.policy=shred is unknown: use delete, compact or both"),
        ("message.timestamp.type", "Later", "message.timestamp.type=Later is unknown: use CreateTime or LogAppendTime"),
    ],
)
def test_impossible_values_are_one_sentence(name, value, sentence):
    with pytest.raises(InvalidLogConfig) as caught:
        LogConfig.from_properties({name: value})
    assert sentence in str(caught.value)


def test_bounds_themselves_are_fine():
    LogConfig(segment_bytes=14, segment_ms=1, retention_bytes=-1, min_cleanable_dirty_ratio=1)


def test_a_compacted_log_rolls_in_time_to_be_compacted():
    lag = {"max_compaction_lag_ms": 1000}
    assert LogConfig(**lag).roll_ms == 7 * DAY_MS
    assert LogConfig(**lag, cleanup_policy=frozenset({"compact"})).roll_ms == 1000
