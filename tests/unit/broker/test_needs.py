"""What a handler may ask about its client: what the registry declares for its API, and nothing else."""

import ast
from pathlib import Path
from types import SimpleNamespace

import pytest

import headrace.broker.handlers
from headrace.broker.config import LOOPBACK
from headrace.broker.errors import BrokerError
from headrace.broker.handler import CLUSTER, GROUP, TOPIC, Context, Needs, authorized
from headrace.broker.registry import CHANGES, HANDLERS
from headrace.protocol.api import ApiKey
from headrace.protocol.errors import ErrorCode
from headrace.protocol.messages.describe_log_dirs import DescribeLogDirsRequest, DescribeLogDirsResponse
from headrace.protocol.messages.offset_commit import OffsetCommitRequest, OffsetCommitResponse
from headrace.security.acl import Acl, Operation, PatternType, Permission
from headrace.security.authorizer import Acls, Authorizer
from headrace.security.principal import Principal
from headrace.telemetry.audit import AuditLog

# Where topics are looked up without asking what the client may do to them, and why that is right.
LOOKED_UP_FREELY = {
    "fixed.elect_leaders": "needs the cluster",
    "offsets._split_known": "the name of a topic that was found with permission",
    "offsets.complete": "ids for topics that the answer names",
    "offsets.fetch_offsets": "names for ids, which are asked about next",
    "metadata._answer": "asks `allows` itself: what it answers differs by whether the topic is there",
    "metadata.create": "was asked before",
    "metadata.describe_topic_partitions": "names the client may not know of are left out before",
    "metadata.describe_topics": "asks `allows` itself",
    "partitions.describe_log_dirs": "needs the cluster",
    "partitions.move_logs": "needs the cluster",
    "topics._find_deletable": "for who may describe it, and then asks",
    "topics.make_topic": "asks `allows` itself before",
    "transactions._refuse_partition": "for another broker, which has asked",
}


def context(acls=()):
    held = Acls()
    for acl in acls:
        held.add(acl)
    authorizer = Authorizer(lambda: held, super_users=frozenset())
    broker = SimpleNamespace(authorizer=authorizer, audit=AuditLog(), topic=lambda name, *_, **__: f"the topic {name}")
    return Context(broker, 0, None, {}, "127.0.0.1", LOOPBACK, Principal("alice"))


def allow(kind, name, operation):
    return Acl(kind, name, PatternType.LITERAL, "User:alice", "*", operation, Permission.ALLOW)


def test_what_is_not_declared_cannot_be_asked():
    ctx = context([allow(TOPIC, "t", Operation.ALL)])
    ctx.needs = Needs(each={GROUP: Operation.READ})
    with pytest.raises(KeyError):
        ctx.topic("t")
    for ask in (ctx.may, ctx.may_some):
        with pytest.raises(AssertionError, match="WRITE on TOPIC is not declared"):
            ask(Operation.WRITE, TOPIC)


def test_a_topic_is_found_with_permission_only():
    ctx = context([allow(TOPIC, "t", Operation.READ)])
    ctx.needs = Needs(each={TOPIC: Operation.READ})
    assert ctx.topic("t") == ctx.topic("t") == "the topic t"
    with pytest.raises(BrokerError) as refused:
        ctx.topic("other")
    assert refused.value.code is ErrorCode.TOPIC_AUTHORIZATION_FAILED
    ctx.refused = BrokerError(ErrorCode.GROUP_AUTHORIZATION_FAILED, "no")
    with pytest.raises(BrokerError, match="no"):
        ctx.topic("t")


def test_what_is_remembered_of_names_that_clients_choose_is_bounded():
    ctx = context([allow(GROUP, "g" * 249, Operation.READ), allow(GROUP, "g" * 30_000, Operation.READ)])
    ctx.needs = Needs(each={GROUP: Operation.READ})
    for name in ("g" * 249, "g" * 30_000):
        assert ctx.allows(GROUP, name)
        assert not ctx.allows(GROUP, name[1:])
    assert max(len(action[-1]) for action in ctx.broker.authorizer.remembered) == 249


def test_a_request_that_is_not_allowed_as_a_whole_does_not_reach_its_handler():
    reached = []
    needs = Needs(cluster=(Operation.ALTER, Operation.DESCRIBE))
    handle = authorized(lambda ctx, request: reached.append(request), needs, DescribeLogDirsResponse)
    request = DescribeLogDirsRequest(topics=None)
    denied = context()
    denied.version = 4
    assert handle(denied, request).error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    assert not reached
    handle(context([allow(CLUSTER, "kafka-cluster", Operation.ALTER)]), request)
    assert reached == [request]


