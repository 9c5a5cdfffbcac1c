"""What a declaration turns into."""

import pytest

from headrace.protocol.messages.end_txn import EndTxnRequest
from headrace.protocol.messages.fetch import FetchPartition, FetchRequest, PartitionData
from headrace.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from headrace.protocol.schema import INT32, STRING, ZERO_UUID, Message, RawTag, Struct, array, int32, nullable_string


class Inner(Struct):
    number: int = int32(since=1, until=2, default=-1)


class Outer(Message, api_key=999, versions=range(4), flexible_since=2):
    name: str | None = nullable_string(since=1, nullable_since=2, default=None)
    inners: list[Inner] = array(Inner)
    numbers: list[int] = array(INT32)


def test_every_field_has_kafkas_default():
    request = FetchRequest()
    assert request.max_bytes == 2**31 - 1
    assert request.session_epoch == -1
    assert request.rack_id == ""
    assert request.cluster_id is None
    assert request.topics == []
    assert FetchPartition().high_watermark == 2**63 - 1
    assert FetchPartition().replica_directory_id == ZERO_UUID
    assert PartitionData().records is None
    assert PartitionData().current_leader.leader_epoch == -1
    assert MetadataRequest().allow_auto_topic_creation is True


def test_defaults_that_can_change_are_not_shared():
    FetchRequest().topics.append("somebody else's")
    PartitionData().current_leader.leader_id = 5
    assert FetchRequest().topics == []
    assert PartitionData().current_leader.leader_id == -1


def test_fields_are_given_by_keyword_and_by_no_other_name():
    assert EndTxnRequest(producer_id=5, committed=True).producer_id == 5
    with pytest.raises(TypeError):
        EndTxnRequest("tid", 5)
    with pytest.raises(TypeError):
        EndTxnRequest(producer=5)


def test_an_instance_has_slots_and_is_a_dataclass():
    request = EndTxnRequest(producer_id=5)
    assert not hasattr(request, "__dict__")
    with pytest.raises(AttributeError):
        request.producer = 5
    assert request.replaced(committed=True) == EndTxnRequest(producer_id=5, committed=True)
    assert request.committed is False


def test_equality_is_by_class_fields_and_unknown_tags():
    assert EndTxnRequest(producer_id=5) == EndTxnRequest(producer_id=5)
    assert EndTxnRequest(producer_id=5) != EndTxnRequest(producer_id=6)
    assert EndTxnRequest() != EndTxnRequest(unknown_tags=(RawTag(1, b""),))
    assert EndTxnRequest() != FetchRequest()
    with pytest.raises(TypeError):
        hash(EndTxnRequest())


def test_a_repr_can_be_read_back():
    request = MetadataRequest(topics=[MetadataRequestTopic(name="orders")], unknown_tags=(RawTag(9, b"x"),))
    names = {"MetadataRequest": MetadataRequest, "MetadataRequestTopic": MetadataRequestTopic, "RawTag": RawTag}
    assert eval(repr(request), names) == request
    assert "unknown_tags" not in repr(MetadataRequest())


def test_the_declaration_is_kept():
    name, inners, numbers = Outer.__schema__.fields
    assert (name.name, name.type, name.since, name.nullable_since, name.default) == ("name", STRING, 1, 2, None)
    assert (inners.type, inners.is_array) == (Inner, True)
    assert (numbers.type, numbers.is_array) == (INT32, True)
    assert Outer.__schema__.api_key == 999
    assert Outer.__schema__.versions == range(4)
    assert [Outer.__schema__.is_flexible(version) for version in range(4)] == [False, False, True, True]


def test_versions_of_a_field():
    (number,) = Inner.__schema__.fields
    assert [number.exists(version) for version in range(4)] == [False, True, True, False]
    name = Outer.__schema__.fields[0]
    assert [name.nullable(version) for version in range(4)] == [False, False, True, True]
    assert not any(number.nullable(version) for version in range(4))
