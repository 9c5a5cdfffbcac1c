"""Limits on what clients may have of a broker: each is reached, answered as it should be, and counted."""

import socket
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest

from headrace.broker import admission, server
from headrace.broker.config import Address, BrokerConfig, parse_listeners
from headrace.broker.embedded import Broker
from headrace.broker.limits import (
    MAX_CONNECTIONS,
    MAX_FRAME,
    MAX_GROUPS,
    MAX_IN_FLIGHT_IN_ALL,
    MAX_MEMBERS,
    MAX_PARTITIONS_IN_ALL,
    MAX_PER_IP,
    MAX_SHARE_LOCKS,
    MAX_SHARE_PARTITIONS,
    MAX_TOPIC_PARTITIONS,
    MAX_TRANSACTIONAL_IDS,
    PER_IP_OVERRIDES,
    QUEUED_BYTES,
    SHARE_LOCKS_ALWAYS,
    memory_bound,
)
from headrace.broker.runtime import Runtime
from headrace.broker.settings.setting import InvalidSetting
from headrace.protocol.errors import ErrorCode
from headrace.protocol.messages.alter_share_group_offsets import (
    AlterShareGroupOffsetsRequest,
    AlterShareGroupOffsetsRequestPartition,
    AlterShareGroupOffsetsRequestTopic,
    AlterShareGroupOffsetsResponse,
)
from headrace.protocol.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)
from headrace.protocol.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
)
from headrace.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest, CreateTopicsResponse
from headrace.protocol.messages.delete_groups import DeleteGroupsRequest
from headrace.protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from headrace.protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol, JoinGroupResponse
from headrace.protocol.messages.metadata import MetadataRequest, MetadataResponse
from headrace.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from headrace.protocol.messages.share_group_heartbeat import ShareGroupHeartbeatRequest, ShareGroupHeartbeatResponse
from tests.conformance.clients.sharing import ACCEPT, Sharer, set_group
from tests.conformance.clients.wire import Wire as AnyWire
from tests.conformance.clients.wire import batch_of
from tests.integration.cli_runs import run_cli
from tests.integration.waiting import wait_until
from tests.integration.wire import Wire


@contextmanager
def running(**settings: str) -> Iterator[tuple[Broker, Counter[str]]]:
    """A broker with these settings (`_` for `.`), and how often each limit was reached."""
    named = {name.replace("_", "."): value for name, value in settings.items()}
    with Broker(durability="os", settings=named) as broker:
        yield broker, runtime_of(broker).limits.reached


def runtime_of(broker: Broker) -> Runtime:
    runtime = broker._host._server.runtime  # type: ignore[union-attr]
    assert runtime is not None
    return runtime


def connect(broker: Broker) -> socket.socket:
    return socket.create_connection(Address.parse(broker.bootstrap_servers), timeout=60)


def is_served(wire: Wire) -> bool:
    return bool(wire.ask(MetadataRequest(topics=[]), MetadataResponse, 9).brokers)


def is_hung_up_on(sock: socket.socket) -> bool:
    sock.settimeout(60)
    try:
        return sock.recv(1) == b""
    except ConnectionError:
        return True


# --- connections


def test_an_address_has_so_many_connections_and_no_more() -> None:
    with running(max_connections_per_ip="2") as (broker, reached), ExitStack() as opened:
        wires = [opened.enter_context(Wire(broker.bootstrap_servers)) for _ in range(2)]
        assert all(map(is_served, wires))
        assert is_hung_up_on(opened.enter_context(connect(broker)))
        assert reached == {MAX_PER_IP: 1}
        wires[0].socket.close()
        wait_until(lambda: _lets_in(broker), "the place of one that left is not given to another")
        assert is_served(wires[1])


def _lets_in(broker: Broker) -> bool:
    with Wire(broker.bootstrap_servers) as wire:
        try:
            return is_served(wire)
        except ConnectionError:
            return False


def test_an_address_may_have_a_number_of_its_own() -> None:
    overrides = {"max.connections.per.ip.overrides": "127.0.0.1:3,::1:1"}
    with (
        Broker(durability="os", settings={"max.connections.per.ip": "0"} | overrides) as broker,
        ExitStack() as opened,
    ):
        assert all(is_served(opened.enter_context(Wire(broker.bootstrap_servers))) for _ in range(3))
        assert is_hung_up_on(opened.enter_context(connect(broker)))
    with pytest.raises(InvalidSetting, match=r"'10\.0\.0\.7' is not ADDRESS:COUNT"):
        Broker(settings={PER_IP_OVERRIDES: "10.0.0.7"}).start()


