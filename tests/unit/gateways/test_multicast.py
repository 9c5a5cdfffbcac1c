"""Pace and repairs step by step, addresses, and what is said about settings that cannot be."""

import pytest

from headrace.gateways.errors import GatewayError
from headrace.gateways.gateway import Overload
from headrace.gateways.multicast import Content, Group, Publisher, ReceivingSettings, SendingSettings, Subscriber
from headrace.gateways.multicast.group import seal_of
from headrace.gateways.multicast.message import InvalidMessage, write_content
from headrace.gateways.multicast.pace import Pace
from headrace.gateways.multicast.repairs import Repairs
from headrace.gateways.multicast.sending import Offered, Sending
from headrace.gateways.multicast.wire import Data, Heartbeat, Nak, Session, read_datagram

SESSION = Session(1, 2)


def nak(receiver: int, number: int, *ranges: tuple[int, int]) -> Nak:
    return Nak(SESSION, receiver, number, ranges)


def test_a_pace_lets_through_its_rate():
    pace = Pace(1_000.0, 100)
    sent, now = 0, 0.0
    while now < 10:
        if pace.is_ready(now):
            pace.take(50)
            sent += 50
            continue
        assert pace.ready_at(now) > now
        now = pace.ready_at(now)
    assert 10_000 <= sent <= 10_000 + 150


def test_what_two_ask_for_is_sent_once():
    repairs = Repairs(1e6, 1_000)
    repairs.ask(nak(1, 1, (5, 2)), 0, 10)
    repairs.ask(nak(2, 1, (5, 2)), 0, 10)
    sent = []
    while (sequence := repairs.next(0.0, 0)) is not None:
        repairs.sent(sequence, 100, 0.0)
        sent.append(sequence)
    assert sorted(sent) == [5, 6]


def test_receivers_take_turns():
    repairs = Repairs(1e6, 1_000)
    repairs.ask(nak(1, 1, (0, 100)), 0, 200)
    repairs.ask(nak(2, 1, (150, 2)), 0, 200)
    first = []
    for _ in range(4):
        sequence = repairs.next(0.0, 0)
        repairs.sent(sequence, 10, 0.0)
        first.append(sequence)
    assert first == [0, 150, 1, 151]


def test_many_receivers_together_have_the_rate_of_all_and_one_has_half_of_it():
    for receivers, most in ((1, 50_000), (40, 100_000)):
        repairs = Repairs(100_000, 1_000)
        sent = 0
        for step in range(1_000):
            now = step / 1_000
            for receiver in range(receivers):
                repairs.ask(nak(receiver, step + 1, (step * 50 + receiver, 40)), 0, 10**9)
            while (sequence := repairs.next(now, 0)) is not None:
                repairs.sent(sequence, 1_000, now)
                sent += 1_000
        assert most * 0.9 <= sent <= most + 8_000


def test_a_nak_that_was_recorded_is_not_answered_again():
    repairs = Repairs(1e6, 1_000)
    repairs.ask(nak(1, 7, (3, 1)), 0, 10)
    repairs.sent(repairs.next(0.0, 0), 10, 0.0)
    repairs.ask(nak(1, 7, (3, 1)), 0, 10)
    assert repairs.next(5.0, 0) is None
    assert repairs.refused == 1


def test_a_request_for_everything_costs_no_more_than_its_bound():
    repairs = Repairs(1e9, 1_000)
    repairs.ask(nak(1, 1, *[(0, 2**32 - 1)] * 96), 0, 10**6)
    asked = 0
    while (sequence := repairs.next(0.0, 0)) is not None and asked < 10_000:
        repairs.sent(sequence, 0, 0.0)
        asked += 1
    assert asked == 512


def sending(**told) -> Sending:
    return Sending(SendingSettings(**told), SESSION, 0.0, name="p")


def test_heartbeats_come_at_once_then_ever_more_rarely():
    machine = sending()
    times, now = [], 0.0
    while now < 5:
        for datagram in machine.transmit(now, 0):
            read = read_datagram(datagram, 0, None)
            assert isinstance(read, Heartbeat)
            times.append(round(now, 3))
        assert machine.next_at(now) > now
        now = machine.next_at(now)
    assert times == [0.0, 0.1, 0.3, 0.7, 1.5, 2.5, 3.5, 4.5]


