"""A member's session with one broker: what it sends, and what it makes of the answers."""

from uuid import UUID

from headrace.client.share_session import Ack, Outcome, Place, ShareSession, batches_of, offsets_in
from headrace.client.transactions import Transaction
from headrace.coordinator.share.acknowledgement import AckType
from headrace.protocol.errors import ErrorCode
from headrace.protocol.messages.share_acknowledge import (
    PartitionData,
    ShareAcknowledgeResponse,
    ShareAcknowledgeTopicResponse,
)
from headrace.protocol.messages.share_fetch import AcquiredRecords

TOPIC = UUID(int=7).bytes
FIRST, SECOND = Place(TOPIC, 0), Place(TOPIC, 1)
ACCEPT, RELEASE, RENEW = Ack(AckType.ACCEPT), Ack(AckType.RELEASE), Ack(AckType.RENEW)


def session() -> ShareSession:
    return ShareSession("group", "member", 1)


def answer(*refused: tuple[int, ErrorCode]) -> ShareAcknowledgeResponse:
    partitions = [PartitionData(partition_index=index, error_code=code) for index, code in refused]
    return ShareAcknowledgeResponse(responses=[ShareAcknowledgeTopicResponse(topic_id=TOPIC, partitions=partitions)])


def said(request) -> dict[int, list[tuple[int, int, int]]]:
    return {
        partition.partition_index: [
            (batch.first_offset, batch.last_offset, batch.acknowledge_types[0])
            for batch in partition.acknowledgement_batches
        ]
        for topic in request.topics
        for partition in topic.partitions
    }


def test_a_session_begins_with_its_partitions_and_then_names_what_changes() -> None:
    made = session()
    first = made.fetch([FIRST, SECOND], 10, 500)
    assert (first.share_session_epoch, said(first)) == (0, {0: [], 1: []})
    made.read(answer())
    again = made.fetch([FIRST, SECOND], 10, 500)
    assert (again.share_session_epoch, again.topics, again.forgotten_topics_data) == (1, [], [])
    made.read(answer())
    fewer = made.fetch([SECOND], 10, 500)
    assert fewer.share_session_epoch == 2
    assert [(each.topic_id, each.partitions) for each in fewer.forgotten_topics_data] == [(TOPIC, [0])]


def test_what_is_said_goes_with_the_next_fetch_and_is_durable_with_its_answer() -> None:
    made = session()
    made.fetch([FIRST], 10, 0)
    made.read(answer())
    for offset, ack in ((3, ACCEPT), (1, ACCEPT), (2, ACCEPT), (5, RELEASE)):
        made.acknowledge(FIRST, offset, ack)
    assert said(made.fetch([FIRST], 10, 0)) == {0: [(1, 3, 1), (5, 5, 2)]}
    outcomes = made.read(answer())
    assert sorted(outcome.offset for outcome in outcomes) == [1, 2, 3, 5]
    assert {outcome.error for outcome in outcomes} == {None}
    assert made.acknowledgement() is None


def test_of_several_that_are_refused_together_only_the_one_at_fault_is_given_up() -> None:
    made = session()
    made.fetch([FIRST], 10, 0)
    made.read(answer())
    for offset in range(8):
        made.acknowledge(FIRST, offset, ACCEPT)
    outcomes = []
    while request := made.acknowledgement():
        (batches,) = said(request).values()
        lapsed = any(first <= 5 <= last for first, last, _ in batches)
        outcomes += made.read(answer((0, ErrorCode.INVALID_RECORD_STATE)) if lapsed else answer())
    assert {outcome.offset for outcome in outcomes if outcome.error is None} == {0, 1, 2, 3, 4, 6, 7}
    assert [outcome.offset for outcome in outcomes if outcome.error] == [5]


def test_what_may_be_refused_for_a_moment_is_said_again() -> None:
    made = session()
    made.fetch([FIRST], 10, 0)
    made.read(answer())
    made.acknowledge(FIRST, 1, ACCEPT)
    made.acknowledgement()
    assert made.read(answer((0, ErrorCode.KAFKA_STORAGE_ERROR))) == []
    assert made.is_put_off
    made.acknowledge(FIRST, 2, ACCEPT)
    assert said(made.acknowledgement()) == {0: [(1, 2, 1)]}
    moved = made.read(answer((0, ErrorCode.NOT_LEADER_OR_FOLLOWER)))
    assert [outcome.error for outcome in moved] == [ErrorCode.NOT_LEADER_OR_FOLLOWER] * 2


