"""Share groups that want less than everything, or in an order: filters, keys, and one active member of a partition."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import pytest

from headrace import Broker
from headrace.protocol.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from headrace.protocol.messages.describe_share_group_offsets import (
    DescribeShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsRequestGroup,
    DescribeShareGroupOffsetsRequestTopic,
)
from headrace.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from headrace.protocol.messages.share_fetch import FetchPartition, FetchTopic, ForgottenTopic
from headrace.records import Codec, Header, Record, build_batch
from tests.conformance.clients.sharing import ACCEPT, REJECT, RELEASE, Sharer, set_group
from tests.conformance.clients.wire import Wire, batch_of, error_name

if TYPE_CHECKING:
    from collections.abc import Iterator

PATIENCE_MS = 60_000
GROUP = 32


@pytest.fixture(scope="module")
def servers() -> Iterator[str]:
    with Broker(durability="os") as broker:
        yield broker.bootstrap_servers


@pytest.fixture
def wire(servers: str) -> Iterator[Wire]:
    with Wire(servers) as wire:
        yield wire


@pytest.fixture
def other_wire(servers: str) -> Iterator[Wire]:
    with Wire(servers) as wire:
        yield wire


def create(wire: Wire, name: str, **settings: str) -> str:
    wire.create(name)
    set_group(wire, name, share_auto_offset_reset="earliest", **settings)
    return name


def join(wire: Wire, topic: str) -> Sharer:
    """A member whose group has begun."""
    sharer = Sharer(wire, topic, topic)
    sharer.join()
    return sharer


def produce(wire: Wire, topic: str, *records: tuple[bytes | None, bytes], codec: Codec = Codec.NONE) -> None:
    """A batch of keys and values."""
    batch = [Record(number, 0, key, value) for number, (key, value) in enumerate(records)]
    wire.produce(topic, build_batch(batch, codec=codec))


def offsets_in(answer: Any) -> list[int]:
    assert answer.error_code == 0, answer
    partitions = [partition for topic in answer.responses for partition in topic.partitions]
    assert [partition.error_code for partition in partitions] == [0] * len(partitions), answer
    return [
        offset
        for partition in partitions
        for run in partition.acquired_records
        for offset in range(run.first_offset, run.last_offset + 1)
    ]


def take(sharer: Sharer, *acks: tuple[int, int, list[int]], **options: Any) -> list[int]:
    """The offsets that a member is given now, or waits for."""
    return offsets_in(sharer.fetch_some(*acks, **options))


def take_now(sharer: Sharer, *acks: tuple[int, int, list[int]]) -> list[int]:
    return offsets_in(sharer.fetch(*acks, max_wait_ms=0))


def accept(sharer: Sharer, *offsets: int, ack: int = ACCEPT) -> None:
    answer = sharer.acknowledge(*((offset, offset, [ack]) for offset in offsets))
    (partition,) = answer.responses[0].partitions
    assert (answer.error_code, partition.error_code) == (0, 0), answer


# --- filters


def test_a_group_has_only_what_its_filter_matches_and_the_rest_is_finished_for_it(wire: Wire) -> None:
    topic = create(wire, "filtered", headrace_filter="header.region = 'eu' AND value.amount > 10")
    regions = [b"eu", b"us", b"eu", b"eu", b"us"]
    for codec in (Codec.NONE, Codec.GZIP, Codec.ZSTD):
        records = [
            Record(number, 0, None, b'{"amount": %d}' % (number * 10), (Header("region", region),))
            for number, region in enumerate(regions)
        ]
        wire.produce(topic, build_batch(records, codec=codec))
    sharer = join(wire, topic)
    given = take(sharer)
    assert given == [2, 3, 7, 8, 12, 13]
    accept(sharer, *given)
    assert take_now(sharer) == []
    asked = DescribeShareGroupOffsetsRequestGroup(
        group_id=topic, topics=[DescribeShareGroupOffsetsRequestTopic(topic_name=topic, partitions=[0])]
    )
    (group,) = wire.ask(DescribeShareGroupOffsetsRequest(groups=[asked])).groups
    assert group.topics[0].partitions[0].start_offset == 15, "nothing is left of the batches"


@pytest.mark.parametrize(
    ("name", "settings", "first_ones"),
    [
        ("locks", {}, range(100)),
        ("locks-by-key", {"headrace_order": "key"}, range(100)),
        ("locks-filtered", {"headrace_filter": "value.n = 1"}, range(1, 200, 2)),
    ],
)
def test_no_more_is_acquired_than_the_limit_of_locks_allows(
    wire: Wire, name: str, settings: dict[str, str], first_ones: range
) -> None:
    topic = create(wire, name, share_partition_max_record_locks="100", **settings)
    for batch in range(4):
        produce(wire, topic, *((b"%d-%d" % (batch, number), b'{"n": %d}' % (number % 2)) for number in range(150)))
    sharer = join(wire, topic)
    given: list[int] = []
    while len(given) < 100:
        given += take(sharer)
    assert take_now(sharer) == []
    assert given == list(first_ones)
    accept(sharer, given[0])
    step = given[1] - given[0]
    assert take(sharer) == [given[-1] + step], "what is finished makes room"


def test_a_filter_over_large_values_leaves_out_nothing(wire: Wire) -> None:
    topic = create(wire, "large-values", headrace_filter="value.n = 1")
    values = [b'{"n": %d, "fill": "%s"}' % (number % 2, b"x" * 100_000) for number in range(40)]
    wire.produce(topic, build_batch([Record(n, 0, None, each) for n, each in enumerate(values)], codec=Codec.ZSTD))
    sharer = join(wire, topic)
    given: list[int] = []
    while len(given) < 20:
        given += take(sharer)
    assert given == list(range(1, 40, 2))


def test_a_match_behind_very_many_others_comes_without_being_asked_for_again(wire: Wire) -> None:
    topic = create(wire, "needle", headrace_filter="key = 'needle'")
    sharer = join(wire, topic)
    assert take_now(sharer) == [], "the group begins"
    hay = [(b"hay", b"%d" % number) for number in range(3000)]
    produce(wire, topic, *hay)
    produce(wire, topic, *hay, (b"needle", b""), *hay, codec=Codec.GZIP)
    assert offsets_in(sharer.fetch(max_wait_ms=PATIENCE_MS)) == [6000]


def test_a_held_record_does_not_stop_what_is_behind_very_many_that_do_not_match(wire: Wire) -> None:
    """What is skipped takes no lock: the limit of locks, 100 here, counts what is delivered."""
    topic = create(wire, "skipped", headrace_filter="key = 'needle'", share_partition_max_record_locks="100")
    hay = [(b"hay", b"")] * 150
    produce(wire, topic, (b"needle", b""), *hay, (b"needle", b""), *hay, (b"needle", b""))
    sharer = join(wire, topic)
    assert take(sharer, max_records=1) == [0]
    assert take(sharer, max_records=1) == [151]
    assert take(sharer, max_records=1) == [302]


def test_a_batch_that_cannot_be_looked_into_is_delivered(wire: Wire) -> None:
    topic = create(wire, "opaque", headrace_filter="value = 'never'")
    produce(wire, topic, (None, b"\0" * (40 << 20)), codec=Codec.ZSTD)  # more than is decompressed
    produce(wire, topic, (None, b"seldom"), (None, b"never"))
    assert take(join(wire, topic)) == [0, 2]


def test_a_malformed_filter_is_refused_with_a_sentence_and_a_good_one_is_shown(wire: Wire) -> None:
    topic = create(wire, "malformed", headrace_filter="key = 'a'")

    def alter(name: str, value: str) -> Any:
        config = AlterableConfig(name=name, config_operation=0, value=value)
        resource = AlterConfigsResource(resource_type=GROUP, resource_name=topic, configs=[config])
        return wire.ask(IncrementalAlterConfigsRequest(resources=[resource])).responses[0]

    refused = alter("headrace.filter", "key = = 1")
    assert error_name(refused.error_code) == "INVALID_CONFIG"
    assert "headrace.filter is invalid: expected a field" in refused.error_message
    assert "at character 7" in refused.error_message
    refused = alter("headrace.order", "backwards")
    assert error_name(refused.error_code) == "INVALID_CONFIG"
    assert "choose of none, key, single" in refused.error_message
    keys = ["headrace.filter", "headrace.order"]
    resource = DescribeConfigsResource(resource_type=GROUP, resource_name=topic, configuration_keys=keys)
    (shown,) = wire.ask(DescribeConfigsRequest(resources=[resource])).results
    assert {each.name: each.value for each in shown.configs} == {
        "headrace.filter": "key = 'a'",
        "headrace.order": "none",
    }
    assert alter("headrace.filter", "").error_code == 0, "and no filter at all"


# --- order by key


def test_records_of_a_key_come_one_after_the_other_and_those_of_others_do_not_wait(
    wire: Wire, other_wire: Wire
) -> None:
    topic = create(wire, "by-key", headrace_order="key")
    produce(wire, topic, (b"a", b"0"), (b"a", b"1"), (b"b", b"2"), (None, b"3"), (None, b"4"), (b"a", b"5"))
    one, two = join(wire, topic), join(other_wire, topic)
    assert take(one) == [0, 2, 3, 4]
    assert take_now(two) == []
    produce(wire, topic, (b"b", b"6"), (b"c", b"7"))
    assert take(two) == [7], "acquiring goes on behind what is kept back"
    accept(one, 3, 4)
    assert take_now(two) == []
    with ThreadPoolExecutor() as pool:
        waiting = pool.submit(take, two, max_wait_ms=PATIENCE_MS)
        accept(one, 0)
        assert waiting.result() == [1], "whoever waits is woken"
    accept(one, 2)
    assert take_now(one) == [6]
    accept(two, 1)
    assert take_now(one) == [5]


def test_a_released_record_comes_again_before_the_next_of_its_key(wire: Wire) -> None:
    topic = create(wire, "released", headrace_order="key")
    produce(wire, topic, *[(b"a", b"%d" % number) for number in range(4)], codec=Codec.LZ4)
    sharer = join(wire, topic)
    assert take(sharer) == [0]
    assert take_now(sharer, (0, 0, [RELEASE])) == [0]
    assert take_now(sharer, (0, 0, [REJECT])) == [1], "what is rejected is done"
    assert take_now(sharer, (1, 1, [ACCEPT])) == [2]
    sharer.fetch(epoch=-1)
    sharer.session_epoch = 0
    assert take(sharer) == [2], "a session that ends releases what it had"
    assert take_now(sharer, (2, 2, [ACCEPT])) == [3]


def test_the_order_can_be_changed_while_records_are_under_way(wire: Wire) -> None:
    topic = create(wire, "changed")
    produce(wire, topic, *[(b"a", b"%d" % number) for number in range(6)])
    sharer = join(wire, topic)
    exactly = {"share_acquire_mode": 1}
    assert take(sharer, max_records=2, **exactly) == [0, 1]
    set_group(wire, topic, headrace_order="key")
    assert take_now(sharer) == []
    accept(sharer, 0)
    assert take_now(sharer) == [], "another of the key is held"
    accept(sharer, 1)
    assert take_now(sharer) == [2]
    set_group(wire, topic, headrace_order="none")
    assert take(sharer) == [3, 4, 5]


# --- priorities


def test_what_is_urgent_comes_first_and_every_member_has_all_levels(wire: Wire, other_wire: Wire) -> None:
    topic = "urgent"
    wire.create(topic, 6, configs={"headrace.queue.priorities": "3"})
    set_group(wire, topic, share_auto_offset_reset="earliest")
    for level in (2, 1, 0, 2, 1, 0):
        for number in range(2):
            wire.produce(topic, batch_of(b"level %d" % level), partition=level + 3 * number)
    one, two = Sharer(wire, topic, topic), Sharer(other_wire, topic, topic)
    two.join()
    for sharer in (one, two):
        (assigned,) = sharer.join().assignment.topic_partitions
        assert sorted(assigned.partitions) == list(range(6))
    everywhere = [
        FetchTopic(
            topic_id=one.topic_id, partitions=[FetchPartition(partition_index=index) for index in reversed(range(6))]
        )
    ]
    given: list[int] = []
    while len(given) < 12:
        answer = one.fetch(topics=everywhere if not given else [], max_records=2, share_acquire_mode=1)
        partitions = [partition for each in answer.responses for partition in each.partitions]
        given += [
            partition.partition_index % 3
            for partition in sorted(partitions, key=lambda each: each.partition_index % 3)
            for run in partition.acquired_records
            for _ in range(run.first_offset, run.last_offset + 1)
        ]
    assert given == sorted(given), "the levels, in order"


# --- a single active member


def test_one_member_has_a_partition_until_it_is_gone(wire: Wire, other_wire: Wire) -> None:
    topic = create(wire, "single", headrace_order="single")
    one, two = join(wire, topic), join(other_wire, topic)
    produce(wire, topic, (None, b"0"), (None, b"1"))
    assert take(one, max_records=1, share_acquire_mode=1) == [0]
    assert take_now(two) == []
    accept(one, 0)
    assert take_now(two) == [], "it is the active one, even if it has nothing"
    assert take(one) == [1]
    produce(wire, topic, (None, b"2"))
    with ThreadPoolExecutor() as pool:
        waiting = pool.submit(take, two, max_wait_ms=PATIENCE_MS)
        one.fetch(epoch=-1)
        assert waiting.result() == [1, 2]
    one.session_epoch = 0
    assert take_now(one) == [], "who comes back waits"


def test_a_member_that_stops_to_fetch_a_partition_hands_it_over(wire: Wire, other_wire: Wire) -> None:
    topic = create(wire, "handed-over", headrace_order="single")
    one, two = join(wire, topic), join(other_wire, topic)
    produce(wire, topic, (None, b"0"))
    assert take(one) == [0]
    assert take_now(two) == []
    one.fetch(max_wait_ms=0, topics=[], forgotten_topics_data=[ForgottenTopic(topic_id=one.topic_id, partitions=[0])])
    produce(wire, topic, (None, b"1"))
    assert take_now(two) == [], "the other one still has a record"
    with ThreadPoolExecutor() as pool:
        waiting = pool.submit(take, two, max_wait_ms=PATIENCE_MS)
        accept(one, 0)
        assert waiting.result() == [1]


def test_a_member_that_is_killed_hands_over(wire: Wire, servers: str) -> None:
    topic = create(wire, "killed", headrace_order="single")
    produce(wire, topic, *[(None, b"%d" % number) for number in range(3)])
    heir = join(wire, topic)
    with ThreadPoolExecutor() as pool:
        with Wire(servers) as doomed:
            assert take(join(doomed, topic)) == [0, 1, 2]
            waiting = pool.submit(take, heir, max_wait_ms=PATIENCE_MS)
        assert waiting.result() == [0, 1, 2]
