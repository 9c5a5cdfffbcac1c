"""Work that goes on for as long as it may: the broker that is away is waited for, and then the work begins anew."""

from collections.abc import Callable
from dataclasses import dataclass, field
from threading import Event
from typing import Final, Protocol

from headrace.client.errors import ClientError, OffsetOutOfRange, Refused, TopicGrown, TopicReplaced, UnknownTopic
from headrace.connect.errors import DeliveryExpired
from headrace.errors import HeadraceError
from headrace.protocol.errors import ErrorCode
from headrace.retry import Backoff
from headrace.telemetry.logs import get_logger

_FOR_A_TOPIC_S: Final = 1.0
_AGAIN_S: Final = 0.2
_log = get_logger(__name__)


class Told(Protocol):
    """Where whoever watches reads why nothing happens just now; the work empties both once something does."""

    waiting: str
    problem: str


@dataclass(slots=True)
class KeepRunning:
    """Runs `work` until it returns, `stopping` is set, or it raises what waiting does not mend."""

    name: str
    told: Told
    stopping: Event
    done: Callable[[], int]
    """How much was done so far: failures without anything between them are failures in a row."""
    refused: Callable[[Refused], HeadraceError]
    """What is raised for the broker's refusal, in words for whoever runs this."""
    backoff: Backoff = field(default_factory=Backoff)

    def run(self, work: Callable[[], None]) -> None:
        failures = 0
        while not self.stopping.is_set():
            before = self.done()
            try:
                work()
                return
            except UnknownTopic as error:
                self._wait(f"for topic {error.topic}", error, _FOR_A_TOPIC_S)
            except TopicGrown as error:
                _log.info("begins again with all partitions", part=self.name, error=str(error))
            except (TopicReplaced, OffsetOutOfRange) as error:
                _log.warning("begins again where the topic does", part=self.name, error=str(error))
                self.stopping.wait(_AGAIN_S)
            except (ClientError, DeliveryExpired) as error:
                if isinstance(error, Refused) and not may_pass(error):
                    raise self.refused(error) from error
                failures = 1 if self.done() > before else failures + 1
                self._wait("for the broker", error, self.backoff.pause_s(failures))

    def _wait(self, what: str, error: HeadraceError, pause_s: float) -> None:
        self.told.waiting, self.told.problem = what, str(error)
        _log.debug("waits", part=self.name, what=what, error=str(error))
        self.stopping.wait(pause_s)


def may_pass(refusal: Refused) -> bool:
    """Whether another try may be taken."""
    # An id that was not used for days is forgotten by the broker; beginning anew makes it known again.
    return refusal.code.retriable or refusal.code is ErrorCode.INVALID_PRODUCER_ID_MAPPING