def test_where_the_answer_has_no_place_for_it_each_entry_is_refused():
    needs = Needs(group=Operation.READ, each={TOPIC: Operation.READ})
    handle = authorized(lambda ctx, _: ctx, needs, OffsetCommitResponse)
    ctx = handle(context([allow(TOPIC, "t", Operation.READ)]), OffsetCommitRequest(group_id="g"))
    assert not ctx.allows(TOPIC, "t")
    with pytest.raises(BrokerError) as refused:
        ctx.topic("t")
    assert refused.value.code is ErrorCode.GROUP_AUTHORIZATION_FAILED


def test_handlers_look_topics_up_through_their_context():
    freely = set()
    for path in Path(headrace.broker.handlers.__file__).parent.glob("*.py"):
        for function in ast.walk(ast.parse(path.read_text())):
            if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
                own = [node for child in function.body for node in _own_nodes(child)]
                if any(_looks_up(node) for node in own):
                    freely.add(f"{path.stem}.{function.name}")
    assert freely == set(LOOKED_UP_FREELY)


def _own_nodes(node):
    """The nodes of a function without those of functions within it."""
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
        return
    yield node
    for child in ast.iter_child_nodes(node):
        yield from _own_nodes(child)


def _looks_up(node):
    if not isinstance(node, ast.Attribute):
        return False
    if node.attr in ("by_name", "by_id"):
        return True
    return node.attr == "topic" and isinstance(node.value, ast.Attribute) and node.value.attr == "broker"


# Those that change nothing which outlives the request, or what clients do all the time.
NOT_AUDITED = {
    "records and offsets as clients write and read them": {
        ApiKey.PRODUCE, ApiKey.FETCH, ApiKey.LIST_OFFSETS, ApiKey.OFFSET_FOR_LEADER_EPOCH, ApiKey.OFFSET_FETCH,
        ApiKey.TXN_OFFSET_COMMIT, ApiKey.INIT_PRODUCER_ID, ApiKey.ADD_PARTITIONS_TO_TXN, ApiKey.ADD_OFFSETS_TO_TXN,
        ApiKey.END_TXN, ApiKey.SHARE_FETCH, ApiKey.SHARE_ACKNOWLEDGE,
    },
    "members of groups, and clients as such": {
        ApiKey.JOIN_GROUP, ApiKey.SYNC_GROUP, ApiKey.HEARTBEAT, ApiKey.LEAVE_GROUP, ApiKey.CONSUMER_GROUP_HEARTBEAT,
        ApiKey.SHARE_GROUP_HEARTBEAT,
        ApiKey.FIND_COORDINATOR, ApiKey.API_VERSIONS, ApiKey.SASL_HANDSHAKE, ApiKey.SASL_AUTHENTICATE,
        ApiKey.GET_TELEMETRY_SUBSCRIPTIONS, ApiKey.PUSH_TELEMETRY,
    },
    "only looks or beats; the topics that these make are recorded where they are made": {
        ApiKey.STREAMS_GROUP_HEARTBEAT, ApiKey.STREAMS_GROUP_DESCRIBE,
        ApiKey.METADATA, ApiKey.DESCRIBE_CLUSTER, ApiKey.DESCRIBE_TOPIC_PARTITIONS, ApiKey.DESCRIBE_LOG_DIRS,
        ApiKey.DESCRIBE_QUORUM, ApiKey.LIST_PARTITION_REASSIGNMENTS, ApiKey.LIST_CONFIG_RESOURCES,
        ApiKey.DESCRIBE_CONFIGS, ApiKey.DESCRIBE_CLIENT_QUOTAS, ApiKey.DESCRIBE_ACLS,
        ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS, ApiKey.LIST_GROUPS, ApiKey.DESCRIBE_GROUPS,
        ApiKey.CONSUMER_GROUP_DESCRIBE, ApiKey.SHARE_GROUP_DESCRIBE, ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS,
        ApiKey.DESCRIBE_TRANSACTIONS, ApiKey.LIST_TRANSACTIONS,
        ApiKey.DESCRIBE_PRODUCERS,
    },
    "can change nothing on a single node": {
        ApiKey.ALTER_REPLICA_LOG_DIRS, ApiKey.ADD_RAFT_VOTER, ApiKey.REMOVE_RAFT_VOTER, ApiKey.UNREGISTER_BROKER,
        ApiKey.ELECT_LEADERS, ApiKey.ALTER_PARTITION_REASSIGNMENTS,
    },
}  # fmt: skip


def test_every_api_is_recorded_or_has_a_reason_not_to_be():
    without = set().union(*NOT_AUDITED.values())
    assert not without & CHANGES.keys()
    assert without | CHANGES.keys() == HANDLERS.keys()
