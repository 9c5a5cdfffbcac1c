"""Messages held for a program: fetched ahead, locked for as long as they are worked on, and what became of them sent.

A thread of its own polls the member of the share group. Everybody else only takes from the shelf of what was fetched,
and says what became of a message; that goes out with the thread's next request.

What always holds: no more than `prefetch` messages are held, on the shelf and in the program's hands together. Half of
a lock's time is never let pass without renewing it, unless the program has forgotten the message: then it is released.
A message whose lock may have lapsed is not handed out. What the broker took back (its session ended) is off the shelf
at once, and what the program says of it later is dropped with a line in the log: the message comes again.
"""

import threading
import time
import weakref
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum, auto
from typing import Final

from headrace.client.errors import ClientError
from headrace.client.share import Acquired, Polled, ShareMember
from headrace.client.share_session import Ack, Place
from headrace.client.transactions import Transaction
from headrace.coordinator.share.acknowledgement import AckType
from headrace.queues.message import Codec, Lapsed, Message, QueueError, short_reason
from headrace.telemetry.logs import RareLines, get_logger

_log = get_logger(__name__)
_QUIET_S: Final = 10.0
_IDLE_WAIT_MS: Final = 500
_BUSY_WAIT_MS: Final = 200  # an acknowledgement waits behind a fetch that waits
_TRANSACTIONS_WAIT_MS: Final = 20  # and a transaction for its acknowledgements
_TICK_S: Final = 0.5
_LINGER_S: Final = 0.02


def _release(after_s: float | None, reason: str) -> Ack:
    """Give a message back, for a time that the protocol can say: an int32 of milliseconds, some 24 days."""
    after_ms = -1 if after_s is None else min(round(after_s * 1000), 2**31 - 1)
    return Ack(AckType.RELEASE, after_ms, short_reason(reason))


class State(Enum):
    SHELVED = auto()
    HANDED_OUT = auto()
    PUT_OFF = auto()  # to be released later, by us: this broker cannot wait
    SAID = auto()  # what became of it is on its way


@dataclass(slots=True, eq=False)
class Held:
    """One message."""

    acquired: Acquired
    renew_at: float
    lapses_at: float
    state: State = State.SHELVED
    message: "weakref.ref[Message] | None" = None
    act_at: float = float("inf")  # when it is given up, or released
    reason: str = ""
    on_give_up: Callable[[], float] | None = None  # how long it is not delivered then
    said: Ack | None = None
    is_settled: bool = False  # what came of that is known
    error: str = ""

    @property
    def key(self) -> tuple[Place, int]:
        return self.acquired.place, self.acquired.record.offset

    @property
    def is_forgotten(self) -> bool:
        """Whether the program has let go of it without a word."""
        return self.state is State.HANDED_OUT and self.message is not None and self.message() is None


