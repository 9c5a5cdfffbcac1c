"""A consumer of the REST proxy's kind: what is taken for an answer is in one."""

import pytest

from headrace.client.address import parse_bootstrap
from headrace.client.errors import LostConnection
from headrace.client.groups import Committed
from headrace.client.reader import ReadRecord
from headrace.gateways.http.rest_v2.consumers import Instance
from headrace.gateways.http.rest_v2.forms import NewConsumer
from headrace.gateways.http.settings import HttpSettings
from headrace.model import TopicPartition
from headrace.records import Record

WHERE = TopicPartition("t", 0)


class Member:
    """Has some records, and then the broker is away."""

    is_member, assigned = False, frozenset({WHERE})

    def __init__(self) -> None:
        self.polls: list[list[ReadRecord]] = []
        self.commits: list[int] = []

    def poll(self, _: int) -> list[ReadRecord]:
        if not self.polls:
            raise LostConnection("the broker is away")
        return self.polls.pop(0)

    def commit(self, offsets: dict[TopicPartition, Committed]) -> None:
        self.commits += [each.offset for each in offsets.values()]


def test_records_that_were_taken_are_handed_out_though_the_broker_goes_away(monkeypatch: pytest.MonkeyPatch) -> None:
    made = NewConsumer("c", min_bytes=1_000)
    instance = Instance("g", "c", made, parse_bootstrap("127.0.0.1:1"), HttpSettings("web"))
    member = Member()
    monkeypatch.setattr(instance, "_member", member)
    member.polls = [[ReadRecord(WHERE, Record(offset, 0, None, b"x", ())) for offset in range(3)]]
    assert [each.offset for each in instance.records(5_000, 10_000)] == [0, 1, 2]
    with pytest.raises(LostConnection):
        instance.records(5_000, 10_000)
    assert member.commits == [3], "what was handed out, and nothing else"


def test_nothing_is_handed_out_to_somebody_who_is_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    made = NewConsumer("c")
    instance = Instance("g", "c", made, parse_bootstrap("127.0.0.1:1"), HttpSettings("web"))
    member = Member()
    monkeypatch.setattr(instance, "_member", member)
    member.polls = [[ReadRecord(WHERE, Record(offset, 0, None, b"x", ())) for offset in range(3)]]
    assert instance.records(5_000, 10_000, lambda: not member.polls) == [], "gone while it waited for them"
    assert [each.offset for each in instance.records(5_000, 2)] == [0, 1]
    assert member.commits == []
    assert [each.offset for each in instance.records(5_000, 10_000)] == [2]
    assert member.commits == [2]
