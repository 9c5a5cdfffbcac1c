"""Topics as the protocol itself tells them, in every version: created, described, grown, deleted, refused."""

from __future__ import annotations

import pytest

from headrace.protocol.messages.create_partitions import (
    CreatePartitionsAssignment,
    CreatePartitionsRequest,
    CreatePartitionsTopic,
)
from headrace.protocol.messages.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from headrace.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from headrace.protocol.messages.describe_topic_partitions import (
    Cursor,
    DescribeTopicPartitionsRequest,
    TopicRequest,
)
from headrace.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from headrace.protocol.schema import Uuid
from tests.conformance.clients.wire import Wire, error_name, plain

pytestmark = pytest.mark.java

_NOBODYS_ID = Uuid(b"nobody's topicid")


def creations(wire, topic):
    """Every way to be refused, and some to be taken; each answer as a whole."""

    def create(name, *, partitions=1, factor=1, configs=(), assignments=(), validate_only=False):
        wanted = CreatableTopic(
            name=name,
            num_partitions=partitions,
            replication_factor=factor,
            configs=[CreatableTopicConfig(name=key, value=value) for key, value in configs],
            assignments=[CreatableReplicaAssignment(partition_index=i, broker_ids=ids) for i, ids in assignments],
        )
        return plain(wire.ask(CreateTopicsRequest(topics=[wanted], validate_only=validate_only)).topics[0])

    wire.create(topic)
    wire.create(f"{topic}.dotted")
    return {
        "defaults": create(f"{topic}-defaults", partitions=-1, factor=-1),
        "with settings": create(f"{topic}-set", configs=[("retention.ms", "1000"), ("cleanup.policy", "compact")]),
        "validate only": create(f"{topic}-checked", partitions=3, validate_only=True),
        "not made by validating": error_name(wire.metadata(f"{topic}-checked").error_code),
        "assigned": create(f"{topic}-assigned", partitions=-1, factor=-1, assignments=[(0, [1]), (1, [1])]),
        "assigned elsewhere": create(f"{topic}-a1", partitions=-1, factor=-1, assignments=[(0, [7])]),
        "assigned with a gap": create(f"{topic}-a2", partitions=-1, factor=-1, assignments=[(0, [1]), (2, [1])]),
        "assigned to nobody": create(f"{topic}-a5", partitions=-1, factor=-1, assignments=[(0, [])]),
        "assigned twice to one": create(f"{topic}-a6", partitions=-1, factor=-1, assignments=[(0, [1, 1])]),
        "assigned and counted": create(f"{topic}-a3", partitions=1, factor=-1, assignments=[(0, [1])]),
        "assigned and replicated": create(f"{topic}-a4", partitions=-1, factor=1, assignments=[(0, [1])]),
        "exists": create(topic),
        "exists, validate only": create(topic, validate_only=True),
        "empty name": create(""),
        "bad name": create("no spaces"),
        "dot": create("."),
        "two dots": create(".."),
        "longest name": create("n" * 249, validate_only=True),
        "too long a name": create("n" * 250),
        "collides": create(f"{topic}_dotted"),
        "no partitions": create(f"{topic}-p0", partitions=0),
        "minus two partitions": create(f"{topic}-p2", partitions=-2),
        "no replicas": create(f"{topic}-r0", factor=0),
        "too many replicas": create(f"{topic}-r2", factor=2),
        "minus two replicas": create(f"{topic}-r3", factor=-2),
        "unknown setting": create(f"{topic}-c1", configs=[("no.such.setting", "1")]),
        "bad number": create(f"{topic}-c2", configs=[("retention.ms", "soon")]),
        "number too small": create(f"{topic}-c3", configs=[("retention.ms", "-2")]),
        "bad choice": create(f"{topic}-c4", configs=[("cleanup.policy", "burn")]),
        "null setting": create(f"{topic}-c5", configs=[("retention.ms", None)]),
        "small segments": create(f"{topic}-c6", configs=[("segment.bytes", "1000")]),
        "spaced number": create(f"{topic}-c7", configs=[("retention.ms", " 1000 ")]),
        "bad boolean": create(f"{topic}-c8", configs=[("preallocate", "maybe")]),
        "two settings of one name": create(f"{topic}-c9", configs=[("retention.ms", "1"), ("retention.ms", "2")]),
        "empty list": create(f"{topic}-c10", configs=[("cleanup.policy", "")]),
        "ratio above one": create(f"{topic}-c11", configs=[("min.cleanable.dirty.ratio", "1.5")]),
        "more than one replica in sync": create(f"{topic}-c12", configs=[("min.insync.replicas", "2")]),
        "name and settings bad": create("no spaces", configs=[("no.such.setting", "1")]),
    }


