"""AddPartitionsToTxn, AddOffsetsToTxn and the writes that add or verify partitions by themselves."""

import pytest

from headrace.coordinator.decision import Timer
from headrace.coordinator.transaction.events import Request, TransactionTimeout, VerifyOrAdd, WriterSupport
from headrace.coordinator.transaction.machine import TransactionState
from headrace.coordinator.transaction.records import partition_for
from headrace.model import TopicPartition
from headrace.protocol.errors import ErrorCode
from headrace.protocol.messages.add_partitions_to_txn import AddPartitionsToTxnRequest
from tests.unit.coordinator.transaction.small_shell import (
    A0,
    A1,
    B0,
    ID,
    START_MS,
    TIMEOUT_MS,
    add_request,
    broker_entry,
)

NOBODY = (4242, 0)
VERIFIES = [WriterSupport.DEFAULT_ERRORS, WriterSupport.ABORTABLE_ERROR]


@pytest.fixture
def producer(shell):
    return shell.init()


def _errors_of(response):
    return {
        (result.transactional_id, TopicPartition(topic.name, one.partition_index)): ErrorCode.of(
            one.partition_error_code
        )
        for result in response.results_by_transaction
        for topic in result.topic_results
        for one in topic.results_by_partition
    }


def test_the_first_partition_begins_the_transaction(shell, producer):
    shell.now_ms += 7
    decision = shell.ask(Request(shell.token(), add_request(producer, A0), 3))
    known = shell.known()
    assert (known.state, known.partitions) == (TransactionState.ONGOING, {A0})
    assert (known.started_ms, known.updated_ms, known.client_version) == (START_MS + 7, START_MS + 7, 0)
    assert len(decision.records) == 1
    assert not decision.effects
    # The next look, every ten seconds, at which it will have been open for more than its minute.
    assert decision.timers == (Timer(TransactionTimeout(ID), START_MS + TIMEOUT_MS + 10_000),)


def test_more_partitions_join_and_the_beginning_stays(shell, producer):
    shell.add(producer, A0)
    shell.now_ms += 7
    decision = shell.ask(Request(shell.token(), add_request(producer, A1, B0), 3))
    known = shell.known()
    assert known.partitions == {A0, A1, B0}
    assert (known.started_ms, known.updated_ms) == (START_MS, START_MS + 7)
    assert not decision.timers


def test_partitions_that_are_in_need_no_record(shell, producer):
    shell.add(producer, A0, B0)
    decision = shell.ask(Request(shell.token(), add_request(producer, B0), 3))
    assert not decision.records
    assert not decision.timers


@pytest.mark.parametrize("version", range(4))
def test_who_may_not_add(shell, producer, version):
    fenced = ErrorCode.PRODUCER_FENCED if version >= 2 else ErrorCode.INVALID_PRODUCER_EPOCH
    for newer_or_older in (producer[1] + 1, producer[1] - 1):
        assert shell.add((producer[0], newer_or_older), A0, version=version) is fenced
    assert shell.add(NOBODY, A0, version=version) is ErrorCode.INVALID_PRODUCER_ID_MAPPING
    unknown = shell.add(producer, A0, version=version, transactional_id="unknown")
    assert unknown is ErrorCode.INVALID_PRODUCER_ID_MAPPING
    assert shell.add(producer, A0, version=version, transactional_id="") is ErrorCode.INVALID_REQUEST
    assert shell.state is TransactionState.EMPTY


def test_while_an_end_is_being_written_everybody_waits(shell, producer):
    shell.add(producer, A0)
    following = shell.end(producer, committed=True)
    for somebody in (producer, following, NOBODY):
        assert shell.add(somebody, A0) is ErrorCode.CONCURRENT_TRANSACTIONS
        assert shell.add_offsets(somebody) is ErrorCode.CONCURRENT_TRANSACTIONS
        assert shell.write_to(somebody, A0) == {A0: ErrorCode.CONCURRENT_TRANSACTIONS}
    shell.finish()
    assert shell.add(following, A0) is ErrorCode.NONE


@pytest.mark.parametrize("committed", [True, False])
def test_the_next_transaction_starts_with_its_own_partitions(shell, producer, committed):
    shell.add(producer, A0)
    shell.end(producer, committed=committed, version=4)
    shell.finish()
    shell.now_ms += 100
    assert shell.add(producer, B0) is ErrorCode.NONE
    assert (shell.known().partitions, shell.known().started_ms) == ({B0}, START_MS + 100)


def test_results_tell_each_topic_once_and_in_order(shell, producer):
    response = shell.request(add_request(producer, B0, A1, A0), 3)
    told = [
        (topic.name, [result.partition_index for result in topic.results_by_partition])
        for topic in response.results_by_topic_v3_and_below
    ]
    assert told == [("a", [0, 1]), ("b", [0])]


