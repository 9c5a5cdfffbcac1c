"""Publishers and receivers over a bad network: every message comes once or is told lost once, and all is bounded."""

from dataclasses import replace
from functools import partial
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.gateways.multicast.events import Began, Ended
from headrace.gateways.multicast.receiving import position_after
from headrace.gateways.multicast.sending import SendingSettings
from headrace.gateways.multicast.stream import ReceivingSettings
from headrace.gateways.multicast.wire import Seal
from tests.property.multicast_network import Network, Weather
from tests.property.storage_model import count_examples

SENDING = SendingSettings(datagram_bytes=300, rate_bytes_s=400_000, history_bytes=1 << 20, queue_bytes=1 << 16)
SIZES = [0, 1, 20, 150, 240, 260, 1_000, 4_000]

weathers = st.builds(
    Weather,
    loss=st.sampled_from([0.0, 0.02, 0.1, 0.3]),
    doubled=st.sampled_from([0.0, 0.1]),
    delay_s=st.sampled_from([0.0, 0.002, 0.03]),
    cut=st.sampled_from([(0.0, 0.0), (0.1, 0.4), (0.2, 3.0)]),
)


def publish_some(network: Network, sender, many: int, label: bytes = b"") -> None:
    for index in range(many):
        value = label + b"%d:" % index
        value += b"x" * network.random.choice(SIZES)
        while not network.publish(sender, value):
            network.step()
        if network.random.random() < 0.3:
            network.step()


def finish(network: Network) -> None:
    network.weather = replace(network.weather, calm_at=network.now, cut=(0.0, 0.0))
    for sender in network.senders:
        sender.finish(network.now)
    network.run(7.0)


@settings(max_examples=count_examples(200))
@given(st.integers(0, 2**32), weathers, st.booleans(), st.booleans(), st.integers(1, 3), st.integers(1, 3))
def test_every_message_comes_once_or_is_told_lost_once(seed, weather, on_arrival, is_sealed, senders, receivers):
    network = Network(Random(seed), weather, Seal(b"k" * 32) if is_sealed else None)
    reading = ReceivingSettings(on_arrival=on_arrival)
    listeners = [network.receiver(reading) for _ in range(receivers)]
    network.run(0.005)
    publishers = [network.publisher(SENDING, source) for source in range(senders)]
    for sender in publishers:
        publish_some(network, sender, network.random.randrange(1, 120))
    finish(network)
    for listener in listeners:
        for session in (sender.session for sender in publishers):
            published = network.published[session]
            numbers = listener.accounted(session)
            assert sorted(numbers) == list(range(len(published)))
            if not on_arrival:
                assert numbers == sorted(numbers)
            for message in listener.messages(session):
                assert message.value == published[message.number]
            if weather.loss <= 0.02 and weather.cut == (0.0, 0.0):
                assert not listener.lost(session)
            kinds = [type(event) for event in listener.of(session)]
            assert kinds.count(Began) == kinds.count(Ended) == 1
            assert listener.machine.held_bytes == 0
        assert listener.most_bytes <= reading.window_bytes
    # Repairs keep to their share of the rate, however bad the weather is.
    for sender in publishers:
        assert sender.history_bytes <= SENDING.history_bytes
    allowed = len(publishers) * (SENDING.repair_share * 400_000 * network.now + 8 * SENDING.datagram_bytes)
    assert network.repair_bytes <= allowed


@settings(max_examples=count_examples(100))
@given(st.integers(0, 2**32), st.booleans(), st.sampled_from([0, 700, 3_000]), st.sampled_from([4, 32, 200]))
def test_a_short_history_and_a_small_window_lose_but_never_silently_or_twice(seed, on_arrival, history, window):
    network = Network(Random(seed), Weather(loss=0.2, delay_s=0.02))
    reading = ReceivingSettings(on_arrival=on_arrival, window_datagrams=window, window_bytes=65_536)
    listener = network.receiver(reading)
    network.run(0.005)
    sender = network.publisher(replace(SENDING, history_bytes=history))
    publish_some(network, sender, 150)
    network.run(network.random.choice([0.0, 0.5]))  # the last ones may be lost as well
    finish(network)
    numbers = listener.accounted(sender.session)
    assert sorted(numbers) == list(range(150))
    for message in listener.messages(sender.session):
        assert message.value == network.published[sender.session][message.number]
    assert on_arrival or numbers == sorted(numbers)
    assert listener.most_bytes <= reading.window_bytes
    assert listener.machine.counts.lost + listener.machine.counts.messages == 150


