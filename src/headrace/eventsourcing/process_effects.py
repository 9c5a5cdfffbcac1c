"""What processes want done outside (`todo.effect`), sent through the project's outbox: a mail, a call, a payment.

    EffectRunner(store, transferring, send_mail, outbox="sqlite:///outbox.db").start()

An effect is stored in the same append as the process that wants it, so neither is there without the other. From the log
it is taken into the outbox (`pipelines/sink/effects`), with the position up to which that was done, and sent from there
under its idempotence key. What is remembered as sent is never sent again; what was under way when the program died is
sent again under the same key, for the receiver to tell.
"""

import json
from collections.abc import Mapping
from typing import Any, Final

from headrace.eventsourcing.background import TURN_S, Background
from headrace.eventsourcing.errors import ProcessFailed
from headrace.eventsourcing.model import where
from headrace.eventsourcing.process import ADVANCED, Process
from headrace.eventsourcing.store import EventStore
from headrace.eventsourcing.subscription import Subscription
from headrace.pipelines.sink.effects.delivery import Pace, Send, deliver
from headrace.pipelines.sink.effects.ledger import FailedRecord, Ledger, open_ledger
from headrace.stores.batch import Numbered, Target

_SETTLES_S: Final = 2.0  # PostgreSQL may have a slow writer before what was settled for others already


class EffectRunner(Background):
    """Sends the effects of one kind of process; one at a time, in one program."""

    def __init__(
        self,
        store: EventStore,
        process: Process[Any],
        send: Send,
        *,
        outbox: str,
        attempts: int = 5,
        first_pause_s: float = 0.5,
        longest_pause_s: float = 60.0,
        parallel: int = 4,
    ) -> None:
        """`send(payload, key)` is called for each; what it raises is tried again, so many times.

        `outbox` is where it is remembered what was sent: `sqlite:///path` or `postgresql://…`.
        """
        super().__init__("effects", process.name)
        self._store, self._process, self._send, self._outbox = store, process, send, outbox
        self._pace = Pace(attempts, first_pause_s, longest_pause_s, parallel)
        self._target = Target("headrace_outbox", f"process:{process.name}")

    def settle(self) -> None:
        """Send all that is to be sent now."""
        with open_ledger(self._outbox, self._target) as ledger:
            self._take_in(ledger, self._subscribe(ledger), 0.0)
            deliver(ledger, self._send, self._pace)

    def _take_turn(self) -> None:
        with open_ledger(self._outbox, self._target) as ledger:
            effects = self._subscribe(ledger)
            deliver(ledger, self._send, self._pace)  # what another one left
            while not self._stopped.is_set():
                if self._take_in(ledger, effects, TURN_S):
                    deliver(ledger, self._send, self._pace)

    def _subscribe(self, ledger: Ledger) -> Subscription:
        after = max(ledger.last_batch(self._process.name), 0)
        if after and not self._store.wait(after - 1, _SETTLES_S):
            raise ProcessFailed(
                f"effects of process {self._process.name!r} were taken up to position {after}, and {self._store} ends "
                f"at {self._store.last_position()}: it was set back or replaced; give the runner another outbox"
            )
        query = where(types=[ADVANCED], category=self._process.name)
        return Subscription(self._store, query, after=after, types=self._process.types)

    def _take_in(self, ledger: Ledger, effects: Subscription, timeout_s: float) -> int:
        """What the log has more of than the outbox; how many."""
        count = 0
        while (batch := effects.take(timeout_s)) is not None:
            found = [
                (each.key, each.lane, json.dumps(each.payload)) for event, _ in batch.events for each in event.effects
            ]
            if found:
                ledger.take_in(Numbered(self._process.name, batch.position), found)
                count += len(found)
            timeout_s = 0.0
        return count

    def failed(self) -> list[FailedRecord]:
        """What was given up, and why."""
        with open_ledger(self._outbox, self._target) as ledger:
            return [FailedRecord(key, tried, error, _read(text)) for key, tried, error, text in ledger.failed()]

    def retry_failed(self) -> int:
        """Have what was given up sent again; how many. A runner that runs sends it with what comes next."""
        with open_ledger(self._outbox, self._target) as ledger:
            return ledger.retry_failed()


def _read(text: str) -> Mapping[str, Any]:
    found: Mapping[str, Any] = json.loads(text)
    return found
