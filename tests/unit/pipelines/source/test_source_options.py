import pytest

from headrace.pipelines.errors import BadOption
from headrace.pipelines.source.options import OffsetSpec, read_options

BASE = {"bootstrap": "127.0.0.1:9092", "subscribe": "orders"}


def test_names_are_known_in_any_case() -> None:
    found = read_options({"Bootstrap": "h:1", "SUBSCRIBE": "a, b", "maxoffsetspertrigger": "7"})
    assert (found.bootstrap, found.topics, found.max_records) == ("h:1", ("a", "b"), 7)


def test_sparks_own_names_are_understood() -> None:
    found = read_options(
        {
            "kafka.bootstrap.servers": "h:1",
            "subscribe": "a",
            "kafka.isolation.level": "read_uncommitted",
            "kafka.x": "y",
        }
    )
    assert (found.bootstrap, found.committed, found.connection) == ("h:1", False, {"x": "y"})


def test_readers_see_only_what_is_committed_unless_told_otherwise() -> None:
    assert read_options(BASE).committed


@pytest.mark.parametrize(
    ("given", "place"),
    [
        ({"startingOffsets": "Latest"}, OffsetSpec(word="latest")),
        ({"startingOffsets": '{"orders": {"0": 5, "1": -2}}'}, OffsetSpec(offsets={"orders": {0: 5, 1: -2}})),
        ({"startingTimestamp": "1700000000000"}, OffsetSpec(timestamp_ms=1_700_000_000_000)),
        ({"startingTimestamp": "2023-11-14T22:13:20Z"}, OffsetSpec(timestamp_ms=1_700_000_000_000)),
        ({"startingGroup": "billing"}, OffsetSpec(group="billing")),
    ],
)
def test_places(given: dict[str, str], place: OffsetSpec) -> None:
    assert read_options(BASE | given).starting == place


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"subscribe": "a"}, "needs the option 'bootstrap'"),
        ({"bootstrap": "h:1"}, "none is given"),
        (BASE | {"assign": '{"a": [0]}'}, "subscribe and assign are given"),
        (BASE | {"fromat": "json"}, "did you mean 'format'?"),
        (BASE | {"format": "jsn"}, "choose one of raw, json"),
        (BASE | {"maxRecordsPerTrigger": "-1"}, "write a whole number from 1 on"),
        (BASE | {"failOnDataLoss": "maybe"}, "write true or false"),
        (BASE | {"startingOffsets": "yesterday"}, "write JSON such as"),
        (BASE | {"startingOffsets": '{"orders": {"0": -3}}'}, "an offset is 0 or more"),
        (BASE | {"startingOffsets": "latest", "startingGroup": "g"}, "not both"),
        (BASE | {"startingTimestamp": "noon"}, "write milliseconds since 1970"),
        (BASE | {"isolation": "dirty"}, "choose read_committed or read_uncommitted"),
        ({"bootstrap": "h:1", "assign": '{"a": "0"}'}, "write topics with their partitions"),
        ({"bootstrap": "h:1", "subscribe": " , "}, "name a topic"),
    ],
)
def test_mistakes_are_told_in_a_sentence(given: dict[str, str], said: str) -> None:
    with pytest.raises(BadOption, match=None) as caught:
        read_options(given)
    assert said in str(caught.value)
