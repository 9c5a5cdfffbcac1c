"""How long a group of fifty takes to settle again when one more member has come, by both protocols.

The members are only their requests, on a connection each, and say at once what a real one says at its next heartbeat:
what is measured is the broker's part, not the clients' intervals.
"""

import time
from contextlib import ExitStack
from itertools import count
from typing import TypeVar
from uuid import uuid4

from broker_wire import TIMEOUT_S, Refused, Wire
from brokers import Contender
from headrace.protocol.errors import ErrorCode
from headrace.protocol.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    TopicPartitions,
)
from headrace.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from headrace.protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol, JoinGroupResponse
from headrace.protocol.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment, SyncGroupResponse

MEMBERS = 50
PARTITIONS = 100
_JOIN_VERSION, _SYNC_VERSION, _HEARTBEAT_VERSION = 3, 2, 1  # a JoinGroup of 3 needs no second one for its member id
_METADATA = bytes(10)  # a subscription to nothing: what members tell each other is not the broker's business
_SHARE = bytes(50)
_numbers = count()
M = TypeVar("M", ConsumerGroupHeartbeatResponse, JoinGroupResponse, SyncGroupResponse)


def rebalance(broker: Contender, protocol: str) -> dict[str, float]:
    """From the request of the fiftieth member until all fifty have what they are to have."""
    group = f"bench-group-{next(_numbers):04d}"
    with ExitStack() as stack:
        topic = stack.enter_context(broker.topic(PARTITIONS))
        wires = [stack.enter_context(Wire(broker.address)) for _ in range(MEMBERS)]
        wires[0].find_coordinator(0, group)
        settle = _classic if protocol == "classic" else _consumer
        return {"rebalance_ms": settle(wires, group, topic) * 1e3}


def _classic(wires: list[Wire], group: str, _: str) -> float:
    """Members come one by one, since who comes while a round ends begins another; the last one is timed."""
    ids = [""] * len(wires)
    generation = -1
    took = 0.0
    for size in range(1, len(wires) + 1):
        started = time.perf_counter()
        wires[size - 1].ask(_join(group, ""), _JOIN_VERSION)
        # The others are told by a heartbeat. Who came back without that might be there before the newcomer.
        unaware = list(range(size - 1))
        while unaware:
            for place in unaware:
                request = HeartbeatRequest(group_id=group, generation_id=generation, member_id=ids[place])
                wires[place].ask(request, _SYNC_VERSION)
            told = [place for place in unaware if _is_told(wires[place].answer(HeartbeatResponse, _SYNC_VERSION))]
            for place in told:
                wires[place].ask(_join(group, ids[place]), _JOIN_VERSION)
            unaware = [place for place in unaware if place not in told]
        answers = [_good(wire.answer(JoinGroupResponse, _JOIN_VERSION)) for wire in wires[:size]]
        ids[:size] = [answer.member_id for answer in answers]
        generation = answers[0].generation_id
        if any(answer.generation_id != generation for answer in answers):
            raise Refused("not all are in one generation")
        for wire, answer in zip(wires, answers, strict=False):
            shares = [SyncGroupRequestAssignment(member_id=m.member_id, assignment=_SHARE) for m in answer.members]
            request = SyncGroupRequest(
                group_id=group, generation_id=generation, member_id=answer.member_id, assignments=shares
            )
            wire.ask(request, _SYNC_VERSION)
        synced = [_good(wire.answer(SyncGroupResponse, _SYNC_VERSION)) for wire in wires[:size]]
        took = time.perf_counter() - started
        if any(answer.assignment != _SHARE for answer in synced):
            raise Refused("somebody was assigned nothing")
    return took


def _join(group: str, member_id: str) -> JoinGroupRequest:
    return JoinGroupRequest(
        group_id=group,
        session_timeout_ms=30_000,
        rebalance_timeout_ms=30_000,
        member_id=member_id,
        protocol_type="consumer",
        protocols=[JoinGroupRequestProtocol(name="range", metadata=_METADATA)],
    )


def _is_told(answer: HeartbeatResponse) -> bool:
    if answer.error_code not in (ErrorCode.NONE, ErrorCode.REBALANCE_IN_PROGRESS):
        raise Refused(f"heartbeat: {ErrorCode(answer.error_code).name}")
    return answer.error_code == ErrorCode.REBALANCE_IN_PROGRESS


def _good(answer: M) -> M:
    if answer.error_code:
        raise Refused(f"{type(answer).__name__}: {ErrorCode(answer.error_code).name}")
    return answer


class _Member:
    """A member of a group of the new protocol."""

    def __init__(self, wire: Wire, group: str, topic: str) -> None:
        self.wire, self.group, self.topic = wire, group, topic
        self.id = str(uuid4())
        self.epoch = 0
        self.owned: list[TopicPartitions] = []

    def heartbeat(self) -> ConsumerGroupHeartbeatRequest:
        request = ConsumerGroupHeartbeatRequest(
            group_id=self.group, member_id=self.id, member_epoch=self.epoch, topic_partitions=self.owned
        )
        if self.epoch == 0:
            request.rebalance_timeout_ms = 30_000
            request.subscribed_topic_names = [self.topic]
        return request

    def take(self) -> None:
        answer = _good(self.wire.answer(ConsumerGroupHeartbeatResponse, _HEARTBEAT_VERSION))
        self.epoch = answer.member_epoch
        if answer.assignment is not None:
            self.owned = answer.assignment.topic_partitions

    @property
    def partitions(self) -> int:
        return sum(len(each.partitions) for each in self.owned)


def _consumer(wires: list[Wire], group: str, topic: str) -> float:
    members = [_Member(wire, group, topic) for wire in wires]

    def settle(some: list[_Member]) -> None:
        """Have all say and hear what there is, until every partition is somebody's and nobody has more than a share."""
        deadline = time.monotonic() + TIMEOUT_S
        share = -(-PARTITIONS // len(some))
        while (
            sum(m.partitions for m in some) != PARTITIONS
            or max(m.partitions for m in some) > share
            or len({m.epoch for m in some}) != 1
        ):
            if time.monotonic() > deadline:
                raise Refused(f"the group did not settle: {[(m.epoch, m.partitions) for m in some]}")
            for member in some:
                member.wire.ask(member.heartbeat(), _HEARTBEAT_VERSION)
            for member in some:
                member.take()

    settle(members[:-1])
    started = time.perf_counter()
    settle(members)
    return time.perf_counter() - started
