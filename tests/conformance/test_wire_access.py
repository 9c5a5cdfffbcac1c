"""Who may do what: every API, asked by clients with and without the permissions that it needs, on both brokers.

The clients of the table are all `User:ANONYMOUS`, and permissions go by the host that they come from. The one at
127.0.0.1 may do everything; every other address of the loopback is a client of its own, with the ACLs of one variant of
one case. On a second listener clients have to log in: each API is asked there before that, and a few after it.
"""

from __future__ import annotations

from contextlib import ExitStack
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest

from headrace import Broker
from headrace.broker.handler import NOTHING
from headrace.broker.registry import HANDLERS
from headrace.protocol.api import ApiKey
from headrace.protocol.messages.consumer_group_describe import ConsumerGroupDescribeRequest
from headrace.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from headrace.protocol.messages.create_acls import AclCreation, CreateAclsRequest
from headrace.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from headrace.protocol.messages.delete_acls import DeleteAclsFilter, DeleteAclsRequest
from headrace.protocol.messages.describe_acls import DescribeAclsRequest
from headrace.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from headrace.protocol.messages.list_groups import ListGroupsRequest
from headrace.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from headrace.protocol.messages.sasl_authenticate import SaslAuthenticateRequest
from headrace.protocol.messages.sasl_handshake import SaslHandshakeRequest
from headrace.protocol.schema import Uuid
from headrace.security.acl import CLUSTER_NAME, Operation, PatternType, Permission, ResourceType
from peers.kafka.broker import running_kafka
from tests.conformance.access_cases import CASES, CLUSTER, GROUP, TOPIC, TXN, Case, Grant, World, begin
from tests.conformance.clients.java import Java
from tests.conformance.clients.wire import CLOSED, Wire, batch_of, error_name, plain
from tests.conformance.comparison import mismatch, wait_until
from tests.integration.cli_runs import run_cli

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from headrace.protocol.schema import Message

pytestmark = pytest.mark.java

BOTH = {
    "allow.everyone.if.no.acl.found": "true",
    "group.initial.rebalance.delay.ms": "0",
    "group.streams.initial.rebalance.delay.ms": "0",
    "super.users": "User:root",
}
USERS, SECRET = ("alice", "bob", "root"), "not-a-word"
LIST_ACLS = DescribeAclsRequest(
    resource_type_filter=1,
    pattern_type_filter=1,
    operation=1,
    permission_type=1,
    **dict.fromkeys(("resource_name_filter", "principal_filter", "host_filter")),
)
ID = Uuid(b"\x08" * 16)
STANDARD = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
RUNS = [(case, variant, grants) for case in CASES for variant, grants in case.all_variants()]


def address_of(run: int) -> str:
    return f"127.0.{1 + run // 200}.{1 + run % 200}"


def acl(host: str, operation: Operation, kind: ResourceType, name: str, pattern: PatternType) -> AclCreation:
    return AclCreation(
        resource_type=kind,
        resource_name=name,
        resource_pattern_type=pattern,
        principal="User:ANONYMOUS",
        host=host,
        operation=operation,
        permission_type=Permission.ALLOW,
    )


def acl_for(host: str, world: World, grant: Grant) -> AclCreation:
    """Topics and transactional ids by prefix, groups by name: both have to do."""
    operation, kind = grant
    if kind is CLUSTER:
        return acl(host, operation, kind, CLUSTER_NAME, PatternType.LITERAL)
    if kind is GROUP:
        return acl(host, operation, kind, world.group, PatternType.LITERAL)
    prefix = world.topics_tag if kind is TOPIC else world.tag
    return acl(host, operation, kind, prefix + ".", PatternType.PREFIXED)