def test_small_messages_share_a_datagram_if_they_may_wait():
    machine = sending(linger_s=0.01)
    list(machine.transmit(0.0, 0))
    for _ in range(5):
        machine.offer(write_content(Content(b"x" * 10)), 0.0)
    assert list(machine.transmit(0.0, 0)) == []
    (datagram,) = machine.transmit(0.011, 0)
    read = read_datagram(datagram, 0, None)
    assert isinstance(read, Data)
    assert len(read.pieces) == 5


def test_no_datagram_is_longer_than_told():
    for size in (256, 1_400, 9_000):
        machine = sending(datagram_bytes=size, rate_bytes_s=None)
        for length in (0, 1, size - 120, size - 80, size, size + 1, 10 * size):
            machine.offer(write_content(Content(b"x" * length)), 0.0)
        datagrams = list(machine.transmit(0.0, 0))
        assert max(map(len, datagrams)) <= size
        assert sum(map(len, datagrams)) > 13 * size


def test_a_queue_has_its_bound_and_takes_one_message_of_any_length():
    machine = sending(queue_bytes=1_000)
    assert machine.offer(b"x" * 5_000, 0.0) is Offered.TAKEN
    assert machine.offer(b"x", 0.0) is Offered.FULL
    assert machine.drop_oldest()
    assert machine.offer(b"x", 0.0) is Offered.TAKEN
    assert machine.counts.dropped == 1


def test_what_is_longer_than_a_message_may_be_is_refused():
    with pytest.raises(GatewayError, match="longer than message_bytes = 100"):
        sending(message_bytes=100).offer(b"x" * 101, 0.0)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("239.255.0.1", "not a group and a port"),
        ("10.0.0.1:7400", "not an IPv4 multicast group"),
        ("ff02::1:7400", "not an IPv4 multicast group"),
        ("239.255.0.1:65535", "port 65535 cannot be"),
        ("239.255.0.1:x", "not a group and a port"),
    ],
)
def test_an_address_that_is_no_group_is_one_sentence(text, said):
    with pytest.raises(GatewayError, match=said):
        Group.parse(text)


def test_an_interface_that_is_not_there_is_one_sentence():
    with pytest.raises(GatewayError, match=r"no interface 'nowhere0' on this machine: name one of .*lo"):
        Publisher("239.255.0.1:7400", interface="nowhere0")
    with pytest.raises(GatewayError, match=r"cannot be joined on interface 192\.0\.2\.1"):
        Subscriber("239.255.0.1:7400", interface="192.0.2.1")


@pytest.mark.parametrize(
    "told",
    [
        {"datagram_bytes": 100}, {"datagram_bytes": 70_000}, {"rate_bytes_s": 5}, {"repair_share": 0.0},
        {"queue_bytes": 0}, {"heartbeat_s": 0.01},
    ],
)  # fmt: skip
def test_settings_of_a_publisher_that_cannot_be(told):
    with pytest.raises(GatewayError):
        SendingSettings(**told)


@pytest.mark.parametrize("told", [{"window_datagrams": 1}, {"backoff_s": 0}, {"attempts": 0}, {"sessions": 0}])
def test_settings_of_a_subscriber_that_cannot_be(told):
    with pytest.raises(GatewayError):
        ReceivingSettings(**told)


def test_a_subscriber_cannot_block_and_a_key_has_a_length():
    with pytest.raises(GatewayError, match="cannot block"):
        Subscriber("239.255.0.1:7400", overload=Overload.BLOCK)
    with pytest.raises(GatewayError, match="too short"):
        seal_of(b"secret")


def test_a_message_that_cannot_be_written_is_one_sentence():
    with Publisher("239.255.44.1:7400") as publisher:
        for wrong in ({"headers": (("a\ud800", b""),)}, {"timestamp_ms": 2**63}, {"headers": (("n", b""),) * 20_000}):
            with pytest.raises(InvalidMessage):
                publisher.publish(b"x", **wrong)
        assert publisher.publish(b"y")