def test_locks_are_renewed_by_requests_of_their_own_and_not_once_more_is_said() -> None:
    made = session()
    made.fetch([FIRST], 10, 0)
    made.read(answer())
    made.acknowledge(FIRST, 1, RENEW)
    made.acknowledge(FIRST, 2, RENEW)
    made.acknowledge(FIRST, 2, ACCEPT)
    renewal = made.renew()
    assert renewal is not None
    assert renewal.is_renew_ack
    assert said(renewal) == {0: [(1, 1, 4)]}
    assert made.read(answer()) == [Outcome(FIRST, 1, RENEW)]
    assert made.renew() is None
    last = made.close()
    assert (last.share_session_epoch, said(last)) == (-1, {0: [(2, 2, 1)]})


def test_when_a_session_ends_nothing_that_was_said_is_forgotten() -> None:
    made = session()
    made.fetch([FIRST, SECOND], 10, 0)
    made.read(answer())
    made.acknowledge(FIRST, 1, ACCEPT)
    made.acknowledgement()
    made.acknowledge(FIRST, 2, ACCEPT)
    made.acknowledge(SECOND, 1, RELEASE)
    ended = made.end()
    assert sorted((outcome.place, outcome.offset) for outcome in ended) == [(FIRST, 1), (FIRST, 2), (SECOND, 1)]
    assert all(outcome.error for outcome in ended)
    assert made.end() == []


def test_batches_are_runs_of_which_the_same_is_said() -> None:
    later = Ack(AckType.RELEASE, 500, "busy")
    found = batches_of({1: ACCEPT, 2: ACCEPT, 4: ACCEPT, 5: later, 6: later, 7: RELEASE})
    assert [(each.first_offset, each.last_offset, each.retry_after_ms, each.reason) for each in found] == [
        (1, 2, -1, ""),
        (4, 4, -1, ""),
        (5, 6, 500, "busy"),
        (7, 7, -1, ""),
    ]
    runs = [AcquiredRecords(first_offset=3, last_offset=4, delivery_count=1)]
    assert offsets_in([*runs, AcquiredRecords(first_offset=9, last_offset=9, delivery_count=2)]) == {3: 1, 4: 1, 9: 2}


def test_what_is_said_of_a_partition_that_was_taken_away_goes_without_a_fetch() -> None:
    made = session()
    made.fetch([FIRST, SECOND], 10, 0)
    made.read(answer())
    made.acknowledge(SECOND, 1, ACCEPT)
    assert made.must_acknowledge([FIRST])
    assert not made.must_acknowledge([FIRST, SECOND])
    assert said(made.acknowledgement()) == {1: [(1, 1, 1)]}
    assert not made.must_acknowledge([FIRST])


def test_what_is_part_of_a_transaction_goes_by_a_request_of_its_own() -> None:
    made = session()
    made.fetch([FIRST], 10, 0)
    made.read(answer())
    mine, other = Transaction("mine", 7, 1), Transaction("other", 8, 0)
    made.acknowledge(FIRST, 1, ACCEPT._replace(transaction=mine))
    made.acknowledge(FIRST, 2, ACCEPT)
    made.acknowledge(FIRST, 3, ACCEPT._replace(transaction=other))
    made.acknowledge(SECOND, 4, ACCEPT._replace(transaction=mine))
    request = made.acknowledgement_in_transaction()
    assert request is not None
    assert said(request) == {0: [(1, 1, 1)], 1: [(4, 4, 1)]}
    assert (request.transactional_id, request.producer_id, request.producer_epoch) == mine
    assert [outcome.error for outcome in made.read(answer((1, ErrorCode.INVALID_PRODUCER_EPOCH)))] == [
        None,
        ErrorCode.INVALID_PRODUCER_EPOCH,
    ]
    fetched = made.fetch([FIRST], 10, 0)
    assert said(fetched) == {0: [(2, 2, 1)]}
    made.read(answer())
    assert [(outcome.offset, outcome.error) for outcome in made.end()] == [(3, ErrorCode.SHARE_SESSION_NOT_FOUND)]
    assert made.acknowledgement_in_transaction() is None
