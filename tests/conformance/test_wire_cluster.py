"""What a broker says of itself: its APIs and versions, its cluster, its disks; and what it does with nonsense."""

from __future__ import annotations

import struct

import pytest

from headrace.protocol.api import APIS, ApiKey
from headrace.protocol.frame import decode_response
from headrace.protocol.messages.add_raft_voter import AddRaftVoterRequest
from headrace.protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from headrace.protocol.messages.alter_replica_log_dirs import (
    AlterReplicaLogDir,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirTopic,
)
from headrace.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from headrace.protocol.messages.create_acls import AclCreation, CreateAclsRequest
from headrace.protocol.messages.delete_acls import DeleteAclsFilter, DeleteAclsRequest
from headrace.protocol.messages.describe_acls import DescribeAclsRequest
from headrace.protocol.messages.describe_cluster import DescribeClusterRequest
from headrace.protocol.messages.describe_log_dirs import DescribeLogDirsRequest
from headrace.protocol.messages.describe_quorum import DescribeQuorumRequest, QuorumPartition, QuorumTopic
from headrace.protocol.messages.elect_leaders import ElectLeadersRequest
from headrace.protocol.messages.find_coordinator import FindCoordinatorRequest
from headrace.protocol.messages.list_partition_reassignments import ListPartitionReassignmentsRequest
from headrace.protocol.messages.metadata import MetadataRequest
from headrace.protocol.messages.remove_raft_voter import RemoveRaftVoterRequest
from headrace.protocol.messages.shared import Listener, TopicIndexes, TopicPartitions
from headrace.protocol.messages.unregister_broker import UnregisterBrokerRequest
from headrace.protocol.messages.update_features import FeatureUpdateKey, UpdateFeaturesRequest
from tests.conformance.clients.wire import Wire, batch_of, error_name, plain

pytestmark = pytest.mark.java


def announced(wire, topic):
    """Every API with its versions, and the error to a version that is not there yet."""
    told = {}
    for version in range(5):
        request = ApiVersionsRequest(client_software_name="wire", client_software_version="1")
        response = wire.ask(request, version)
        told[f"version {version}"] = {
            "error": error_name(response.error_code),
            "apis": {_api_name(each.api_key): [each.min_version, each.max_version] for each in response.api_keys},
        }
    return told


def _api_name(key: int) -> str:
    return APIS[key].key.name if key in APIS else f"api {key}"


def test_announced(brokers):
    told = brokers.compare(announced, Wire)
    assert told["version 4"]["apis"]["PRODUCE"] == [0, 13]


def named_badly(wire, topic):
    """A client that names itself in a way that is not allowed (KIP-511), and versions from the future."""

    def ask(name, software_version):
        request = ApiVersionsRequest(client_software_name=name, client_software_version=software_version)
        response = wire.ask(request, 3)
        return error_name(response.error_code), len(response.api_keys) > 0

    def future(version):
        wire.send_bytes(struct.pack(">ihhih4sbb", 16, ApiKey.API_VERSIONS, version, 77, 4, b"wire", 0, 0))
        header, body = decode_response(ApiVersionsResponse, 0, wire.receive())
        versions = {each.api_key: (each.min_version, each.max_version) for each in body.api_keys}
        return header.correlation_id, error_name(body.error_code), versions.get(ApiKey.API_VERSIONS)

    return {
        "good": ask("wire", "1.0-rc.2"),
        "empty name": ask("", "1"),
        "empty version": ask("wire", ""),
        "spaces": ask("my client", "1"),
        "ends in a dash": ask("wire-", "1"),
        "version 5": future(5),
        "version 99": future(99),
    }


def test_named_badly(brokers):
    told = brokers.compare(named_badly, Wire)
    assert told["version 99"][:2] == (77, "UNSUPPORTED_VERSION")