def furnish(servers: str) -> None:
    """Give the administrator everything, make all topics, and give each client its ACLs."""
    with Wire(servers) as admin:
        worlds = [case.world(variant) for case, variant, _ in RUNS]
        names = dict.fromkeys(name for world in worlds for name in (world.topic, world.other))
        topics = [CreatableTopic(name=name, num_partitions=1, replication_factor=1) for name in names]
        made = admin.ask(CreateTopicsRequest(topics=topics))
        assert {topic.error_code for topic in made.topics} == {0}
        for name in names:
            admin.wait_for(name, 1)
        admin.find_coordinator("any")
        begin(admin, World("first"))  # the coordinator of transactions has its topic, too
        acls = [
            acl("127.0.0.1", Operation.ALL, kind, CLUSTER_NAME if kind is CLUSTER else "*", PatternType.LITERAL)
            for kind in (TOPIC, GROUP, CLUSTER, TXN)
        ]
        acls += [
            acl_for(address_of(number), world, grant)
            for number, (world, (_, _, granted)) in enumerate(zip(worlds, RUNS, strict=True))
            for grant in granted
        ]
        created = admin.ask(CreateAclsRequest(creations=acls))
        assert {result.error_code for result in created.results} == {0}
        assert wait_until(lambda: len(describe(admin)), len(acls)) == len(acls)


def in_order(answer: Any) -> Any:
    """The answer with its lists in an order of ours: Kafka's come out of sets."""
    if isinstance(answer, dict):
        return {key: in_order(value) for key, value in answer.items()}
    return sorted(map(in_order, answer), key=repr) if isinstance(answer, list) else answer


def answers(admin: Wire, case: Case) -> dict[str, Any]:
    """The answers of one case to each of its clients."""
    found = {}
    for number, (each, variant, _) in enumerate(RUNS):
        if each is not case:
            continue
        world = case.world(variant)
        world.topic_id, world.other_id = admin.topic_id(world.topic), admin.topic_id(world.other)
        if case.setup:
            case.setup(admin, world)
        with Wire(admin.servers, source=address_of(number)) as client:
            found[variant] = in_order(case.only(plain(client.ask(case.request(world), case.version))))
    return found


def describe(admin: Wire, **filters: Any) -> list[Any]:
    """The ACLs that match."""
    answer = admin.ask(LIST_ACLS.replaced(**filters))
    assert answer.error_code == 0
    return sorted(
        (each.resource_type, each.resource_name, each.pattern_type, acl.principal, acl.host, acl.operation)
        for each in answer.resources
        for acl in each.acls
    )


def change_acls(admin: Wire) -> dict[str, Any]:
    """ACLs made, made again, found by every kind of filter, and removed."""

    def create(*acls: AclCreation) -> list[str]:
        return [error_name(each.error_code) for each in admin.ask(CreateAclsRequest(creations=list(acls))).results]

    def entry(name: str = "f.one", pattern: PatternType = PatternType.LITERAL, **changes: Any) -> AclCreation:
        made = acl("*", Operation.READ, TOPIC, name, pattern)
        made.principal = "User:filtered"
        return made.replaced(**changes)

    mine = {"principal_filter": "User:filtered"}
    found: dict[str, Any] = {
        "created": create(
            entry(),
            entry("f.", PatternType.PREFIXED),
            entry("f.one", PatternType.PREFIXED),
            entry("*"),
            entry(host="10.0.0.1", permission_type=Permission.DENY),
            entry(resource_type=GROUP, operation=Operation.ALL),
            entry("g.one"),
        ),
        "again": create(entry(), entry()),
        "invalid": create(
            entry(""),
            entry(resource_type=CLUSTER),
            entry(resource_type=CLUSTER, resource_name=CLUSTER_NAME, operation=Operation.ALTER),
        ),
        "only a filter's": [
            create(entry(), entry(operation=Operation.ANY)),
            create(entry(permission_type=Permission.ANY)),
            create(entry(resource_type=ResourceType.ANY)),
            create(entry(pattern=PatternType.MATCH)),
        ],
        "no principal": create(entry(principal="nobody")),
    }
    wait_until(lambda: len(describe(admin, **mine)), 8)
    for name in ("f.one", "f.two", "g.one", "*", "nothing"):
        for pattern in PatternType:
            if pattern is not PatternType.UNKNOWN:
                found[f"{pattern.name} {name}"] = describe(
                    admin, resource_name_filter=name, pattern_type_filter=pattern, **mine
                )
    found |= {
        "of topics": describe(admin, resource_type_filter=TOPIC, **mine),
        "of a host": describe(admin, host_filter="10.0.0.1", **mine),
        "for all": describe(admin, host_filter="*", operation=Operation.ALL, **mine),
        "denying": describe(admin, permission_type=Permission.DENY, **mine),
        "of nobody": describe(admin, principal_filter="User:nobody-else"),
    }

    def delete(**filters: Any) -> list[tuple[Any, ...]]:
        fields = {"resource_type_filter": 1, "pattern_type_filter": 1, "operation": 1, "permission_type": 1}
        anything = {"resource_name_filter": None, "host_filter": None}
        asked = [DeleteAclsFilter(**fields | anything | mine | each) for each in (filters, filters)]
        answer = admin.ask(DeleteAclsRequest(filters=asked))
        return [
            (error_name(each.error_code), sorted((acl.resource_name, acl.pattern_type) for acl in each.matching_acls))
            for each in answer.filter_results
        ]

    found["deleted"] = delete(resource_name_filter="f.one", pattern_type_filter=PatternType.MATCH)
    wait_until(lambda: len(describe(admin, **mine)), 2)
    found["left"] = describe(admin, **mine)
    found["all deleted"] = delete()
    wait_until(lambda: describe(admin, **mine), [])
    found["none left"] = describe(admin, **mine)
    return found


