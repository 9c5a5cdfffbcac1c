"""What the broker counts while it works.

Everything that is counted once per request is counted here, by API, on the event loop's thread and without a lock; what
can be read off the broker at any moment (sizes, lag, connections) is not counted at all, but read when somebody asks,
in `monitoring.py`.

What always holds: a request costs half a microsecond, whether anybody looks at
the numbers or not; which series there are is bounded by the protocol, never by what clients choose.
"""

from collections import Counter
from collections.abc import Callable, Iterator
from enum import StrEnum
from typing import Any, Final

from headrace.broker.turns import Steps
from headrace.protocol.api import APIS, ApiKey
from headrace.protocol.schema import Message, Struct
from headrace.telemetry.metrics import BOUNDS_S, Histogram
from headrace.telemetry.traces import RequestTraces

# Answered when other clients have done something: how long that takes is not up to the broker.
_WAITING_FOR_OTHERS: Final = frozenset({ApiKey.JOIN_GROUP, ApiKey.SYNC_GROUP})

QUICK_S: Final = BOUNDS_S[0]
_ENTRIES_A_STEP: Final = 256


class ApiStats:
    """The requests of one API, and how long each took, from the moment its last byte was received.

    Most are through within the first bound, and so is every part of what they took: those are counted together, and
    their time as time that they were worked on.
    """

    __slots__ = (
        "_count_in_steps",
        "_local",
        "_name",
        "_queue",
        "_response",
        "_total",
        "_traces",
        "_waits",
        "count_errors",
        "errors",
        "quick",
        "quick_s",
        "request_bytes",
        "response_bytes",
        "wait",
        "waits_for_others",
    )

    def __init__(self, api_key: ApiKey, traces: RequestTraces | None = None) -> None:
        self._name = api_key.name
        self._traces = traces
        self._waits = api_key in _WAITING_FOR_OTHERS or api_key is ApiKey.FETCH
        self.request_bytes = 0
        self.response_bytes = 0
        self.quick = 0  # requests that took no longer than `QUICK_S`
        self.quick_s = 0.0
        self._queue = Histogram()
        self._local = Histogram()
        self._total = Histogram()
        self.wait = Histogram()  # for the disk, for records, for other clients; of those requests that had to
        self.errors: Counter[int] = Counter()
        self._response = APIS[api_key].response
        self.count_errors = _compile_error_count(self._response, self.errors)
        self._count_in_steps: Callable[[Any], Steps[None]] | None = None
        self.waits_for_others = api_key in _WAITING_FOR_OTHERS

    def finish(self, received_s: float, began_s: float, handled_s: float, now_s: float) -> None:
        """A request is answered that was not quick."""
        self._queue.observe(began_s - received_s)
        self._local.observe(handled_s - began_s)
        self._total.observe(now_s - received_s)
        if self._traces is not None:
            self._traces.request(self._name, received_s, began_s, handled_s, now_s, waits=self._waits)

    def count_errors_in_steps(self, answer: Message) -> Steps[None]:
        """As `count_errors`, for an answer of many entries."""
        if self._count_in_steps is None:
            self._count_in_steps = _compile_error_count(self._response, self.errors, in_steps=True)
        return self._count_in_steps(answer)

    @property
    def answered(self) -> int:
        return self.quick + self._total.count

    @property
    def queue(self) -> Histogram:
        """Until the request was begun."""
        return self._queue.plus(self.quick, 0.0)

    @property
    def local(self) -> Histogram:
        """From then until it was answered, or had to wait."""
        return self._local.plus(self.quick, self.quick_s)

    @property
    def total(self) -> Histogram:
        """Until its answer was handed to the socket, after those before it."""
        return self._total.plus(self.quick, self.quick_s)


class Rejected(StrEnum):
    """Why a connection is closed that its client would have kept."""

    ACCEPT_FAILED = "accept_failed"
    CONNECTION_RATE = "connection_rate"
    FAILURE = "failure"
    FRAME_TOO_LARGE = "frame_too_large"
    IDLE = "idle"
    INVALID_REQUEST = "invalid_request"
    LOGIN = "login"
    SETUP_TIMEOUT = "setup_timeout"
    TLS = "tls"


class BrokerMetrics:
    """All that is counted, of one broker."""

    def __init__(self, traces: RequestTraces | None = None) -> None:
        self._traces = traces
        self.apis: dict[ApiKey, ApiStats] = {}  # those that were asked for
        self.accepted: Counter[str] = Counter()  # connections, by listener
        self.rejected: Counter[str] = Counter()  # connections that were closed, by the reason

    def api(self, api_key: ApiKey) -> ApiStats:
        stats = self.apis[api_key] = ApiStats(api_key, self._traces)
        return stats

    def close(self) -> None:
        if self._traces is not None:
            self._traces.close()


def _compile_error_count(
    response: type[Message], into: Counter[int], *, in_steps: bool = False
) -> Callable[[Any], Any]:
    """What counts every error of a response, wherever it stands in it.

    Compiled, as the codec is: an answer may name a thousand partitions, and a walk that looks for fields would cost
    more than encoding them.
    """
    lines = ["def count(m0):", "  steps = 0", *_walk(response, "m0", 1, in_steps=in_steps), "  return"]
    if in_steps:
        lines.append("  yield")  # behind the return: a generator even without any arrays
    namespace: dict[str, Any] = {"into": into}
    exec("\n".join(lines), namespace)  # noqa: S102 - made of our own declarations
    count: Callable[[Any], Any] = namespace["count"]
    return count


def _walk(struct: type[Struct], name: str, depth: int, *, in_steps: bool) -> Iterator[str]:
    indent = "  " * depth
    for field in struct.__schema__.fields:
        where = f"{name}.{field.name}"
        if field.name.endswith("error_code"):
            yield f"{indent}if {where}: into[{where}] += 1"
        elif isinstance(field.type, type):
            inner = list(_walk(field.type, f"m{depth}", depth + 1, in_steps=in_steps))
            if inner:
                each = f"{where} or ()" if field.is_array else f"() if {where} is None else ({where},)"
                yield f"{indent}for m{depth} in {each}:"
                yield from inner
                if in_steps and field.is_array:
                    yield f"{indent}  steps += 1"
                    yield f"{indent}  if not steps % {_ENTRIES_A_STEP}: yield"
