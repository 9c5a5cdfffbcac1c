"""Kafka's own tool reads our `__consumer_offsets` and `__transaction_state`, with the decoders of its coordinators.

What it shows is what clients have said: groups of both kinds with their members and assignments, committed offsets,
and every state that a transaction went through.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

import pytest

from headrace import Broker
from headrace.coordinator.decision import CoordinatorRecord
from headrace.coordinator.group.consumer.embedded import EmbeddedAssignment, EmbeddedSubscription, NamedPartitions
from headrace.coordinator.group.record_formats import ConsumerGroupMemberMetadataKey, ConsumerGroupMemberMetadataValue
from headrace.coordinator.group.records import decode, encode
from headrace.protocol import codec
from headrace.protocol.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)
from headrace.protocol.messages.delete_groups import DeleteGroupsRequest, DeleteGroupsResponse
from headrace.protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol, JoinGroupResponse
from headrace.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from headrace.protocol.messages.shared import Endpoint, KeyValue
from headrace.protocol.messages.streams_group_heartbeat import (
    StreamsGroupHeartbeatRequest,
    StreamsGroupHeartbeatResponse,
)
from headrace.protocol.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment, SyncGroupResponse
from peers.kafka.tools import dump_files
from tests.conformance.clients.sharing import ACCEPT, REJECT, RELEASE, Sharer, set_group
from tests.conformance.clients.wire import Wire as Client
from tests.conformance.clients.wire import batch_of
from tests.integration.transaction_wire import NEW, OLD, WireProducer, is_stable
from tests.integration.waiting import wait_until
from tests.integration.wire import Wire
from tests.unit.coordinator.group_streams.harness import word_count

pytestmark = pytest.mark.java

SETTINGS = {
    "group.initial.rebalance.delay.ms": "0",
    "group.streams.initial.rebalance.delay.ms": "0",
    "offsets.topic.num.partitions": "3",
    "transaction.state.log.num.partitions": "2",
}
# The types of the records: what Kafka calls the api keys of its coordinators' records.
OFFSET, CLASSIC_GROUP, GROUP, MEMBER, TARGET, TARGET_OF_MEMBER, CURRENT = "1", "2", "3", "5", "6", "7", "8"
STREAMS = {"group": "17", "member": "19", "target": "20", "target of member": "21", "current": "22", "topology": "23"}
SHARING = {"10", "11", "12", "13", "14", "15"}  # those of share groups
EMPTY, ONGOING, PREPARE_COMMIT, PREPARE_ABORT, COMPLETE_COMMIT, COMPLETE_ABORT = range(6)
SUBSCRIPTION = b"\0\1" + codec.encode(EmbeddedSubscription(topics=["orders"]), 1)


@dataclass
class Shown:
    """What the tool shows of an internal topic: every record with its key and, None if it removes, its value."""

    complaints: list[str]
    records: list[tuple[str, dict, dict | None]]

    def of(self, kind: str, **key: object) -> list[dict | None]:
        return [value for type_, found, value in self.records if type_ == kind and key.items() <= found.items()]


@dataclass
class Written:
    """What clients were told, and what the tool says."""

    classic_id: str
    voice_id: str
    offsets: Shown
    transactions: Shown
    shares: Shown


def _commit(wire: Wire, group: str, member_id: str, generation: int, offset: int, metadata: str) -> None:
    asked = OffsetCommitRequestPartition(
        partition_index=1, committed_offset=offset, committed_leader_epoch=0, committed_metadata=metadata
    )
    request = OffsetCommitRequest(
        group_id=group,
        generation_id_or_member_epoch=generation,
        member_id=member_id,
        topics=[OffsetCommitRequestTopic(name="orders", partitions=[asked])],
    )
    answer = wire.ask(request, OffsetCommitResponse, 9)
    assert answer.topics[0].partitions[0].error_code == 0, answer


def _join(wire: Wire, group: str) -> JoinGroupResponse:
    def request(member_id: str) -> JoinGroupRequest:
        return JoinGroupRequest(
            group_id=group,
            session_timeout_ms=10_000,
            rebalance_timeout_ms=20_000,
            member_id=member_id,
            protocol_type="consumer",
            protocols=[JoinGroupRequestProtocol(name="range", metadata=SUBSCRIPTION)],
        )

    named = wire.ask(request(""), JoinGroupResponse, 9)
    joined = wire.ask(request(named.member_id), JoinGroupResponse, 9)
    assert joined.error_code == 0, joined
    return joined


def _be_a_classic_member(wire: Wire, group: str) -> str:
    joined = _join(wire, group)
    everything = EmbeddedAssignment(assigned_partitions=[NamedPartitions(topic="orders", partitions=[0, 1])])
    synced = wire.ask(
        SyncGroupRequest(
            group_id=group,
            generation_id=joined.generation_id,
            member_id=joined.member_id,
            protocol_type="consumer",
            protocol_name="range",
            assignments=[
                SyncGroupRequestAssignment(member_id=joined.member_id, assignment=b"\0\1" + codec.encode(everything, 1))
            ],
        ),
        SyncGroupResponse,
        5,
    )
    assert synced.error_code == 0, synced
    _commit(wire, group, joined.member_id, joined.generation_id, 42, "half way")
    return joined.member_id


def _beat(wire: Wire, group: str, member_id: str, epoch: int, **fields: object) -> ConsumerGroupHeartbeatResponse:
    request = ConsumerGroupHeartbeatRequest(group_id=group, member_id=member_id, member_epoch=epoch, **fields)
    answer = wire.ask(request, ConsumerGroupHeartbeatResponse, 1)
    assert answer.error_code == 0, answer
    return answer


def _be_a_consumer(wire: Wire, group: str, member_id: str, **fields: object) -> ConsumerGroupHeartbeatResponse:
    return _beat(
        wire,
        group,
        member_id,
        0,
        rebalance_timeout_ms=5000,
        subscribed_topic_names=["orders"],
        topic_partitions=[],
        **fields,
    )


def _run_an_application(wire: Wire, group: str) -> None:
    """An application whose two members share the tasks; one of them leaves."""
    for member_id in ("one", "two"):
        request = StreamsGroupHeartbeatRequest(
            group_id=group,
            member_id=member_id,
            rebalance_timeout_ms=5000,
            topology=word_count("orders"),
            process_id=f"process {member_id}",
            user_endpoint=Endpoint(host="there", port=65_535),
            client_tags=[KeyValue(key="zone", value="a")],
            active_tasks=[],
            standby_tasks=[],
            warmup_tasks=[],
        )
        assert wire.ask(request, StreamsGroupHeartbeatResponse, 0).error_code == 0
    for member_id, epoch in (("one", 2), ("two", -1)):
        request = StreamsGroupHeartbeatRequest(group_id=group, member_id=member_id, member_epoch=epoch)
        assert wire.ask(request, StreamsGroupHeartbeatResponse, 0).error_code == 0


def _transact(wire: Wire) -> None:
    payer = WireProducer(wire, "payer", version=NEW)
    assert payer.send("orders", b"paid") == 0
    assert payer.commit_offset("payers", "orders", 7) == 0
    assert payer.end(committed=True) == 0
    waverer = WireProducer(wire, "waverer", version=OLD, timeout_ms=30_000)
    assert waverer.send("orders", b"no", partition=1) == 0
    assert waverer.end(committed=False) == 0
    wait_until(lambda: all(is_stable(wire, "orders", n) for n in (0, 1)), "the transactions did not end")
    # Its markers are there, and only then is it complete: the next one of the same id waits for that.
    WireProducer(wire, "waverer", version=OLD, timeout_ms=30_000)
    sleeper = WireProducer(wire, "sleeper", version=OLD)
    assert sleeper.send("orders", b"...", partition=1) == 0
    assert sleeper.commit_offset("payers", "orders", 9) == 0


def _share(servers: str) -> None:
    """Accept some records of a share group, release and reject others."""
    with Client(servers) as client:
        client.create("jobs")
        client.produce("jobs", batch_of(*(b"%d" % number for number in range(6))))
        set_group(client, "sharers", share_auto_offset_reset="earliest")
        sharer = Sharer(client, "sharers", "jobs")
        sharer.join()
        sharer.fetch_some()
        told = sharer.acknowledge((0, 5, [ACCEPT, ACCEPT, RELEASE, REJECT, RELEASE, ACCEPT]))
        assert told.error_code == 0, told


def _show(data: Path, topic: str, decoder: str) -> Shown:
    shown = Shown([], [])
    for path, dump in dump_files(sorted(data.glob(f"{topic}-*/*.log")), options=(decoder,)).items():
        shown.complaints += [f"{path}: {complaint}" for complaint in dump.complaints]
        for record in dump.records:
            if record.end_transaction is None:
                if not (record.key or "").startswith("{"):
                    shown.complaints.append(f"{path}: {record.key}")
                    continue
                key = json.loads(record.key)
                value = json.loads(record.value) if record.value_size_bytes >= 0 else None
                shown.records.append((key["type"], key["data"], value and value["data"]))
    return shown


@pytest.fixture(scope="module")
def written(kafka_jars, tmp_path_factory) -> Written:
    data = tmp_path_factory.mktemp("internal") / "data"
    with Broker(data, settings=SETTINGS) as broker, Wire(broker.bootstrap_servers) as wire:
        wire.create("orders", 2)
        classic_id = _be_a_classic_member(wire, "readers")
        told = _be_a_consumer(wire, "modern", "first")
        _commit(wire, "modern", "first", told.member_epoch, 5, "from the new kind")
        _be_a_consumer(wire, "leavers", "gone", instance_id="one", server_assignor="range")
        _beat(wire, "leavers", "gone", -1, instance_id="one")
        _be_a_consumer(wire, "mixed", "first")
        voice_id = _join(wire, "mixed").member_id
        _run_an_application(wire, "counters")
        _commit(wire, "deleted", "", -1, 3, "")
        deleted = wire.ask(DeleteGroupsRequest(groups_names=["deleted"]), DeleteGroupsResponse, 2)
        assert deleted.results[0].error_code == 0, deleted
        _transact(wire)
        _share(broker.bootstrap_servers)
    return Written(
        classic_id,
        voice_id,
        _show(data, "__consumer_offsets", "--offsets-decoder"),
        _show(data, "__transaction_state", "--transaction-log-decoder"),
        _show(data, "__share_group_state", "--share-group-state-decoder"),
    )


def test_kafkas_decoders_read_every_record(written):
    assert written.offsets.complaints == []
    assert written.transactions.complaints == []
    kinds = {kind for kind, key, _ in written.offsets.records if key.get("groupId") != "sharers"}
    assert {kind for kind, key, _ in written.offsets.records if key.get("groupId") == "sharers"} == SHARING
    assert kinds == {
        OFFSET,
        CLASSIC_GROUP,
        GROUP,
        MEMBER,
        TARGET,
        TARGET_OF_MEMBER,
        CURRENT,
        *STREAMS.values(),
    }


def test_a_streams_group_is_shown_with_its_topology_and_its_members(written):
    shown = written.offsets
    groups = shown.of(STREAMS["group"], groupId="counters")
    assert [group["epoch"] for group in groups] == sorted({group["epoch"] for group in groups})
    assert groups[-1]["lastAssignmentConfigs"] == [{"key": "num.standby.replicas", "value": "0"}]
    assert groups[-1]["validatedTopologyEpoch"] == 0
    (topology,) = shown.of(STREAMS["topology"], groupId="counters")
    split, count = topology["subtopologies"]
    assert (split["sourceTopics"], split["repartitionSinkTopics"]) == (["orders"], ["words"])
    assert [topic["name"] for topic in count["stateChangelogTopics"]] == ["counts"]
    (member,) = shown.of(STREAMS["member"], groupId="counters", memberId="one")
    assert (member["processId"], member["userEndpoint"]) == ("process one", {"host": "there", "port": 65_535})
    assert member["clientTags"] == [{"key": "zone", "value": "a"}]
    current = shown.of(STREAMS["current"], groupId="counters", memberId="one")[-1]
    held = {task["subtopologyId"]: task["partitions"] for task in current["activeTasks"]}
    target = shown.of(STREAMS["target of member"], groupId="counters", memberId="one")[-1]
    assert held == {task["subtopologyId"]: task["partitions"] for task in target["activeTasks"]}
    assert (current["state"], current["activeTasks"][0]["assignmentEpochs"]) == (1, [current["memberEpoch"]])
    for kind in ("member", "target of member", "current"):
        assert shown.of(STREAMS[kind], groupId="counters", memberId="two")[-1] is None


def test_committed_offsets_are_shown(written):
    def commits(group: str) -> list:
        values = written.offsets.of(OFFSET, group=group)
        return [value and (value["offset"], value["leaderEpoch"], value["metadata"]) for value in values]

    assert commits("readers") == [(42, 0, "half way")]
    assert commits("modern") == [(5, 0, "from the new kind")]
    assert commits("payers") == [(7, -1, "kept"), (9, -1, "kept")]
    assert commits("deleted") == [(3, 0, ""), None]


def test_a_classic_group_is_shown_with_its_assignment(written):
    group = written.offsets.of(CLASSIC_GROUP, group="readers")[-1]
    assert (group["protocolType"], group["generation"], group["protocol"]) == ("consumer", 1, "range")
    assert group["leader"] == written.classic_id
    (member,) = group["members"]
    assert member["memberId"] == written.classic_id
    assert (member["clientHost"], member["sessionTimeout"], member["rebalanceTimeout"]) == ("/127.0.0.1", 10000, 20000)
    assert member["subscription"]["topics"] == ["orders"]
    assert member["assignment"]["assignedPartitions"] == [{"topic": "orders", "partitions": [0, 1]}]


def test_a_consumer_group_is_shown_with_its_member(written):
    shown = written.offsets
    assert [group["epoch"] for group in shown.of(GROUP, groupId="modern")] == [1]
    (member,) = shown.of(MEMBER, groupId="modern", memberId="first")
    assert member["subscribedTopicNames"] == ["orders"]
    assert member["rebalanceTimeoutMs"] == 5000
    assert member["classicMemberMetadata"] is None, "it would be taken for one that speaks the classic protocol"
    (target,) = shown.of(TARGET_OF_MEMBER, groupId="modern", memberId="first")
    (assigned,) = target["topicPartitions"]
    assert assigned["partitions"] == [0, 1]
    current = shown.of(CURRENT, groupId="modern", memberId="first")[-1]
    assert (current["memberEpoch"], current["state"]) == (1, 0)
    assert current["assignedPartitions"][0]["topicId"] == assigned["topicId"]


def test_a_member_that_left_is_shown_as_removed(written):
    shown = written.offsets
    (member, gone) = shown.of(MEMBER, groupId="leavers", memberId="gone")
    assert (member["instanceId"], member["serverAssignor"], gone) == ("one", "range", None)
    for kind in (TARGET_OF_MEMBER, CURRENT):
        assert shown.of(kind, groupId="leavers", memberId="gone")[-1] is None
    assert shown.of(GROUP, groupId="leavers")[-1]["epoch"] > 1


def test_a_classic_member_among_consumers_is_shown_with_its_protocols(written):
    member = written.offsets.of(MEMBER, groupId="mixed", memberId=written.voice_id)[-1]
    classic = member["classicMemberMetadata"]
    assert classic["sessionTimeoutMs"] == 10_000
    assert [protocol["name"] for protocol in classic["supportedProtocols"]] == ["range"]


def test_a_member_record_of_kafkas_is_read():
    """Null in a tagged struct is a varint 0 to Kafka; earlier versions of ours wrote the -1 of other structs."""
    key, value = encode(
        CoordinatorRecord(
            ConsumerGroupMemberMetadataKey(group_id="g", member_id="m"), ConsumerGroupMemberMetadataValue()
        )
    )
    assert value.endswith(b"\x01\x00\x01\x00")  # one tag, number 0, one byte, null
    for null in (b"\x00", b"\xff"):
        assert decode(key, value[:-1] + null).value.classic_member_metadata is None


def test_the_states_of_transactions_are_shown(written):
    def states(name: str) -> list[int]:
        return [value["transactionStatus"] for value in written.transactions.of("0", transactionalId=name)]

    assert states("payer") == [EMPTY, ONGOING, ONGOING, PREPARE_COMMIT, COMPLETE_COMMIT]
    assert states("waverer") == [EMPTY, ONGOING, PREPARE_ABORT, COMPLETE_ABORT, EMPTY]
    assert states("sleeper") == [EMPTY, ONGOING, ONGOING]


def test_what_a_transaction_holds_is_shown(written):
    *_, prepared, complete = written.transactions.of("0", transactionalId="payer")
    held = {each["topic"]: each["partitionIds"] for each in prepared["transactionPartitions"]}
    assert held["orders"] == [0]
    assert len(held["__consumer_offsets"]) == 1
    assert complete["transactionPartitions"] == []
    assert complete["clientTransactionVersion"] == 2
    assert complete["producerEpoch"] == 1, "the end of a transaction moves the epoch on (KIP-890)"
    ongoing = written.transactions.of("0", transactionalId="sleeper")[-1]
    assert ongoing["transactionStartTimestampMs"] > 0
    assert written.transactions.of("0", transactionalId="waverer")[0]["transactionTimeoutMs"] == 30_000


def test_the_state_of_a_share_group_is_shown(written):
    assert written.shares.complaints == []
    (_, where, begun), (_, _, update) = written.shares.records
    assert (where["groupId"], where["partition"]) == ("sharers", 0)
    assert (begun["snapshotEpoch"], begun["startOffset"], begun["stateBatches"]) == (0, 0, [])
    assert (update["snapshotEpoch"], update["startOffset"], update["deliveryCompleteCount"]) == (0, 2, 2)
    batches = [
        (batch["firstOffset"], batch["lastOffset"], batch["deliveryState"], batch["deliveryCount"])
        for batch in update["stateBatches"]
    ]
    assert batches == [(2, 2, 0, 1), (3, 3, 4, 1), (4, 4, 0, 1), (5, 5, 2, 1)]
