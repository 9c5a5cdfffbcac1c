"""DescribeTransactions and ListTransactions."""

import time

import pytest

from headrace.coordinator.transaction.machine import TransactionState
from headrace.protocol.errors import ErrorCode
from headrace.protocol.messages.describe_transactions import DescribeTransactionsRequest
from headrace.protocol.messages.list_transactions import ListTransactionsRequest
from tests.unit.coordinator.transaction.small_shell import A0, A1, B0, START_MS, TIMEOUT_MS


@pytest.fixture
def busy(shell):
    """One transactional id in each state that can be seen."""
    for name in ("empty", "ongoing", "committing", "aborting", "committed", "aborted"):
        producer = shell.init(name)
        if name == "empty":
            continue
        shell.write_to(producer, A0, transactional_id=name)
        shell.now_ms += 1000
        if name != "ongoing":
            shell.end(producer, committed=name.startswith("commit"), transactional_id=name)
        if name.endswith("ted"):
            *others, last = shell.markers
            shell.markers = [last]
            shell.finish()
            shell.markers = others
    return shell


def _listed(shell, version=2, **filters):
    return shell.request(ListTransactionsRequest(**filters), version)


def _names(shell, version=2, **filters):
    return {state.transactional_id for state in _listed(shell, version, **filters).transaction_states}


def test_a_transaction_is_described_with_its_partitions_in_order(shell):
    producer = shell.init()
    shell.add(producer, B0, A1, A0)
    [state] = shell.request(DescribeTransactionsRequest(transactional_ids=["orders-writer"]), 0).transaction_states
    assert (state.error_code, state.transactional_id, state.transaction_state) == (0, "orders-writer", "Ongoing")
    assert (state.producer_id, state.producer_epoch) == producer
    assert (state.transaction_timeout_ms, state.transaction_start_time_ms) == (TIMEOUT_MS, START_MS)
    assert [(topic.topic, topic.partitions) for topic in state.topics] == [("a", [0, 1]), ("b", [0])]


def test_what_is_not_known_is_told_one_by_one(shell):
    shell.init("known")
    message = DescribeTransactionsRequest(transactional_ids=["known", "unknown", ""])
    states = shell.request(message, 0).transaction_states
    assert [state.error_code for state in states] == [
        ErrorCode.NONE,
        ErrorCode.TRANSACTIONAL_ID_NOT_FOUND,
        ErrorCode.INVALID_REQUEST,
    ]
    assert [state.transactional_id for state in states] == ["known", "unknown", ""]
    assert (states[0].transaction_state, states[0].transaction_start_time_ms) == ("Empty", -1)


def test_all_states_have_the_names_that_clients_know():
    assert [state.label for state in TransactionState] == [
        "Empty",
        "Ongoing",
        "PrepareCommit",
        "PrepareAbort",
        "CompleteCommit",
        "CompleteAbort",
        "Dead",
        "PrepareEpochFence",
    ]


@pytest.mark.parametrize("version", range(3))
def test_everything_is_listed_without_a_filter(busy, version):
    response = _listed(busy, version)
    assert (response.error_code, response.unknown_state_filters) == (0, [])
    assert {state.transactional_id: state.transaction_state for state in response.transaction_states} == {
        "empty": "Empty",
        "ongoing": "Ongoing",
        "committing": "PrepareCommit",
        "aborting": "PrepareAbort",
        "committed": "CompleteCommit",
        "aborted": "CompleteAbort",
    }
    assert {state.transactional_id: state.producer_id for state in response.transaction_states}["empty"] == 1000


def test_filters_by_state(busy):
    assert _names(busy, state_filters=["Ongoing", "PrepareAbort"]) == {"ongoing", "aborting"}
    response = _listed(busy, state_filters=["ongoing", "Empty", "Nonsense"])
    assert response.unknown_state_filters == ["ongoing", "Nonsense"]
    assert [state.transactional_id for state in response.transaction_states] == ["empty"]
    assert _names(busy, state_filters=["Nonsense"]) == set()
    assert _names(busy, state_filters=["Dead"]) == set()


def test_filters_by_producer(busy):
    assert _names(busy, producer_id_filters=[1001, 1002, 77]) == {"ongoing", "committing"}


def test_filters_by_age(busy):
    started_ms = busy.known("ongoing").started_ms
    age_ms = busy.now_ms - started_ms
    assert "ongoing" not in _names(busy, duration_filter=age_ms)
    assert "ongoing" in _names(busy, duration_filter=age_ms - 1)
    assert _names(busy, duration_filter=age_ms) == {"empty"}, "what has not begun counts as old, as in Kafka"
    assert len(_names(busy, version=1, duration_filter=0)) == 6


def test_no_pattern_makes_the_broker_wait(busy):
    name = "a" * 30_000
    busy.init(name)
    began = time.thread_time()
    assert _names(busy, transactional_id_pattern="(a+)+b") == set()
    assert _names(busy, transactional_id_pattern="(a+)+") == {name}
    assert time.thread_time() - began < 0.1
    assert _names(busy, transactional_id_pattern="a{99999999999}") == set(), "which is no count, but these characters"


def test_filters_by_pattern(busy):
    assert _names(busy, transactional_id_pattern="commit.*") == {"committing", "committed"}
    assert _names(busy, transactional_id_pattern="commit") == set(), "the whole id has to match"
    assert len(_names(busy, transactional_id_pattern="")) == 6
    assert len(_names(busy, transactional_id_pattern=None)) == 6
    response = _listed(busy, transactional_id_pattern="(")
    assert response.error_code == ErrorCode.INVALID_REGULAR_EXPRESSION
    assert response.transaction_states == []


def test_filters_add_up(busy):
    assert _names(busy, state_filters=["Ongoing"], transactional_id_pattern=".*ing") == {"ongoing"}
    assert _names(busy, state_filters=["Ongoing"], producer_id_filters=[1000]) == set()