@pytest.mark.parametrize("version", [4, 5])
def test_a_broker_asks_for_many_transactions_at_once(shell, producer, version):
    other = shell.init("other")
    shell.add(other, B0, transactional_id="other")
    entries = [
        broker_entry(producer, A0, A1),
        broker_entry(other, B0, A0, transactional_id="other", verify_only=True),
        broker_entry(other, B0, transactional_id="unknown"),
        broker_entry((producer[0], 9), A0, transactional_id=ID),
    ]
    response = shell.request(AddPartitionsToTxnRequest(transactions=entries[:3]), version)
    assert _errors_of(response) == {
        (ID, A0): ErrorCode.NONE,
        (ID, A1): ErrorCode.NONE,
        ("other", B0): ErrorCode.NONE,
        ("other", A0): ErrorCode.TRANSACTION_ABORTABLE,
        ("unknown", B0): ErrorCode.INVALID_PRODUCER_ID_MAPPING,
    }
    assert shell.known().client_version == 2, "such a request comes only for clients that speak version 2"
    fenced = shell.request(AddPartitionsToTxnRequest(transactions=entries[3:]), version)
    assert _errors_of(fenced) == {(ID, A0): ErrorCode.PRODUCER_FENCED}


def test_one_transaction_named_twice_gets_both_parts(shell, producer):
    entries = [broker_entry(producer, A0), broker_entry(producer, B0), broker_entry(producer, B0, verify_only=True)]
    response = shell.request(AddPartitionsToTxnRequest(transactions=entries), 5)
    assert set(_errors_of(response).values()) == {ErrorCode.NONE}
    assert shell.known().partitions == {A0, B0}


def test_offsets_add_the_partition_that_keeps_the_group(shell, producer):
    assert shell.add_offsets(producer, "a group") is ErrorCode.NONE
    assert shell.known().partitions == {TopicPartition("__consumer_offsets", partition_for("a group", 50))}
    assert shell.known().client_version == 0
    assert TransactionTimeout(ID) in shell.timers


@pytest.mark.parametrize(("version", "fenced"), [(1, ErrorCode.INVALID_PRODUCER_EPOCH), (2, ErrorCode.PRODUCER_FENCED)])
def test_offsets_of_a_fenced_producer_are_refused(shell, producer, version, fenced):
    assert shell.add_offsets((producer[0], 5), version=version) is fenced
    assert shell.add_offsets(NOBODY, version=version) is ErrorCode.INVALID_PRODUCER_ID_MAPPING


def test_a_write_of_a_new_client_adds_its_partitions(shell, producer):
    assert shell.write_to(producer, A0, B0) == {A0: ErrorCode.NONE, B0: ErrorCode.NONE}
    known = shell.known()
    assert (known.state, known.partitions, known.client_version) == (TransactionState.ONGOING, {A0, B0}, 2)
    decision = shell.ask(VerifyOrAdd(shell.token(), ID, *producer, frozenset({A0}), WriterSupport.ADDS_PARTITIONS))
    assert not decision.records


@pytest.mark.parametrize("support", VERIFIES)
def test_a_write_of_an_old_client_is_verified(shell, producer, support):
    shell.add(producer, A0)
    records = len(shell.log)
    missing = {
        WriterSupport.DEFAULT_ERRORS: ErrorCode.INVALID_TXN_STATE,
        WriterSupport.ABORTABLE_ERROR: ErrorCode.TRANSACTION_ABORTABLE,
    }
    assert shell.write_to(producer, A0, B0, support=support) == {A0: ErrorCode.NONE, B0: missing[support]}
    assert len(shell.log) == records


@pytest.mark.parametrize("support", WriterSupport)
def test_a_writer_is_told_of_a_fence_in_its_own_words(shell, producer, support):
    fenced = (producer[0], producer[1] + 1)
    assert shell.write_to(fenced, A0, support=support) == {A0: ErrorCode.INVALID_PRODUCER_EPOCH}
    assert shell.write_to(NOBODY, A0, support=support) == {A0: ErrorCode.INVALID_PRODUCER_ID_MAPPING}
    empty = shell.write_to(producer, A0, support=support, transactional_id="")
    assert empty == {A0: ErrorCode.INVALID_REQUEST}


@pytest.mark.parametrize("support", VERIFIES)
def test_verifying_while_an_end_is_being_written(shell, producer, support):
    shell.add(producer, A0)
    shell.end(producer, committed=True, version=4)
    assert shell.write_to(producer, A0, support=support) == {A0: ErrorCode.CONCURRENT_TRANSACTIONS}
    assert shell.write_to((producer[0], 8), A0, support=support) == {A0: ErrorCode.INVALID_PRODUCER_EPOCH}


def test_which_clients_add_partitions_by_writing():
    produce = [WriterSupport.of_produce(version) for version in (3, 10, 11, 12, 13)]
    commit = [WriterSupport.of_txn_offset_commit(version) for version in (0, 3, 4, 5)]
    old, abortable, adds = WriterSupport
    assert produce == [old, old, abortable, adds, adds]
    assert commit == [old, old, abortable, adds]