def nonsense(wire, topic):
    """Whatever is no request closes the connection, and harms nobody else."""

    def send(data):
        wire.reconnect()
        wire.send_bytes(data)
        try:
            return f"{len(wire.receive())} bytes"
        except OSError as error:
            return str(error)

    def request(key, version, body=b""):
        header = struct.pack(">hhih", key, version, 5, -1)
        return struct.pack(">i", len(header) + len(body)) + header + body

    with Wire(wire.servers) as neighbour:
        told = {
            "http": send(b"GET / HTTP/1.1\r\nHost: broker\r\n\r\n"),
            "negative size": send(struct.pack(">i", -5)),
            "huge size": send(struct.pack(">i", 2**31 - 1)),
            "empty frame": send(struct.pack(">i", 0)),
            "unknown api": send(request(999, 0)),
            "negative api": send(request(-1, 0)),
            "unknown version of metadata": send(request(ApiKey.METADATA, 99)),
            "version of produce that is gone": send(request(ApiKey.PRODUCE, 2, b"\0" * 20)),
            "version of fetch that is gone": send(request(ApiKey.FETCH, 3, b"\0" * 30)),
            "body cut short": send(request(ApiKey.METADATA, 1, b"\0\0\0\5\0")),
            "negative array": send(request(ApiKey.CREATE_TOPICS, 2, struct.pack(">i", -7) + b"\0" * 9)),
            "neighbour": error_name(neighbour.ask(MetadataRequest(topics=[])).error_code),
        }
    wire.reconnect()
    return told


def test_nonsense(brokers):
    brokers.compare(nonsense, Wire)


def cluster(wire, topic):
    """DescribeCluster in its versions, FindCoordinator, and the cluster as Metadata tells it."""
    told = {
        f"version {version}": plain(wire.ask(DescribeClusterRequest(), version))
        for version in DescribeClusterRequest.__schema__.versions
    }
    controllers = DescribeClusterRequest(endpoint_type=2)
    odd = DescribeClusterRequest(endpoint_type=9)
    operations = DescribeClusterRequest(include_cluster_authorized_operations=True)
    asked = MetadataRequest(topics=[], include_cluster_authorized_operations=True)
    return told | {
        "controllers": plain(wire.ask(controllers))["error_code"],
        "an odd endpoint": plain(wire.ask(odd))["error_code"],
        "operations": plain(wire.ask(operations)),
        "metadata": plain(wire.ask(asked, 10)),
    }


def test_cluster(brokers):
    brokers.compare(cluster, Wire)


def access_control(wire, topic):
    """Without an authorizer there are no entries to see, to make or to remove."""
    anything = {"resource_type_filter": 1, "resource_name_filter": None, "pattern_type_filter": 1}
    anything |= {"principal_filter": None, "host_filter": None, "operation": 1, "permission_type": 1}
    entry = AclCreation(
        resource_type=2, resource_name=topic, principal="User:a", host="*", operation=3, permission_type=3
    )
    told = {}
    for version in DescribeAclsRequest.__schema__.versions:
        told[f"version {version}"] = {
            "described": plain(wire.ask(DescribeAclsRequest(**anything), version)),
            "created": plain(wire.ask(CreateAclsRequest(creations=[entry, entry]), version)),
            "deleted": plain(wire.ask(DeleteAclsRequest(filters=[DeleteAclsFilter(**anything)]), version)),
        }
    return told | {
        "nothing created": plain(wire.ask(CreateAclsRequest())),
        "nothing deleted": plain(wire.ask(DeleteAclsRequest())),
    }


def test_access_control(brokers):
    told = brokers.compare(access_control, Wire)
    assert told["version 3"]["described"]["error_code"] == "SECURITY_DISABLED"


def elections(wire, topic):
    """The preferred leader, or any: on one broker it leads already."""
    wire.create(topic, 2)

    def elect(*partitions, kind=0, name=topic, version=2):
        asked = [TopicPartitions(topic=name, partitions=list(partitions))]
        return plain(wire.ask(ElectLeadersRequest(election_type=kind, topic_partitions=asked), version))

    everything = plain(wire.ask(ElectLeadersRequest(topic_partitions=None)))
    told = {f"version {version}": elect(0, 1, version=version) for version in range(3)}
    return told | {
        "unclean": elect(0, kind=1),
        "of an unknown kind": elect(0, kind=9),
        "an unknown partition": elect(0, 7),
        "a negative partition": elect(-1),
        "an unknown topic": elect(0, name=f"{topic}-none"),
        "none of a topic": elect(),
        "no topic": plain(wire.ask(ElectLeadersRequest(topic_partitions=[]))),
        "all": everything["replica_election_results"][topic],  # the two have other topics besides
        "all, in sum": everything["error_code"],
    }


def test_elections(brokers):
    told = brokers.compare(elections, Wire)
    assert told["all, in sum"] == "NONE"


