"""Work that goes on until it is stopped: in the caller's thread, in one of its own, or beside an event loop.

What always holds: what passes by itself (a store that is away) is tried again, with longer and longer pauses; all else
ends the work, which is `failed` then and says why. `stop` may be called by any thread.
"""

import asyncio
import threading
from abc import ABC, abstractmethod
from types import TracebackType
from typing import Any, Final, Self

from headrace.errors import HeadraceError
from headrace.eventsourcing.errors import Conflict, EventSourcingError, StoreUnavailable
from headrace.retry import Backoff
from headrace.status import FAILED, RUNNING, STOPPED, WAITING, Status
from headrace.telemetry.logs import get_logger

_log = get_logger(__name__)
RETRY: Final = Backoff(first_s=0.1, longest_s=10.0)
TURN_S: Final = 0.25  # how long a turn waits for something to do, and so `stop` for it


class Background(ABC):
    """Something that does one turn after another."""

    def __init__(self, kind: str, name: str, retry: Backoff = RETRY) -> None:
        self._kind, self._name, self._retry = kind, name, retry
        self._stopped = threading.Event()
        self._thread: threading.Thread | None = None
        self._state, self._problem = STOPPED, ""
        self._failure: HeadraceError | None = None

    @abstractmethod
    def _take_turn(self) -> None:
        """Do what there is to do, or wait a moment for it."""

    def _end(self) -> None:  # noqa: B027 - most have nothing to do
        """After the last turn, however it ended."""

    def run(self) -> None:
        """Go on until `stop`."""
        self._stopped.clear()
        self._state, self._problem, self._failure = RUNNING, "", None
        failures = 0
        try:
            while not self._stopped.is_set():
                try:
                    self._take_turn()
                    failures, self._state, self._problem = 0, RUNNING, ""
                except (StoreUnavailable, Conflict) as error:
                    failures += 1
                    if self._retry.gives_up(failures):
                        raise
                    self._state, self._problem = WAITING, str(error)
                    _log.warning("it waits, and goes on by itself", kind=self._kind, name=self._name, error=str(error))
                    self._stopped.wait(self._retry.pause_s(failures))
            self._state = STOPPED
        except HeadraceError as error:
            self._state, self._problem, self._failure = FAILED, str(error), error
            raise
        except Exception as error:  # a mistake in a user's code, or ours: nobody is to think that it runs
            self._state, self._problem = FAILED, f"{type(error).__name__}: {error}"
            self._failure = EventSourcingError(f"{self._kind} {self._name!r} failed: {self._problem}")
            raise
        finally:
            self._end()

    async def run_async(self) -> None:
        """As `run`, in a thread that is waited for; it ends when it is cancelled."""
        running = asyncio.create_task(asyncio.to_thread(self.run))
        try:
            await asyncio.shield(running)
        except asyncio.CancelledError:
            self._stopped.set()
            await running
            raise

    def start(self) -> Self:
        """`run` in a thread."""
        if self._thread is None or not self._thread.is_alive():
            self._stopped.clear()
            self._thread = threading.Thread(
                target=self._run_quietly, name=f"headrace-{self._kind}-{self._name}", daemon=True
            )
            self._thread.start()
        return self

    def _run_quietly(self) -> None:
        try:
            self.run()
        except Exception as error:  # noqa: BLE001 - it is in the status, and whoever waits is told
            _log.error("it failed, and has to be started again", kind=self._kind, name=self._name, error=str(error))

    def stop(self) -> None:
        """Have `run` return soon, and wait for the thread of `start`."""
        self._stopped.set()
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join()

    def close(self) -> None:
        """Stop, and let go of what is its own."""
        self.stop()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _report(self, **facts: Any) -> Status:
        """How it stands, as parts of a stack report it."""
        if self._problem:
            facts["waiting" if self._state == WAITING else "problem"] = self._problem
        return Status.of(self._name, self._kind, self._state, **facts)
