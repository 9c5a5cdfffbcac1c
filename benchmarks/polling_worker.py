"""The workers of `polling.py`: threads that see events in one way, and when each of them did.

What is asked for comes as JSON in the first line of standard input. When all workers are there, `ready` is said; a line
makes the counting begin, and a last one tells how many events were written: once all have seen them, or after ten
seconds, the times and the number of requests are told.
"""

import http.client
import json
import re
import select
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

import psycopg

_PATIENCE_S = 10.0
_AT = re.compile(r"at\W+(\d{18,20})")
_ASK = "SELECT id, event FROM events WHERE id > %s ORDER BY id"


class Seen:
    """What one worker saw; only its thread writes."""

    def __init__(self) -> None:
        self.latencies: list[int] = []
        self.requests = 0

    def take(self, event: str) -> None:
        found = _AT.search(event)
        if found is not None:
            self.latencies.append(time.time_ns() - int(found[1]))


class Stop(threading.Event):
    pass


def poll(asked: dict[str, Any], seen: Seen, stop: Stop, ready: Callable[[], None], number: int) -> None:
    interval = float(asked["interval_s"])
    with psycopg.connect(asked["url"], autocommit=True) as db:
        last = 0
        ready()
        # Workers do not ask in one breath.
        due = time.monotonic() + interval * number / asked["workers"]
        while not stop.wait(max(0.0, due - time.monotonic())):
            due = max(due + interval, time.monotonic())
            seen.requests += 1
            for id_, event in db.execute(_ASK, [last]):
                last = id_
                seen.take(event)


def notify(asked: dict[str, Any], seen: Seen, stop: Stop, ready: Callable[[], None], _number: int) -> None:
    with psycopg.connect(asked["url"], autocommit=True) as db:
        db.execute("LISTEN events")
        last = 0
        ready()
        while not stop.is_set():
            if list(db.notifies(timeout=0.25, stop_after=1)):  # what comes during a question is kept for the next look
                seen.requests += 1
                for id_, event in db.execute(_ASK, [last]):
                    last = id_
                    seen.take(event)


def stream(asked: dict[str, Any], seen: Seen, stop: Stop, ready: Callable[[], None], _number: int) -> None:
    import headrace

    with headrace.changes(asked["url"], ["events"], operations=("c",)) as changes:
        ready()
        while not stop.is_set():
            change = changes.next(0.25)
            if change is not None and change.after is not None:
                seen.take(change.after["event"])


def log(asked: dict[str, Any], seen: Seen, stop: Stop, ready: Callable[[], None], _number: int) -> None:
    from headrace.client.address import parse_bootstrap
    from headrace.client.cluster import Cluster
    from headrace.client.fetch import FetchOptions
    from headrace.client.offsets import bounds
    from headrace.client.reader import read_records
    from headrace.model import TopicPartition

    partition = TopicPartition(asked["topic"], 0)
    with Cluster(parse_bootstrap(asked["url"])) as cluster:
        start = bounds(cluster, [partition])[partition].end
        reading = read_records(cluster, {partition: start}, options=FetchOptions(max_wait_ms=500))
        ready()
        for found in reading:
            seen.requests += 1
            for record in found:
                seen.take((record.record.value or b"").decode())
            if stop.is_set():
                return


def push(asked: dict[str, Any], seen: Seen, stop: Stop, ready: Callable[[], None], _number: int) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", asked["port"], timeout=30)
    connection.request("GET", f"/events/{asked['topic']}?from=latest")
    answer = connection.getresponse()
    assert answer.status == 200, answer.read(500)
    ready()
    while not stop.is_set():
        ready_now, _, _ = ([1], 0, 0) if answer.fp.peek(1) else select.select([connection.sock], [], [], 0.25)  # type: ignore[union-attr]
        if ready_now:
            line = answer.readline()
            if line.startswith(b"data:"):
                seen.take(line.decode())
    connection.close()


WAYS = {"poll": poll, "notify": notify, "stream": stream, "log": log, "push": push}


def main() -> None:
    asked = json.loads(sys.stdin.readline())
    count, stop = int(asked["workers"]), Stop()
    there = threading.Semaphore(0)
    workers = [Seen() for _ in range(count)]

    def run(number: int) -> None:
        try:
            WAYS[asked["kind"]](asked, workers[number], stop, there.release, number)
        except Exception as error:
            print(f"worker {number} failed: {type(error).__name__}: {error}", file=sys.stderr, flush=True)
            raise

    threads = [threading.Thread(target=run, args=[number], daemon=True) for number in range(count)]
    for thread in threads:
        thread.start()
    for _ in threads:
        if not there.acquire(timeout=120):
            sys.exit("not all workers began")
    print("ready", flush=True)
    sys.stdin.readline()
    began, before = time.monotonic(), sum(worker.requests for worker in workers)
    written = int(sys.stdin.readline())
    elapsed = time.monotonic() - began
    requests = sum(worker.requests for worker in workers) - before
    deadline = time.monotonic() + _PATIENCE_S
    while time.monotonic() < deadline and any(len(worker.latencies) < written for worker in workers):
        time.sleep(0.02)
    stop.set()
    told = {
        "latencies_ns": [each for worker in workers for each in worker.latencies],
        "requests": requests,
        "elapsed_s": elapsed,
    }
    print(json.dumps(told), flush=True)


if __name__ == "__main__":
    main()
