"""What outlives a single fetch: incremental sessions, and fetches that wait for more records.

In a session (KIP-227) a client names its partitions once, and from then on only what changes. The session remembers
the partitions, and what the client was told last of each; the answer holds only the partitions that have something
new. The cache is bounded, in sessions, in partitions of all of them together and in the length of their names: the
session that was silent longest makes room, and its client begins a new one. A session is its user's: for anybody else
there is none of that id.

A fetch that waits is woken by the append itself: nobody polls.
"""

from collections import OrderedDict
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from typing import NamedTuple

from headrace.broker.errors import BrokerError
from headrace.broker.turns import Steps
from headrace.model import MAX_TOPIC_NAME
from headrace.protocol.errors import ErrorCode
from headrace.protocol.messages.fetch import FetchPartition, FetchRequest
from headrace.security.principal import ANONYMOUS, Principal

MAX_PARTITIONS = 500_000  # of all sessions together, at some 400 bytes each; and as many of fetches that wait
SMALL_FETCH = 32  # partitions; whoever asks for no more may always wait
FINAL_EPOCH = -1
INITIAL_EPOCH = 0
_MAX_EPOCH = 2**31 - 1


class PartitionKey(NamedTuple):
    """A partition as the request named it; by id since version 13, by name before."""

    topic: str
    topic_id: bytes
    partition: int


@dataclass(slots=True)
class Session:
    id: int
    epoch: int = 1
    partitions: dict[PartitionKey, FetchPartition] = field(default_factory=dict)
    told: dict[PartitionKey, tuple[int, int, int]] = field(default_factory=dict)

    def is_news(self, key: PartitionKey, error: int, high_watermark: int, log_start: int, size: int) -> bool:
        """Whether the client has to be told of this partition; remembers what it was told."""
        facts = (error, high_watermark, log_start)
        before = self.told.get(key)
        self.told[key] = facts
        return bool(size) or bool(error) or before != facts


class FetchSessions:
    def __init__(self, slots: int) -> None:
        self._slots = slots
        self._sessions: OrderedDict[tuple[Principal, int], Session] = OrderedDict()
        self._next_id = 1
        self._partition_count = 0

    def __len__(self) -> int:
        return len(self._sessions)

    def begin(
        self, request: FetchRequest, asked: dict[PartitionKey, FetchPartition], user: Principal = ANONYMOUS
    ) -> tuple[dict[PartitionKey, FetchPartition], Session | None]:
        """The partitions to fetch, and the session to answer in; None for a full fetch outside of any.

        `asked` are the partitions that the request names.
        """
        if request.session_epoch in (FINAL_EPOCH, INITIAL_EPOCH):
            self.end(user, request.session_id)
            if request.session_epoch == FINAL_EPOCH or not asked or not self._slots or not _can_keep(request):
                return asked, None
            return asked, self._create(asked, user)
        session = self._sessions.get((user, request.session_id))
        if session is None or not _can_keep(request):
            raise BrokerError(ErrorCode.FETCH_SESSION_ID_NOT_FOUND, "the fetch session is not known")
        if session.epoch != request.session_epoch:
            raise BrokerError(ErrorCode.INVALID_FETCH_SESSION_EPOCH, "the fetch session's epoch is another")
        self._sessions.move_to_end((user, session.id))
        session.epoch = 1 if session.epoch == _MAX_EPOCH else session.epoch + 1
        self._partition_count -= len(session.partitions)
        session.partitions.update(asked)
        for forgotten in request.forgotten_topics_data:
            for partition in forgotten.partitions:
                key = PartitionKey(forgotten.topic, forgotten.topic_id, partition)
                session.partitions.pop(key, None)
                session.told.pop(key, None)
        self._partition_count += len(session.partitions)
        self._make_room()
        return session.partitions, session

    def end(self, user: Principal, session_id: int) -> None:
        """Forget a user's session, if it is there."""
        ended = self._sessions.pop((user, session_id), None)
        self._partition_count -= len(ended.partitions) if ended else 0

    def _create(self, partitions: dict[PartitionKey, FetchPartition], user: Principal) -> Session:
        session = Session(self._next_id, partitions=partitions)
        self._sessions[user, session.id] = session
        self._partition_count += len(partitions)
        self._next_id = self._next_id % _MAX_EPOCH + 1
        self._make_room()
        return session

    def _make_room(self) -> None:
        """Let those go that were silent longest; in the end the one that has just been used, if it is too large."""
        while len(self._sessions) > self._slots or self._partition_count > MAX_PARTITIONS:
            _, silent = self._sessions.popitem(last=False)
            self._partition_count -= len(silent.partitions)


def _can_keep(request: FetchRequest) -> bool:
    """Whether the partitions may be in a session; names that no topic can have are not worth the memory."""
    return all(len(topic.topic) <= MAX_TOPIC_NAME for topic in request.topics)


Wake = Callable[[], None]

_WOKEN_AT_ONCE = 8


class Waiting:
    """Who waits for which log, or for what else there may be news of. All on the event loop's thread."""

    def __init__(self, run: Callable[[Steps[None]], None]) -> None:
        """`run` takes turns: an append that many wait for wakes them one after the other, and is not held up by it."""
        self._run = run
        self._wakes: dict[Hashable, dict[Wake, None]] = {}  # a dictionary for its order: first come, first served
        self.is_over = False  # nobody is to wait any more: the broker ends
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def has_room(self, partitions: int) -> bool:
        """Whether a fetch of so many partitions may wait; if not, it is answered at once with what there is."""
        return partitions <= SMALL_FETCH or self._count + partitions <= MAX_PARTITIONS

    def add(self, log: Hashable, wake: Wake) -> None:
        """Call `wake`, which raises nothing, at each append to `log` from now on until it is removed."""
        wakes = self._wakes.setdefault(log, {})
        self._count += wake not in wakes
        wakes[wake] = None

    def remove(self, log: Hashable, wake: Wake) -> None:
        """Wake it no more."""
        wakes = self._wakes.get(log)
        if wakes:
            self._count -= wake in wakes
            wakes.pop(wake, None)
            if not wakes:
                del self._wakes[log]

    def appended(self, log: Hashable) -> None:
        """Something was appended to `log`."""
        wakes = self._wakes.get(log)
        if not wakes:
            return
        if len(wakes) <= _WOKEN_AT_ONCE:
            for wake in tuple(wakes):
                wake()
        else:
            self._run(self._wake_in_steps(log, tuple(wakes)))

    def wake_all_in_steps(self) -> Steps[None]:
        """Have everybody look again: what they wait for may be there by other rules."""
        for log in tuple(self._wakes):
            self.appended(log)
            yield

    def end(self) -> None:
        """Have everybody answer with what there is, now and from now on."""
        self.is_over = True
        for log in tuple(self._wakes):
            self.appended(log)

    def _wake_in_steps(self, log: Hashable, wakes: tuple[Wake, ...]) -> Steps[None]:
        for wake in wakes:
            if wake in self._wakes.get(log, ()):  # its client may have left, or been answered, in the meantime
                wake()
            yield