def test_creations(brokers):
    told = brokers.compare(creations, Wire)
    assert told["exists"]["error_code"] == "TOPIC_ALREADY_EXISTS"
    assert told["bad name"]["error_code"] == "INVALID_TOPIC_EXCEPTION"


def sentences(wire, topic):
    """The words that come with a refusal."""
    wanted = CreatableTopic(name=topic, num_partitions=1, replication_factor=3)
    return {"replicas": wire.ask(CreateTopicsRequest(topics=[wanted])).topics[0].error_message}


def test_sentences(brokers):
    assert "replication factor 1" in brokers.compare(sentences, Wire)["replicas"]


def several_at_once(wire, topic):
    """One request with good, bad and doubled topics: each is judged by itself."""
    names = [f"{topic}-a", f"{topic}-twice", "no spaces", f"{topic}-twice", f"{topic}-b"]
    topics = [CreatableTopic(name=name, num_partitions=1, replication_factor=1) for name in names]
    results = wire.ask(CreateTopicsRequest(topics=topics)).topics
    created = sorted((each.name, error_name(each.error_code)) for each in results)
    wire.wait_for(f"{topic}-a", 1)
    wire.wait_for(f"{topic}-b", 1)
    states = [DeleteTopicState(name=name) for name in (f"{topic}-a", f"{topic}-none", f"{topic}-b", f"{topic}-b")]
    results = wire.ask(DeleteTopicsRequest(topics=states, timeout_ms=10000)).responses
    return {"created": created, "deleted": sorted((each.name, error_name(each.error_code)) for each in results)}


def test_several_at_once(brokers):
    brokers.compare(several_at_once, Wire)


def create_versions(wire, topic):
    """A topic made and one refused in each version of CreateTopics."""
    told = {}
    for version in CreateTopicsRequest.__schema__.versions:
        for name in (f"{topic}-{version}", "no spaces"):
            wanted = CreatableTopic(name=name, num_partitions=2, replication_factor=1)
            told[f"{version} {name}"] = plain(wire.ask(CreateTopicsRequest(topics=[wanted]), version))
    return told


def test_create_versions(brokers):
    brokers.compare(create_versions, Wire)


def metadata_versions(wire, topic):
    """What Metadata says of a topic, of one that is not there, and of an illegal name, in each version."""
    wire.create(topic, 2)
    told = {}
    for version in MetadataRequest.__schema__.versions:
        asked = [MetadataRequestTopic(name=name) for name in (topic, f"{topic}-none", "no spaces")]
        request = MetadataRequest(topics=asked, allow_auto_topic_creation=version < 4)
        if version < 4:  # these versions cannot say that nothing is to be made
            request.topics = asked[:1]
        told[version] = plain(wire.ask(request, version))
    return told


def test_metadata_versions(brokers):
    brokers.compare(metadata_versions, Wire)


def metadata_by_id(wire, topic):
    """By id, by an id that nobody has, with both, with neither; and what clients may do."""
    wire.create(topic)

    def ask(*asked, **flags):
        return plain(wire.ask(MetadataRequest(topics=list(asked), allow_auto_topic_creation=False, **flags)).topics)

    by_id = MetadataRequestTopic(topic_id=wire.topic_id(topic), name=None)
    return {
        "known": ask(by_id),
        "unknown": ask(MetadataRequestTopic(topic_id=_NOBODYS_ID, name=None)),
        "operations": ask(by_id, include_topic_authorized_operations=True),
        "none": ask(),
        "twice": ask(MetadataRequestTopic(name=topic), MetadataRequestTopic(name=topic)),
    }


def test_metadata_by_id(brokers):
    brokers.compare(metadata_by_id, Wire)


def auto_creation(wire, topic):
    """A topic made because somebody asked for it; one that may not be; an illegal one."""

    def ask(name, *, allow):
        request = MetadataRequest(topics=[MetadataRequestTopic(name=name)], allow_auto_topic_creation=allow)
        return error_name(wire.ask(request).topics[0].error_code)

    first = ask(f"{topic}-wanted", allow=True)
    wire.wait_for(f"{topic}-wanted", 1)
    told = {
        # Kafka says that there is no such topic yet, and has it the next time; ours has it at once.
        "first asked": first,
        "then": plain(wire.metadata(f"{topic}-wanted")),
        "not allowed": ask(f"{topic}-unwanted", allow=False),
        "illegal": ask("no spaces", allow=True),
    }
    wire.create(f"{topic}.dotted")
    return told | {"colliding": ask(f"{topic}_dotted", allow=True)}


def test_auto_creation(brokers):
    brokers.compare(auto_creation, Wire)


