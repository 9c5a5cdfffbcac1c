"""Which record is sent next, and how far all are: against what must hold for every order of coming, ending and time."""

import json

from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from headrace.gateways.webhook_sender.endpoint import Order
from headrace.gateways.webhook_sender.lanes import Item, Lanes, Rate
from headrace.gateways.webhook_sender.places import Health, place_record, read_places
from headrace.gateways.webhook_sender.registry import MOST_ENDPOINTS, Registry, as_record, endpoint_key
from headrace.retry import Backoff

MOST = 6


class LanesMachine(RuleBasedStateMachine):
    """A model of plain lists: what came, what is under way, what is done."""

    @initialize(order=st.sampled_from(list(Order)), concurrency=st.integers(1, 4), rate=st.sampled_from([0.0, 5.0]))
    def begin(self, order: Order, concurrency: int, rate: float) -> None:
        self.order = order
        self.concurrency = 1 if order is Order.ALL else concurrency
        self.lanes = Lanes(order, self.concurrency, Rate(rate), Backoff(0.1, 1.0), 5_000, most_open=MOST)
        self.now = 1_000
        self.read = [0, 0]
        self.came: list[Item] = []
        self.under_way: list[Item] = []
        self.done: set[tuple[int, int]] = set()
        for partition in range(2):
            self.lanes.begin("", partition, 0)

    def lane(self, item: Item) -> object:
        if self.order is Order.ALL:
            return ""
        return item.lane if self.order is Order.KEY and item.lane is not None else (item.partition, item.offset)

    @precondition(lambda self: self.lanes.has_room)
    @rule(partition=st.integers(0, 1), lane=st.sampled_from([None, b"a", b"b"]), is_wanted=st.booleans())
    def come(self, partition: int, lane: bytes | None, is_wanted: bool) -> None:
        offset = self.read[partition]
        self.read[partition] += 1
        if not is_wanted:
            self.lanes.skip("", partition, offset + 1)
            self.done.add((partition, offset))
            return
        item = Item("", partition, offset, lane, 10, None)
        self.came.append(item)
        self.lanes.add(item)

    @rule(ms=st.integers(0, 3_000))
    def wait(self, ms: int) -> None:
        self.now += ms

    @rule()
    def take(self) -> None:
        while (item := self.lanes.take(self.now)) is not None:
            before = [each for each in self.came if self.lane(each) == self.lane(item)]
            assert before[0] is item, "the first of its lane that is not done"
            assert item not in self.under_way
            assert not any(self.lane(each) == self.lane(item) for each in self.under_way)
            self.under_way.append(item)
            assert len(self.under_way) <= self.concurrency

    @precondition(lambda self: self.under_way)
    @rule(number=st.integers(0, 3), is_success=st.booleans(), told=st.sampled_from([0.0, 2.0]))
    def end(self, number: int, is_success: bool, told: float) -> None:
        item = self.under_way.pop(number % len(self.under_way))
        if is_success:
            self.lanes.done(item)
            is_over = True
        else:
            is_over = not self.lanes.failed(item, self.now, 0.5, told)
            assert is_over is (self.now - item.first_ms >= 5_000)
        if is_over:
            self.came.remove(item)
            self.done.add((item.partition, item.offset))

    @invariant()
    def places_are_behind_what_is_done_and_no_further(self) -> None:
        if not hasattr(self, "lanes"):
            return
        for partition in range(2):
            place = self.lanes.place(partition)
            open_ = {each.offset for each in self.came if each.partition == partition}
            assert place.offset == min(open_, default=self.read[partition])
            assert all((partition, each) in self.done for each in place.ahead)
            assert all(each > place.offset for each in place.ahead)
            assert set(place.tries) == {each for each in open_ if any(
                one.offset == each and one.partition == partition and one.attempts for one in self.came)}  # fmt: skip
        assert self.lanes.open == len(self.came)
        assert self.lanes.open <= MOST

    def teardown(self) -> None:
        """Whatever happened, everything that came can be sent to its end."""
        if not hasattr(self, "lanes"):
            return
        for _ in range(1_000):
            self.take()
            while self.under_way:
                self.end(0, True, 0.0)
            wait_ms = self.lanes.wait_ms(self.now)
            if wait_ms is None:
                break
            self.now += max(wait_ms, 1)
        assert not self.came
        assert [self.lanes.place(partition).offset for partition in range(2)] == self.read
        assert [self.lanes.place(partition).ahead for partition in range(2)] == [(), ()]


