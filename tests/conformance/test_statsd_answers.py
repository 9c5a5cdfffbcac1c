"""Both ways of adding up come to what the reference daemon of StatsD came to with the same packets, to the last bit.

`make test-peers` asks it again. How the two differ on purpose stands in `statsd_cases.py` and in the guide.
"""

from __future__ import annotations

from typing import Any

import pytest

from headrace.gateways.statsd.aggregation import Aggregating, Aggregator, Summary
from headrace.gateways.statsd.columnar import ColumnarAggregator
from headrace.gateways.statsd.parse import Kind
from headrace.gateways.statsd.plain import PlainAggregator
from headrace.gateways.statsd.timing import TimerRule, TimerRules
from tests.conformance.statsd_answers import frozen
from tests.conformance.statsd_cases import BUCKETS, CASES, PERCENTILES


@pytest.mark.parametrize("make", [PlainAggregator, ColumnarAggregator])
@pytest.mark.parametrize("name", CASES)
def test_it_adds_up_as_the_reference_daemon(make: type[Aggregator], name: str) -> None:
    answers = frozen()
    rule = TimerRule(tuple(map(float, PERCENTILES)), tuple(map(float, BUCKETS)))
    ours = make(Aggregating(rules=TimerRules(rule)))
    for packets, theirs in zip(CASES[name], answers["answers"][name], strict=True):
        bad = ours.counts.bad
        for packet in packets:
            ours.feed(packet)
        found = shown(ours.summaries(ours.cut(), answers["interval_ms"] / 1000))
        assert found | {"bad_lines": ours.counts.bad - bad} == theirs


def shown(summaries: list[Summary]) -> dict[str, Any]:
    """In the words of the reference daemon."""
    found: dict[str, Any] = {"counters": {}, "counter_rates": {}, "gauges": {}, "sets": {}, "timer_data": {}}
    for _, series, facts, _ in summaries:
        if series.kind is Kind.COUNTER:
            found["counters"][series.key] = facts["value"]
            found["counter_rates"][series.key] = facts["rate"]
        elif series.kind is Kind.GAUGE:
            found["gauges"][series.key] = facts["value"]
        elif series.kind is Kind.SET:
            found["sets"][series.key] = facts["count"]
        else:
            found["timer_data"][series.key] = {name: value for name, value in facts.items() if name != "samples"}
    return found
