"""A topic by two ways, and an inbox that is full, each against a simple reference."""

from random import Random

from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.gateways.gateway import Overload
from headrace.gateways.multicast.events import Lost
from headrace.gateways.multicast.inbox import Inbox
from headrace.gateways.multicast.joining import Joining, TopicRecord
from headrace.gateways.multicast.message import Message, Origin
from headrace.gateways.multicast.wire import Session
from tests.property.storage_model import count_examples

SESSION = Session(1, 2)


@settings(max_examples=count_examples(300))
@given(
    st.integers(0, 2**32), st.sampled_from([0.0, 0.1, 0.5]), st.sampled_from([1_000, 10_000, 10**9]), st.integers(1, 3)
)
def test_each_record_comes_once_in_order_whatever_the_group_brings(seed, loss, room, partitions):
    """The log has holes, as compaction and transactions leave them; the group loses, and repeats after restarts."""
    random = Random(seed)
    log = {number: sorted(random.sample(range(200), 100)) for number in range(partitions)}
    begin = {number: random.randrange(0, 100) for number in range(partitions)}
    joining = Joining(dict(begin), room)
    emitted: dict[int, list[int]] = {number: [] for number in range(partitions)}
    ends = dict.fromkeys(range(partitions), 0)  # of the log, as far as it is written
    published = dict.fromkeys(range(partitions), 0)

    def take(records: list[TopicRecord]) -> None:
        for record in records:
            assert record.value == b"%d" % record.offset
            emitted[record.partition].append(record.offset)

    def read_some(number: int) -> None:
        target = joining.targets[number]
        assert target <= ends[number]
        begin_at = joining.positions[number]
        reached = min(begin_at + random.randrange(1, 40), target)
        records = [
            TopicRecord(number, offset, None, b"%d" % offset, (), 0, is_live=False)
            for offset in log[number]
            if begin_at <= offset < reached
        ]
        take(joining.read(number, records, reached))

    while any(published[number] < len(log[number]) for number in log):
        number = random.randrange(partitions)
        at = published[number]
        if at < len(log[number]):
            offset = log[number][at]
            ends[number] = max(ends[number], offset + 1)
            after = log[number][at - 1] if at and random.random() < 0.9 else -1
            if random.random() >= loss:
                message = Message(b"%d" % offset, None, (), 0, None, SESSION, 0, 0)
                take(joining.live(message, Origin("t", number, offset, after)))
            published[number] += 1
            if random.random() < 0.03:
                published[number] = max(published[number] - random.randrange(10), 0)  # the gateway was killed
        if joining.targets and random.random() < 0.5:
            read_some(random.choice(list(joining.targets)))
        assert joining.held_bytes <= max(room, 0)
    joining.look(ends)
    while joining.targets:
        read_some(next(iter(joining.targets)))
    for number, offsets in log.items():
        assert emitted[number] == [offset for offset in offsets if offset >= begin[number]]
    assert joining.held_bytes == 0


@settings(max_examples=count_examples(200))
@given(st.integers(0, 2**32), st.sampled_from([Overload.DROP_OLDEST, Overload.DROP_NEWEST, Overload.FAIL]))
def test_what_an_inbox_drops_is_told_once_and_in_its_place(seed, overload):
    random = Random(seed)
    inbox = Inbox(5_000, overload)
    numbers = {Session(1, 1): 0, Session(2, 2): 0}
    taken = []
    for _ in range(300):
        session = random.choice(list(numbers))
        if random.random() < 0.1:
            inbox.put(Lost(session, numbers[session], numbers[session] + 2, 3, "unrepaired"))
            numbers[session] += 3
        else:
            inbox.put(Message(b"x" * random.randrange(300), None, (), 0, None, session, numbers[session], 0))
            numbers[session] += 1
        assert inbox.bytes <= 5_000 + 2 * 300
        if random.random() < 0.2:
            taken += inbox.take(random.randrange(1, 12))
    while more := inbox.take(7):
        taken += more
    assert len(inbox) == inbox.bytes == 0
    for session, count in numbers.items():
        upcoming = 0
        for event in taken:
            if event.session != session:
                continue
            if isinstance(event, Message):
                assert event.number == upcoming
                upcoming += 1
            else:
                assert (event.first, event.count) == (upcoming, event.last - event.first + 1)
                upcoming = event.last + 1
        assert upcoming == count
    assert inbox.is_failed == (overload is Overload.FAIL and inbox.dropped > 0)