TestLanes = LanesMachine.TestCase


@given(st.lists(st.tuples(st.integers(0, 2_000), st.booleans()), max_size=60), st.floats(0.5, 50))
def test_a_rate_is_never_more_than_it_says(steps: list[tuple[int, bool]], per_s: float) -> None:
    rate, now, taken = Rate(per_s), 0, list[int]()
    for wait, wants in steps:
        now += wait
        if wants and not rate.wait_ms(now):
            rate.take()
            taken.append(now)
    for first in range(len(taken)):
        for last in range(first, len(taken)):
            assert last - first + 1 <= max(per_s, 1) + (taken[last] - taken[first]) / 1000 * per_s + 1e-6


def test_a_clock_that_is_put_back_holds_up_nothing() -> None:
    hour_ms = 3_600_000
    lanes = Lanes(Order.NONE, 4, Rate(1.0), Backoff(1.0, 1.0), 10 * hour_ms)
    lanes.begin("", 0, 0)
    for offset in range(3):
        lanes.add(Item("", 0, offset, None, 1, None))
    now = 2 * hour_ms
    first = lanes.take(now)
    assert first is not None
    lanes.failed(first, now, 0.5, told_pause_s=2.0)
    assert lanes.take(now) is None
    now -= hour_ms
    taken = []
    for _ in range(8):
        if (item := lanes.take(now)) is not None:
            taken.append(item.offset)
            lanes.done(item)
        now += max(1, min(lanes.wait_ms(now) or 1, 1_000))
    assert sorted(taken) == [0, 1, 2], "within seconds"


def test_more_endpoints_than_may_be_are_said_and_take_no_place_of_another() -> None:
    registry = Registry()
    said = as_record({"topic": "t", "url": "https://shop.example/x", "unsigned": True})
    for number in [*range(MOST_ENDPOINTS + 1), 0]:
        registry.apply(endpoint_key(f"e{number}").encode(), said)
    assert set(registry.endpoints) == {f"e{number}" for number in range(MOST_ENDPOINTS)}
    assert "1,000" in registry.refused.pop(f"e{MOST_ENDPOINTS}")
    registry.apply(endpoint_key("e7").encode(), None)
    registry.apply(endpoint_key("last").encode(), said)
    assert "last" in registry.endpoints
    assert not registry.refused


NAMES = st.sampled_from(["topic", "url", "do", "partition", "from", "to", "paused", "unsigned"])
LEAVES = st.none() | st.booleans() | st.integers() | st.text(max_size=5)
SAID = st.recursive(LEAVES, lambda inner: st.dictionaries(NAMES, inner, max_size=5)).map(json.dumps).map(str.encode)
KEYS = st.binary(max_size=40) | st.sampled_from([b"endpoint/a", b"state/a", b"request/a/b"])


@given(KEYS, st.none() | st.binary(max_size=80) | SAID)
def test_any_record_of_the_endpoints_topic_does_no_harm(key: bytes, value: bytes | None) -> None:
    registry = Registry()
    registry.apply(key, value)
    registry.apply(key, None)
    assert not registry.endpoints
    assert not registry.refused
    assert not registry.requests


def test_places_are_read_as_they_were_written() -> None:
    lanes = Lanes(Order.NONE, 4, Rate(0), Backoff(), 1_000)
    lanes.begin("", 3, 10)
    for offset in range(10, 14):
        lanes.add(Item("", 3, offset, None, 1, None))
    first, second = lanes.take(5), lanes.take(5)
    assert first is not None
    assert second is not None
    lanes.failed(first, 7, 0.5)
    lanes.done(second)
    key, value = place_record("g", "e", "orders/id", 3, lanes.place(3))
    assert value is not None
    assert read_places({key: value}) == {("e", "orders/id"): {3: lanes.place(3)}}
    assert lanes.place(3).offset == 10
    assert lanes.place(3).ahead == (11,)


@given(st.lists(st.booleans(), max_size=30))
def test_health_is_of_what_came_since_the_last_success(answers: list[bool]) -> None:
    health, failures = Health(), 0
    for now, is_good in enumerate(answers, 1):
        health = health.delivered(now) if is_good else health.failed(now, "x", disable_ms=100, disable_failures=7)
        if failures < 7:  # once it is disabled, what was under way changes nothing
            failures = 0 if is_good else failures + 1
        assert health.failures == failures
        assert bool(health.disabled_ms) is (failures >= 7)
