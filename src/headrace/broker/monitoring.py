"""What the broker tells of itself to whoever watches over it: numbers for Prometheus, whether it lives and is ready.

Every number is declared in `FAMILIES`, which the reference is made from. What requests came to is counted as they go
(`metrics.py`); the rest is read here, when somebody asks: in turns on the event loop, so that nobody is held up by a
broker with many topics.

The endpoint is a small HTTP server in a thread of its own, behind the same guard as everything else that answers HTTP.
So it answers while the broker reads its logs at the start, and it notices a loop that stands still.

What always holds: a family with names of topics, groups or clients in it has at most `metrics.series.max` series, the
largest ones; how many are left out is a number too. Probes need no login; numbers do, once the broker asks for logins.
"""

import asyncio
import os
import resource
import time
from collections.abc import Coroutine, Iterable, Iterator
from typing import TYPE_CHECKING, Any, Final, TypeVar

from headrace import extras
from headrace.broker.client_metrics import Sample as ClientSample
from headrace.broker.config import Address, BrokerConfig
from headrace.broker.settings.setting import InvalidSetting
from headrace.broker.turns import Steps
from headrace.protocol.errors import ErrorCode
from headrace.telemetry.metrics import (
    COUNTER,
    GAUGE,
    GROUP_LAG,
    HISTOGRAM,
    SHARE_IN_FLIGHT,
    SHARE_REDELIVERIES,
    TOPIC_BYTES,
    TOPIC_OFFSETS,
    Family,
    Samples,
    as_name,
    keep_largest,
    render,
)
from headrace.version import version

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.responses import Response

    from headrace.broker.runtime import Runtime
    from headrace.broker.server import BrokerServer, Server

T = TypeVar("T")

_API: Final = ("api",)