def reassignments(wire, topic):
    """Moving partitions to where they are, to brokers that do not exist, and taking moves back that were none."""
    wire.create(topic, 2)

    def move(*replicas, partition=0, name=topic, version=1, **options):
        moved = ReassignablePartition(partition_index=partition, replicas=None if replicas == (None,) else [*replicas])
        asked = [ReassignableTopic(name=name, partitions=[moved])]
        return plain(wire.ask(AlterPartitionReassignmentsRequest(topics=asked, **options), version))

    def listed(name=topic, *partitions):
        asked = [TopicIndexes(name=name, partition_indexes=[*partitions])]
        return plain(wire.ask(ListPartitionReassignmentsRequest(topics=asked)))

    return {
        "to where it is": move(1),
        "version 0": move(1, version=0),
        "the factor fixed": move(1, allow_replication_factor_change=False),
        "to another": move(2),
        "to another, the factor fixed": move(1, 2, allow_replication_factor_change=False),
        "to one more": move(1, 2),
        "twice to the same": move(1, 1),
        "to none": move(),
        "to a negative one": move(-1),
        "taken back": move(None),
        "an unknown partition": move(1, partition=7),
        "an unknown topic": move(1, name=f"{topic}-none"),
        "nothing": plain(wire.ask(AlterPartitionReassignmentsRequest())),
        "listed": listed(topic, 0, 1),
        "listed, unknown partition": listed(topic, 7),
        "listed, unknown topic": listed(f"{topic}-none", 0),
        "all listed": plain(wire.ask(ListPartitionReassignmentsRequest())),
    }


def test_reassignments(brokers):
    told = brokers.compare(reassignments, Wire)
    assert told["all listed"]["topics"] == []


def coordinators(wire, topic):
    """Who looks after a group, a transaction; what no kind of key is."""

    def find(kind, *keys):
        return plain(wire.ask(FindCoordinatorRequest(key_type=kind, coordinator_keys=list(keys))))["coordinators"]

    def settled(kind, key):
        # Kafka makes the internal topic first, and says until then that the coordinator is not available.
        while True:
            (answer,) = wire.ask(FindCoordinatorRequest(key_type=kind, coordinator_keys=[key])).coordinators
            if error_name(answer.error_code) != "COORDINATOR_NOT_AVAILABLE":
                return plain(answer)

    return {
        "group": settled(0, topic),
        "transaction": settled(1, topic),
        "two groups": {key: find(0, key, f"{key}-b") for key in [topic]},
        "no kind": find(77, topic),
        "no key": find(0),
    }


def test_coordinators(brokers):
    brokers.compare(coordinators, Wire)


def disks(wire, topic):
    """DescribeLogDirs: one directory, each partition's bytes."""
    wire.create(topic, 2)
    wire.create(f"{topic}-b")
    for _ in range(3):
        wire.produce(topic, batch_of(b"v" * 100))

    def ask(*topics, version=None):
        asked = [TopicPartitions(topic=name, partitions=partitions) for name, partitions in topics]
        response = wire.ask(DescribeLogDirsRequest(topics=asked), version)
        return plain(response)

    return {
        "one": ask((topic, [0])),
        "two": ask((topic, [0, 1]), (f"{topic}-b", [0])),
        "unknown": ask((topic, [9]), (f"{topic}-none", [0])),
        "none": ask(),
        **{f"version {version}": ask((topic, [0, 1]), version=version) for version in range(1, 6)},
    }


def test_disks(brokers):
    brokers.compare(disks, Wire)