def denied_and_taken_back(admin: Wire) -> dict[str, Any]:
    """What one ACL denies, whatever others allow; and a fetch session whose permission ends."""
    guest = "127.0.9.9"

    def grant(*acls: AclCreation) -> None:
        assert not any(each.error_code for each in admin.ask(CreateAclsRequest(creations=list(acls))).results)
        wait_until(lambda: len(describe(admin, host_filter=guest)), len(acls))

    def revoke(operation: Operation) -> None:
        asked = DeleteAclsFilter(
            resource_type_filter=1, pattern_type_filter=1, host_filter=guest, operation=operation, permission_type=1
        )
        asked.resource_name_filter = asked.principal_filter = None
        admin.ask(DeleteAclsRequest(filters=[asked]))
        wait_until(lambda: describe(admin, host_filter=guest, operation=operation), [])

    found = {}
    grant(
        acl(guest, Operation.ALL, TOPIC, "access", PatternType.PREFIXED),
        acl(guest, Operation.WRITE, TOPIC, "*", PatternType.LITERAL).replaced(permission_type=Permission.DENY),
    )
    with Wire(admin.servers, source=guest) as client:

        def fetch(session: int, epoch: int, *topics: str) -> Any:
            partition = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1000)
            asked = [FetchTopic(topic=topic, partitions=[partition]) for topic in topics]
            request = FetchRequest(min_bytes=0, max_wait_ms=0, session_id=session, session_epoch=epoch, topics=asked)
            return client.ask(request, 12)

        def errors(answer: Any) -> list[tuple[str, str]]:
            return [(each.topic, error_name(each.partitions[0].error_code)) for each in answer.responses]

        found["denied"] = error_name(client.produce("access.there", batch_of(b"v")).error_code)
        found["described"] = error_name(client.metadata("access.there").error_code)
        begun = fetch(0, 0, "access.there")
        found["read"] = errors(begun)
        revoke(Operation.ALL)
        found["no more"] = errors(fetch(begun.session_id, 1))
        revoke(Operation.WRITE)
        found["without an answer"] = _produce_unanswered(client)
    return found


def _produce_unanswered(client: Wire) -> str:
    """A produce with acks=0 that is not allowed: the client learns of it by being hung up on."""
    data = PartitionProduceData(index=0, records=batch_of(b"v"))
    topic = TopicProduceData(name="access.there", partition_data=[data])
    client.send(ProduceRequest(acks=0, timeout_ms=1000, topic_data=[topic]), 12)
    try:
        return f"{len(client.receive())} bytes"
    except ConnectionError as closed:
        return str(closed)


