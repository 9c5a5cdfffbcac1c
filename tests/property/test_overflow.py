"""The way into a partition that is full, against a model: clients with numbered batches under way, and a slow reader.

A client sends a few batches at once, in their order, before it hears of any; what is refused it sends again, first of
all. Whatever happens, what is held stays within the limit, who waits is served in turn, and the log has each client's
batches in their order, each once and, unless they may be dropped, without a gap. The model's log takes anything from a
producer that it does not know, as a log does.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from hypothesis import given
from hypothesis import strategies as st

from headrace.delivery.overflow import Gate, Limit, Numbered, Policy, Size, Verdict, is_before

CLIENTS, BATCHES, IN_FLIGHT = 3, 30, 5
SIZES = [Size(1, 8), Size(2, 15), Size(3, 25)]
Batch = tuple[Numbered, Size]


def batch_of(client: int, sequence: int) -> Batch:
    return Numbered(client, 0, sequence), SIZES[(client + sequence) % len(SIZES)]


@dataclass
class Model:
    limit: Limit
    gate: Gate[Batch] = field(default_factory=Gate)
    held: list[Batch] = field(default_factory=list)
    log: list[Numbered] = field(default_factory=list)
    waiting: list[Batch] = field(default_factory=list)
    unsettled: list[list[int]] = field(default_factory=lambda: [list(range(BATCHES)) for _ in range(CLIENTS)])

    @property
    def size(self) -> Size:
        return Size(sum(size.records for _, size in self.held), sum(size.bytes for _, size in self.held))

    def send(self, client: int, count: int) -> None:
        under_way = {number.sequence for (number, _) in self.waiting if number.producer_id == client}
        for sequence in [each for each in self.unsettled[client][:IN_FLIGHT] if each not in under_way][:count]:
            batch = batch_of(client, sequence)
            number, size = batch
            verdict = self.gate.judge(self.limit, self.size, size, number)
            if verdict is Verdict.WAIT:
                self.gate.wait(batch, size, number)
                self.waiting.append(batch)
            else:
                self.settle(batch, verdict)

    def settle(self, batch: Batch, verdict: Verdict) -> None:
        number, size = batch
        if verdict is Verdict.REFUSE:
            self.gate.refused(number)
            return
        assert verdict in (Verdict.TAKE, Verdict.MAKE_ROOM, Verdict.DROP)
        self.unsettled[number.producer_id].remove(number.sequence)
        if verdict is Verdict.DROP:
            return
        while verdict is Verdict.MAKE_ROOM and any(self.limit.excess(self.size, size)):
            del self.held[0]
        self.gate.took(number)
        self.held.append(batch)
        self.log.append(number)

    def look(self) -> None:
        while (found := self.gate.next(self.limit, self.size)) is not None:
            batch, verdict = found
            assert batch == self.waiting.pop(0)
            self.settle(batch, verdict)

    def give_up(self, nth: int) -> None:
        if self.waiting:
            number, _ = batch = self.waiting.pop(nth % len(self.waiting))
            (found,) = [each for each in self.gate.everybody() if each == batch]
            assert self.gate.leave(found)
            assert not self.gate.leave(found)
            self.gate.refused(number)
            self.look()

    def finish(self, count: int) -> None:
        del self.held[:count]
        self.look()

    def check(self) -> None:
        assert not any(self.limit.excess(self.size, Size(0, 0)))
        assert len(self.gate) == len(self.waiting)
        for client in range(CLIENTS):
            sequences = [number.sequence for number in self.log if number.producer_id == client]
            if self.limit.policy is Policy.DROP_NEWEST:
                assert sequences == sorted(set(sequences))
            else:
                assert sequences == list(range(len(sequences)))


@st.composite
def limits(draw: st.DrawFn) -> Limit:
    policy = draw(st.sampled_from([policy for policy in Policy if policy is not Policy.BUFFER]))
    return Limit(policy, *draw(st.sampled_from([(5, -1), (-1, 50), (8, 60), (3, 25)])))


SEND = st.tuples(st.just("send"), st.integers(0, CLIENTS - 1), st.integers(1, IN_FLIGHT))
FINISH = st.tuples(st.just("finish"), st.integers(1, 3), st.just(0))
GIVE_UP = st.tuples(st.just("give_up"), st.integers(0, 9), st.just(0))


@given(limits(), st.lists(st.one_of(SEND, SEND, FINISH, GIVE_UP), max_size=60))
def test_what_is_held_is_within_the_limit_and_every_client_is_in_order(
    limit: Limit, steps: list[tuple[str, int, int]]
) -> None:
    model = Model(limit)
    for kind, which, count in steps:
        if kind == "send":
            model.send(which, count)
        elif kind == "finish":
            model.finish(which)
        else:
            model.give_up(which)
        model.check()
    for _ in range(CLIENTS * BATCHES * 4):  # in the end everybody comes through
        for client in range(CLIENTS):
            model.send(client, IN_FLIGHT)
        model.finish(2)
        model.check()
    assert model.unsettled == [[], [], []]


def test_a_batch_that_never_fits_is_told_apart_from_one_that_does_not_fit_now() -> None:
    gate: Gate[None] = Gate()
    limit = Limit(Policy.BLOCK, records=2)
    assert gate.judge(limit, Size(0, 0), Size(3, 1)) is Verdict.TOO_LARGE
    assert gate.judge(limit, Size(1, 0), Size(2, 1)) is Verdict.WAIT
    assert gate.judge(limit, Size(0, 0), Size(2, 1)) is Verdict.TAKE


def test_sequence_numbers_are_compared_over_their_end() -> None:
    assert is_before(2**31 - 1, 0)
    assert not is_before(0, 2**31 - 1)
    assert not is_before(7, 7)


def test_only_so_many_producers_are_remembered() -> None:
    gate: Gate[None] = Gate()
    limit = Limit(Policy.REJECT, records=5)
    for producer in range(1001):
        gate.refused(Numbered(producer, 0, 0))
    assert gate.judge(limit, Size(0, 0), Size(1, 1), Numbered(0, 0, 1)) is Verdict.TAKE
    assert gate.judge(limit, Size(0, 0), Size(1, 1), Numbered(1, 0, 1)) is Verdict.REFUSE
    assert gate.judge(limit, Size(0, 0), Size(1, 1), Numbered(1, 1, 1)) is Verdict.TAKE  # in another epoch
