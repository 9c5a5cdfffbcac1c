"""What fetch sessions may cost: they are bounded in number, and in what they remember together."""

import pytest

from headrace.broker.errors import BrokerError
from headrace.broker.fetches import MAX_PARTITIONS, FetchSessions, PartitionKey
from headrace.protocol.errors import ErrorCode
from headrace.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic, ForgottenTopic
from headrace.protocol.schema import ZERO_UUID
from headrace.security.principal import Principal

ONE = FetchPartition()


def asked(start: int, count: int) -> dict[PartitionKey, FetchPartition]:
    return {PartitionKey("t", ZERO_UUID, number): ONE for number in range(start, start + count)}


def begin(sessions: FetchSessions, count: int) -> int:
    _, session = sessions.begin(FetchRequest(session_id=0, session_epoch=0), asked(0, count))
    assert session is not None
    return session.id


def test_the_longest_silent_session_makes_room_in_slots_and_in_partitions() -> None:
    sessions = FetchSessions(3)
    ids = [begin(sessions, 10) for _ in range(4)]
    with pytest.raises(BrokerError):
        sessions.begin(FetchRequest(session_id=ids[0], session_epoch=1), {})
    sessions.begin(FetchRequest(session_id=ids[1], session_epoch=1), {})
    large = begin(sessions, MAX_PARTITIONS - 10)  # makes the third and the fourth go
    assert len(sessions) == 2
    sessions.begin(FetchRequest(session_id=ids[1], session_epoch=2), {})
    sessions.begin(FetchRequest(session_id=large, session_epoch=1), {})


def test_a_session_that_grows_beyond_all_bounds_goes_and_what_is_forgotten_or_ended_counts_no_more() -> None:
    sessions = FetchSessions(10)
    growing, other = begin(sessions, MAX_PARTITIONS - 20), begin(sessions, 20)
    forgotten = [ForgottenTopic(topic="t", partitions=list(range(30)))]
    sessions.begin(FetchRequest(session_id=growing, session_epoch=1, forgotten_topics_data=forgotten), {})
    sessions.begin(FetchRequest(session_id=growing, session_epoch=2), asked(MAX_PARTITIONS, 30))
    assert len(sessions) == 2
    sessions.begin(FetchRequest(session_id=other, session_epoch=-1), {})
    sessions.begin(FetchRequest(session_id=growing, session_epoch=3), asked(2 * MAX_PARTITIONS, 20))
    assert len(sessions) == 1
    partitions, _ = sessions.begin(FetchRequest(session_id=growing, session_epoch=4), asked(-1, 1))
    assert len(partitions) == MAX_PARTITIONS + 1  # served once more, and then to be begun anew
    assert len(sessions) == 0


def test_a_session_is_its_users_and_for_anybody_else_there_is_none() -> None:
    sessions = FetchSessions(10)
    alice, mallory = Principal("alice"), Principal("mallory")
    _, session = sessions.begin(FetchRequest(session_id=0, session_epoch=0), asked(0, 3), alice)
    assert session is not None
    with pytest.raises(BrokerError) as refused:
        sessions.begin(FetchRequest(session_id=session.id, session_epoch=1), {}, mallory)
    assert refused.value.code is ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    for epoch in (-1, 0):  # which end the session, if it is one's own
        sessions.begin(FetchRequest(session_id=session.id, session_epoch=epoch), {}, mallory)
    partitions, same = sessions.begin(FetchRequest(session_id=session.id, session_epoch=1), {}, alice)
    assert same is session
    assert partitions == asked(0, 3)


def test_names_that_no_topic_can_have_are_in_no_session() -> None:
    sessions = FetchSessions(10)
    endless = {PartitionKey("x" * 30_000, ZERO_UUID, 0): ONE}
    named = [FetchTopic(topic="x" * 30_000, partitions=[ONE])]
    partitions, session = sessions.begin(FetchRequest(session_id=0, session_epoch=0, topics=named), endless)
    assert (partitions, session, len(sessions)) == (endless, None, 0)
    small = begin(sessions, 1)
    with pytest.raises(BrokerError):  # its client begins anew, without one
        sessions.begin(FetchRequest(session_id=small, session_epoch=1, topics=named), endless)