def deletions(wire, topic):
    """By name and by id; twice; unknown; both ways at once."""

    def delete(**state):
        return plain(wire.ask(DeleteTopicsRequest(topics=[DeleteTopicState(**state)], timeout_ms=10000)).responses)

    for suffix in ("name", "id", "old"):
        wire.create(f"{topic}-{suffix}", 2)
    topic_id = wire.topic_id(f"{topic}-id")
    told = {
        "by name": delete(name=f"{topic}-name"),
        "by id": delete(topic_id=topic_id),
        "unknown name": delete(name=f"{topic}-none"),
        "unknown id": delete(topic_id=_NOBODYS_ID),
        "illegal name": delete(name="no spaces"),
    }
    for suffix in ("name", "id"):
        wire.wait_for(f"{topic}-{suffix}", None)
    told |= {"again by name": delete(name=f"{topic}-name"), "again by id": delete(topic_id=topic_id)}
    for version in range(1, 6):
        request = DeleteTopicsRequest(topic_names=[f"{topic}-none"], timeout_ms=10000)
        told[f"version {version}"] = plain(wire.ask(request, version).responses)
    told["old version"] = plain(wire.ask(DeleteTopicsRequest(topic_names=[f"{topic}-old"], timeout_ms=10000), 5))
    wire.wait_for(f"{topic}-old", None)
    wire.create(f"{topic}-name", 1)
    return told | {"made again": plain(wire.metadata(f"{topic}-name"))}


def test_deletions(brokers):
    brokers.compare(deletions, Wire)


def more_partitions(wire, topic):
    """Grown, checked only, refused in every way."""

    def grow(name, count, *, assignments=None, validate_only=False):
        if assignments is not None:
            assignments = [CreatePartitionsAssignment(broker_ids=ids) for ids in assignments]
        wanted = CreatePartitionsTopic(name=name, count=count, assignments=assignments)
        request = CreatePartitionsRequest(topics=[wanted], timeout_ms=10000, validate_only=validate_only)
        return plain(wire.ask(request).results)

    wire.create(topic)
    told = {
        "checked": grow(topic, 3, validate_only=True),
        "still": len(wire.metadata(topic).partitions),
        "grown": grow(topic, 3),
        "assigned": grow(topic, 4, assignments=[[1]]),
        "assigned to nobody there": grow(topic, 5, assignments=[[9]]),
        "assigned too many": grow(topic, 5, assignments=[[1], [1]]),
        "assigned none": grow(topic, 5, assignments=[]),
        "same": grow(topic, 4),
        "fewer": grow(topic, 2),
        "zero": grow(topic, 0),
        "negative": grow(topic, -1),
        "unknown": grow(f"{topic}-none", 3),
        "illegal": grow("no spaces", 3),
    }
    wire.wait_for(topic, 4)
    twice = [CreatePartitionsTopic(name=topic, count=count, assignments=None) for count in (5, 6)]
    results = wire.ask(CreatePartitionsRequest(topics=twice, timeout_ms=10000)).results
    return told | {"twice": [plain(result) for result in results], "now": len(wire.metadata(topic).partitions)}


def test_more_partitions(brokers):
    brokers.compare(more_partitions, Wire)


def pages(wire, topic):
    """DescribeTopicPartitions, some partitions at a time, from any place."""
    names = [f"{topic}-{letter}" for letter in "abc"]
    for name, count in zip(names, (3, 1, 2), strict=True):
        wire.create(name, count)

    def ask(asked, limit=2000, cursor=None):
        request = DescribeTopicPartitionsRequest(
            topics=[TopicRequest(name=name) for name in asked],
            response_partition_limit=limit,
            cursor=Cursor(topic_name=cursor[0], partition_index=cursor[1]) if cursor else None,
        )
        return plain(wire.ask(request))

    walked, cursor = [], None
    while True:
        page = ask(names, 2, cursor)
        walked.append([(name, list(told["partitions"])) for name, told in page["topics"].items()])
        if not page["next_cursor"]:
            break
        cursor = (page["next_cursor"]["topic_name"], page["next_cursor"]["partition_index"])
    return {
        "walked": walked,
        "whole": ask(names),
        "doubled": ask([names[1], names[0], names[1]]),
        "unknown": ask([f"{topic}-none", names[1], "no spaces"]),
        "from the middle": ask(names, cursor=(names[1], 0)),
        "from a topic that is gone": ask(names, cursor=(f"{topic}-aa", 0)),
        "behind the last partition": ask(names, cursor=(names[0], 9)),
        "behind the last topic": ask(names, cursor=(f"{topic}-z", 0)),
        "before the first partition": ask(names, cursor=(names[0], -1)),
        "limit of one": ask(names, 1),
        "limit at a topic's end": ask(names, 3),
        "limit of zero": ask(names, 0),
    }


def test_pages(brokers):
    told = brokers.compare(pages, Wire)
    assert sum(len(found) for page in told["walked"] for _, found in page) == 6
