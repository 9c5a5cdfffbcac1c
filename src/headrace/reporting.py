"""A part at work: it runs in a thread of its own, and how it is doing is shown and kept for others every second."""

import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Final, Protocol

from headrace.client.address import Address
from headrace.client.cluster import Cluster
from headrace.client.connection import ConnectionSettings
from headrace.client.errors import ClientError
from headrace.errors import HeadraceError
from headrace.status import Status, StatusWriter

_TICK_S: Final = 1.0
Show = Callable[[Sequence[Status]], None]


class UnexpectedEnd(HeadraceError):
    """A part ended by a defect: it must not look like one that was stopped."""

    def __init__(self, error: Exception) -> None:
        super().__init__(f"{type(error).__name__}: {error}")


class Part(Protocol):
    """What is run."""

    @property
    def name(self) -> str: ...

    @property
    def records(self) -> int:
        """How many it has done."""
        ...

    def status(self, per_s: float, error: HeadraceError | None, *, is_over: bool) -> Status: ...


def run_reported(
    part: Part, run: Callable[[], None], topic: str, bootstrap: Sequence[Address], show: Show
) -> dict[str, HeadraceError]:
    """Run a part until it ends, its status kept in a topic; what it failed with, by its name."""
    errors: dict[str, HeadraceError] = {}

    def keep() -> None:
        try:
            run()
        except HeadraceError as error:
            errors[part.name] = error
        except Exception as error:  # noqa: BLE001 - a defect must not look like a part that was stopped
            errors[part.name] = UnexpectedEnd(error)

    thread = threading.Thread(target=keep, name=f"headrace-{part.name}")
    thread.start()
    with Cluster(bootstrap, ConnectionSettings(client_id="headrace-reporting")) as cluster:
        writer = StatusWriter(cluster, topic)
        counted, then = 0, time.monotonic()
        while True:
            thread.join(_TICK_S)
            is_last = not thread.is_alive()
            records, now = part.records, time.monotonic()
            per_s = 0.0 if is_last else round((records - counted) / (now - then), 1)
            counted, then = records, now
            status = part.status(per_s, errors.get(part.name), is_over=is_last)
            show([status])
            with suppress(ClientError):  # the broker is away: the part says so itself, and goes on
                writer.report(status, is_last=is_last)
            if is_last:
                return errors