def test_silent_connections_make_room_for_new_ones_and_busy_ones_do_not(monkeypatch: pytest.MonkeyPatch) -> None:
    with running(max_connections="3") as (broker, reached), ExitStack() as opened:
        polling, recent, silent = (opened.enter_context(Wire(broker.bootstrap_servers)) for _ in range(3))
        silent.create("orders")
        polling.send(polling.fetch_request("orders", 0, wait_ms=600_000), 12)
        assert all(map(is_served, (silent, recent)))
        wait_until(lambda: len(runtime_of(broker).waiting) == 1, "the fetch does not wait")
        late = opened.enter_context(Wire(broker.bootstrap_servers))  # waits in the listener's queue
        late.send(MetadataRequest(topics=[]), 9)
        wait_until(lambda: reached[MAX_CONNECTIONS] > 0, "the limit is not counted")
        assert is_served(silent)  # nobody was silent for long enough
        assert is_served(recent)
        monkeypatch.setattr(server, "_SILENT_S", 0.0)
        assert late.receive(MetadataResponse, 9)[1].brokers
        assert is_hung_up_on(silent.socket)
        assert is_served(recent)
        assert len(runtime_of(broker).waiting) == 1  # the one that waits for an answer is still there


def test_a_listener_has_a_number_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "_SILENT_S", 0.0)
    settings = {"listener.security.protocol.map": "INNER:PLAINTEXT", "listener.name.inner.max.connections": "1"}
    with (
        Broker(listen=["127.0.0.1:0", "INNER://127.0.0.1:0"], durability="os", settings=settings) as broker,
        ExitStack() as opened,
    ):
        outer, inner = broker.bootstrap_servers.split(",")
        others = [opened.enter_context(Wire(outer)) for _ in range(3)]
        first = opened.enter_context(Wire(inner))
        assert all(map(is_served, (*others, first)))
        assert is_served(opened.enter_context(Wire(inner)))
        assert is_hung_up_on(first.socket)
        assert all(map(is_served, others))


def test_who_asks_for_nothing_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(admission, "_FIRST_REQUEST_S", 0.2)
    with running(socket_connection_setup_timeout_ms="200") as (broker, _), connect(broker) as silent:
        assert is_hung_up_on(silent)


# --- what is kept


def create(wire: Wire, name: str, partitions: int) -> tuple[int, str | None]:
    topic = CreatableTopic(name=name, num_partitions=partitions, replication_factor=1)
    (result,) = wire.ask(CreateTopicsRequest(topics=[topic], timeout_ms=60_000), CreateTopicsResponse, 7).topics
    return result.error_code, result.error_message


def test_partitions_of_a_topic_and_of_all() -> None:
    with (
        running(max_partitions_per_topic="5", max_partitions="8") as (broker, reached),
        Wire(broker.bootstrap_servers) as wire,
    ):
        assert create(wire, "wide", 6) == (
            ErrorCode.INVALID_PARTITIONS,
            "6 partitions for wide: max.partitions.per.topic=5 allows no more",
        )
        assert create(wire, "one", 5)[0] == 0
        assert create(wire, "two", 4) == (
            ErrorCode.POLICY_VIOLATION,
            "4 partitions for two: max.partitions=8 allows no more",
        )
        assert create(wire, "two", 3)[0] == 0
        more = CreatePartitionsTopic(name="two", count=4, assignments=None)
        (grown,) = wire.ask(CreatePartitionsRequest(topics=[more]), CreatePartitionsResponse, 3).results
        assert grown.error_code == ErrorCode.POLICY_VIOLATION
        assert reached == {MAX_TOPIC_PARTITIONS: 1, MAX_PARTITIONS_IN_ALL: 2}


