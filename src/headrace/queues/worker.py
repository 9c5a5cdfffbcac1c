"""A function that is run for each message of a queue, several at a time, until it is told to stop.

A function that returns has done its work: the message is acknowledged, and where there is a queue for results in one
transaction with what the function returned. One that raises has not: the message is
delivered again, later each time; after as many deliveries as the group allows it is a dead letter. `Reject` makes it
one at once, and so does a value that cannot be read. A function that takes longer than the time-out has failed, too: an
async one is cancelled; a plain one cannot be, so it goes on in its thread, which takes nothing else before it is done,
and its message goes to somebody else.

What always holds: on SIGTERM, or `stop`, nothing new is begun, what runs may end (within `grace`), and what was fetched
and not begun goes back at once.
"""

import asyncio
import inspect
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial, update_wrapper
from typing import Any, Final

from headrace.queues.message import Duration, InvalidValue, Message, QueueError, Reject, seconds
from headrace.queues.queue import AsyncQueue, Queue
from headrace.queues.receiver import Receiver
from headrace.retry import Backoff
from headrace.telemetry.logs import get_logger

_log = get_logger(__name__)
_LONGEST_PAUSE_S: Final = 300.0
_TICK_S: Final = 0.5
_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM)


@dataclass(slots=True)
class Counts:
    """What became of messages."""

    done: int = 0
    retried: int = 0
    rejected: int = 0
    timed_out: int = 0
    running: int = 0
    last_error: str = ""