BUILD = Family("headrace_build_info", GAUGE, "1, with the version of Headrace as a label.", ("version",))
READY = Family("headrace_ready", GAUGE, "1 if the broker is ready, as /readyz says.")
REQUESTS = Family("headrace_requests_total", COUNTER, "Requests that were answered.", _API)
ERRORS = Family(
    "headrace_request_errors_total",
    COUNTER,
    "Errors in answers, each entry of an answer counted, by Kafka's names; denials are *_AUTHORIZATION_FAILED.",
    ("api", "error"),
)
REQUEST_BYTES = Family("headrace_request_bytes_total", COUNTER, "Bytes of requests.", _API)
RESPONSE_BYTES = Family("headrace_response_bytes_total", COUNTER, "Bytes of answers.", _API)
QUEUE = Family(
    "headrace_request_queue_seconds",
    HISTOGRAM,
    "From when the last bytes of a request were received until it was begun.",
    _API,
)
LOCAL = Family(
    "headrace_request_local_seconds", HISTOGRAM, "From then until it was answered, or had to wait for something.", _API
)
WAIT = Family(
    "headrace_request_wait_seconds",
    HISTOGRAM,
    "How long those requests waited that had to: for the disk, for records, for other members of a group.",
    _API,
)
TOTAL = Family(
    "headrace_request_total_seconds",
    HISTOGRAM,
    "From when the last bytes of a request were received until its answer was handed to the socket.",
    _API,
)
CONNECTIONS = Family("headrace_connections", GAUGE, "Connections that are open.", ("listener",))
ACCEPTED = Family("headrace_connections_accepted_total", COUNTER, "Connections that were accepted.", ("listener",))
REJECTED = Family(
    "headrace_connections_rejected_total",
    COUNTER,
    "Connections that the broker closed, or did not accept, and why: a login that failed, a frame that is too large …",
    ("reason",),
)
LIMITS = Family(
    "headrace_limits_reached_total", COUNTER, "How often a limit was reached, by the name of its setting.", ("limit",)
)
THROTTLED = Family("headrace_throttled_total", COUNTER, "How often a client had to wait for its quota.", ("quota",))
THROTTLED_SECONDS = Family(
    "headrace_throttled_seconds_total", COUNTER, "How long clients had to wait for their quotas.", ("quota",)
)
FSYNC = Family("headrace_fsync_seconds", HISTOGRAM, "How long a sync of a log took; one serves all who wait for it.")
FSYNC_FAILURES = Family("headrace_fsync_failures_total", COUNTER, "Syncs that failed.")
DISK_FAILING = Family("headrace_disk_failing", GAUGE, "1 while the disk refuses writes.")
DISK_FREE = Family("headrace_disk_free_bytes", GAUGE, "What is free on the disk of the data directory.")
OVERFLOW = Family(
    "headrace_topic_overflow_total",
    COUNTER,
    "What was done because a partition of the topic was full: records that were dropped; batches that were rejected, "
    "had to wait (blocked), waited in vain (timed_out), or never fit (too_large).",
    ("topic", "action"),
)
DEDUP_DROPPED = Family(
    "headrace_queue_dedup_dropped_ids_total",
    COUNTER,
    "Deduplication ids that were forgotten before the end of their window, since a partition remembers 200,000: a "
    "message that comes twice may be delivered twice.",
    ("topic",),
)
BINDINGS_WAITING = Family(
    "headrace_bindings_waiting_partitions",
    GAUGE,
    "Partitions of a bound topic that wait with their copies, since a topic that they go to is missing or full.",
    ("topic", "target"),
)
BLOCKED = Family("headrace_produce_blocked", GAUGE, "Batches that wait for room in a topic that is full.")
WAITING = Family(
    "headrace_fetches_waiting", GAUGE, "Partitions that fetches wait for records of, and share sessions for news."
)
TURNS = Family("headrace_turns_waiting", GAUGE, "Pieces of long requests that wait for their turn.")
SESSIONS = Family("headrace_fetch_sessions", GAUGE, "Fetch sessions that are kept.")
TOPICS = Family("headrace_topics", GAUGE, "Topics, the broker's own included.")
PARTITIONS = Family("headrace_partitions", GAUGE, "Their partitions.")
LOG_BYTES = Family("headrace_log_size_bytes", GAUGE, "The size of all logs.")
GROUPS = Family("headrace_groups", GAUGE, "Consumer groups.", ("state",))
LETTERS = Family(
    "headrace_share_letters_total", COUNTER, "Dead letters that were written, since the broker started.", ("group",)
)
LETTERS_WAITING = Family(
    "headrace_share_letters_waiting_records",
    GAUGE,
    "Records whose dead letters are still to be written; if it stays above 0, the log tells why they cannot be.",
    ("group",),
)
TRANSACTIONS = Family("headrace_transactions", GAUGE, "Transactional ids that are known.", ("state",))
CLIENTS = Family("headrace_clients_pushing", GAUGE, "Clients that push metrics of their own (KIP-714).")
LEFT_OUT = Family("headrace_series_left_out", GAUGE, "Series that are not shown since there are too many.", ("family",))
PROCESS_CPU = Family("process_cpu_seconds_total", COUNTER, "Processor time of the process, user and system.")
PROCESS_MEMORY = Family("process_resident_memory_bytes", GAUGE, "Memory of the process.")
PROCESS_FILES = Family("process_open_fds", GAUGE, "Files and sockets that the process has open.")
PROCESS_MAX_FILES = Family("process_max_fds", GAUGE, "How many it may have.")
PROCESS_START = Family("process_start_time_seconds", GAUGE, "When the process started, in seconds since 1970.")

FAMILIES: Final = tuple(value for value in tuple(globals().values()) if isinstance(value, Family))
CLIENT_PREFIX: Final = "headrace_client_"  # of what clients push, under their own names

_TOPICS_A_STEP: Final = 100
_OFFSETS_A_STEP: Final = 1000
_SHARES_A_STEP: Final = 20  # each may have as many stretches of records as locks are allowed
_PAGE_BYTES: Final = os.sysconf("SC_PAGE_SIZE")
_STARTED_S: Final = time.time() - time.monotonic()


