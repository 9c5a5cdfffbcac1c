"""Offsets: committed by those entitled to, kept whole, read in all forms, deleted."""

import pytest

from headrace.coordinator.decision import CoordinatorRecord
from headrace.coordinator.group.coordinator import GroupCoordinator
from headrace.coordinator.group.events import TimerFired, TopicsDeleted, TransactionEnded
from headrace.coordinator.group.offsets.commit import InTransaction
from headrace.coordinator.group.offsets.forgetting import ExpiryTimer
from headrace.coordinator.group.record_formats import OffsetCommitKey, OffsetCommitValue
from headrace.coordinator.group.settings import GroupSettings
from headrace.coordinator.group.topics import Topic, Topics, TopicsChanged
from headrace.protocol.errors import ErrorCode
from headrace.protocol.messages.offset_commit import OffsetCommitRequest
from headrace.protocol.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from headrace.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
from headrace.protocol.messages.shared import TopicIndexes
from headrace.protocol.schema import Uuid
from tests.group_requests import commit, fetch, fetched, join, stable_group, txn_commit
from tests.group_shell import START_MS, GroupShell

NOTHING = (-1, -1, "", 0)


@pytest.fixture
def shell():
    return GroupShell()


def commit_error(shell, asked, version=9):
    ((outcome,),) = [topic.partitions for topic in shell.ask(asked, version).topics]
    return outcome.error_code


def txn_error(shell, asked, version=5):
    ((outcome,),) = [topic.partitions for topic in shell.ask(asked, version).topics]
    return outcome.error_code


def delete_offsets(shell, topic, *partitions, group="g"):
    asked = OffsetDeleteRequestTopic(
        name=topic, partitions=[OffsetDeleteRequestPartition(partition_index=each) for each in partitions]
    )
    return shell.ask(OffsetDeleteRequest(group_id=group, topics=[asked]), 0)


def test_an_offset_is_kept_with_leader_epoch_and_metadata(shell):
    assert commit_error(shell, commit(42, epoch=7, metadata="kept, too")) == 0
    (kept,) = shell.kept
    assert kept.value.commit_timestamp == shell.now_ms
    assert fetched(shell, {"t": [0, 1]}) == {("t", 0): (42, 7, "kept, too", 0), ("t", 1): NOTHING}
    shell.restart()
    assert fetched(shell, {"t": [0]}) == {("t", 0): (42, 7, "kept, too", 0)}


def test_null_metadata_is_empty_metadata(shell):
    commit_error(shell, commit(42, metadata=None))
    assert fetched(shell) == {("t", 0): (42, -1, "", 0)}


def test_a_commit_answers_topics_by_name_and_id(shell):
    asked = commit(5)
    asked.topics[0].topic_id = Uuid(b"i" * 16)
    (topic,) = shell.ask(asked, 10).topics
    assert (topic.name, topic.topic_id) == ("t", b"i" * 16)
    assert shell.kept[0].value.topic_id == b"i" * 16


def test_a_commit_by_a_member_of_the_generation(shell):
    (member_id,) = stable_group(shell)
    assert commit_error(shell, commit(5, member_id=member_id, generation=1)) == 0
    assert fetched(shell) == {("t", 0): (5, -1, "", 0)}


@pytest.mark.parametrize(
    ("asked", "error"),
    [
        (commit(5), ErrorCode.UNKNOWN_MEMBER_ID),
        (commit(5, member_id="x", generation=1), ErrorCode.UNKNOWN_MEMBER_ID),
        (commit(5, member_id="c0-fresh1", generation=2), ErrorCode.ILLEGAL_GENERATION),
        (commit(5, member_id="c0-fresh1", generation=-1), ErrorCode.ILLEGAL_GENERATION),
        (commit(5, group="other", member_id="x", generation=1), ErrorCode.GROUP_ID_NOT_FOUND),
    ],
)
def test_what_a_commit_is_refused_for(shell, asked, error):
    stable_group(shell)
    assert commit_error(shell, asked) == error
    assert shell.last.records == ()
    assert fetched(shell) == {}


def test_before_version_9_a_missing_group_is_an_illegal_generation(shell):
    assert commit_error(shell, commit(5, member_id="x", generation=1), 8) == ErrorCode.ILLEGAL_GENERATION


