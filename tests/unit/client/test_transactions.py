"""Transactions: a coordinator that is busy with the one before is asked again at once, not after a long pause."""

import pytest

from headrace.client.cluster import Cluster
from headrace.client.errors import Refused
from headrace.client.transactions import Transaction, Transactions
from headrace.model import TopicPartition
from headrace.protocol.errors import ErrorCode
from headrace.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopicResult,
)
from headrace.protocol.messages.find_coordinator import Coordinator, FindCoordinatorRequest, FindCoordinatorResponse
from tests.unit.client.scripted_broker import Scripted, listening

ORDERS = TopicPartition("orders", 0)


def added(code):
    partition = AddPartitionsToTxnPartitionResult(partition_index=0, partition_error_code=code)
    topic = AddPartitionsToTxnTopicResult(name="orders", results_by_partition=[partition])
    return AddPartitionsToTxnResponse(results_by_topic_v3_and_below=[topic])


def pauses_of(*codes):
    """How long was waited in between, when a coordinator answers so, one after another."""
    there = FindCoordinatorResponse(coordinators=[Coordinator(key="t", node_id=1)])
    script = Scripted({FindCoordinatorRequest: [there], AddPartitionsToTxnRequest: map(added, codes)})
    pauses = []
    with listening(script) as script.address, Cluster([script.address], sleep=pauses.append) as cluster:
        Transactions(cluster).add(Transaction("t", 7, 0), [ORDERS])
    return pauses


def test_a_transaction_that_is_just_ending_is_waited_for_briefly():
    assert pauses_of(*[ErrorCode.CONCURRENT_TRANSACTIONS] * 4, ErrorCode.NONE) == [0.001, 0.002, 0.004, 0.008]


def test_one_that_stays_busy_is_waited_for_as_for_any_trouble():
    assert pauses_of(*[ErrorCode.CONCURRENT_TRANSACTIONS] * 7, ErrorCode.NONE)[-2:] == [0.032, 0.1]


def test_other_trouble_is_not_hurried():
    assert pauses_of(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.NONE) == [0.1]


def test_what_will_not_pass_is_told_at_once():
    with pytest.raises(Refused, match="newer producer"):
        pauses_of(ErrorCode.PRODUCER_FENCED)
