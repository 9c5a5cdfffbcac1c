"""What was sent and not acknowledged: no position behind a record that was not, and nothing sent again without need."""

import tracemalloc

from hypothesis import given
from hypothesis import strategies as st

from headrace.gateways.messaging.unacknowledged import Unacknowledged
from headrace.model import TopicPartition

STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("send"), st.integers(0, 2)),
        st.tuples(st.just("acknowledge"), st.integers(0, 60)),
        st.tuples(st.just("wait"), st.integers(1, 6)),
    ),
    max_size=150,
)


@given(STEPS)
def test_positions_and_repeats_are_those_of_a_plain_model(steps):
    """The model keeps every record with whether it was acknowledged and when it was sent last."""
    held, now, wait = Unacknowledged(), 0.0, 5.0
    sent = []  # partition, offset, acknowledged, due
    ends = [0, 0, 0]
    before = {}
    for step, value in steps:
        if step == "send":
            where = TopicPartition("t", value)
            held.add(len(sent), where, ends[value], b"x" * 10, now + wait)
            sent.append([where, ends[value], False, now + wait])
            ends[value] += 1 + value  # offsets have gaps
        elif step == "acknowledge":
            is_open = value < len(sent) and not sent[value][2]
            assert held.acknowledge(value) == is_open
            if is_open:
                sent[value][2] = True
        else:
            now += value
            due = sorted(number for number, each in enumerate(sent) if not each[2] and each[3] <= now)
            found = held.overdue(now)
            assert sorted(number for number, _ in found) == due
            for number, frame in found:
                assert frame == b"x" * 10
                held.sent_again(number, now + wait)
                sent[number][3] = now + wait
        positions = held.positions()
        for where in {each[0] for each in sent}:
            done, position = True, 0
            for _, offset, is_acknowledged, _ in (each for each in sent if each[0] == where):
                done = done and is_acknowledged
                if done:
                    position = offset + 1
            assert positions.get(where, 0) == position
            assert position >= before.get(where, 0)
        before = positions
        left = sum(not each[2] for each in sent)
        assert (len(held), held.size_bytes) == (left, 10 * left)


def test_one_that_nobody_acknowledges_makes_no_memory_grow():
    """All that is sent behind it is acknowledged: only what is held takes room."""
    where, held = TopicPartition("t", 0), Unacknowledged()
    held.add(0, where, 0, b"poison", 10.0)
    tracemalloc.start()
    try:
        for number in range(1, 50_000):
            held.add(number, where, number, b"fine", 10.0)
            held.acknowledge(number)
        grown, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert grown < 50_000
    assert held.positions() == {where: 0}
    held.acknowledge(0)
    assert held.positions() == {where: 50_000}


def test_what_is_longest_overdue_comes_first_until_it_was_sent_again():
    where, held = TopicPartition("t", 0), Unacknowledged()
    for number in range(3):
        held.add(number, where, number, b"%d" % number, 10.0 + number)
    assert held.overdue(9.0) == []
    assert held.overdue(11.0) == [(0, b"0"), (1, b"1")]
    held.sent_again(0, 20.0)  # there was no room for the other one
    assert held.overdue(11.0) == [(1, b"1")]
    assert held.overdue(20.0) == [(1, b"1"), (2, b"2"), (0, b"0")]