def test_a_commit_between_join_and_sync_has_to_be_repeated(shell):
    token = shell.send(join(), 3)
    shell.advance(0)
    member_id = shell.answers[token].member_id
    asked = commit(5, member_id=member_id, generation=1)
    assert commit_error(shell, asked) == ErrorCode.REBALANCE_IN_PROGRESS


def test_a_commit_while_the_group_prepares_is_taken(shell):
    first, second = stable_group(shell, 2)
    shell.send(join(first), 9)
    assert commit_error(shell, commit(5, member_id=second, generation=1)) == 0


def test_anybody_may_commit_for_a_group_without_members(shell):
    stable_group(shell)
    shell.advance(60_000)
    assert commit_error(shell, commit(5)) == 0


def test_metadata_that_is_too_long_is_refused_for_its_partition_alone():
    shell = GroupShell(GroupSettings(offset_metadata_max_bytes=3))
    asked = commit(5, metadata="long")
    asked.topics += commit(6, topic="u", metadata="ok").topics
    answer = shell.ask(asked, 9)
    errors = [topic.partitions[0].error_code for topic in answer.topics]
    assert errors == [ErrorCode.OFFSET_METADATA_TOO_LARGE, 0]
    assert fetched(shell) == {("u", 0): (6, -1, "ok", 0)}


def test_the_forms_of_fetching(shell):
    for partition in (2, 0):
        commit_error(shell, commit(partition + 10, partition=partition))
    commit_error(shell, commit(5, topic="u"))
    everything = {("t", 0): (10, -1, "", 0), ("t", 2): (12, -1, "", 0), ("u", 0): (5, -1, "", 0)}
    assert fetched(shell) == everything
    assert fetched(shell, {}) == {}
    assert fetched(shell, group="other") == {}
    assert fetched(shell, {"t": [0]}, group="other") == {("t", 0): NOTHING}

    for version in range(1, 8):
        topics = [TopicIndexes(name="t", partition_indexes=[0, 1])]
        answer = shell.ask(OffsetFetchRequest(group_id="g", topics=topics), version)
        assert [each.committed_offset for each in answer.topics[0].partitions] == [10, -1]
        assert answer.error_code == 0
    for version in range(2, 8):
        answer = shell.ask(OffsetFetchRequest(group_id="g", topics=None), version)
        assert {topic.name: len(topic.partitions) for topic in answer.topics} == {"t": 2, "u": 1}


def test_many_groups_are_fetched_at_once_and_topics_answered_by_id(shell):
    commit_error(shell, commit(5))
    commit_error(shell, commit(6, group="h"))
    topic = OffsetFetchRequestTopics(name="t", topic_id=Uuid(b"i" * 16), partition_indexes=[0])
    asked = [OffsetFetchRequestGroup(group_id=group, topics=[topic]) for group in ("g", "h", "k")]
    answer = shell.ask(OffsetFetchRequest(groups=asked), 10)
    assert [group.group_id for group in answer.groups] == ["g", "h", "k"]
    assert [group.topics[0].partitions[0].committed_offset for group in answer.groups] == [5, 6, -1]
    assert {group.topics[0].topic_id for group in answer.groups} == {b"i" * 16}


def test_offsets_of_a_transaction_count_once_it_is_committed(shell):
    commit_error(shell, commit(1))
    assert txn_error(shell, txn_commit(2, producer_id=9, metadata="m")) == 0
    assert shell.last.effects == (InTransaction(9, 3),)
    assert fetched(shell) == {("t", 0): (1, -1, "", 0)}
    unstable = (-1, -1, "", ErrorCode.UNSTABLE_OFFSET_COMMIT)
    assert fetched(shell, {"t": [0]}, require_stable=True) == {("t", 0): unstable}
    assert fetched(shell, require_stable=True) == {("t", 0): unstable}

    shell.restart()
    assert fetched(shell, require_stable=True) == {("t", 0): unstable}
    shell.tell(TransactionEnded(9, 3, committed=True))
    assert shell.kept == []
    assert fetched(shell, require_stable=True) == {("t", 0): (2, -1, "m", 0)}
    shell.restart()
    assert fetched(shell) == {("t", 0): (2, -1, "m", 0)}


