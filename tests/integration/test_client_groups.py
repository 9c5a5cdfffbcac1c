"""The client's requests about groups that the command line checks for beforehand, or does not make."""

import pytest

from headrace import Broker
from headrace.client import groups, share_groups
from headrace.client.address import parse_bootstrap
from headrace.client.admin import create_topic
from headrace.client.cluster import Cluster
from headrace.client.coordinators import Coordinators
from headrace.client.errors import GroupHasMembers, Refused, UnknownGroup
from headrace.model import TopicPartition
from tests.conformance.clients.sharing import ACCEPT, RELEASE, Sharer, set_group
from tests.conformance.clients.wire import Wire, batch_of
from tests.conformance.test_wire_streams_groups import Group as StreamsGroup
from tests.conformance.test_wire_streams_groups import topology
from tests.integration.test_cli_group import member

AT_ONCE = {"group.initial.rebalance.delay.ms": "0", "group.streams.initial.rebalance.delay.ms": "0"}
PLACES = [TopicPartition("orders", 0), TopicPartition("orders", 1)]


@pytest.fixture
def broker():
    with Broker(durability="os", settings=AT_ONCE) as broker:
        yield broker


@pytest.fixture
def coordinators(broker):
    with Cluster(parse_bootstrap(broker.bootstrap_servers)) as cluster:
        create_topic(cluster, "orders", partitions=2)
        yield Coordinators(cluster)


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_members_that_came_meanwhile(broker, coordinators, protocol):
    groups.alter_offsets(coordinators, "billing", dict.fromkeys(PLACES, 0))
    with member(broker, group_protocol=protocol):
        with pytest.raises(GroupHasMembers, match="group 'billing' has members: stop them first"):
            groups.alter_offsets(coordinators, "billing", {PLACES[0]: 5})
        with pytest.raises(GroupHasMembers):
            groups._delete_group(coordinators, "billing")
        with pytest.raises(Refused, match="GROUP_SUBSCRIBED_TO_TOPIC"):
            groups.delete_offsets(coordinators, "billing", PLACES)
    assert groups.committed_offsets(coordinators, "billing") == dict.fromkeys(PLACES, (0, ""))


def test_an_application_of_kafka_streams_is_described_with_the_partitions_that_it_reads(broker, coordinators):
    with Wire(broker.bootstrap_servers) as wire:
        application = StreamsGroup(wire, "counters")
        application.join("a", topology("orders"))
        application.join("b", topology("orders"))
        application.beat("a")
        application.beat("a", {"0": [0]})
        application.beat("b")
    described = groups.describe_group(coordinators, "counters")
    assert (described.kind, described.state) == ("streams", "Stable")
    assert {each.id: each.partitions for each in described.members} == {"a": (PLACES[0],), "b": (PLACES[1],)}


def test_offsets_are_forgotten(coordinators):
    groups.alter_offsets(coordinators, "billing", {PLACES[0]: 0, PLACES[1]: 7})
    groups.delete_offsets(coordinators, "billing", PLACES[:1])
    assert groups.committed_offsets(coordinators, "billing") == {PLACES[1]: (7, "")}


def test_a_group_that_is_not_there(coordinators):
    with pytest.raises(UnknownGroup):
        groups.delete_offsets(coordinators, "billing", PLACES)
    with pytest.raises(UnknownGroup):
        groups._delete_group(coordinators, "billing")
    assert groups.committed_offsets(coordinators, "billing") == {}
    assert groups.list_groups(coordinators.cluster) == []


def test_a_share_group_is_described_with_what_is_in_flight_and_what_came_again(broker, coordinators):
    with Wire(broker.bootstrap_servers) as wire:
        set_group(wire, "workers", share_auto_offset_reset="earliest")
        assert wire.produce("orders", batch_of(*[b"x"] * 6)).error_code == 0
        sharer = Sharer(wire, "workers", "orders")
        sharer.join()
        sharer.fetch_some()
        # Kept: the first and the last; finished: 1, 2; released, and fetched again: 3, 4.
        sharer.acknowledge((1, 2, [ACCEPT]), (3, 4, [RELEASE]))
        sharer.fetch_some()
        described = share_groups.share_offsets(coordinators, "workers", with_runs=True)[PLACES[0]]
        without = share_groups.share_offsets(coordinators, "workers")[PLACES[0]]
    assert described[:4] == without[:4] == (0, 4, 4, 2)
    assert without.runs == ()
    states = [(run.first, run.last, run.is_in_flight, run.is_finished, run.deliveries) for run in described.runs]
    assert states == [
        (0, 0, True, False, 1),
        (1, 2, False, True, 1),
        (3, 4, True, False, 2),
        (5, 5, True, False, 1),
    ]
