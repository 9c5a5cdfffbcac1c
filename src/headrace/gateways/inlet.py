"""Records of many callers into topics: gathered while the ones before are written, and answered once they are durable.

What always holds: what a caller was told is written is durable; a batch whose answer was lost is sent again as it was,
so it is there once; what the broker refuses of one caller harms no other; and what waits has an upper bound in bytes,
beyond which the overload policy decides.
"""

import asyncio
import threading
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from threading import Event
from typing import Final, NamedTuple

from headrace.client.address import Address
from headrace.client.cluster import PATIENT, Cluster
from headrace.client.connection import ConnectionSettings
from headrace.client.errors import ClientError
from headrace.connect.delivery import Entry
from headrace.connect.errors import DeliveryExpired, TakenOver
from headrace.errors import HeadraceError
from headrace.gateways.gateway import Overload, Progress
from headrace.gateways.writing import Appending, Lot, PartlyWritten, Placed, Uncertain, Writing
from headrace.records import Codec
from headrace.retry import Backoff

LIMIT_BYTES: Final = 64 * 1024 * 1024
_STEP_BYTES: Final = 8 * 1024 * 1024  # written at a time, over all topics
_STEP_LOTS: Final = 20_000
_RECORD_OVERHEAD: Final = 100  # of a record that waits, beside its bytes
_BACKOFF: Final = Backoff(0.1, 2.0)


class Overloaded(HeadraceError):
    """There is no room for more records, and the policy is to say so."""


class Dropped(HeadraceError):
    """Records that were dropped, because more came than are taken."""


class Stopped(HeadraceError):
    """Records that were not written, because the gateway ends."""


def unwritten(error: BaseException, count: int) -> int:
    """How many of the records of a lot were not written, if this is what became of it."""
    return error.refused if isinstance(error, PartlyWritten) else count


class _Waiting(NamedTuple):
    lot: Lot
    size: int
    future: "Future[list[Placed]]"


def size_of(entries: Sequence[Entry]) -> int:
    """How much records take while they wait."""
    size = 0
    for key, value, _, headers in entries:
        size += _RECORD_OVERHEAD + len(key or b"") + len(value or b"")
        if headers:
            size += sum(len(name) + len(content or b"") + 60 for name, content in headers)
    return size