def test_offsets_of_an_aborted_transaction_never_count(shell):
    commit_error(shell, commit(1))
    txn_error(shell, txn_commit(2, producer_id=9))
    shell.tell(TransactionEnded(9, 3, committed=False))
    assert fetched(shell, require_stable=True) == {("t", 0): (1, -1, "", 0)}
    shell.restart()
    assert fetched(shell, require_stable=True) == {("t", 0): (1, -1, "", 0)}


def test_transactions_of_other_producers_are_left_alone(shell):
    txn_error(shell, txn_commit(2, producer_id=9))
    txn_error(shell, txn_commit(3, producer_id=10, partition=1))
    shell.tell(TransactionEnded(9, 3, committed=True))
    shell.tell(TransactionEnded(11, 3, committed=True))
    assert fetched(shell) == {("t", 0): (2, -1, "", 0)}


def test_of_two_commits_the_later_in_the_log_counts_whenever_the_transaction_ends(shell):
    txn_error(shell, txn_commit(2, producer_id=9))
    commit_error(shell, commit(3))
    shell.tell(TransactionEnded(9, 3, committed=True))
    assert fetched(shell) == {("t", 0): (3, -1, "", 0)}


def test_who_may_commit_in_a_transaction(shell):
    (member_id,) = stable_group(shell)
    assert txn_error(shell, txn_commit(1, 9, group="")) == ErrorCode.INVALID_GROUP_ID
    assert txn_error(shell, txn_commit(1, 9, group="new", generation_id=1)) == ErrorCode.ILLEGAL_GENERATION
    assert txn_error(shell, txn_commit(1, 9, member_id="x", generation_id=1)) == ErrorCode.UNKNOWN_MEMBER_ID
    assert txn_error(shell, txn_commit(1, 9, member_id=member_id, generation_id=2)) == ErrorCode.ILLEGAL_GENERATION
    assert shell.last.effects == ()
    assert txn_error(shell, txn_commit(1, 9, member_id=member_id, generation_id=1)) == 0
    assert txn_error(shell, txn_commit(1, 9), 2) == 0, "old producers do not say who they are"


def test_metadata_that_is_too_long_in_a_transaction():
    shell = GroupShell(GroupSettings(offset_metadata_max_bytes=3))
    assert txn_error(shell, txn_commit(1, 9, metadata="long")) == ErrorCode.OFFSET_METADATA_TOO_LARGE
    assert shell.last.effects == ()


def test_offsets_are_deleted_of_topics_that_nobody_is_subscribed_to(shell):
    (member_id,) = stable_group(shell)
    for topic in ("t", "u"):
        commit_error(shell, commit(5, member_id=member_id, generation=1, topic=topic))
    ((refused,),) = [topic.partitions for topic in delete_offsets(shell, "t", 0).topics]
    assert refused.error_code == ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC
    ((deleted, absent),) = [topic.partitions for topic in delete_offsets(shell, "u", 0, 1).topics]
    assert (deleted.error_code, absent.error_code) == (0, 0)
    assert len(shell.kept) == 1
    assert fetched(shell) == {("t", 0): (5, -1, "", 0)}


def test_what_deleting_offsets_is_refused_for(shell):
    assert delete_offsets(shell, "t", 0, group="").error_code == ErrorCode.INVALID_GROUP_ID
    assert delete_offsets(shell, "t", 0).error_code == ErrorCode.GROUP_ID_NOT_FOUND
    stable_group(shell, protocol_type="connect")
    assert delete_offsets(shell, "t", 0).error_code == ErrorCode.NON_EMPTY_GROUP


def test_of_consumers_that_cannot_be_understood_nothing_is_deleted(shell):
    asked = join()
    asked.protocols[0].metadata = b"?"
    shell.send(asked, 3)
    shell.advance(0)
    assert shell.group().topics is None
    ((refused,),) = [topic.partitions for topic in delete_offsets(shell, "t", 0).topics]
    assert refused.error_code == ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC


def test_deleted_offsets_are_not_brought_back_by_a_transaction(shell):
    txn_error(shell, txn_commit(2, producer_id=9))
    delete_offsets(shell, "t", 0)
    shell.tell(TransactionEnded(9, 3, committed=True))
    assert fetched(shell) == {}


