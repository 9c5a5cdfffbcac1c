"""Bad input: counted each time, and said in the log once a second at the most, so that nobody fills a disk with it."""

import threading
import time
from dataclasses import dataclass, field
from typing import Any, Final

from headrace.errors import harmless
from headrace.gateways.gateway import Progress
from headrace.telemetry.logs import get_logger

_EVERY_S: Final = 1.0
_SHOWN: Final = 200  # characters of what somebody sent
_log = get_logger(__name__)


@dataclass(slots=True)
class BadInput:
    """What a gateway could not read; for any thread."""

    name: str
    progress: Progress
    _said_at: float = field(default=float("-inf"), init=False)
    _unsaid: int = field(default=0, init=False)
    _lock: threading.Lock = field(default_factory=threading.Lock, init=False)

    def refuse(self, why: str, sender: object = "", count: int = 1, **facts: Any) -> None:
        """Count it, and say why if nothing was said just now."""
        now = time.monotonic()
        with self._lock:
            self.progress.refused += count
            if now - self._said_at < _EVERY_S:
                self._unsaid += count
                return
            self._said_at, unsaid, self._unsaid = now, self._unsaid, 0
        more = {"not_said": unsaid} if unsaid else {}
        shown = harmless(why)
        _log.warning(
            "bad input",
            gateway=self.name,
            why=shown if len(shown) <= _SHOWN else shown[:_SHOWN] + "…",
            sender=str(sender),
            **more,
            **facts,
        )
