"""Questions about partitions, each put to the broker that leads it.

A question is one kind of request. The partitions are grouped by leader, the requests all go out before the first answer
is waited for, and whatever came back with an error that may pass (a leader that moved, a broker that restarts) is asked
again with new metadata after a pause. An error that will not pass is raised at once.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Generic, NamedTuple, TypeVar

from headrace.client.cluster import Cluster, is_passing
from headrace.client.connection import Connection, Ticket
from headrace.client.errors import ClientError, LostConnection, Refused
from headrace.model import TopicPartition
from headrace.protocol.errors import ErrorCode
from headrace.protocol.schema import Message

M = TypeVar("M", bound=Message)
R = TypeVar("R")


@dataclass(frozen=True, slots=True)
class Question(Generic[M, R]):
    """How to ask about some partitions that one broker leads, and how to read its answer."""

    response: type[M]
    ask: Callable[[list[TopicPartition]], Message]
    read: Callable[[M], Iterable[tuple[TopicPartition, R | ClientError]]]
    highest: int | None = None  # the highest version that may be used
    timeout_s: float | None = None
    # Whether a request whose answer was lost may be sent again: not if doing a thing twice is worse than an error.
    may_repeat: bool = True


class _Sent(NamedTuple):
    connection: Connection
    ticket: Ticket
    partitions: list[TopicPartition]


def by_leader(cluster: Cluster, partitions: Iterable[TopicPartition]) -> dict[int, list[TopicPartition]]:
    """The partitions of each leader; under a negative number are those that wait for an election."""
    groups: dict[int, list[TopicPartition]] = {}
    for partition in partitions:
        groups.setdefault(cluster.leader_of(partition), []).append(partition)
    return groups


def ask_leaders(
    cluster: Cluster, partitions: Iterable[TopicPartition], question: Question[M, R]
) -> dict[TopicPartition, R]:
    """The answer for each partition; raises the first error that stays."""
    asked = list(partitions)
    results: dict[TopicPartition, R] = {}
    left = asked
    pauses = cluster.retry.pauses()
    while left:
        errors: dict[TopicPartition, ClientError] = {}
        for partition, outcome in _ask_once(cluster, left, question):
            if isinstance(outcome, ClientError):
                errors[partition] = outcome
            else:
                results[partition] = outcome
        left = [partition for partition in left if partition not in results]
        if left:
            # An answer that leaves a partition out has not said that all is well.
            found = [errors.get(where) or refused(where, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION) for where in left]
            pause = next(pauses, None)
            for error in found:
                if pause is None or not is_passing(error, may_repeat=question.may_repeat):
                    raise error
            cluster.pause(pause or 0.0)
            cluster.refresh({partition.topic for partition in left})
    return {partition: results[partition] for partition in asked}


def _ask_once(
    cluster: Cluster, partitions: list[TopicPartition], question: Question[M, R]
) -> Iterator[tuple[TopicPartition, R | ClientError]]:
    sent: list[_Sent] = []
    for leader, group in by_leader(cluster, partitions).items():
        if leader < 0:
            yield from ((partition, refused(partition, ErrorCode.LEADER_NOT_AVAILABLE)) for partition in group)
            continue
        try:
            connection = cluster.broker(leader)
            ticket = connection.send(
                question.ask(group), question.response, highest=question.highest, timeout_s=question.timeout_s
            )
        except LostConnection as lost:
            yield from [(partition, lost) for partition in group]
        else:
            sent.append(_Sent(connection, ticket, group))
    for connection, ticket, group in sent:
        try:
            response = connection.receive(ticket, question.response)
        except LostConnection as lost:
            yield from [(partition, lost) for partition in group]
        else:
            yield from question.read(response)


def refused(partition: TopicPartition, code: int, message: str | None = None) -> Refused:
    """What a broker's error code about a partition says."""
    return Refused(f"partition {partition}", ErrorCode.of(code), message)


def by_topic(partitions: Iterable[TopicPartition]) -> dict[str, list[int]]:
    """The partitions' numbers under their topics, as nearly every request wants them."""
    topics: dict[str, list[int]] = {}
    for partition in partitions:
        topics.setdefault(partition.topic, []).append(partition.partition)
    return topics