@dataclass
class Inlet:
    """Writes what callers of any thread bring; one thread of its own does it."""

    bootstrap: Sequence[Address]
    name: str  # in the broker's log, and in errors
    progress: Progress
    limit_bytes: int = LIMIT_BYTES
    overload: Overload = Overload.BLOCK
    codec: Codec = Codec.NONE
    open_writing: Callable[[Cluster], Writing] | None = None
    """How records are written, where plain idempotent batches are not enough."""
    backoff: Backoff = _BACKOFF
    failure: HeadraceError | None = field(default=None, init=False)
    """Why it writes no more: another gateway has begun under this name."""
    _waiting: deque[_Waiting] = field(default_factory=deque, init=False)
    _bytes: int = field(default=0, init=False)
    _changed: threading.Condition = field(default_factory=threading.Condition, init=False)
    _room_wanted: list[Callable[[], None]] = field(default_factory=list, init=False)
    _writing: Writing | None = field(default=None, init=False)
    _ending: Event = field(default_factory=Event, init=False)
    _given_up: Event = field(default_factory=Event, init=False)
    _thread: threading.Thread | None = field(default=None, init=False)

    # --- for callers

    def start(self) -> None:
        self._thread = threading.Thread(target=self._run, name=f"headrace-inlet-{self.name}", daemon=True)
        self._thread.start()

    def close(self, timeout_s: float = 5.0) -> None:
        """Write what waits, if the broker takes it in time; what is left then fails with `Stopped`."""
        self._ending.set()
        with self._changed:
            self._changed.notify_all()
        if self._thread is not None:
            self._thread.join(timeout_s)
            self._given_up.set()
            with self._changed:
                self._changed.notify_all()
            self._thread.join()
        self._tell_room()
        self._fail_all(Stopped(f"{self.name} ends: what was not written yet is not"))

    @property
    def bytes_waiting(self) -> int:
        return self._bytes

    def offer(self, lot: Lot) -> "Future[list[Placed]] | None":
        """Take records, if there is room; None if there is not and whoever brings them has to wait.

        The future says where each of them is once all are durable, or fails: with what the broker refused, with
        `Uncertain` if it went away for good in between, `Dropped`, or `Stopped`.
        """
        size = size_of(lot.entries)
        future: Future[list[Placed]] = Future()
        future.set_running_or_notify_cancel()  # whoever waits may be cancelled, on an event loop; the records are not
        fallen: list[_Waiting] = []
        with self._changed:
            if self._ending.is_set():
                raise self.failure or Stopped(f"{self.name} ends and takes no more")
            while self._bytes and self._bytes + size > self.limit_bytes:
                if self.overload is Overload.BLOCK:
                    return None
                if self.overload is Overload.FAIL:
                    raise Overloaded(
                        f"{self.name} has {self._bytes:,} bytes that wait for the broker, and no room for more: "
                        "try again later"
                    )
                if self.overload is Overload.DROP_NEWEST or not self._waiting:  # what is being written stays
                    self.progress.dropped += len(lot.entries)
                    future.set_exception(Dropped("there was no room"))
                    return future
                oldest = self._waiting.popleft()
                self._bytes -= oldest.size
                self.progress.dropped += len(oldest.lot.entries)
                fallen.append(oldest)
            self._waiting.append(_Waiting(lot, size, future))
            self._bytes += size
            self._changed.notify_all()
        for each in fallen:
            each.future.set_exception(Dropped("there was no room, and newer records came"))
        return future

    def put(self, topic: str, entries: Sequence[Entry], partition: int | None = None) -> "Future[list[Placed]]":
        """Take records from a thread that may be held up."""
        return self.put_lot(Lot(topic, entries, partition))

    def put_lot(self, lot: Lot) -> "Future[list[Placed]]":
        while True:
            found = self.offer(lot)
            if found is not None:
                return found
            with self._changed:
                if self._bytes and not self._ending.is_set():
                    self._changed.wait(0.5)

    async def put_async(self, topic: str, entries: Sequence[Entry], partition: int | None = None) -> list[Placed]:
        """Take records on an event loop, and wait until they are durable."""
        return await self.put_lot_async(Lot(topic, entries, partition))

    async def put_lot_async(self, lot: Lot) -> list[Placed]:
        while True:
            found = self.offer(lot)
            if found is not None:
                return await asyncio.wrap_future(found)
            await self.room()

    async def room(self) -> None:
        """Wait until something that waited has been written."""
        loop, event = asyncio.get_running_loop(), asyncio.Event()

        def tell() -> None:
            loop.call_soon_threadsafe(event.set)

        with self._changed:
            if not self._bytes or self._ending.is_set():
                return
            self._room_wanted.append(tell)
        try:
            await event.wait()
        finally:
            with self._changed:
                if tell in self._room_wanted:
                    self._room_wanted.remove(tell)

    # --- in the thread

    def _run(self) -> None:
        settings = ConnectionSettings(client_id=f"headrace-gateway-{self.name}")
        failures = 0
        taken: list[_Waiting] = []
        while not self._given_up.is_set():
            try:
                with Cluster(self.bootstrap, settings, retry=PATIENT.at_most(2)) as cluster:
                    writing = self._open(cluster)
                    while taken or (taken := self._take()):
                        problem = self._write(writing, taken)
                        taken, failures = [], 0
                        self.progress.waiting, self.progress.problem = "", problem
                return
            except TakenOver as error:
                self.failure = error
                self._ending.set()
                self._settle(taken, error)
                self._fail_all(error)
                return
            except (ClientError, DeliveryExpired) as error:
                # What was taken stays taken, and is sent again as it was: nobody knows whether it was written.
                failures += 1
                self.progress.waiting, self.progress.problem = "for the broker", str(error)
                if self._given_up.wait(self.backoff.pause_s(failures)):
                    break
            except Exception as error:  # noqa: BLE001 - callers must not wait for ever for a defect of ours
                self._settle(taken, error)
                taken = []
                self._writing = None  # what it was about is settled, and must not be gone on with
        self._settle(taken, Uncertain(f"{self.name} ended before the broker answered: these may be written or not"))

    def _open(self, cluster: Cluster) -> Writing:
        if self._writing is None:
            make = self.open_writing or (lambda _: Appending(self.codec))
            self._writing = make(cluster)
        self._writing.reconnect(cluster)
        return self._writing

    def _take(self) -> list[_Waiting]:
        """What is written next, once there is something; nothing when it is time to end."""
        with self._changed:
            while not self._waiting:
                if self._ending.is_set():
                    return []
                self._changed.wait()
            taken: list[_Waiting] = []
            size = 0
            while (
                self._waiting and (not taken or size + self._waiting[0].size <= _STEP_BYTES) and len(taken) < _STEP_LOTS
            ):
                taken.append(self._waiting.popleft())
                size += taken[-1].size
            return taken

    def _write(self, writing: Writing, taken: list[_Waiting]) -> str:
        """What was refused, if anything was."""
        problem = ""
        outcomes = writing.write([each.lot for each in taken])
        for each, outcome in zip(taken, outcomes, strict=True):
            if isinstance(outcome, Exception):
                problem = str(outcome)
                self.progress.records += len(each.lot.entries) - unwritten(outcome, len(each.lot.entries))
            else:
                self.progress.records += len(each.lot.entries)
                self.progress.bytes += sum(len(key or b"") + len(value or b"") for key, value, _, _ in each.lot.entries)
        self._free(taken)
        for each, outcome in zip(taken, outcomes, strict=True):
            if isinstance(outcome, Exception):
                each.future.set_exception(outcome)
            else:
                each.future.set_result(outcome)
        return problem

    def _settle(self, taken: list[_Waiting], error: Exception) -> None:
        self._free(taken)
        for each in taken:
            each.future.set_exception(error)

    def _free(self, taken: list[_Waiting]) -> None:
        with self._changed:
            self._bytes -= sum(each.size for each in taken)
            self._changed.notify_all()
        self._tell_room()

    def _tell_room(self) -> None:
        with self._changed:
            wanted, self._room_wanted = self._room_wanted, []
        for tell in wanted:
            tell()

    def _fail_all(self, error: Exception) -> None:
        with self._changed:
            left = list(self._waiting)
            self._waiting.clear()
        self._settle(left, error)


__all__ = ["Dropped", "Inlet", "Lot", "Overloaded", "Placed", "Stopped", "Uncertain"]
