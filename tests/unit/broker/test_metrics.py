"""What is counted of requests: every error of an answer, wherever it stands, and every time in its bucket."""

from collections import Counter
from itertools import pairwise

import pytest

from headrace.broker.metrics import ApiStats
from headrace.broker.registry import HANDLERS
from headrace.broker.turns import run_through
from headrace.protocol.api import APIS, ApiKey
from headrace.protocol.messages.fetch import FetchableTopicResponse, FetchResponse, PartitionData
from headrace.protocol.messages.metadata import MetadataResponse
from headrace.telemetry.metrics import BOUNDS_S


def test_every_error_of_an_answer_is_counted() -> None:
    stats = ApiStats(ApiKey.FETCH)
    partitions = [PartitionData(partition_index=index, error_code=code) for index, code in enumerate((0, 1, 3, 3))]
    stats.count_errors(FetchResponse(error_code=70, responses=[FetchableTopicResponse(partitions=partitions)]))
    assert stats.errors == Counter({3: 2, 1: 1, 70: 1})


def test_the_errors_of_a_long_answer_are_counted_in_steps() -> None:
    stats, in_one = ApiStats(ApiKey.FETCH), ApiStats(ApiKey.FETCH)
    partitions = [PartitionData(partition_index=index, error_code=index % 3) for index in range(20_000)]
    answer = FetchResponse(error_code=70, responses=[FetchableTopicResponse(partitions=partitions)])
    counts = [stats.errors.total() for _ in stats.count_errors_in_steps(answer)]
    assert max(after - before for before, after in pairwise([0, *counts])) <= 256
    in_one.count_errors(answer)
    assert stats.errors == in_one.errors


@pytest.mark.parametrize("key", sorted(HANDLERS))
def test_every_answer_can_be_looked_through(key: int) -> None:
    stats = ApiStats(ApiKey(key))
    stats.count_errors(APIS[key].response())
    run_through(stats.count_errors_in_steps(APIS[key].response()))
    assert not stats.errors


def test_a_field_that_is_null_has_no_errors() -> None:
    stats = ApiStats(ApiKey.METADATA)
    stats.count_errors(MetadataResponse(topics=None))  # type: ignore[arg-type]
    assert not stats.errors


def test_each_time_is_in_its_bucket() -> None:
    stats = ApiStats(ApiKey.PRODUCE)
    stats.quick, stats.quick_s = 1, 0.00005
    stats.finish(10.0, 10.0, 10.0 + 0.0002, 10.0 + 0.0004)  # answered after another one
    stats.finish(20.0, 20.0 + 0.003, 20.0 + 0.0031, 20.0 + 20)
    assert stats.answered == stats.queue.count == stats.local.count == stats.total.count == 3
    assert stats.queue.counts[0] == 2
    assert stats.queue.counts[BOUNDS_S.index(0.005)] == 1
    assert stats.local.counts[BOUNDS_S.index(0.00025)] == 1
    assert stats.total.counts[BOUNDS_S.index(0.0005)] == 1
    assert stats.total.counts[-1] == 1
    assert stats.total.sum_s == pytest.approx(20.00045)
    assert stats.local.sum_s == pytest.approx(0.00035)
