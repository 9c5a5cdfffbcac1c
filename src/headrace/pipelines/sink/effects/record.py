"""A record on its way out: its states, and how often and how fast it is tried."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from headrace.pipelines.errors import PipelineError
from headrace.retry import Backoff

WAITING, SENDING, DONE, FAILED = "waiting", "sending", "done", "failed"

# Takes the record (its columns as JSON knows them) and its idempotence key; whatever it raises is a failed attempt.
Send = Callable[[Mapping[str, Any], str], None]


class Refused(PipelineError):
    """Raised by a sender: the receiver will never take this record, so it is not tried again."""


@dataclass(frozen=True)
class Pending:
    """A record to be sent. Records of one lane are sent one after another; None is a lane of its own."""

    key: str
    lane: str | None
    seq: int
    attempts: int
    payload: str


@dataclass(frozen=True)
class FailedRecord:
    """A record that was given up, and why."""

    key: str
    attempts: int
    error: str
    record: Mapping[str, Any]


@dataclass(frozen=True)
class Result:
    """How one attempt ended: `error` None is success."""

    pending: Pending
    error: str | None = None
    final: bool = False

    def state(self, attempts: int) -> str:
        """The record's next state, if that many attempts are allowed."""
        if self.error is None:
            return DONE
        return FAILED if self.final or self.pending.attempts + 1 >= attempts else WAITING


@dataclass(frozen=True)
class Pace:
    """How often a record is tried, how long the pauses are, and how many are sent at once."""

    attempts: int = 5
    first_pause_s: float = 0.5
    longest_pause_s: float = 60.0
    parallel: int = 4

    @property
    def backoff(self) -> Backoff:
        """The pauses after failures."""
        return Backoff(self.first_pause_s, self.longest_pause_s)