def described_groups(admin: Wire) -> dict[str, Any]:
    """Groups with members, listed and described by clients that may not know of all their topics."""
    guests = {
        "topics": ("127.0.9.1", [(Operation.DESCRIBE, GROUP, "seen"), (Operation.DESCRIBE, TOPIC, "access")]),
        "no topics": ("127.0.9.2", [(Operation.DESCRIBE, GROUP, "seen")]),
        "cluster": ("127.0.9.3", [(Operation.DESCRIBE, CLUSTER, CLUSTER_NAME)]),
    }
    acls = [
        acl(host, operation, kind, name, PatternType.LITERAL if kind is CLUSTER else PatternType.PREFIXED)
        for host, granted in guests.values()
        for operation, kind, name in granted
    ]
    assert not any(each.error_code for each in admin.ask(CreateAclsRequest(creations=acls)).results)
    for host, granted in guests.values():
        wait_until(lambda host=host: len(describe(admin, host_filter=host)), len(granted))
    beat = ConsumerGroupHeartbeatRequest(
        group_id="seen",
        member_id="m",
        member_epoch=0,
        rebalance_timeout_ms=10000,
        subscribed_topic_names=["access.there"],
        topic_partitions=[],
    )
    assert admin.ask(beat).error_code == 0
    found: dict[str, Any] = {}
    for name, (host, _) in guests.items():
        with Wire(admin.servers, source=host) as client:
            listed = client.ask(ListGroupsRequest())
            told = client.ask(ConsumerGroupDescribeRequest(group_ids=["seen"], include_authorized_operations=True))
            (group,) = told.groups
            found[name] = {
                "listed": [each.group_id for each in listed.groups if each.group_id == "seen"],
                "error": error_name(group.error_code),
                "operations": group.authorized_operations,
                "members": [(each.member_id, each.subscribed_topic_names) for each in group.members],
            }
    leaving = ConsumerGroupHeartbeatRequest(group_id="seen", member_id="m", member_epoch=-1)
    admin.ask(leaving)
    return found


def by_tools(admin: Wire) -> dict[str, Any]:
    """Kafka's own tool and ours, each on both brokers, each seeing what the other has done."""
    headrace = partial(run_cli, bootstrap=admin.servers)
    mine = {"principal_filter": "User:tooled"}
    found: dict[str, Any] = {}
    with Java(admin.servers) as java:
        added = java.acls("--add", "--allow-principal", "User:tooled", "--consumer", "--topic", "tt", "--group", "tg")
        found["added"] = (added.status, sorted(added.lines))
        found["listed by ours"] = wait_until(
            lambda: sorted(
                (each["resource"], each["name"], each["operation"])
                for each in headrace("acl", "list", "--principal", "tooled", "--json").json
            ),
            [("group", "tg", "read"), ("topic", "tt", "describe"), ("topic", "tt", "read")],
        )
        assert len(found["listed by ours"]) == 3
        found["removed by ours"] = headrace("acl", "remove", "tooled", "describe", "--topic", "tt").out
        headrace("acl", "add", "tooled", "write", "--topic", "tt", "--prefix", "--deny", "--host", "10.0.0.1")
        wait_until(lambda: len(describe(admin, **mine)), 3)
        found["listed"] = sorted(java.acls("--list", "--principal", "User:tooled").lines)
        removed = java.acls("--remove", "--topic", "tt", "--resource-pattern-type", "match", "--force")
        found["removed"] = (removed.status, removed.errors)
        wait_until(lambda: len(describe(admin, **mine)), 1)
        found["left"] = describe(admin, **mine)
    return found


SCENARIOS: tuple[Callable[[Wire], dict[str, Any]], ...] = (
    change_acls,
    denied_and_taken_back,
    described_groups,
    by_tools,
)


def outcome(client: Wire, request: Message, version: int | None) -> str:
    """Whether the broker answers at all, and with what error."""
    try:
        answer = client.ask(request, version)
    except ConnectionError as closed:
        return str(closed)
    return error_name(getattr(answer, "error_code", 0))


def before_login(servers: str) -> dict[str, Any]:
    """What a client is answered that has to log in, and has not."""
    found = {}
    for case in CASES:
        with Wire(servers) as client:
            found[case.title] = outcome(client, case.request(World("nobody", topic_id=ID, other_id=ID)), case.version)
    return found