# --- numbers


def collect(runtime: "Runtime", server: "Server", *, is_ready: bool) -> Steps[list[Samples]]:
    """Everything there is to tell, in steps."""
    most = runtime.config.number("metrics.series.max")
    left_out: dict[str, int] = {}
    found = [
        Samples(BUILD, [((version(),), 1)]),
        Samples(READY, [((), int(is_ready))]),
        *_requests(runtime),
        Samples(CONNECTIONS, [((name,), count) for name, count in sorted(server.count_connections().items())]),
        *_counts(runtime),
        *_process(),
    ]
    yield
    found += yield from _topics(runtime, most, left_out)
    found += yield from _groups(runtime, most, left_out)
    found += _clients(runtime.client_metrics.samples(), most, left_out)
    found.append(Samples(LEFT_OUT, [((name,), count) for name, count in left_out.items() if count]))
    return found


def _requests(runtime: "Runtime") -> Iterator[Samples]:
    apis = [((key.name,), stats) for key, stats in sorted(runtime.metrics.apis.items())]
    yield Samples(REQUESTS, [(labels, stats.answered) for labels, stats in apis])
    yield Samples(REQUEST_BYTES, [(labels, stats.request_bytes) for labels, stats in apis])
    yield Samples(RESPONSE_BYTES, [(labels, stats.response_bytes) for labels, stats in apis])
    yield Samples(
        ERRORS,
        [((*labels, _name_of(code)), count) for labels, stats in apis for code, count in sorted(stats.errors.items())],
    )
    yield Samples(QUEUE, [(labels, stats.queue) for labels, stats in apis])
    yield Samples(LOCAL, [(labels, stats.local) for labels, stats in apis])
    yield Samples(WAIT, [(labels, stats.wait) for labels, stats in apis if stats.wait.count])
    yield Samples(TOTAL, [(labels, stats.total) for labels, stats in apis])


def _name_of(code: int) -> str:
    try:
        return ErrorCode(code).name  # type: ignore[call-arg]  # found by its number
    except ValueError:
        return str(code)


def _counts(runtime: "Runtime") -> Iterator[Samples]:
    metrics, ledger = runtime.metrics, runtime.ledger
    yield Samples(ACCEPTED, [((name,), count) for name, count in sorted(metrics.accepted.items())])
    yield Samples(REJECTED, [((name,), count) for name, count in sorted(metrics.rejected.items())])
    yield Samples(LIMITS, [((name,), count) for name, count in sorted(runtime.limits.reached.items())])
    yield Samples(THROTTLED, [((name,), count) for name, count in sorted(ledger.throttled.items())])
    yield Samples(THROTTLED_SECONDS, [((name,), ms / 1000) for name, ms in sorted(ledger.throttled_ms.items())])
    yield Samples(FSYNC, [((), runtime.commit.times)])
    yield Samples(FSYNC_FAILURES, [((), runtime.commit.failures)])
    yield Samples(DISK_FAILING, [((), int(runtime.disk.is_failing))])
    yield Samples(DISK_FREE, [((), free) for free in _free_bytes(runtime.directory.path)])
    yield Samples(WAITING, [((), len(runtime.waiting))])
    yield Samples(BLOCKED, [((), runtime.overflow.blocked)])
    yield Samples(TURNS, [((), len(runtime.turns))])
    yield Samples(SESSIONS, [((), len(runtime.sessions))])
    yield Samples(GROUPS, [((state,), count) for state, count in runtime.groups.coordinator.count_states().items()])
    states: dict[str, int] = {}
    for transaction in runtime.transactions.coordinator.transactions.values():
        states[transaction.state.name] = states.get(transaction.state.name, 0) + 1
    yield Samples(TRANSACTIONS, [((state,), count) for state, count in states.items()])