class Worker:
    """A function at a queue; `run` works in this thread's place until `stop`, SIGTERM or SIGINT."""

    def __init__(
        self,
        queue: Queue,
        function: Callable[[Message], Any],
        *,
        concurrency: int = 8,
        timeout: Duration | None = "30s",
        retry_after: Duration = "1s",
        grace: Duration = "30s",
        results: str | Queue | None = None,
    ) -> None:
        if concurrency < 1:
            raise QueueError(f"concurrency={concurrency} is not possible: run at least 1 at a time")
        if not callable(function):
            raise QueueError(f"a worker is a function, and {function!r} cannot be called: give it one")
        if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
            raise QueueError(f"a worker is a function that returns, and {function!r} yields: give it one without yield")
        self.queue = queue
        self.function = function
        self.concurrency = concurrency
        self.counts = Counts()
        self.is_async = is_awaited(function)
        self._timeout_s = None if timeout is None else seconds(timeout, "timeout")
        self._backoff = Backoff(seconds(retry_after, "retry_after"), _LONGEST_PAUSE_S)
        self._grace_s = seconds(grace, "grace")
        self.results = results
        self._stopping = threading.Event()
        self._lock = threading.Lock()
        update_wrapper(self, function)

    def __call__(self, *arguments: Any, **named: Any) -> Any:
        """The function itself, as it was: for tests, and other callers."""
        return self.function(*arguments, **named)

    @property
    def receiver(self) -> Receiver:
        return self.queue.receiver

    def stop(self) -> None:
        """Begin nothing new; `run` returns when what runs has ended. From any thread, or a signal handler."""
        self._stopping.set()
        self.receiver.stop_taking()

    def run(self) -> None:
        """Work until told to stop; raises what somebody has to mend."""
        self.receiver.hold_at_least(self.concurrency)
        with _stopped_by_signals(self):
            try:
                asyncio.run(self._work_async()) if self.is_async else self._work()
            finally:
                self.queue.close()

    # --- plain functions, in threads

    def _work(self) -> None:
        self._check_results()
        self.queue.get(0)  # what is in the way is raised here
        threads = [
            threading.Thread(target=self._take_turns, name=f"headrace-worker-{number}", daemon=True)
            for number in range(self.concurrency)
        ]
        for thread in threads:
            thread.start()
        # In short waits: a signal's handler runs between them.
        while not self._stopping.wait(_TICK_S) and any(thread.is_alive() for thread in threads):
            pass
        deadline = time.monotonic() + self._grace_s
        for thread in threads:
            thread.join(max(deadline - time.monotonic(), 0.0))
        if any(thread.is_alive() for thread in threads):
            _log.warning("messages given back unfinished", queue=self.queue.name, grace_s=self._grace_s)
        self._raise_failure()

    def _check_results(self) -> None:
        if self.results is not None:
            self.queue.check_transactions()

    def _take_turns(self) -> None:
        with suppress(Exception):  # raised again by the thread that runs the worker
            for message in self.queue:
                self._handle(message)
                del message

    def _handle(self, message: Message) -> None:
        if self._timeout_s is not None:
            self.receiver.give_up_in(message, self._timeout_s, partial(self._time_out, message.deliveries))
        with self._counted():
            try:
                self._finish(message, _checked(self.function(message)))
            except BaseException as error:  # noqa: BLE001 - whatever it is, sys.exit() too, the message is not done
                self._fail(message, error)

    def _time_out(self, deliveries: int) -> float:
        with self._lock:
            self.counts.timed_out += 1
            self.counts.last_error = f"a message took longer than {self._timeout_s:g} s"
        return self._backoff.pause_s(deliveries)

    # --- async functions, as tasks

    async def _work_async(self) -> None:
        await asyncio.to_thread(self._check_results)
        queue = AsyncQueue(self.queue)
        slots = asyncio.Semaphore(self.concurrency)
        tasks: set[asyncio.Task[None]] = set()
        closing = asyncio.create_task(queue.wait_closed())
        closing.add_done_callback(lambda _: slots.release())  # whoever waits for one has nothing more to take

        async def handle(message: Message) -> None:
            try:
                await self._handle_async(message)
            finally:
                slots.release()

        while True:
            await slots.acquire()
            message = await queue.get()
            if message is None:
                break
            task = asyncio.create_task(handle(message))
            del message
            tasks.add(task)
            task.add_done_callback(tasks.discard)
        if tasks:
            _, late = await asyncio.wait(tasks, timeout=self._grace_s)
            for task in late:
                task.cancel()
            if late:
                await asyncio.wait(late)
        self._raise_failure()

    async def _handle_async(self, message: Message) -> None:
        with self._counted():
            try:
                async with asyncio.timeout(self._timeout_s) as limit:
                    result = await self.function(message)
                await asyncio.to_thread(self._finish, message, result) if self.results else self._finish(message)
            except asyncio.CancelledError:
                message.retry(reason="its worker was stopped")
                raise
            except Exception as error:  # noqa: BLE001 - whatever it is, the message is not done
                if isinstance(error, TimeoutError) and limit.expired():
                    pause_s = self._time_out(message.deliveries)
                    message.retry(pause_s, f"it took longer than {self._timeout_s:g} s")
                else:
                    self._fail(message, error)

    # --- what becomes of it

    def _finish(self, message: Message, result: Any = None) -> None:
        """It is done, and so is its result, or neither."""
        if self.results is None or result is None:
            message.ack()
        else:
            with self.queue.transaction() as transaction:
                transaction.put(self.results, result)
                transaction.ack(message)
        with self._lock:
            self.counts.done += 1

    def _fail(self, message: Message, error: BaseException) -> None:
        reason = f"{type(error).__name__}: {error}"
        is_final = isinstance(error, Reject | InvalidValue)
        if isinstance(error, Reject):
            reason = error.reason
        message.reject(reason) if is_final else message.retry(self._backoff.pause_s(message.deliveries), reason)
        with self._lock:
            self.counts.rejected += is_final
            self.counts.retried += not is_final
            self.counts.last_error = reason
        where = f"{message.topic}-{message.partition}@{message.offset}"
        event = "message rejected" if is_final else "message failed"
        _log.warning(event, message=where, delivery=message.deliveries, error=reason)

    @contextmanager
    def _counted(self) -> Iterator[None]:
        with self._lock:
            self.counts.running += 1
        try:
            yield
        finally:
            with self._lock:
                self.counts.running -= 1

    def _raise_failure(self) -> None:
        if not self._stopping.is_set():
            self.receiver.take_now()


def is_awaited(function: Callable[..., Any]) -> bool:
    """Whether what a function returns is to be awaited; a wrapper counts as what it is, not as what it wraps."""
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(getattr(function, "__call__", None))  # noqa: B004 - of an object, its method


def _checked(result: Any) -> Any:
    """Refuse what a plain function has not done yet when it returns: nobody would do it."""
    if inspect.isawaitable(result) or inspect.isgenerator(result) or inspect.isasyncgen(result):
        if inspect.iscoroutine(result):
            result.close()
        raise QueueError(f"the function returned a {type(result).__name__}, which nobody runs: make it an async def")
    return result


@contextmanager
def _stopped_by_signals(worker: Worker) -> Iterator[None]:
    """SIGTERM and SIGINT stop a worker; only the main thread hears them."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.signal(number, lambda *_: _stop_in_thread(worker)) for number in _SIGNALS}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _stop_in_thread(worker: Worker) -> None:
    # The handler runs in between of whatever the main thread does, which may hold the receiver's lock.
    threading.Thread(target=worker.stop, daemon=True).start()