@settings(max_examples=count_examples(60))
@given(st.integers(0, 2**32), st.booleans(), st.sampled_from([0.0, 0.05]), st.booleans())
def test_who_comes_late_has_no_hole_from_where_it_begins(seed, from_history, loss, on_arrival):
    network = Network(Random(seed), Weather(loss=loss))
    sender = network.publisher(SENDING)
    network.run(0.01)
    publish_some(network, sender, 60)
    network.run(0.05)
    late = network.receiver(ReceivingSettings(from_history=from_history, on_arrival=on_arrival))
    publish_some(network, sender, 60)
    finish(network)
    numbers = sorted(late.accounted(sender.session))
    assert numbers == list(range(numbers[0], 120))
    assert numbers[0] == 0 if from_history else numbers[0] > 0
    assert not late.lost(sender.session)


@settings(max_examples=count_examples(60))
@given(st.integers(0, 2**32), st.sampled_from([0.0, 0.05]))
def test_a_publisher_that_restarts_is_a_session_of_its_own(seed, loss):
    network = Network(Random(seed), Weather(loss=loss))
    listener = network.receiver(ReceivingSettings())
    network.run(0.005)
    first = network.publisher(SENDING)
    publish_some(network, first, 30)
    network.run(0.3)
    network.kill(first)
    second = network.publisher(SENDING)
    publish_some(network, second, 30)
    finish(network)
    began = [event for event in listener.events if isinstance(event, Began)]
    assert [event.session for event in began] == [first.session, second.session]
    assert [event.previous for event in began] == [None, first.session]
    for sender in (first, second):
        sent = sender.counts.messages
        numbers = listener.accounted(sender.session)
        assert numbers == list(range(len(numbers)))
        assert len(numbers) in (sent, sent + 1)  # one that was begun when it was killed is told too
        ended = [event.is_clean for event in listener.of(sender.session) if isinstance(event, Ended)]
        assert ended == [sender is second]


@settings(max_examples=count_examples(60))
@given(st.integers(0, 2**32), st.sampled_from([0.0, 0.05]), st.integers(1, 80))
def test_a_receiver_that_restarts_goes_on_from_its_position(seed, loss, until):
    network = Network(Random(seed), Weather(loss=loss))
    before = network.receiver(ReceivingSettings())
    network.run(0.005)
    sender = network.publisher(SENDING)
    publish_some(network, sender, 80)
    network.run(0.5)
    position, taken = None, []
    for event in before.of(sender.session):
        if isinstance(event, Began):
            continue
        position = position_after(event, position)
        taken.append(event)
        if len(taken) == until:
            break
    network.receivers.remove(before)
    publish_some(network, sender, 40)
    after = network.receiver(ReceivingSettings(), {sender.session: position})
    publish_some(network, sender, 20)
    finish(network)
    before.events = taken
    assert before.accounted(sender.session) + after.accounted(sender.session) == list(range(140))


def hear_little(network: Network, receive, datagram: bytes, now: float, wall_ms: int) -> list:
    return receive(datagram, now, wall_ms) if network.random.random() < 0.1 else []


@pytest.mark.parametrize("seed", [1])
@pytest.mark.parametrize("many", [1, 4])
def test_receivers_that_hear_little_harm_the_others_by_no_more_than_the_share_of_repairs(seed, many):
    """They ask for everything there is, again and again; the others still have all of theirs repaired."""
    network = Network(Random(seed), Weather(loss=0.01))
    listeners = [network.receiver(ReceivingSettings()) for _ in range(2)]
    network.run(0.005)
    sender = network.publisher(replace(SENDING, repair_share=0.5))
    for _ in range(many):
        machine = network.receiver(ReceivingSettings(attempts=1_000, repair_wait_s=0.01, longest_wait_s=0.01)).machine
        machine.receive = partial(hear_little, network, machine.receive)
    publish_some(network, sender, 200)
    network.run(0.2)
    finish(network)
    for listener in listeners:
        assert listener.accounted(sender.session) == list(range(200))
        assert not listener.lost(sender.session)
    assert network.repair_bytes <= 0.5 * 400_000 * network.now + 8 * SENDING.datagram_bytes