def _free_bytes(path: str) -> Iterator[int]:
    try:
        disk = os.statvfs(path)
    except OSError:  # a disk that is gone, or none at all in tests
        return
    yield disk.f_bavail * disk.f_frsize


def _process() -> Iterator[Samples]:
    used = resource.getrusage(resource.RUSAGE_SELF)
    yield Samples(PROCESS_CPU, [((), used.ru_utime + used.ru_stime)])
    yield Samples(PROCESS_MAX_FILES, [((), resource.getrlimit(resource.RLIMIT_NOFILE)[0])])
    try:
        with open("/proc/self/statm") as file:
            yield Samples(PROCESS_MEMORY, [((), int(file.read().split()[1]) * _PAGE_BYTES)])
        yield Samples(PROCESS_FILES, [((), len(os.listdir("/proc/self/fd")))])
        with open("/proc/self/stat") as file:
            ticks = int(file.read().rpartition(")")[2].split()[19])
        yield Samples(PROCESS_START, [((), _STARTED_S + ticks / os.sysconf("SC_CLK_TCK"))])
    except OSError:  # where there is no /proc
        return


def _topics(runtime: "Runtime", most: int, left_out: dict[str, int]) -> Steps[list[Samples]]:
    topics = list(runtime.topics.by_name.values())
    sizes: list[tuple[str, float]] = []
    offsets: dict[str, int] = {}
    for number, topic in enumerate(topics, start=1):
        if not number % _TOPICS_A_STEP:
            yield
        sizes.append((topic.name, sum(log.size_bytes for log in topic.partitions)))
        offsets[topic.name] = sum(log.end_offset for log in topic.partitions)
    shown, left_out[TOPIC_BYTES.name] = keep_largest(sizes, most)
    counts = [(key, count) for key, count in runtime.overflow.counts.items() if key[0] in offsets]
    overflow, left_out[OVERFLOW.name] = keep_largest(counts, most)
    dropped, left_out[DEDUP_DROPPED.name] = keep_largest(runtime.queues.dropped_ids().items(), most)
    waiting, left_out[BINDINGS_WAITING.name] = keep_largest(runtime.queues.waiting_for_targets().items(), most)
    return [
        Samples(TOPICS, [((), len(topics))]),
        Samples(PARTITIONS, [((), sum(len(topic.partitions) for topic in topics))]),
        Samples(LOG_BYTES, [((), sum(size for _, size in sizes))]),
        Samples(TOPIC_BYTES, [((name,), size) for name, size in shown]),
        Samples(TOPIC_OFFSETS, [((name,), offsets[name]) for name, _ in shown]),
        Samples(OVERFLOW, overflow),
        Samples(DEDUP_DROPPED, [((name,), count) for name, count in dropped]),
        Samples(BINDINGS_WAITING, waiting),
    ]


def _groups(runtime: "Runtime", most: int, left_out: dict[str, int]) -> Steps[list[Samples]]:
    lags: dict[tuple[str, str], float] = {}
    for number, (group, where, offset) in enumerate(runtime.groups.coordinator.committed(), start=1):
        if not number % _OFFSETS_A_STEP:
            yield
        topic = runtime.topics.by_name.get(where.topic)
        if topic is None or where.partition >= len(topic.partitions):
            continue
        end = runtime.high_watermark(topic.partitions[where.partition])
        key = (group, where.topic)
        lags[key] = lags.get(key, 0) + max(0, end - offset)
    held, again = yield from _shares(runtime, lags)
    found = []
    for family, numbers in ((GROUP_LAG, lags), (SHARE_IN_FLIGHT, held), (SHARE_REDELIVERIES, again)):
        shown, left_out[family.name] = keep_largest(numbers.items(), most)
        found.append(Samples(family, shown))
    letters = runtime.shares.letters
    for family, counts in ((LETTERS, letters.written), (LETTERS_WAITING, letters.waiting)):
        largest, left_out[family.name] = keep_largest(counts.items(), most)
        found.append(Samples(family, [((group,), count) for group, count in largest]))
    return found