def test_groups_and_members() -> None:
    protocols = [JoinGroupRequestProtocol(name="range", metadata=b"")]
    join = JoinGroupRequest(session_timeout_ms=30_000, rebalance_timeout_ms=30_000, member_id="")
    join.protocol_type, join.protocols = "consumer", protocols
    asked = OffsetCommitRequestPartition(partition_index=0, committed_offset=1)
    commit = OffsetCommitRequest(generation_id_or_member_epoch=-1, member_id="")
    commit.topics = [OffsetCommitRequestTopic(name="orders", partitions=[asked])]

    def commit_for(wire: Wire, group: str) -> int:
        commit.group_id = group
        return wire.ask(commit, OffsetCommitResponse, 8).topics[0].partitions[0].error_code

    def join_to(wire: Wire, group: str) -> int:
        join.group_id = group
        return wire.ask(join, JoinGroupResponse, 5).error_code

    settings = {"max_groups": "3", "max_group_members": "2", "group_initial_rebalance_delay_ms": "0"}
    with running(**settings) as (broker, reached), Wire(broker.bootstrap_servers) as wire:
        wire.create("orders")
        assert [commit_for(wire, group) for group in ("a", "b")] == [0, 0]
        # A member is given its id, which it joins with: it counts from then on.
        assert [join_to(wire, group) for group in ("c", "c")] == [ErrorCode.MEMBER_ID_REQUIRED] * 2
        assert join_to(wire, "c") == ErrorCode.GROUP_MAX_SIZE_REACHED
        beat = ConsumerGroupHeartbeatRequest(group_id="a", member_id="m", member_epoch=0, rebalance_timeout_ms=30_000)
        beat.subscribed_topic_names, beat.topic_partitions = ["orders"], []
        refused = wire.ask(beat, ConsumerGroupHeartbeatResponse, 0)
        assert (refused.error_code, refused.error_message) == (
            ErrorCode.GROUP_MAX_SIZE_REACHED,
            "max.group.members=2 allows no more members",
        )
        assert reached == {MAX_MEMBERS: 2}
        assert commit_for(wire, "d") == ErrorCode.POLICY_VIOLATION
        assert join_to(wire, "d") == ErrorCode.GROUP_MAX_SIZE_REACHED
        share = ShareGroupHeartbeatRequest(
            group_id="d", member_id="m", member_epoch=0, subscribed_topic_names=["orders"]
        )
        assert wire.ask(share, ShareGroupHeartbeatResponse, 1).error_code == ErrorCode.GROUP_MAX_SIZE_REACHED
        alter = AlterShareGroupOffsetsRequest(group_id="d")
        assert wire.ask(alter, AlterShareGroupOffsetsResponse, 0).error_code == ErrorCode.POLICY_VIOLATION
        assert commit_for(wire, "a") == 0  # those that are there go on
        assert reached == {MAX_MEMBERS: 2, MAX_GROUPS: 4}


def test_transactional_ids() -> None:
    def begin(wire: Wire, name: str | None) -> int:
        request = InitProducerIdRequest(transactional_id=name, transaction_timeout_ms=60_000)
        return wire.ask(request, InitProducerIdResponse, 4).error_code

    with running(max_transactional_ids="2") as (broker, reached), Wire(broker.bootstrap_servers) as wire:
        assert [begin(wire, name) for name in ("a", "b")] == [0, 0]
        assert begin(wire, "c") == ErrorCode.POLICY_VIOLATION
        assert [begin(wire, name) for name in ("a", None)] == [0, 0]
        assert reached == {MAX_TRANSACTIONAL_IDS: 1}


def join_share_group(wire: AnyWire, group: str, topic: str) -> Sharer:
    set_group(wire, group, share_auto_offset_reset="earliest")
    sharer = Sharer(wire, group, topic)
    sharer.join()
    return sharer


def offsets_of(answer: Any) -> list[int]:
    """What was acquired of the one partition that was asked for."""
    return [
        offset
        for topic in answer.responses
        for partition in topic.partitions
        for run in partition.acquired_records
        for offset in range(run.first_offset, run.last_offset + 1)
    ]


def test_partitions_of_share_groups() -> None:
    with running(max_share_partitions="2") as (broker, reached), AnyWire(broker.bootstrap_servers) as wire:
        wire.create("orders", 2)
        wire.create("bills", 1)
        for index in range(2):
            wire.produce("orders", batch_of(b"a"), partition=index)
        wire.produce("bills", batch_of(b"a"))
        first = join_share_group(wire, "first", "orders")
        assert [offsets_of(first.fetch_some(partition=index)) for index in range(2)] == [[0], [0]]
        second = join_share_group(wire, "second", "bills")
        (refused,) = second.fetch().responses[0].partitions
        assert (refused.error_code, refused.error_message) == (
            ErrorCode.POLICY_VIOLATION,
            "a share group begins with partitions: max.share.partitions=2 allows no more",
        )
        assert reached == {MAX_SHARE_PARTITIONS: 1}
        # Those that have begun go on; and whoever makes room lets others begin.
        assert first.acknowledge((0, 0, [ACCEPT])).responses[0].partitions[0].error_code == 0
        second.beat(-1)
        third = AlterShareGroupOffsetsRequest(group_id="second")
        asked = AlterShareGroupOffsetsRequestPartition(partition_index=0, start_offset=1)
        third.topics = [AlterShareGroupOffsetsRequestTopic(topic_name="bills", partitions=[asked])]
        assert wire.ask(third).error_code == ErrorCode.POLICY_VIOLATION
        first.beat(-1)
        assert wire.ask(DeleteGroupsRequest(groups_names=["first"])).results[0].error_code == 0
        again = join_share_group(wire, "second", "bills")
        assert offsets_of(again.fetch_some()) == [0]