def test_offsets_go_with_their_topic(shell):
    for topic in ("t", "u"):
        commit_error(shell, commit(5, topic=topic))
        commit_error(shell, commit(5, topic=topic, group="h"))
    txn_error(shell, txn_commit(6, producer_id=9, partition=1))
    shell.tell(TopicsDeleted(frozenset({"t", "never heard of"})))
    assert len(shell.kept) == 3
    shell.tell(TransactionEnded(9, 3, committed=True))
    assert fetched(shell) == fetched(shell, group="h") == {("u", 0): (5, -1, "", 0)}


def topics_now(shell, **ids):
    by_name = {name: Topic(Uuid(topic_id.encode().ljust(16)), 5) for name, topic_id in ids.items()}
    shell.tell(TopicsChanged(Topics(2, by_name)))


@pytest.mark.parametrize("in_transaction", [False, True])
def test_an_offset_counts_for_the_topic_that_it_was_committed_for_and_for_no_other_of_its_name(in_transaction):
    shell = GroupShell(topics={"t": 2})
    topics_now(shell, t="first")
    if in_transaction:
        txn_error(shell, txn_commit(5, producer_id=9))
        shell.tell(TransactionEnded(9, 3, committed=True))
    else:
        commit_error(shell, commit(5))
    assert fetched(shell, {"t": [0]}) == {("t", 0): (5, -1, "", 0)}
    topics_now(shell, t="second")
    assert fetched(shell, {"t": [0]}) == {("t", 0): NOTHING}
    assert fetched(shell) == {}
    shell.tell(TopicsDeleted(every=True))  # as after a start: there were no news of the deletion
    assert len(shell.kept) == 1
    commit_error(shell, commit(1))
    shell.tell(TopicsDeleted(frozenset({"t"})))
    assert shell.kept == []
    assert fetched(shell) == {("t", 0): (1, -1, "", 0)}


def test_an_offset_without_an_id_goes_with_the_topic_of_its_name():
    """As versions wrote them that kept no ids."""
    shell = GroupShell()
    commit_error(shell, commit(5))
    shell.topics = {"t": 2}
    shell.restart()
    assert fetched(shell) == {("t", 0): (5, -1, "", 0)}
    shell.tell(TopicsDeleted(every=True))
    assert fetched(shell) == {("t", 0): (5, -1, "", 0)}
    topics_now(shell, t="another")
    shell.tell(TopicsDeleted(frozenset({"t"})))
    assert fetched(shell) == {}


def test_a_transaction_for_a_new_topic_is_not_forgotten_with_the_old_one():
    shell = GroupShell(topics={"t": 2})
    topics_now(shell, t="first")
    commit_error(shell, commit(5))
    topics_now(shell, t="second")
    txn_error(shell, txn_commit(1, producer_id=9))
    shell.tell(TopicsDeleted(frozenset({"t"})))
    shell.tell(TransactionEnded(9, 3, committed=True))
    assert fetched(shell) == {("t", 0): (1, -1, "", 0)}


def many_offsets(settings):
    """A coordinator with 5,000 offsets; it is asked without the shell, which looks at everything at every step."""
    coordinator = GroupCoordinator(settings)
    for group in range(100):
        for partition in range(50):
            key = OffsetCommitKey(group=f"group-{group}", topic="t", partition=partition)
            coordinator.apply(CoordinatorRecord(key, OffsetCommitValue(offset=5, commit_timestamp=START_MS)))
    return coordinator


@pytest.mark.parametrize("event", [TopicsDeleted(frozenset({"t"})), TimerFired(ExpiryTimer())])
def test_very_many_offsets_go_in_portions(event):
    settings = GroupSettings()
    coordinator = many_offsets(settings)
    now_ms = START_MS + settings.offsets_retention_ms
    sizes = []
    while (decision := coordinator.decide(event, now_ms)).records:
        sizes.append(len(decision.records))
        for record in decision.records:
            coordinator.apply(record)
        is_more = [timer.at_ms == now_ms for timer in decision.timers]
        assert is_more in ([], [any(coordinator._offsets._committed)])
    assert max(sizes) < 4000
    assert not coordinator._offsets._committed
    assert sum(sizes) == 5000 + (100 if isinstance(event, TimerFired) else 0)  # the groups expire, too


def test_a_commit_of_nothing_is_answered(shell):
    assert shell.ask(OffsetCommitRequest(group_id="g"), 9).topics == []
    assert shell.ask(fetch({}), 8).groups[0].topics == []