def _shares(runtime: "Runtime", lags: dict[tuple[str, str], float]) -> Steps[tuple[dict[tuple[str, str], float], ...]]:
    """What members of share groups hold, and what they were given again; what they have yet to finish is a lag."""
    shares = runtime.shares
    held: dict[tuple[str, str], float] = {}
    again: dict[tuple[str, str], float] = {}
    for number, key in enumerate(shares.coordinator.all_keys(), start=1):
        if not number % _SHARES_A_STEP:
            yield
        topic, partition = runtime.topics.by_id.get(key.topic_id), shares.coordinator.partition(key)
        if topic is None or partition is None or not partition.is_started or key.partition >= len(topic.partitions):
            continue
        end = runtime.high_watermark(topic.partitions[key.partition])
        labels = (key.group_id, topic.name)
        lags[labels] = lags.get(labels, 0) + max(0, end - partition.start - partition.finished)
        held[labels] = held.get(labels, 0) + partition.in_flight()
        again[labels] = again.get(labels, 0) + shares.redeliveries.get(key, 0)
    return held, again


def _clients(samples: Iterable[ClientSample], most: int, left_out: dict[str, int]) -> Iterator[Samples]:
    """What clients pushed, under the names that they gave it; a family for each."""
    families: dict[str, dict[frozenset[tuple[str, str]], float]] = {}
    shown = 0
    instances = set()
    for sample in samples:
        instances.add(sample.labels["client_instance_id"])
        labels = frozenset({_as_label(name): text for name, text in sample.labels.items()}.items())
        series = families.setdefault(CLIENT_PREFIX + as_name(sample.name), {})
        if labels not in series:
            if shown >= most:
                left_out[CLIENT_PREFIX] = left_out.get(CLIENT_PREFIX, 0) + 1
                continue
            shown += 1
        series[labels] = sample.value
    yield Samples(CLIENTS, [((), len(instances))])
    for name, series in sorted(families.items()):
        names = sorted({label for labels in series for label, _ in labels})
        rows = ((dict(labels), value) for labels, value in series.items())
        described = Family(name, GAUGE, "As the client pushes it.", tuple(names))
        yield Samples(described, [(tuple(row.get(label, "") for label in names), value) for row, value in rows])


def _as_label(name: str) -> str:
    """Prometheus keeps names that begin with two underscores to itself, and reads nothing of who uses them."""
    found = as_name(name)
    return f"client{found}" if found.startswith("__") else found


# --- health


def check_ready(runtime: "Runtime | None", phase: str) -> dict[str, str]:
    """What keeps the broker from serving, by what was looked at; nothing, if it is ready."""
    if phase != RUNNING or runtime is None:
        return {"broker": _PHASES.get(phase, phase)}
    return {"log": "", "metadata": "", "coordinators": "", "disk": check_disk(runtime)}


def check_disk(runtime: "Runtime") -> str:
    """Why the data directory cannot be written to.

    A broker that is not ready may not be written to by anybody, so that it would never learn that its disk is well
    again: it tries by itself.
    """
    path = runtime.directory.path
    try:
        disk = os.statvfs(path)
        if disk.f_flag & os.ST_RDONLY:
            return "it is read-only"
        if not disk.f_bavail:
            return "it is full: free some, or lower retention"
        if runtime.disk.is_failing:
            _try_to_write(path)
    except OSError as error:
        return f"it refuses writes: {error.strerror}"
    return ""


def _try_to_write(path: str) -> None:
    """Write to a file that has no name, so that nothing is left behind whatever happens."""
    file = os.open(path, os.O_TMPFILE | os.O_WRONLY, 0o600)
    try:
        os.write(file, bytes(4096))
        os.fsync(file)
    finally:
        os.close(file)


# --- over HTTP