def test_records_of_share_groups_that_are_under_way() -> None:
    """Whoever comes when others have all has a few at a time, and more as soon as those finish some."""
    with running(max_share_record_locks="10") as (broker, reached), AnyWire(broker.bootstrap_servers) as wire:
        for topic in ("orders", "bills"):
            wire.create(topic, 1)
            for _ in range(20):
                wire.produce(topic, batch_of(b"a"))
        first, second = (join_share_group(wire, topic, topic) for topic in ("orders", "bills"))
        assert offsets_of(first.fetch_some()) == list(range(10))
        assert offsets_of(first.fetch(max_wait_ms=0)) == []
        few = offsets_of(second.fetch_some())
        assert few == list(range(SHARE_LOCKS_ALWAYS))
        assert offsets_of(second.fetch(max_wait_ms=0)) == []
        assert set(reached) == {MAX_SHARE_LOCKS}
        assert first.acknowledge((0, 9, [ACCEPT])).responses[0].partitions[0].error_code == 0
        assert offsets_of(second.fetch(max_wait_ms=0)) == list(range(SHARE_LOCKS_ALWAYS, 10))
        # What is acknowledged here and there frees nothing in front of it, and is counted all the same.
        assert second.acknowledge((3, 9, [ACCEPT])).responses[0].partitions[0].error_code == 0
        assert offsets_of(second.fetch(max_wait_ms=0)) == []
        assert second.acknowledge((0, 2, [ACCEPT])).responses[0].partitions[0].error_code == 0
        assert offsets_of(second.fetch(max_wait_ms=0)) == list(range(10, 20))
        assert runtime_of(broker).shares.coordinator.under_way == 10


def test_a_group_of_the_new_kind_has_so_many_members() -> None:
    with running(group_consumer_max_size="1") as (broker, _), Wire(broker.bootstrap_servers) as wire:
        wire.create("orders")
        beat = ConsumerGroupHeartbeatRequest(group_id="g", member_epoch=0, rebalance_timeout_ms=30_000)
        beat.subscribed_topic_names, beat.topic_partitions = ["orders"], []
        errors = []
        for beat.member_id in ("m", "n"):
            errors.append(wire.ask(beat, ConsumerGroupHeartbeatResponse, 1).error_code)
        assert errors == [0, ErrorCode.GROUP_MAX_SIZE_REACHED]


# --- the bound


@pytest.mark.parametrize(
    ("name", "low", "high"),
    [
        (MAX_CONNECTIONS, 100, 200),
        (MAX_FRAME, 1_000_000, 2_000_000),
        (QUEUED_BYTES, 1_000_000, 2_000_000),
        (MAX_IN_FLIGHT_IN_ALL, 100, 200),
        (MAX_PARTITIONS_IN_ALL, 100, 200),
        (MAX_GROUPS, 100, 200),
        (MAX_MEMBERS, 100, 200),
        (MAX_TRANSACTIONAL_IDS, 100, 200),
    ],
)
def test_the_bound_follows_its_settings(name: str, low: int, high: int) -> None:
    bound: Callable[[int], int] = lambda value: sum(  # noqa: E731
        term.bytes for term in memory_bound(BrokerConfig("data", settings={name: str(value)}))
    )
    assert bound(low) < bound(high)
    assert any(name in term.formula for term in memory_bound(BrokerConfig("data")))


def test_the_page_has_the_formula_that_is_computed() -> None:
    page = (Path(__file__).parents[2] / "docs/reference/limits.md").read_text().replace("`", "")
    for term in memory_bound(BrokerConfig("data")):
        assert f"| {term.what} | {term.formula}" in page
    tls = memory_bound(BrokerConfig("data", parse_listeners(["SSL://127.0.0.1:0"])))
    assert "with TLS " + tls[1].formula.rpartition("× ")[2] in page


def test_a_check_shows_the_bound_and_starts_nothing(tmp_path: Path) -> None:
    folder = tmp_path / "data"
    arguments = ("broker", "start", "--data-dir", str(folder), "--check", "--set", "max.connections=7")
    shown = run_cli(*arguments, "--json")
    terms = memory_bound(BrokerConfig("data", settings={MAX_CONNECTIONS: "7"}))
    assert shown.json["memory_bound_bytes"] == sum(term.bytes for term in terms)
    assert "max.connections" in run_cli(*arguments).out
    assert not folder.exists()
