"""Who may do what: every API, asked by clients with and without the permissions that it needs, on both brokers.

Neither broker has users here: everybody is `User:ANONYMOUS`, and permissions go by the host that a client comes from.
The one at 127.0.0.1 may do everything; every other address of the loopback is a client of its own, with the ACLs of one
variant of one case.
"""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import pytest

from headrace import Broker
from headrace.broker.registry import HANDLERS
from headrace.protocol.api import ApiKey
from headrace.protocol.messages.create_acls import AclCreation, CreateAclsRequest
from headrace.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from headrace.protocol.messages.describe_acls import DescribeAclsRequest
from headrace.security.acl import CLUSTER_NAME, Operation, PatternType, Permission, ResourceType
from peers.kafka.broker import running_kafka
from tests.conformance.access_cases import CASES, CLUSTER, GROUP, TOPIC, TXN, Case, Grant, World, begin
from tests.conformance.clients.wire import Wire, plain
from tests.conformance.comparison import mismatch, wait_until

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.java

EVERYBODY = {"allow.everyone.if.no.acl.found": "true", "group.initial.rebalance.delay.ms": "0"}
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
        every = DescribeAclsRequest(resource_type_filter=1, pattern_type_filter=1, operation=1, permission_type=1)
        every.resource_name_filter = every.principal_filter = every.host_filter = None
        assert wait_until(lambda: sum(len(each.acls) for each in admin.ask(every).resources), len(acls)) == len(acls)


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


def test_every_api_is_in_the_table() -> None:
    assert {ApiKey(key) for key in HANDLERS} == {case.api for case in CASES}


def test_access(kafka_jars: Path, tmp_path: Path) -> None:
    """All cases in one test: they share two brokers, and a second Kafka would cost more than all of them."""
    properties = EVERYBODY | {"authorizer.class.name": STANDARD}
    complaints = []
    with (
        running_kafka(tmp_path / "kafka", properties=properties) as kafka,
        Broker(settings=EVERYBODY | {"authorization": "on"}, own_process=True) as broker,
        ExitStack() as stack,
    ):
        admins = []
        for servers in (kafka.bootstrap_servers, broker.bootstrap_servers):
            furnish(servers)
            admins.append(stack.enter_context(Wire(servers)))
        for case in CASES:
            theirs, ours = [answers(admin, case) for admin in admins]
            complaints.append(mismatch(f"access_{case.title}[wire]", ours, theirs))
            if case.grants and ours["nothing"] == ours["everything"]:
                complaints.append(f"{case.title}: the permissions make no difference")
    wrong = [complaint for complaint in complaints if complaint]
    assert not wrong, "\n\n".join(wrong)
