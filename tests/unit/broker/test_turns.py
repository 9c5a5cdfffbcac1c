"""Rounds of the loop: who has a turn in them, what counts, and when the others come in the next one."""

from collections.abc import Callable
from typing import cast

import pytest

from headrace.broker import turns as module
from headrace.broker.turns import COUNTED_S, FEW_LARGE, LATELY_S, QUEUED_TURN_S, ROUND_S, TURN_S, Steps, Turns


class Loop:
    """Calls what is due when it comes round, and nothing else."""

    def __init__(self) -> None:
        self.due: list[Callable[[], None]] = []
        self.later: list[float] = []

    def call_soon(self, call: Callable[[], None]) -> None:
        self.due.append(call)

    def call_later(self, after_s: float, call: Callable[[], None]) -> None:
        self.later.append(after_s)
        self.due.append(call)

    def come_round(self) -> None:
        due, self.due = self.due, []
        self.later.clear()
        for call in due:
            call()


@pytest.fixture
def now(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    clock = [100.0]
    monkeypatch.setattr(module, "monotonic", lambda: clock[0])
    return clock


def make() -> tuple[Loop, Turns]:
    loop = Loop()
    return loop, Turns(cast("module.asyncio.AbstractEventLoop", loop))


def test_a_round_is_over_once_those_who_came_have_taken_long_enough_together() -> None:
    loop, turns = make()
    for _ in range(4):
        assert not turns.is_over
        turns.spend(ROUND_S / 4)
    assert turns.is_over
    loop.come_round()
    assert not turns.is_over
    assert not loop.due  # nobody waits: the loop may rest


def test_what_is_short_is_not_counted() -> None:
    loop, turns = make()
    for _ in range(1000):
        turns.spend(COUNTED_S / 2)
    assert not turns.is_over
    assert not loop.due


@pytest.mark.parametrize("spent_before", [True, False])
def test_the_queue_has_one_turn_a_round_and_the_rest_of_the_round_is_for_others(
    now: list[float], *, spent_before: bool
) -> None:
    loop, turns = make()
    turned: list[int] = []

    def turn(number: int) -> None:
        turned.append(number)
        now[0] += QUEUED_TURN_S

    if spent_before:  # whether somebody came before or after the queue has begun
        turns.spend(ROUND_S)
    for number in range(3):
        turns.later(lambda number=number: turn(number))  # type: ignore[misc]
    for number in range(3):
        loop.come_round()
        assert turned == list(range(number + 1))
        assert not turns.is_over
        turns.spend(ROUND_S - QUEUED_TURN_S + 1e-9)
        assert turns.is_over
    loop.come_round()
    assert not turns.is_over
    assert not loop.due


def test_steps_are_run_for_a_turn_at_a_time(now: list[float]) -> None:
    loop, turns = make()
    done: list[int] = []

    def work() -> Steps[None]:
        for number in range(10):
            done.append(number)
            now[0] += 0.501 * QUEUED_TURN_S
            yield

    turns.run(work())
    rounds = [len(done)]
    while loop.due:
        loop.come_round()
        rounds.append(len(done))
    assert TURN_S == 2 * QUEUED_TURN_S
    assert rounds[:4] == [4, 6, 8, 10]
    assert len(rounds) <= 6  # one to find that it is through, and one in which nobody waits


class Connection:
    """Somebody with something to send."""

    def __init__(self) -> None:
        self.sends = 0

    def send(self) -> None:
        self.sends += 1


def test_who_is_answered_several_times_together_sends_once_and_at_the_end() -> None:
    _, turns = make()
    one, other = Connection(), Connection()
    with turns.sending_together():
        assert turns.senders is not None
        with turns.sending_together():
            turns.senders[one] = None
        turns.senders[other] = turns.senders[one] = None
        assert not one.sends
    assert (one.sends, other.sends) == (1, 1)
    assert turns.senders is None


def test_an_answer_that_fails_keeps_nobody_from_sending() -> None:
    _, turns = make()
    one = Connection()

    def answer() -> None:
        with turns.sending_together():
            assert turns.senders is not None
            turns.senders[one] = None
            raise ValueError("a mistake of ours")

    with pytest.raises(ValueError, match="ours"):
        answer()
    assert one.sends == 1
    assert turns.senders is None


def test_much_is_sent_on_the_loop_where_few_send_much() -> None:
    loop, turns = make()
    for _ in range(3):
        assert all(turns.take_large(who) for who in [*range(FEW_LARGE)] * 5)
        assert loop.later == [LATELY_S]
        loop.come_round()
    assert [turns.take_large(who) for who in [*range(FEW_LARGE + 1), 0]] == [True] * FEW_LARGE + [False] * 2
    loop.come_round()
    assert not turns.take_large(1)  # there were many just now
    loop.come_round()
    assert turns.take_large(1)
