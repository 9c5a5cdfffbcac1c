"""The rows about authorisation: what a broker that asks its ACLs spends more than the same one that does not.

Both brokers run twice, without an authorizer and with one and `ACLS` ACLs, of which some bear on the topic. A slice of
load goes to one, the next to the other, and what counts is the broker's processor time for a gigabyte: it is there when
the machine is busy with something else, too.
"""

import statistics
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import TYPE_CHECKING

import broker_load as load
import broker_report as report
from broker_report import Figures, Row
from broker_wire import Wire, make_batch
from brokers import Contender
from headrace.protocol.messages.create_acls import AclCreation, CreateAclsRequest, CreateAclsResponse
from headrace.security.acl import Operation, PatternType, Permission, ResourceType

if TYPE_CHECKING:
    from broker import Bench

KIB = 1024
ACLS = 100
SLICES = 8  # of each kind in a round
_PREFIX = "bench-"  # of every topic here
_TOPIC_BYTES = 100_000_000


def authorization_rows(bench: "Bench") -> Iterator[Row]:
    names = {"produce": "authorisation: produce 16 KiB batches, acks=1, os", "fetch": "authorisation: fetch 64 KiB"}
    if not any(bench.plan.wants("authorization", name) for name in names.values()):
        return
    plain = bench.pair("os")
    asking = dict(zip((broker.name for broker in plain), bench.pair("acl"), strict=True))
    for broker in asking.values():
        add_acls(broker)
    if bench.plan.wants("authorization", names["produce"]):
        batch = make_batch(16 * KIB, KIB)

        def produce(broker: Contender) -> Figures:
            return _compare(
                broker,
                asking[broker.name],
                lambda one: load.produce(one, batch, 1, bench.plan.seconds / SLICES).figures(batch.records),
            )

        yield bench.row(names["produce"], plain, produce, report.AUTHORIZATION_GOALS)
    if bench.plan.wants("authorization", names["fetch"]):
        large = make_batch(64 * KIB, KIB)
        with ExitStack() as stack:
            topics = {
                one.address: stack.enter_context(load.filled_topic(one, large, _TOPIC_BYTES))
                for one in (*plain, *asking.values())
            }

            def fetch(broker: Contender) -> Figures:
                return _compare(
                    broker,
                    asking[broker.name],
                    lambda one: load.fetch(one, topics[one.address], large, 1, bench.plan.seconds / SLICES).figures(
                        large.records
                    ),
                )

            yield bench.row(names["fetch"], plain, fetch, report.AUTHORIZATION_GOALS)


def _compare(plain: Contender, asking: Contender, run: Callable[[Contender], Figures]) -> Figures:
    found: dict[str, list[Figures]] = {"plain": [], "asking": []}
    for number in range(SLICES):
        pair = [("plain", plain), ("asking", asking)]
        for name, broker in pair if number % 2 else reversed(pair):
            found[name].append(run(broker))
    cpu = {name: statistics.median(each["cpu_s_per_gb"] for each in slices) for name, slices in found.items()}
    return {"more_cpu_percent": (cpu["asking"] / cpu["plain"] - 1) * 100, "cpu_s_per_gb": cpu["asking"]}


def add_acls(broker: Contender) -> None:
    """Let the load, which is nobody by name, do what it does, among ACLs of others."""
    others = [
        _acl(f"User:user-{number}", f"{_PREFIX}{number}", PatternType.LITERAL, Operation.READ)
        for number in range(ACLS - 4)
    ]
    own = [
        _acl("User:ANONYMOUS", _PREFIX, PatternType.PREFIXED, operation)
        for operation in (Operation.READ, Operation.WRITE, Operation.CREATE, Operation.DELETE)
    ]
    with Wire(broker.address) as wire:
        results = wire.call(CreateAclsRequest(creations=[*others, *own]), CreateAclsResponse, 3).results
    refused = [result.error_message for result in results if result.error_code]
    assert not refused, refused


def _acl(principal: str, name: str, pattern: PatternType, operation: Operation) -> AclCreation:
    return AclCreation(
        resource_type=ResourceType.TOPIC,
        resource_name=name,
        resource_pattern_type=pattern,
        principal=principal,
        host="*",
        operation=operation,
        permission_type=Permission.ALLOW,
    )