def after_login(servers: str, admin: Wire) -> dict[str, Any]:
    """Users with names: one with an ACL, one without, one that everybody's ACL denies, and a super user."""
    creations = [
        acl("*", Operation.READ, TOPIC, "access.", PatternType.PREFIXED).replaced(principal="User:alice"),
        acl("*", Operation.READ, TOPIC, "access.missing", PatternType.LITERAL).replaced(
            principal="User:*", permission_type=Permission.DENY
        ),
    ]
    assert not any(each.error_code for each in admin.ask(CreateAclsRequest(creations=creations)).results)
    wait_until(lambda: len(describe(admin, principal_filter="User:*")), 1)
    found = {}
    for user in ("alice", "bob", "root"):
        with Wire(servers) as client:
            client.ask(SaslHandshakeRequest(mechanism="PLAIN"), 1)
            token = f"\0{user}\0{SECRET}".encode()
            assert client.ask(SaslAuthenticateRequest(auth_bytes=token), 1).error_code == 0
            found[user] = [
                error_name(client.fetch("access.there", 0).error_code),
                error_name(client.fetch("access.missing", 0).error_code),
                error_name(client.metadata("access.missing").error_code),
                outcome(client, LIST_ACLS, None),
            ]
    return found


# What everybody may ask for, and Kafka serves only with a plugin.
OF_CLIENT_METRICS = {ApiKey.GET_TELEMETRY_SUBSCRIPTIONS, ApiKey.PUSH_TELEMETRY}


def test_every_api_is_in_the_table() -> None:
    assert {ApiKey(key) for key in HANDLERS} - OF_CLIENT_METRICS == {case.api for case in CASES}
    assert all(HANDLERS[key].needs == NOTHING for key in OF_CLIENT_METRICS)


def test_access(kafka_jars: Path, tmp_path: Path) -> None:
    """All cases in one test: they share two brokers, and a second Kafka would cost more than all of them."""
    users = tmp_path / "users"
    users.touch(0o600)
    users.write_text("".join(f"{user}={SECRET}\n" for user in USERS))
    settings = {"authorization": "on", "users.file": str(users), "sasl.enabled.mechanisms": "PLAIN"}
    known = " ".join(f'user_{user}="{SECRET}"' for user in USERS)
    login = f"org.apache.kafka.common.security.plain.PlainLoginModule required {known};"
    properties = {
        "authorizer.class.name": STANDARD,
        "sasl.enabled.mechanisms": "PLAIN",
        "listener.name.sasl_plaintext.plain.sasl.jaas.config": login,
        "connection.failed.authentication.delay.ms": "0",
    }
    listeners = {"SASL_PLAINTEXT": "SASL_PLAINTEXT"}
    listen = ["127.0.0.1:0", "SASL_PLAINTEXT://127.0.0.1:0"]
    complaints = []
    with (
        running_kafka(tmp_path / "kafka", properties=BOTH | properties, listeners=listeners) as kafka,
        Broker(listen=listen, settings=BOTH | settings, own_process=True) as broker,
        ExitStack() as stack,
    ):
        plain_address, sasl_address = broker.bootstrap_servers.split(",")
        admins = []
        for servers in (kafka.bootstrap_servers, plain_address):
            furnish(servers)
            admins.append(stack.enter_context(Wire(servers)))
        for case in CASES:
            theirs, ours = [answers(admin, case) for admin in admins]
            complaints.append(mismatch(f"access_{case.title}[wire]", ours, theirs))
            if case.grants and ours["nothing"] == ours["everything"]:
                complaints.append(f"{case.title}: the permissions make no difference")
        for scenario in SCENARIOS:
            theirs, ours = [scenario(admin) for admin in admins]
            complaints.append(mismatch(f"{scenario.__name__}[wire]", ours, theirs))
        logins = (kafka.servers_of("SASL_PLAINTEXT"), sasl_address)
        theirs, ours = [before_login(servers) for servers in logins]
        complaints.append(mismatch("before_login[wire]", ours, theirs))
        assert {title for title, each in ours.items() if each != CLOSED} == {"api_versions", "sasl_handshake"}
        theirs, ours = [after_login(servers, admin) for servers, admin in zip(logins, admins, strict=True)]
        complaints.append(mismatch("after_login[wire]", ours, theirs))
    wrong = [complaint for complaint in complaints if complaint]
    assert not wrong, "\n\n".join(wrong)
