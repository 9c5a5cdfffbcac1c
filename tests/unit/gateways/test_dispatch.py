"""Requests among workers that come and go: against a plain model, each ends once, and with its own reply."""

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from headrace.gateways.messaging.dispatch import Dispatch

WORKERS = st.integers(0, 3)


class Dispatching(RuleBasedStateMachine):
    """A requester, and workers that take their time, die, and reply twice."""

    is_repeated = True

    def __init__(self):
        super().__init__()
        self.dispatch = Dispatch(most_each=3, is_repeated=self.is_repeated)
        self.now = 0.0
        self.submitted = {}  # request: deadline
        self.ended = {}  # request: how
        self.alive = set()
        self.held = {}  # worker: requests that it was sent and has not replied to, also after its death

    @rule(wait=st.integers(1, 20))
    def submit(self, wait):
        number = len(self.submitted)
        self.submitted[number] = self.now + wait
        self.dispatch.submit(number, self.now + wait)

    @rule(worker=WORKERS)
    def come(self, worker):
        self.alive.add(worker)
        self.dispatch.come(worker)

    @rule(worker=WORKERS)
    def go(self, worker):
        failed = self.dispatch.go(worker)
        self.alive.discard(worker)
        assert not failed or not self.is_repeated
        for number in failed:
            self.end(number, "failed")

    @rule(is_full=st.booleans())
    def assign(self, is_full):
        for number, worker in self.dispatch.assign():
            assert worker in self.alive
            assert number not in self.ended
            if is_full and number % 2:
                self.dispatch.take_back(number)
            else:
                self.held.setdefault(worker, []).append(number)

    @precondition(lambda self: any(self.held.values()))
    @rule(data=st.data())
    def reply(self, data):
        worker = data.draw(st.sampled_from([each for each, held in self.held.items() if held]))
        number = data.draw(st.sampled_from(self.held[worker]))
        was_open = number not in self.ended
        assert self.dispatch.finish(number) == was_open  # late ones change nothing
        if was_open:
            self.end(number, "reply")
        if data.draw(st.booleans()):
            self.held[worker].remove(number)  # else it replies again one day

    @rule(by=st.integers(0, 10))
    def pass_time(self, by):
        self.now += by
        due = {
            number for number, deadline in self.submitted.items() if deadline <= self.now and number not in self.ended
        }
        expired = self.dispatch.expire(self.now)
        assert sorted(expired) == sorted(due)
        for number in expired:
            self.end(number, "late")

    def end(self, number, how):
        assert number not in self.ended
        self.ended[number] = how

    @invariant()
    def what_is_open_is_known(self):
        assert self.dispatch.open == len(self.submitted) - len(self.ended)
        held = [number for requests in self.dispatch.workers.values() for number in requests]
        assert len(held) == len(set(held))
        assert not set(held) & set(self.ended)
        assert all(len(requests) <= 3 for requests in self.dispatch.workers.values())
        assert set(self.dispatch.workers) == self.alive
        assert self.dispatch.waiting + len(held) == self.dispatch.open
        deadlines = [self.submitted[number] for number in self.submitted if number not in self.ended]
        assert self.dispatch.next_deadline() == (min(deadlines) if deadlines else None)


class NotRepeating(Dispatching):
    is_repeated = False


TestDispatching = Dispatching.TestCase
TestNotRepeating = NotRepeating.TestCase
for case in (TestDispatching, TestNotRepeating):
    case.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)


def test_the_worker_with_the_fewest_gets_the_next():
    dispatch = Dispatch()
    for worker in "ab":
        dispatch.come(worker)
    for number in range(6):
        dispatch.submit(number, 10.0)
    assert [worker for _, worker in dispatch.assign()] == ["a", "b"] * 3
    dispatch.finish(1)
    dispatch.finish(3)
    dispatch.submit(6, 10.0)
    assert dispatch.assign() == [(6, "b")]


def test_requests_of_one_that_went_are_the_next_ones():
    dispatch = Dispatch(most_each=2)
    dispatch.come("a")
    for number in range(4):
        dispatch.submit(number, 10.0)
    assert [number for number, _ in dispatch.assign()] == [0, 1]
    dispatch.go("a")
    dispatch.come("b")
    assert [number for number, _ in dispatch.assign()] == [0, 1]


def test_what_has_ended_is_forgotten():
    dispatch = Dispatch()
    for number in range(50_000):
        dispatch.submit(number, 1e9)
        dispatch.finish(number)
    assert len(dispatch._deadlines) <= 1001
    assert len(dispatch._waiting) <= 1001