class Receiver:
    """Holds up to `prefetch` messages; `release`d ones wait at the broker if it can (`can_wait`), else here."""

    def __init__(
        self, connect: Callable[[], ShareMember], *, prefetch: int, codec: Codec, can_wait: Callable[[], bool]
    ) -> None:
        if prefetch < 1:
            raise QueueError(f"prefetch={prefetch} is not possible: hold at least 1 message")
        self._connect = connect
        self._prefetch = prefetch
        self._codec = codec
        self._can_wait = can_wait
        self._lock = threading.Condition()
        self._held: dict[tuple[Place, int], Held] = {}
        self._shelf: deque[Held] = deque()
        self._to_say: deque[Held] = deque()
        self._listeners: list[Callable[[], None]] = []
        self._member: ShareMember | None = None
        self._thread: threading.Thread | None = None
        self._is_closing = False
        self._is_leaving = self._has_left = False
        self._busy_wait_ms = _BUSY_WAIT_MS
        self._failure: BaseException | None = None
        self._rarely = RareLines(_log, _QUIET_S)
        self.lapsed = 0  # said of messages that were not ours any more
        self.accepted = 0

    # --- for the program, in any thread

    def start(self) -> None:
        """Join the group; raises what is in the way of that."""
        with self._lock:
            if self._thread is not None or self._is_closing:
                return
            member = self._connect()
            try:
                member.join()
            except BaseException:
                member.close()
                raise
            self._member = member
            # It must not keep a program alive that has ended without closing its queue.
            self._thread = threading.Thread(target=self._run, name=f"headrace-queue-{member.group}", daemon=True)
            self._thread.start()

    def take(self, timeout_s: float | None = None) -> Message | None:
        """The next message; None once it is closed, or when the time is over."""
        self.start()
        with self._lock:
            taken: list[Message] = []

            def take_one() -> bool:  # what is on the shelf may have lapsed
                if message := self._hand_out():
                    taken.append(message)
                return bool(taken) or self._is_over

            self._lock.wait_for(take_one, timeout_s)
            return taken.pop() if taken else None

    def take_now(self) -> Message | None:
        """The next message, if there is one."""
        with self._lock:
            return self._hand_out()

    @property
    def is_closed(self) -> bool:
        return self._is_closing

    @property
    def trouble(self) -> str:
        """Why nothing comes just now; empty if all is well."""
        return str(self._member.trouble) if self._member is not None and self._member.trouble else ""

    def hold_at_least(self, messages: int) -> None:
        """Fetch ahead for so many at a time, if that is more than was said."""
        self._prefetch = max(self._prefetch, messages)

    def listen(self, call: Callable[[], None]) -> None:
        """Have this called, in another thread, whenever there may be something to take."""
        with self._lock:
            self._listeners.append(call)

    def give_up_in(self, message: Message, timeout_s: float, pause: Callable[[], float]) -> None:
        """Have a message released when it was held for so long, and not delivered for the pause after that."""
        held = message._held  # noqa: SLF001 - it is ours
        assert isinstance(held, Held)
        with self._lock:
            held.act_at, held.on_give_up = time.monotonic() + timeout_s, pause
            held.reason = f"it took longer than {timeout_s:g} s"

    def accept(self, held: Held) -> None:
        self._say(held, Ack(AckType.ACCEPT))

    def reject(self, held: Held, reason: str) -> None:
        self._say(held, Ack(AckType.REJECT, reason=short_reason(reason)))

    def release(self, held: Held, after_s: float | None, reason: str) -> None:
        if after_s and not self._can_wait():
            with self._lock:
                if held.state is State.HANDED_OUT:
                    held.state, held.act_at, held.reason = State.PUT_OFF, time.monotonic() + after_s, reason
            return
        self._say(held, _release(after_s, reason))

    def _say(self, held: Held, ack: Ack) -> None:
        with self._lock:
            if held.state is State.SAID:
                return
            held.state, held.said = State.SAID, ack
            if self._held.get(held.key) is not held:
                self._note_lapsed(held, "its session ended")
                return
            self._to_say.append(held)
            # While there is more to work on, what is said goes together.
            is_urgent = not self._shelf or self._is_closing or len(self._to_say) * 4 >= self._prefetch
        if self._member is not None and is_urgent:
            self._member.wake()

    def acknowledge_in(self, transaction: Transaction, said: Mapping[Message, Ack]) -> None:
        """Have messages finished with a transaction: from now on they are its, and come again if it is aborted.

        Raises `Lapsed` if one of them is not ours any more.
        """
        self._busy_wait_ms = _TRANSACTIONS_WAIT_MS
        with self._lock:
            mine: list[Held] = []
            for message in said:
                held = message._held  # noqa: SLF001 - it is ours
                assert isinstance(held, Held)
                if held.state is not State.HANDED_OUT or self._held.get(held.key) is not held:
                    raise Lapsed(message, "it was given back, or its session ended")
                mine.append(held)
            for held, ack in zip(mine, said.values(), strict=True):
                held.state, held.said = State.SAID, ack._replace(transaction=transaction)
            self._to_say += mine
            if self._member is not None:
                self._member.wake()
            self._lock.wait_for(lambda: self._failure or self._has_left or all(held.is_settled for held in mine))
            if self._failure is not None:
                raise self._failure
            for message, held in zip(said, mine, strict=True):
                if held.error or not held.is_settled:
                    raise Lapsed(message, held.error or "its queue was closed")

    def flush(self, timeout_s: float | None) -> bool:
        """Wait until everything that was said of messages is durable, or refused; whether it is."""
        if self._member is not None:
            self._member.wake()
        with self._lock:
            is_done = self._lock.wait_for(
                lambda: self._failure or all(held.state is not State.SAID for held in self._held.values()), timeout_s
            )
            if self._failure is not None:
                raise self._failure
            return bool(is_done)

    def stop_taking(self) -> None:
        """Hand nothing out any more, and give back at once what is on the shelf."""
        with self._lock:
            self._is_closing = True
            self._clear_shelf()
            self._news()
        if self._member is not None:
            self._member.wake()

    def _clear_shelf(self) -> None:
        """Give back what nobody has seen, which does not count as delivered; a Kafka does so with the session."""
        while self._can_wait() and self._shelf:
            held = self._shelf.popleft()
            if held.state is State.SHELVED and self._held.get(held.key) is held:
                held.state, held.said = State.SAID, Ack(AckType.RELEASE, is_unseen=True)
                self._to_say.append(held)

    def abandon(self) -> None:
        """In a process that was forked: what its parent holds is not this one's, and there is no thread here."""
        self._lock = threading.Condition()  # somebody may have held the other one
        self._listeners, self._thread = [], None
        self._held, self._shelf, self._to_say = {}, deque(), deque()
        self._is_closing = self._is_leaving = self._has_left = True

    def close(self) -> None:
        """Send what was said, give the rest back, and leave the group."""
        self.stop_taking()
        self._is_leaving = True
        if self._member is not None:
            self._member.wake()
        thread = self._thread
        if thread is not None and thread is not threading.current_thread():
            thread.join()

    @property
    def _is_over(self) -> bool:
        return self._is_closing or self._failure is not None

    def _hand_out(self) -> Message | None:
        if self._failure is not None:
            raise self._failure
        while self._shelf and not self._is_closing:
            held = self._shelf.popleft()
            if self._held.get(held.key) is not held or time.monotonic() >= held.lapses_at:
                continue
            held.state = State.HANDED_OUT
            where = held.acquired.partition
            message = Message(
                self, held, where.topic, where.partition, held.acquired.record, held.acquired.deliveries, self._codec
            )
            held.message = weakref.ref(message)
            return message
        return None

    def _news(self) -> None:
        self._lock.notify_all()
        for call in self._listeners:
            call()

    # --- the thread

    def _run(self) -> None:
        member = self._member
        assert member is not None
        try:
            while not self._is_leaving:
                with self._lock:
                    self._keep(member, time.monotonic())
                    wanted = self._wanted()
                    wait_ms = self._busy_wait_ms if self._held else _IDLE_WAIT_MS
                polled = member.poll(wanted, max_wait_ms=wait_ms, timeout_s=self._next_step_s())
                with self._lock:
                    self._apply(polled)
            with self._lock:
                self._keep(member, time.monotonic())
        except Exception as error:  # noqa: BLE001 - raised again for whoever takes
            with self._lock:
                self._failure = error
            if not isinstance(error, ClientError):
                _log.failure("receiver failed", error, group=member.group)
        finally:
            outcomes = member.close()
            with self._lock:
                self._apply(Polled(outcomes=outcomes))
                self._held.clear()
                self._shelf.clear()
                self._is_closing = self._has_left = True
                self._news()

    def _wanted(self) -> int:
        """How many more may be held; none as long as half of them are here, so that they come together."""
        now = time.monotonic()
        in_hand = sum(held.state is not State.SAID and now < held.lapses_at for held in self._held.values())
        is_enough = self._shelf and in_hand * 2 > self._prefetch
        return 0 if self._is_closing or is_enough else max(self._prefetch - in_hand, 0)

    def _next_step_s(self) -> float:
        now = time.monotonic()
        steps = [min(held.renew_at, held.act_at) for held in self._held.copy().values() if held.state is not State.SAID]
        tick_s = _LINGER_S if self._to_say else _TICK_S
        return max(min([now + tick_s, *steps]) - now, 0.0)

    def _keep(self, member: ShareMember, now: float) -> None:
        """Say what was said, renew locks that are half over, give up what took too long."""
        for held in list(self._held.values()):
            if held.state is State.SAID:
                continue
            if now >= held.lapses_at and (held.state is State.SHELVED or held.is_forgotten):
                del self._held[held.key]  # it is the broker's again, as after a pause of this whole process
            elif now >= held.act_at:
                self._act(held)
            elif now >= held.renew_at:
                if held.is_forgotten:
                    held.state, held.said = State.SAID, Ack(AckType.RELEASE, reason="its program forgot it")
                    self._to_say.append(held)
                    self._rarely.warning("message forgotten", topic=held.acquired.partition.topic)
                else:
                    member.acknowledge(held.acquired, Ack(AckType.RENEW))
                    held.renew_at = now + held.acquired.lock_ms / 4000  # if it is not answered
        while self._to_say:
            held = self._to_say.popleft()
            assert held.said is not None
            if not member.acknowledge(held.acquired, held.said):
                self._note_lapsed(held, "its session ended")
                self._held.pop(held.key, None)
                self._lock.notify_all()

    def _act(self, held: Held) -> None:
        held.act_at = float("inf")
        if held.on_give_up is not None and held.state is State.HANDED_OUT:
            pause_s, reason = held.on_give_up(), held.reason
            if pause_s and not self._can_wait():
                held.state, held.act_at = State.PUT_OFF, time.monotonic() + pause_s
                return
            ack = _release(pause_s, reason)
        else:
            ack = _release(None, held.reason)
        held.state, held.said = State.SAID, ack
        self._to_say.append(held)

    def _apply(self, polled: Polled) -> None:
        now = time.monotonic()
        for outcome in polled.outcomes:
            held = self._held.get((outcome.place, outcome.offset))
            if held is None:
                continue
            lock_s = held.acquired.lock_ms / 1000
            if outcome.ack.type is AckType.RENEW:
                if outcome.error is None:
                    held.renew_at, held.lapses_at = now + lock_s / 2, now + lock_s
                elif held.state is not State.SAID:  # it has lapsed, or this group does not renew: an ack may still do
                    held.renew_at = float("inf")
                continue
            if held.said is not outcome.ack:
                continue
            del self._held[held.key]
            held.is_settled = True
            if outcome.error is not None:
                self._note_lapsed(held, outcome.error.meaning)
            elif outcome.ack.type is AckType.ACCEPT:
                self.accepted += 1
        if polled.ended:
            self._held = {key: held for key, held in self._held.items() if held.acquired.session not in polled.ended}
            self._shelf = deque(held for held in self._shelf if held.key in self._held)
        for acquired in polled.acquired:
            lock_s = acquired.lock_ms / 1000
            held = Held(acquired, now + lock_s / 2, now + lock_s)
            before = self._held.get(held.key)
            if before is not None and before.state is State.SAID:  # too late: nobody waits for what comes of it
                self._note_lapsed(before, "its lock lapsed")
            self._held[held.key] = held  # one that was here before has lapsed
            self._shelf.append(held)
        if self._is_closing:
            self._clear_shelf()
        if polled.acquired or polled.outcomes or polled.ended:
            self._news()

    def _note_lapsed(self, held: Held, why: str) -> None:
        self.lapsed += 1
        held.is_settled, held.error = True, why
        where = held.acquired.partition
        self._rarely.warning(
            "message comes again", topic=where.topic, partition=where.partition, offset=held.key[1], why=why
        )