STARTING, RUNNING, DRAINING = "starting", "running", "draining"
_PHASES: Final = {STARTING: "it reads its logs", DRAINING: "it ends, and answers only what is under way"}
_ANSWERS_WITHIN_S: Final = 10.0  # a loop that has not come round by then stands still
_MAX_CONNECTIONS: Final = 50
_STUCK: Final = f"its event loop has not come round for {_ANSWERS_WITHIN_S:g} s"


class Monitor:
    """The endpoint of one broker, from before its data is opened until after it is closed."""

    def __init__(self, broker: "BrokerServer", config: BrokerConfig) -> None:
        """Listen; raises `InvalidSetting` or `MissingExtra` with what is missing for that."""
        if missing := extras.look_for("uvicorn", "metrics.listener"):
            raise missing
        from starlette.applications import Starlette

        from headrace.serving.access import Access, TokensFile
        from headrace.serving.guard import Guard, Site
        from headrace.serving.probes import PROBES, probe_routes
        from headrace.serving.server import AppServer, listening

        self._broker = broker
        self._loop = asyncio.get_running_loop()
        address = Address.parse(config.text("metrics.listener"))
        tokens = config.text("metrics.tokens.file")
        asks = config.text("authorization") == "on" or any(map(config.authenticates, config.listeners))
        if asks and not tokens and not config.is_insecure:
            raise InvalidSetting(
                "metrics.listener would name topics and groups to anybody, and this broker asks for logins: write "
                "tokens with headrace user token add, and name their file in metrics.tokens.file"
            )
        access = Access(
            address.host,
            tokens=TokensFile(tokens) if tokens else None,
            certificate=config.text("metrics.certificate"),
            is_insecure=config.is_insecure,
        )
        bound = listening(address.host, address.port, InvalidSetting)
        port = int(bound.getsockname()[1])
        self.url = access.url(port)
        app = Starlette(routes=probe_routes(self._look_ready, alive=self._look_alive, metrics=self._render))
        self._server = AppServer(
            Guard(app, access, port, Site(_refuse, open_paths=PROBES)),
            bound,
            name="headrace-monitor",
            connections=_MAX_CONNECTIONS,
            certificate=access.certificate,
        )
        self._server.__enter__()

    def close(self) -> None:
        self._server.__exit__(None, None, None)

    async def _look_alive(self) -> dict[str, str]:
        if self._broker.phase != RUNNING:  # to read all logs, or to flush them, may take as long as it takes
            return {}
        return {"loop": "" if await self._on_loop(_come_round()) is not None else _STUCK}

    async def _look_ready(self) -> dict[str, str]:
        phase = self._broker.phase
        if phase != RUNNING:
            return check_ready(None, phase)
        if await self._on_loop(_come_round()) is None:
            return {"broker": _STUCK}
        return check_ready(self._broker.runtime, phase)

    async def _render(self) -> str:
        """The numbers; before and after the broker has any, that it is not ready."""
        is_ready = not any((await self._look_ready()).values())  # not on the broker's loop: it may try the disk
        found = await self._on_loop(self._collect(is_ready=is_ready)) if self._broker.phase != STARTING else None
        return render(found or [Samples(READY, [((), 0)])])

    async def _collect(self, *, is_ready: bool) -> list[Samples] | None:
        runtime, server = self._broker.runtime, self._broker.server
        if runtime is None or server is None:
            return None
        return await runtime.turns.deferred(collect(runtime, server, is_ready=is_ready))

    async def _on_loop(self, work: Coroutine[Any, Any, T]) -> T | None:
        """What comes of it on the broker's loop; None if that does not come round."""
        asked = asyncio.run_coroutine_threadsafe(work, self._loop)
        try:
            return await asyncio.wait_for(asyncio.wrap_future(asked), _ANSWERS_WITHIN_S)
        except TimeoutError:
            return None


async def _come_round() -> bool:
    return True


def _refuse(_: "Request", status: int, sentence: str) -> "Response":
    from starlette.responses import PlainTextResponse

    return PlainTextResponse(f"{sentence}\n", status)
