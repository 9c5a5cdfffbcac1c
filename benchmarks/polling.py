"""`make bench-polling`: asking again and again against being told, for the same work.

    python benchmarks/polling.py [--ways "poll every 100 ms,push"] [--seconds 4] [--quick] [--keep]

An event is written, durable, and a worker sees it. By a table of PostgreSQL that is asked for rows every 10 ms, 100 ms
and second; by LISTEN and NOTIFY, which wake the question; by a change stream (logical replication); by a long poll on
the log; and by push (server-sent events of the HTTP gateway). Events come at random times, as if from many. A latency
counts from just before the write to the worker's hand; requests are what workers sent; CPU is that of the server's and
of the workers' processes, in percent of one core. All workers of a run are threads of one process, the writer is
another. Figures are kept only with `--keep`: on a quiet machine. With `--quick` there is less of everything, and the
figures mean nothing.
"""

import argparse
import json
import os
import random
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import psycopg
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from brokers import OurBroker
from harness import ROOT, Figure, headline, keep, scratch
from headrace.testing.postgres import Postgres

WORKER = Path(__file__).with_name("polling_worker.py")
HEADRACE = ROOT / ".venv" / "bin" / "headrace"
POLLS = {"poll every 10 ms": 0.01, "poll every 100 ms": 0.1, "poll every second": 1.0}
NOTIFY, STREAM, LONG_POLL, PUSH = "LISTEN/NOTIFY", "change stream", "long poll on the log", "push (SSE)"
WAYS = (*POLLS, NOTIFY, STREAM, LONG_POLL, PUSH)
# Events a second, and workers. Each reader of a change stream has a slot and decodes the log for itself: one reads and
# hands on, rather than a hundred.
CELLS = ((1, 1), (100, 1), (1000, 1), (100, 10), (100, 100))
_SETTINGS = {"max_connections": "250", "max_wal_senders": "30", "max_replication_slots": "30"}


class Measured(NamedTuple):
    """One way in one cell."""

    p50_ms: float
    p99_ms: float
    max_ms: float
    seen: int
    requests_per_s: float
    server_percent: float
    worker_percent: float
    written_per_s: float


# --- processor time of processes and all that they started


