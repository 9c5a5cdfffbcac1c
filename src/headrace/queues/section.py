"""A section `[queues.NAME]` of `headrace.toml`: a function of the user's as a worker, with a status that others read.

    [queues.emails]
    function = "mailer:send"     # the function send of mailer.py, beside the file
    concurrency = 8

A function that `@queue.worker` or `@rpc.responder` made a worker already is run as it is, with the section's keys over
what it was made with.
"""

import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final

from headrace.client.errors import ClientError
from headrace.extras import InvalidName, import_named
from headrace.queues.message import QueueError, codec_of, seconds
from headrace.queues.queue import Queue
from headrace.queues.rpc import Responder
from headrace.queues.worker import Worker
from headrace.status import FAILED, QUEUES, RUNNING, STOPPED, WAITING, Status, StatusWriter

SECTION: Final = "queues"
_OF_QUEUE: Final = ("group", "values", "prefetch", "partitions", "priorities", "max_deliveries", "lock")
_OF_WORKER: Final = ("concurrency", "timeout", "retry_after", "grace", "results")
_TICK_S: Final = 1.0


@dataclass(frozen=True, slots=True)
class WorkerSettings:
    """One section; `options` are those of a queue and a worker."""

    name: str
    function: str
    topic: str
    options: Mapping[str, Any]


def from_section(name: str, section: Mapping[str, Any]) -> WorkerSettings:
    """What a section says; raises the first thing that is wrong with a value."""
    options = {key: value for key, value in section.items() if key in (*_OF_QUEUE, *_OF_WORKER)}
    check_function(section["function"])
    codec_of(options.get("values", "json"))
    for key in ("timeout", "retry_after", "grace", "lock"):
        if key in options:
            seconds(options[key], key)
    return WorkerSettings(name, section["function"], section.get("topic") or name, options)


def check_function(target: str) -> None:
    """Refuse what does not name a function."""
    module, colon, name = target.partition(":")
    is_named = colon and name.isidentifier() and all(part.isidentifier() for part in module.split("."))
    if not is_named:
        raise QueueError(f"function {target!r} is not the name of one: write MODULE:NAME, as in mailer:send")


def load_function(target: str) -> Any:
    """The function that is named, or the worker that was made of it; its module is imported."""
    check_function(target)
    try:
        return import_named(target, "function", callable)
    except InvalidName as error:
        raise QueueError(str(error)) from error


def make_worker(settings: WorkerSettings, bootstrap: str) -> Worker:
    """The worker that a section describes."""
    function = load_function(settings.function)
    options = {key: value for key, value in settings.options.items() if key in _OF_QUEUE}
    queue = Queue(settings.topic, bootstrap, **options)
    how = {key: value for key, value in settings.options.items() if key in _OF_WORKER}
    if isinstance(function, Responder):
        return Responder(queue, function.reply, **how)
    if isinstance(function, Worker):
        results = function.results
        how.setdefault("results", results.name if isinstance(results, Queue) else results)
        function = function.function
    return Worker(queue, function, **how)


def run_worker(settings: WorkerSettings, bootstrap: str, show: Callable[[Sequence[Status]], None]) -> None:
    """Run a worker until it is told to stop; how it is doing is shown every second, and kept for others to read."""
    worker = make_worker(settings, bootstrap)
    is_over = threading.Event()
    failure = ""
    reporter = threading.Thread(target=_report, args=(settings, worker, is_over, show, lambda: failure))
    reporter.start()
    try:
        worker.run()
    except Exception as error:
        failure = str(error)
        raise
    finally:
        is_over.set()
        reporter.join()


def _report(
    settings: WorkerSettings,
    worker: Worker,
    is_over: threading.Event,
    show: Callable[[Sequence[Status]], None],
    failure: Callable[[], str],
) -> None:
    before, then = 0, time.monotonic()
    with worker.queue.connect() as cluster:
        writer = StatusWriter(cluster, QUEUES)
        while True:
            is_last = is_over.wait(_TICK_S)
            counts, now = worker.counts, time.monotonic()
            per_s = 0.0 if is_last else round((counts.done - before) / (now - then), 1)
            before, then = counts.done, now
            status = _status(settings, worker, failure() if is_last else None).updated(per_s=per_s)
            show([status])
            with suppress(ClientError):  # the broker is away: the worker says so itself, and goes on
                writer.report(status, is_last=is_last)
            if is_last:
                return


def _status(settings: WorkerSettings, worker: Worker, failure: str | None) -> Status:
    counts, trouble = worker.counts, worker.receiver.trouble
    state = (WAITING if trouble else RUNNING) if failure is None else FAILED if failure else STOPPED
    return Status.of(
        settings.name,
        "queue",
        state,
        **({"waiting": "the broker"} if state == WAITING else {}),
        problem=failure or trouble or counts.last_error,
        source=settings.topic,
        records=counts.done,
        retried=counts.retried,
        rejected=counts.rejected,
        timed_out=counts.timed_out,
    )


def _main() -> None:
    """Whether a function can be loaded: `headrace up --check` asks in a process of its own, for it runs user code."""
    try:
        load_function(sys.argv[1])
    except QueueError as error:
        sys.exit(str(error))


if __name__ == "__main__":
    _main()