def quorum(wire, topic):
    """The one voter of the metadata log, in each version; and whatever else is asked for with it."""

    def ask(name, *partitions, version=2):
        asked = QuorumTopic(topic_name=name, partitions=[QuorumPartition(partition_index=each) for each in partitions])
        response = plain(wire.ask(DescribeQuorumRequest(topics=[asked]), version))
        for described in (state for topic in response["topics"] for state in topic["partitions"].values()):
            described |= {"leader_epoch": "some", "high_watermark": "some"}
            for voter in described["current_voters"]:
                times = voter.pop("last_fetch_timestamp"), voter.pop("last_caught_up_timestamp")
                voter |= {"log_end_offset": "some", "has times": min(times) > 0, "replica_directory_id": "some"}
        response["nodes"] = [each["node_id"] for each in response["nodes"].values()] if response["nodes"] else []
        return response

    metadata = "__cluster_metadata"
    return {f"version {version}": ask(metadata, 0, version=version) for version in range(3)} | {
        "another topic": ask(topic, 0),
        "another partition": ask(metadata, 1),
        "one too many": ask(metadata, 0, 1),
        "nothing": plain(wire.ask(DescribeQuorumRequest())),
        "a voter more": _voters(wire, AddRaftVoterRequest, voter_id=9),
        "a voter less": _voters(wire, RemoveRaftVoterRequest, voter_id=1),
        "a voter without an id": _voters(wire, RemoveRaftVoterRequest, voter_id=-1),
        "a voter without a directory": _voters(wire, RemoveRaftVoterRequest, voter_id=1, directory_id=bytes(16)),
        "a voter of another cluster": _voters(wire, AddRaftVoterRequest, voter_id=9, cluster_id="another"),
        "a broker that never was": plain(wire.ask(UnregisterBrokerRequest(broker_id=9)))["error_code"],
    }


def _voters(wire, request, *, voter_id, cluster_id=None, directory_id=b"directory-of-one"):
    asked = request(cluster_id=cluster_id, voter_id=voter_id, voter_directory_id=directory_id)
    if isinstance(asked, AddRaftVoterRequest):
        asked.listeners = [Listener(name="CONTROLLER", host="127.0.0.1", port=1)]
    return plain(wire.ask(asked))["error_code"]


def test_quorum(brokers):
    told = brokers.compare(quorum, Wire)
    (described,) = told["version 2"]["topics"]
    assert described["partitions"][0]["leader_id"] == 1
    assert [voter["replica_id"] for voter in described["partitions"][0]["current_voters"]] == [1]


def feature_updates(wire, topic):
    """Updates of features, checked and not made: Kafka could take back none of them while others test it."""

    def update(*updates, version=2):
        asked = [
            FeatureUpdateKey(feature=name, max_version_level=level, **({"upgrade_type": kind} if version else {}))
            for name, level, kind in updates
        ]
        request = UpdateFeaturesRequest(feature_updates=asked, validate_only=version > 0)
        response = wire.ask(request, version)
        return error_name(response.error_code), plain(response.results)

    return {
        "nothing": update(),
        "as it is": [update(("group.version", 1, 1), version=version) for version in range(3)],
        "as it is, down": update(("transaction.version", 2, 2)),
        "beyond": [update(("group.version", 2, 1), version=version) for version in range(3)],
        "unknown": update(("no.such.feature", 1, 1)),
        "unknown and as it is": update(("group.version", 1, 1), ("no.such.feature", 1, 1), version=1),
        "of no type": update(("group.version", 1, 9)),
        "below zero": update(("group.version", -1, 2)),
        "down as an upgrade": update(("group.version", 0, 1)),
        "down": update(("group.version", 0, 2)),
        "transactions down": update(("transaction.version", 1, 3)),
        "of the metadata": update(("metadata.version", 30, 1)),
    }


def test_feature_updates(brokers):
    told = brokers.compare(feature_updates, Wire)
    assert told["as it is"][1] == ("NONE", [{"feature": "group.version", "error_code": "NONE"}])


def moved_logs(wire, topic):
    """Partitions moved to where they are, to nowhere, and those that are not there."""
    wire.create(topic, 2)
    (described,) = wire.ask(DescribeLogDirsRequest()).results

    def move(path, name, *partitions, version=2):
        moved = AlterReplicaLogDirTopic(name=name, partitions=list(partitions))
        request = AlterReplicaLogDirsRequest(dirs=[AlterReplicaLogDir(path=path, topics=[moved])])
        return plain(wire.ask(request, version).results)

    return {
        "where it is": [move(described.log_dir, topic, 0, version=version) for version in (1, 2)],
        "no such partition": move(described.log_dir, topic, 1, 9),
        "no such topic": move(described.log_dir, f"{topic}-none", 0),
        "no such directory": move("/none", topic, 0, 9),
        "no directory": move("", topic, 0),
        "nothing": plain(wire.ask(AlterReplicaLogDirsRequest()).results),
    }


def test_moved_logs(brokers):
    told = brokers.compare(moved_logs, Wire)
    assert [each["partitions"][0]["error_code"] for (each,) in told["where it is"]] == ["NONE", "NONE"]
