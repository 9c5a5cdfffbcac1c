"""The shell around a pure coordinator: it writes what was decided, applies it, and answers once it is durable.

What comes by the thousand and says little, such as committed offsets, is gathered while the event loop goes round once:
all of it becomes one batch a partition, one wait for the disk, and one system call for each connection's answers.

What always holds: records are written before they are applied; whatever is not gathered is decided behind what was
gathered before it came; nobody is told anything, not even a fact that was only
read, before everything that it rests on is durable; a decision that cannot be written has not happened, and whoever
asked is hung up on, so that the client asks again, and a timer whose decision could not be written fires again. Where
a failed sync has lost the end of the log, what was applied of it has not happened either: everything is read anew, as
after a crash, whoever waits is hung up on, and what was decided and not yet done is not done.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Coroutine, Hashable
from contextlib import nullcontext
from time import monotonic
from typing import Any, NamedTuple, Protocol

from headrace.broker.coordinator_log import CoordinatorLog, Producer
from headrace.broker.topics import Topic
from headrace.broker.turns import Deferred, Turns
from headrace.coordinator.decision import CoordinatorRecord, Decision, RequestToken, together
from headrace.errors import HeadraceError
from headrace.protocol.schema import Message
from headrace.storage.errors import StorageError
from headrace.storage.log import Log
from headrace.telemetry.logs import get_logger

GATHERED = 256  # so much weight of what was gathered is decided on at once, in some milliseconds
RETRY_S = 1.0  # what could not be written, and nobody will ask for again, is tried again after this time
_log = get_logger(__name__)


class Durability(Protocol):
    leader_epoch: int
    syncs: bool
    turns: Turns

    def now_ms(self) -> int: ...

    def appended(self, log: Log, offset: int, done: Callable[[StorageError | None], None] | None = None) -> None:
        """Call `done` when everything before `offset` is durable."""
        ...

    def in_thread(self, work: Callable[[], Topic]) -> Coroutine[Any, Any, Topic]:
        """Do what changes topics where the event loop does not wait for it."""
        ...


class _Gathered(NamedTuple):
    token: RequestToken
    event: object
    owner: str


class CoordinatorShell:
    def __init__(
        self,
        runtime: Durability,
        log: CoordinatorLog,
        *,
        decide: Callable[[Any, int], Decision],
        apply: Callable[[CoordinatorRecord, int], None],
        on_timer: Callable[[Hashable], bool],
        on_effect: Callable[[Any], None],
        load: Callable[[], None],
        producer_of: Callable[[Decision], Producer | None] = lambda _: None,
    ) -> None:
        self._runtime = runtime
        self.log = log
        self._decide = decide
        self._apply = apply
        self._on_timer = on_timer
        self._on_effect = on_effect
        self._load = load
        self._life = 0  # counts how often everything was read anew
        self._producer_of = producer_of
        self._timers: dict[Hashable, asyncio.TimerHandle] = {}
        self._waiting: dict[RequestToken, Deferred[Message | None]] = {}
        self._gathered: list[_Gathered] = []
        self._gathered_weight = 0
        self._next_token = 0
        self._unsettled: dict[Log, None] = {}
        self._for_topic: deque[Callable[[bool], None]] = deque()  # who waits until the topic is made
        self._making: asyncio.Task[None] | None = None
        self._is_closed = False

    def request(self, make_event: Callable[[RequestToken], object]) -> Deferred[Message | None]:
        """Ask for a client; the answer may come much later."""
        self._decide_gathered()
        self.notice_cut()  # before this one waits, too
        self._next_token += 1
        token = RequestToken(self._next_token)
        event = make_event(token)  # which may fail: nobody waits yet
        answer: Deferred[Message | None] = Deferred()
        self._waiting[token] = answer

        def carry_on(is_made: bool = True) -> None:
            if token in self._waiting and not (is_made and self._carry_on(event)):
                self._waiting.pop(token, None)
                answer.set(None)

        def carry_on_later(is_made: bool) -> None:
            try:
                carry_on(is_made)
            except Exception as error:  # noqa: BLE001 - belongs to whoever asked, not to those who wait behind
                self._waiting.pop(token, None)
                answer.fail(error)

        if self._for_topic or (not self.log.is_made and self._would_write(event)):
            self.when_made(carry_on_later)
        else:
            carry_on()
        return answer

    def gather(
        self, make_event: Callable[[RequestToken], object], owner: str, weight: int = 1
    ) -> Deferred[Message | None]:
        """Ask for a client, together with others: nothing that follows from it may bear on what they are answered.

        What follows is written to the partition of `owner`. The heavier it is, the fewer are asked for together.
        """
        if not self._gathered:
            if self._is_closed or self._for_topic or not self.log.is_made:
                return self.request(make_event)
            self.notice_cut()
            asyncio.get_running_loop().call_soon(self._decide_gathered)
        self._next_token += 1
        token = RequestToken(self._next_token)
        self._gathered.append(_Gathered(token, make_event(token), owner))
        answer: Deferred[Message | None] = Deferred()
        self._waiting[token] = answer
        self._gathered_weight += weight
        if self._gathered_weight >= GATHERED:
            self._decide_gathered()
        return answer

    def _decide_gathered(self) -> None:
        """Decide on all that was gathered, write it, and answer: as one by one, since nobody's bears on another's."""
        gathered, self._gathered, self._gathered_weight = self._gathered, [], 0
        if not gathered or self.notice_cut():  # then all of them were hung up on
            return
        began_s = monotonic()
        now_ms = self._runtime.now_ms()
        by_partition: dict[int, list[tuple[RequestToken, Decision]]] = {}
        for token, event, owner in gathered:
            try:
                decision = self._decide(event, now_ms)
            except Exception as error:  # noqa: BLE001 - belongs to whoever asked, not to the others
                self._waiting.pop(token).fail(error)
            else:
                by_partition.setdefault(self.log.partition_of(owner), []).append((token, decision))
        written: list[Decision] = []
        for decided in by_partition.values():
            written += self._write_gathered(decided, now_ms)
        self._settle(together(*written))
        self._runtime.turns.spend(monotonic() - began_s)

    def _write_gathered(self, decided: list[tuple[RequestToken, Decision]], now_ms: int) -> list[Decision]:
        """Write what goes to one partition; one by one if that fails, since it may be for the sake of one of them."""
        whole = together(*(decision for _, decision in decided))
        if self._write(whole, now_ms):
            return [whole]
        if len(decided) > 1:
            return [each for one in decided for each in self._write_gathered([one], now_ms)]
        self._waiting.pop(decided[0][0]).set(None)
        return []

    def _would_write(self, event: object) -> bool:
        return any(record.is_kept for record in self._decide(event, self._runtime.now_ms()).records)

    def when_made(self, done: Callable[[bool], None]) -> None:
        """Call `done` once the topic is there, or could not be made: it is made in a thread, not on the event loop.

        Nobody overtakes those who wait for it: of two commits of an offset the second counts.
        """
        if self.log.is_made and not self._for_topic:
            done(True)
            return
        self._for_topic.append(done)
        if len(self._for_topic) == 1:
            self._making = asyncio.get_running_loop().create_task(self._make_topic())

    async def _make_topic(self) -> None:
        try:
            await self._runtime.in_thread(self.log.make)
        except Exception as error:  # noqa: BLE001 - whoever asked is hung up on, and asks again
            _log.error("a coordinator's topic could not be made", error=str(error))
        while self._for_topic:
            self._for_topic[0](self.log.is_made)  # who may have the next one come
            self._for_topic.popleft()
            await asyncio.sleep(0)  # there may be many: pieces of one request that came in turns

    def tell(self, event: object) -> Decision | None:
        """Have the coordinator decide, and carry the decision out; None if it could not be written."""
        self._decide_gathered()
        self.notice_cut()
        return self._carry_on(event)

    def _carry_on(self, event: object) -> Decision | None:
        decision = self._decide_and_write(event)
        if decision:
            self._settle(decision)
        return decision

    def ask_now(self, make_event: Callable[[RequestToken], object]) -> tuple[Message | None, list[Log]]:
        """The answer at once, and the logs that must be durable before anybody outside is told of it."""
        self._decide_gathered()
        self.notice_cut()
        self._next_token += 1
        token = RequestToken(self._next_token)
        decision = self._decide_and_write(make_event(token))
        if decision is None:
            return None, []
        answer = next((answer.response for answer in decision.answers if answer.to == token), None)
        return answer, self._not_durable()

    def _decide_and_write(self, event: object) -> Decision | None:
        if self._is_closed:  # what became durable while the broker ended is decided by the next one
            return None
        now_ms = self._runtime.now_ms()
        decision = self._decide(event, now_ms)
        return decision if self._write(decision, now_ms) else None

    def _write(self, decision: Decision, now_ms: int) -> bool:
        """Write a decision and apply it; whether it could be written. What is not has not happened."""
        producer = self._producer_of(decision)
        kept = [record for record in decision.records if record.is_kept]
        if kept:
            try:
                logs = self.log.append(kept, now_ms=now_ms, leader_epoch=self._runtime.leader_epoch, producer=producer)
            except HeadraceError as error:
                _log.error("a coordinator's decision could not be written", error=str(error))
                return False
            self._unsettled.update(dict.fromkeys(logs))
        for record in decision.records:
            self._apply(record, producer.id if producer else -1)
        for timer in decision.timers:
            self._set_timer(timer.key, timer.at_ms, now_ms)
        return True

    def _not_durable(self) -> list[Log]:
        """The logs with something that is not on the disk yet."""
        if not self._runtime.syncs:
            return []
        for log in [log for log in self._unsettled if log.durable_offset >= log.end_offset]:
            del self._unsettled[log]
        return list(self._unsettled)

    def _settle(self, decision: Decision) -> None:
        """Answer, and do what only the shell can do, once everything written so far is durable."""
        if decision.answers or decision.effects:
            life = self._life
            self.when_durable(lambda error: self._carry_out(decision, life, failed=error is not None))

    def when_durable(self, done: Callable[[StorageError | None], None]) -> None:
        """Call `done` once everything written so far is on the disk, or with the error."""
        if self.notice_cut():
            done(StorageError("what was decided was lost before it was on the disk: ask again"))
            return
        logs = self._not_durable()
        left = len(logs) + 1
        failure: StorageError | None = None

        def settle(error: StorageError | None) -> None:
            nonlocal left, failure
            failure = failure or error
            left -= 1
            if left == 0:
                done(failure)

        for log in logs:
            self._runtime.appended(log, log.end_offset, settle)
        settle(None)

    def notice_cut(self) -> bool:
        """Read everything anew if the end of the log is gone: what is known here may rest on it."""
        if not self.log.was_cut:
            return False
        _log.error("a coordinator's topic, or the end of it, is gone: its state is read anew")
        self._life += 1
        self._cancel_timers()
        self._unsettled.clear()
        self._gathered, self._gathered_weight = [], 0
        waiting, self._waiting = self._waiting, {}
        self._load()
        for answer in waiting.values():
            answer.set(None)
        return True

    def _carry_out(self, decision: Decision, life: int, *, failed: bool) -> None:
        with self._runtime.turns.sending_together() if len(decision.answers) > 1 else nullcontext():
            for answer in decision.answers:
                waiting = self._waiting.pop(answer.to, None)
                if waiting:
                    waiting.set(None if failed else answer.response)
        if self._is_closed:  # the next start does it
            return
        if not failed:
            for effect in decision.effects:
                try:
                    self._on_effect(effect)
                except Exception as error:  # noqa: BLE001 - the others have nothing to do with it, and it is decided
                    _log.error("what was decided could not be done", effect=str(effect), error=str(error))
                    self.retry(self._carry_out_later, Decision(effects=(effect,)), life)
        elif decision.effects:  # decided they are, and what is decided has to be done, once the disk has it
            self.retry(self._carry_out_later, Decision(effects=decision.effects), life)

    def _carry_out_later(self, decision: Decision, life: int) -> None:
        if not self.notice_cut() and life == self._life:  # else it was never decided
            self._settle(decision)

    def _set_timer(self, key: Hashable, at_ms: int | None, now_ms: int) -> None:
        handle = self._timers.pop(key, None)
        if handle:
            handle.cancel()
        if at_ms is not None:
            delay_s = max(0, at_ms - now_ms) / 1000
            self._timers[key] = asyncio.get_running_loop().call_later(delay_s, self._fire, key)

    def _fire(self, key: Hashable) -> None:
        due = self._timers.get(key)
        self._decide_gathered()
        if self._timers.get(key) is not due:  # a sign of life that had come before
            return
        self._timers.pop(key, None)
        if not self._on_timer(key):
            self._timers[key] = asyncio.get_running_loop().call_later(RETRY_S, self._fire, key)

    def retry(self, work: Callable[..., None], *args: object, delay_s: float = RETRY_S) -> None:
        """Do again what could not be written, or not all at once, in a while, unless this is closed by then."""

        def again() -> None:
            if not self._is_closed:
                work(*args)

        asyncio.get_running_loop().call_later(delay_s, again)

    def close(self) -> None:
        """Let no timer fire any more, and try nothing again."""
        self._is_closed = True
        self._gathered.clear()
        if self._making:
            self._making.cancel()
        self._cancel_timers()

    def _cancel_timers(self) -> None:
        for handle in self._timers.values():
            handle.cancel()
        self._timers.clear()