def cpu_s(*roots: int) -> float:
    """Of processes that are there; in nanoseconds, because ticks miss who is woken often and for little."""
    parents: dict[int, int] = {}
    for entry in os.listdir("/proc"):
        if entry.isdecimal():
            try:
                fields = Path(f"/proc/{entry}/stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue  # it ended meanwhile
            parents[int(entry)] = int(fields[1])
    wanted = set(roots)
    while more := {pid for pid, parent in parents.items() if parent in wanted} - wanted:
        wanted |= more
    return sum(map(_on_cpu_ns, wanted)) / 1e9


def _on_cpu_ns(pid: int) -> int:
    total = 0
    try:
        for task in os.listdir(f"/proc/{pid}/task"):
            total += int(Path(f"/proc/{pid}/task/{task}/schedstat").read_text().split()[0])
    except OSError:
        pass  # it ended meanwhile
    return total


# --- what is written to


class Stand(Protocol):
    """A server, and how an event is written to it."""

    def pids(self) -> list[int]: ...

    def begin(self, way: str) -> dict[str, Any]:
        """Empty it for a way; what its workers have to know."""
        ...

    def write(self, event: str) -> None:
        """Durable when this returns."""
        ...


class Table:
    def __init__(self, server: Postgres) -> None:
        self._url = server.url
        self._db = psycopg.connect(self._url, autocommit=True)
        self._db.execute("CREATE TABLE events (id bigserial PRIMARY KEY, event text NOT NULL)")
        self._db.execute(
            "CREATE FUNCTION tell() RETURNS trigger LANGUAGE plpgsql AS "
            "$$BEGIN PERFORM pg_notify('events', NEW.id::text); RETURN NULL; END$$"
        )
        self._db.execute("CREATE TRIGGER tell AFTER INSERT ON events FOR EACH ROW EXECUTE FUNCTION tell()")
        row = self._db.execute("SELECT pg_read_file('postmaster.pid')").fetchone()
        assert row is not None
        self._pid = int(row[0].split()[0])

    def pids(self) -> list[int]:
        return [self._pid]

    def begin(self, way: str) -> dict[str, Any]:
        self._db.execute("TRUNCATE events RESTART IDENTITY")
        self._db.execute(f"ALTER TABLE events {'ENABLE' if way == NOTIFY else 'DISABLE'} TRIGGER tell")
        kind = "poll" if way in POLLS else "notify" if way == NOTIFY else "stream"
        return {"kind": kind, "url": self._url, "interval_s": POLLS.get(way, 0.0)}

    def write(self, event: str) -> None:
        self._db.execute("INSERT INTO events (event) VALUES (%s)", [event])


class Log:
    def __init__(self, broker: OurBroker, gateway: "Gateway | None") -> None:
        servers = {"bootstrap.servers": broker.bootstrap_servers, "log_level": 0}
        self._broker, self._gateway = broker, gateway
        self._admin = AdminClient(servers)
        self._producer = Producer(servers | {"acks": "all", "linger.ms": 0})
        self._number = 0

    def pids(self) -> list[int]:
        return [self._broker.pid, *([self._gateway.pid] if self._gateway else [])]

    def begin(self, way: str) -> dict[str, Any]:
        self._number += 1
        self._topic = f"{'pushed' if self._gateway else 'read'}{self._number}"  # there are two of us on a broker
        self._admin.create_topics([NewTopic(self._topic, 1, 1)])[self._topic].result()
        self._producer.produce(self._topic, value="{}")  # so that the way there is known
        self._producer.flush()
        if way == PUSH:
            assert self._gateway is not None
            return {"kind": "push", "port": self._gateway.port, "topic": self._topic}
        return {"kind": "log", "url": self._broker.bootstrap_servers, "topic": self._topic}

    def write(self, event: str) -> None:
        self._producer.produce(self._topic, value=event)
        self._producer.flush()


class Gateway:
    """`headrace gateway http`, once it listens."""

    def __init__(self, bootstrap: str, output: Path) -> None:
        command = [str(HEADRACE), "gateway", "http", "--port", "0", "--bootstrap", bootstrap, "--json"]
        self._output = output.open("w+")
        self._process = subprocess.Popen(command, stdout=self._output, stderr=subprocess.STDOUT)
        self.pid = self._process.pid
        self.port = self._wait()

    def _wait(self) -> int:
        deadline = time.monotonic() + 30
        while time.monotonic() < deadline and self._process.poll() is None:
            port = listening_port(self.pid)
            if port:
                return port
            threading.Event().wait(0.1)
        self.stop()
        raise RuntimeError(f"the HTTP gateway did not start: {Path(self._output.name).read_text()[-500:]}")

    def stop(self) -> None:
        self._process.terminate()
        self._process.wait(20)
        self._output.close()


def listening_port(pid: int) -> int:
    """The port on which a process listens; 0 if there is none yet."""
    try:
        links = [os.readlink(f"/proc/{pid}/fd/{name}") for name in os.listdir(f"/proc/{pid}/fd")]
    except OSError:
        return 0
    mine = {link[8:-1] for link in links if link.startswith("socket:[")}
    for line in Path(f"/proc/{pid}/net/tcp").read_text().splitlines()[1:]:
        fields = line.split()
        if fields[3] == "0A" and fields[9] in mine:
            return int(fields[1].partition(":")[2], 16)
    return 0


# --- one run


def measure(stand: Stand, way: str, rate: int, workers: int, seconds: float) -> Measured:
    asked = {**stand.begin(way), "workers": workers}
    process = subprocess.Popen([sys.executable, str(WORKER)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        process.stdin.write(json.dumps(asked) + "\n")
        process.stdin.flush()
        if process.stdout.readline().strip() != "ready":
            raise RuntimeError(f"the workers of {way} did not begin")
        before, worker_before = cpu_s(*stand.pids()), cpu_s(process.pid)
        process.stdin.write("begin\n")  # requests are counted from here on
        process.stdin.flush()
        began = time.monotonic()
        written = write_events(stand, rate, seconds)
        elapsed = time.monotonic() - began
        server, worker = cpu_s(*stand.pids()) - before, cpu_s(process.pid) - worker_before
        process.stdin.write(f"{written}\n")
        process.stdin.flush()
        told = json.loads(process.stdout.readline())
        process.wait(30)
    finally:
        process.kill()
        process.wait()
    latencies = sorted(each / 1e6 for each in told["latencies_ns"])
    if len(latencies) < written * workers:
        print(f"  {way}: {written * workers - len(latencies)} of {written * workers} were not seen in time")
    return Measured(
        statistics.median(latencies),
        latencies[min(len(latencies) - 1, int(len(latencies) * 0.99))],
        latencies[-1],
        len(latencies),
        told["requests"] / told["elapsed_s"],
        100 * server / elapsed,
        100 * worker / elapsed,
        written / elapsed,
    )


def write_events(stand: Stand, rate: int, seconds: float) -> int:
    """Write at a rate, at random times; how many were written. Who falls behind writes as fast as it goes."""
    count = max(1, int(rate * seconds))
    chance = random.Random(rate)
    began = due = time.monotonic()
    for number in range(count):
        due += chance.expovariate(rate)
        if (left := due - time.monotonic()) > 0:
            time.sleep(left)
        if time.monotonic() - began > 2 * seconds:
            return number
        stand.write(json.dumps({"at": time.time_ns(), "number": number}))
    return count


@contextmanager
def stands(ways: list[str], folder: Path) -> Iterator[Callable[[str], Stand | None]]:
    with ExitStack() as closing:
        table = log = pushed = None
        if any(way in POLLS or way in (NOTIFY, STREAM) for way in ways):
            table = Table(closing.enter_context(Postgres(folder / "postgres", settings=_SETTINGS)))
        if LONG_POLL in ways or PUSH in ways:
            broker = OurBroker(folder / "broker", "fsync")
            broker.start()
            closing.callback(broker.stop)
            log = Log(broker, None)
            if PUSH in ways:
                try:
                    gateway = Gateway(broker.bootstrap_servers, folder / "gateway.out")
                    closing.callback(gateway.stop)
                    pushed = Log(broker, gateway)
                except (RuntimeError, OSError) as error:
                    print(f"without push: {error}")
        yield lambda way: pushed if way == PUSH else log if way == LONG_POLL else table


def cell_name(rate: int, workers: int) -> str:
    return f"{rate:,} event{'s' * (rate > 1)}/s, {workers} worker{'s' * (workers > 1)}"


READ: dict[str, Callable[[Measured], float]] = {
    "p50 ms": lambda one: one.p50_ms,
    "p99 ms": lambda one: one.p99_ms,
    "max ms": lambda one: one.max_ms,
    "requests/s": lambda one: one.requests_per_s,
    "server CPU %": lambda one: one.server_percent,
    "worker CPU %": lambda one: one.worker_percent,
}


def figures_of(rate: int, workers: int, found: dict[str, list[Measured]]) -> list[Figure]:
    """The medians of the rounds, and their range."""
    figures = []
    for unit, read in READ.items():
        rounds = {way: [round(read(one), 3) for one in measured] for way, measured in found.items()}
        values = {way: round(statistics.median(each), 3) for way, each in rounds.items()}
        spreads = {way: (min(each), max(each)) for way, each in rounds.items()}
        figures.append(Figure(cell_name(rate, workers), unit, values, {}, spreads))
    return figures


def show(rate: int, workers: int, found: dict[str, list[Measured]]) -> None:
    print(f"\n{cell_name(rate, workers)}")
    print(f"  {'':22}" + "".join(f"{unit:>14}" for unit in READ))
    for way, measured in found.items():
        values = [statistics.median(read(one) for one in measured) for read in READ.values()]
        written = min(one.written_per_s for one in measured)
        late = "" if written > 0.8 * rate or rate == 1 else f"   only {written:,.0f}/s were written"
        print(f"  {way:22}" + "".join(f"{value:>14,.1f}" for value in values) + late, flush=True)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--ways", default=",".join(WAYS))
    parser.add_argument("--seconds", type=float, default=2.0)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--quick", action="store_true", help="less of everything, to see that it runs")
    parser.add_argument("--keep", action="store_true", help="keep the figures: on a quiet machine")
    asked = parser.parse_args()
    ways = [way for way in WAYS if way in asked.ways.split(",")]
    cells = ((100, 1), (100, 10)) if asked.quick else CELLS
    rounds = 1 if asked.quick else asked.rounds
    print(headline("polling and notification"))
    found: dict[tuple[int, int], dict[str, list[Measured]]] = {cell: {} for cell in cells}
    with scratch() as folder, stands(ways, folder) as stand_of:
        for turn in range(rounds):
            for rate, workers in cells:
                for way in ways if turn % 2 == 0 else reversed(ways):
                    stand = stand_of(way)
                    if stand is None or (way == STREAM and workers > 10):
                        continue
                    seconds = 1.0 if asked.quick else max(asked.seconds, 5.0 / rate)
                    found[rate, workers].setdefault(way, []).append(measure(stand, way, rate, workers, seconds))
    kept = []
    for (rate, workers), measured in found.items():
        inorder = {way: measured[way] for way in ways if way in measured}
        show(rate, workers, inorder)
        kept += figures_of(rate, workers, inorder)
    if asked.keep:
        keep("polling", kept, rounds)


if __name__ == "__main__":
    main()
