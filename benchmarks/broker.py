"""`make bench-broker`: our broker against a real Apache Kafka 4.3.1, side by side, in one run.

Options: `--quick` (one short round, to see that all works), `--only NAME` (sections or rows whose name holds NAME, may
be given several times), `--rounds N`, `--soak` (memory after 10 GB instead of 1), `--groups` (consumers that join a
group too), `--markdown FILE` (a table for the README), `--json FILE` (every figure of every round).

Sections: `produce`, `fetch`, `tls`, `authorization` (what asking ACLs costs), `requests`, `latency`, `clients`;
`beside` (what producing loses beside 5,000 offset commits a second, and beside transactions at Kafka's own rate),
`transactions` (a second, of 1 and of 8 producers), `loops` (transactions one after another from the Java client;
`peers/fetch clients-39` adds that of Kafka 3.9), `rebalance` (of 50 members, classic and KIP-848); `hostile` (a good
client's latency beside hostile ones, ours only); `start`, `memory`.

Equal durability: ours with `durability = os` against Kafka as it comes, which waits for no disk; ours with `fsync`
against Kafka with `flush.messages=1` on the topic. Data is on the project's disk and read from the page cache.
"""

import argparse
import os
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import NamedTuple

from rich.console import Console

import broker_clients as clients
import broker_coordinators as coordinators
import broker_load as load
import broker_report as report
from broker_authorization import authorization_rows
from broker_hostile import hostile_rows
from broker_latency import end_to_end, one_by_one
from broker_report import Figures, Row, Section
from broker_wire import Batch, Wire, check_produced, make_batch, produce_frame
from brokers import Brokers, Contender, fresh, new_process
from harness import headline, keep, scratch
from headrace.records import Codec

KIB, MIB = 1024, 1024 * 1024
ACKS = {1: "1", -1: "all"}
console = Console(highlight=False, width=None if os.isatty(1) else 220)


class Plan(NamedTuple):
    """How much is done."""

    rounds: int
    seconds: float
    warm_ups: dict[str, range]  # how many cycles at least and at most
    records: int  # of a real client's run
    memory_bytes: int
    only: list[str]
    groups: bool

    def wants(self, *names: str) -> bool:
        return not self.only or any(only in name for only in self.only for name in names)


class ProduceCase(NamedTuple):
    record_bytes: int
    batch_bytes: int
    codec: Codec
    acks: int
    durability: str

    def __str__(self) -> str:
        record = "1 KiB" if self.record_bytes == KIB else f"{self.record_bytes} B"
        batch = "1 MiB" if self.batch_bytes == MIB else f"{self.batch_bytes // KIB} KiB"
        codec = f" {self.codec.name.lower()}" if self.codec else ""
        return f"produce {record} records, {batch}{codec} batches, acks={ACKS[self.acks]}, {self.durability}"


PRODUCE_CASES = (
    ProduceCase(KIB, 16 * KIB, Codec.NONE, 1, "os"),
    ProduceCase(KIB, 64 * KIB, Codec.NONE, 1, "os"),
    ProduceCase(KIB, MIB, Codec.NONE, 1, "os"),
    ProduceCase(100, 16 * KIB, Codec.NONE, 1, "os"),
    ProduceCase(100, 64 * KIB, Codec.LZ4, 1, "os"),
    ProduceCase(KIB, 16 * KIB, Codec.LZ4, -1, "os"),
    ProduceCase(KIB, 64 * KIB, Codec.NONE, -1, "os"),
    ProduceCase(KIB, 16 * KIB, Codec.NONE, -1, "fsync"),
    ProduceCase(KIB, 64 * KIB, Codec.NONE, -1, "fsync"),
    ProduceCase(100, MIB, Codec.LZ4, -1, "fsync"),
)
FETCH_SIZES = (64 * KIB, MIB, 8 * MIB)  # a consumer's default is 1 MiB a partition
FETCH_TOPIC_BYTES = 300_000_000


class Bench:
    """The sections of the report, each a generator of its rows."""

    def __init__(self, plan: Plan, folder: Path, stack: ExitStack) -> None:
        self.plan = plan
        self._folder = folder
        self._brokers = Brokers(folder, stack)
        self._warm: set[str] = set()

    def pair(self, durability: str) -> tuple[Contender, Contender]:
        """Both brokers, running and warm; `tls`, and `acl` with an authorizer, are as durable as `os`."""
        special = {"tls": self._brokers.tls_pair, "acl": self._brokers.authorizing_pair}
        pair = special[durability]() if durability in special else self._brokers.pair(durability)
        for broker in pair:
            if broker.address not in self._warm:
                self._warm.add(broker.address)
                with console.status(f"warming up {broker.name}"):
                    seconds, rates = load.warm_up(broker, self.plan.seconds, self.plan.warm_ups[broker.name])
                shown = ", ".join(f"{rate:.1f}" for rate in rates)
                console.print(f"{broker.name} warmed up for {seconds:.0f} s: CPU s/GB of produce {shown}")
        return pair

    def row(
        self, name: str, pair: tuple[Contender, Contender], run: Callable[[Contender], Figures], goals: tuple = ()
    ) -> Row:
        """The rounds of one row, after one uncounted."""
        for broker in pair if self.plan.rounds > 1 else ():
            run(broker)
        contenders = {broker.name: partial(_settled, run, broker) for broker in pair}
        return report.measure(name, contenders, goals, self.plan.rounds, console)

    @staticmethod
    def note(text: str) -> None:
        """Say what the tables do not."""
        console.print(text)

    def produce(self) -> Iterator[Row]:
        for case in PRODUCE_CASES:
            if self.plan.wants("produce", str(case)):
                batch = make_batch(case.batch_bytes, case.record_bytes, case.codec)

                def run(broker: Contender, case: ProduceCase = case, batch: Batch = batch) -> Figures:
                    return load.produce(broker, batch, case.acks, self.plan.seconds).figures(batch.records)

                yield self.row(str(case), self.pair(case.durability), run, report.PRODUCE_GOALS)

    def fetch(self) -> Iterator[Row]:
        batch = make_batch(64 * KIB, KIB)
        names = {size: f"fetch {size // KIB} KiB at a time, 64 KiB batches" for size in FETCH_SIZES}
        if not any(self.plan.wants("fetch", name) for name in names.values()):
            return
        pair = self.pair("os")
        with ExitStack() as stack:
            topics = {
                broker.name: stack.enter_context(load.filled_topic(broker, batch, FETCH_TOPIC_BYTES)) for broker in pair
            }
            for size, name in names.items():
                if self.plan.wants("fetch", name):

                    def run(broker: Contender, size: int = size) -> Figures:
                        count = size // (64 * KIB)
                        found = load.fetch(broker, topics[broker.name], batch, count, self.plan.seconds)
                        return found.figures(batch.records)

                    yield self.row(name, pair, run, report.FETCH_GOALS)

    def tls(self) -> Iterator[Row]:
        """Produce and fetch once more, under TLS 1.3."""
        for size in (16 * KIB, 64 * KIB):
            name = f"TLS: produce 1 KiB records, {size // KIB} KiB batches, acks=1, os"
            if self.plan.wants("tls", name):
                batch = make_batch(size, KIB)

                def run(broker: Contender, batch: Batch = batch) -> Figures:
                    return load.produce(broker, batch, 1, self.plan.seconds).figures(batch.records)

                yield self.row(name, self.pair("tls"), run, report.TLS_GOALS)
        batch = make_batch(64 * KIB, KIB)
        names = {size: f"TLS: fetch {size // KIB} KiB at a time, 64 KiB batches" for size in FETCH_SIZES[:2]}
        if not any(self.plan.wants("tls", name) for name in names.values()):
            return
        pair = self.pair("tls")
        with ExitStack() as stack:
            topics = {
                broker.name: stack.enter_context(load.filled_topic(broker, batch, FETCH_TOPIC_BYTES)) for broker in pair
            }
            for size, name in names.items():

                def fetch(broker: Contender, size: int = size) -> Figures:
                    count = size // (64 * KIB)
                    found = load.fetch(broker, topics[broker.name], batch, count, self.plan.seconds)
                    return found.figures(batch.records)

                yield self.row(name, pair, fetch, report.TLS_GOALS)

    def authorization(self) -> Iterator[Row]:
        return authorization_rows(self)

    def requests(self) -> Iterator[Row]:
        for acks, durability in ((1, "os"), (-1, "fsync")):
            name = f"one 1 KiB record a request, acks={ACKS[acks]}, {durability}"
            if self.plan.wants("requests", name):

                def run(broker: Contender, acks: int = acks) -> Figures:
                    return one_by_one(broker, acks, self.plan.seconds)

                yield self.row(name, self.pair(durability), run, report.LATENCY_GOALS)

    def latency(self) -> Iterator[Row]:
        # Moderate rates, so that what is seen is the way and not a queue.
        for acks, durability, rate in ((1, "os", 500), (-1, "fsync", 100)):
            name = f"end to end, {rate} records/s, acks={ACKS[acks]}, {durability}"
            if self.plan.wants("latency", name):

                def run(broker: Contender, acks: int = acks, rate: int = rate) -> Figures:
                    return end_to_end(broker, acks, rate, 2 * self.plan.seconds)

                yield self.row(name, self.pair(durability), run, report.LATENCY_GOALS)

    def clients(self) -> Iterator[Row]:
        count = self.plan.records
        producers = {"Java producer": clients.java_produce, "C producer": clients.c_produce}
        for what, client in producers.items():
            for acks in ("1", "all"):
                name = f"{what}, 1 KiB records, acks={acks}, os"
                if self.plan.wants("clients", name):

                    def run(broker: Contender, client: Callable = client, acks: str = acks) -> Figures:
                        return client(broker, count, acks)

                    yield self.row(name, self.pair("os"), run, report.CLIENT_GOALS)
        consumers = {"C consumer, 1 KiB records": clients.c_consume}
        if self.plan.groups:
            consumers["Java consumer in a group, 1 KiB records"] = clients.java_consume
        wanted = {name: client for name, client in consumers.items() if self.plan.wants("clients", name)}
        if wanted:
            pair = self.pair("os")
            with ExitStack() as stack:
                topics = {b.name: stack.enter_context(clients.readable_topic(b, count)) for b in pair}
                for name, client in wanted.items():

                    def run(broker: Contender, client: Callable = client) -> Figures:
                        return client(broker, topics[broker.name], count)

                    yield self.row(name, pair, run, report.CLIENT_GOALS)

    def beside(self) -> Iterator[Row]:
        return coordinators.beside_rows(self)

    def transactions(self) -> Iterator[Row]:
        return coordinators.transaction_rows(self)

    def loops(self) -> Iterator[Row]:
        return coordinators.loop_rows(self)

    def rebalance(self) -> Iterator[Row]:
        return coordinators.rebalance_rows(self)

    def hostile(self) -> Iterator[Row]:
        return hostile_rows(self.plan, self._folder, console)

    def start(self) -> Iterator[Row]:
        name = "start to the first accepted produce"
        if self.plan.wants("start", name):
            contenders = {
                "ours": partial(_start, "ours-fsync", self._folder),
                "kafka": partial(_start, "kafka", self._folder),
            }
            contenders["ours"]()  # which leaves its bytecode
            yield report.measure(name, contenders, report.START_GOALS, self.plan.rounds, console)

    def memory(self) -> Iterator[Row]:
        size = self.plan.memory_bytes
        name = f"resident, idle and after {size / 1e9:g} GB produced"
        if self.plan.wants("memory", name):
            contenders = {
                "ours": partial(_memory, "ours-os", self._folder, size),
                "kafka": partial(_memory, "kafka", self._folder, size),
            }
            yield report.measure(name, contenders, report.MEMORY_GOALS, 1, console)


def _settled(run: Callable[[Contender], Figures], broker: Contender) -> Figures:
    """Run with nobody's dirty pages from before on their way to the disk."""
    os.sync()
    return run(broker)


def _start(name: str, folder: Path) -> Figures:
    """From the start of the process over an empty data directory until it has taken a record."""
    batch = make_batch(KIB, 100)
    data_dir = folder / f"start-{name}"
    process = new_process(name, data_dir)
    try:
        if name == "kafka":  # whose directory has to be formatted first, which is not counted
            process.start()
            process.stop()
        started = time.perf_counter()
        process.start()
        with Wire(process.bootstrap_servers) as wire:
            wire.create_topic("first", 1)
            check_produced(wire.send(produce_frame("first", 0, batch, -1)), "first")
        elapsed = time.perf_counter() - started
        process.stop()
    finally:
        process.kill()
    shutil.rmtree(data_dir)
    return {"seconds": elapsed}


def _memory(name: str, folder: Path, size_bytes: int) -> Figures:
    """Of a broker of its own; old segments are removed meanwhile, so that the disk does not fill up."""
    batch = make_batch(64 * KIB, KIB)
    with fresh(name, folder, {"log.retention.check.interval.ms": "500"}) as broker:
        time.sleep(2)
        idle = broker.memory_mb()
        kept = {"retention.bytes": str(512 * MIB), "segment.bytes": str(128 * MIB)}
        with broker.topic(load.CONNECTIONS, kept) as topic:
            done = 0
            while done < size_bytes:
                done += load.fill(broker, topic, batch, 1, 60, min(1_000_000_000, size_bytes - done)).size_bytes
            after = broker.memory_mb()
    return {"idle_mb": idle, "after_mb": after, "growth": after / idle}


SECTIONS = (
    Section("produce", "produce, prebuilt frames", (report.MB_PER_S, report.RECORDS_PER_S, report.CPU_PER_GB)),
    Section("fetch", "fetch, prebuilt frames", (report.MB_PER_S, report.CPU_PER_GB)),
    Section("tls", "produce and fetch under TLS, prebuilt frames", (report.MB_PER_S, report.CPU_PER_GB)),
    Section("authorization", "what asking ACLs costs", (report.MORE_CPU, report.CPU_PER_GB)),
    Section("requests", "one at a time", (report.REQUESTS_PER_S, report.P50, report.P99)),
    Section("latency", "end to end", (report.P50, report.P99)),
    Section("clients", "real clients", (report.MB_PER_S, report.CPU_PER_GB)),
    Section(
        "beside",
        "producing beside the coordinators' work",
        (report.SLOW_DOWN, report.BESIDE_MB_PER_S, report.OTHERS_PER_S, report.CPU_PER_OTHER),
    ),
    Section(
        "transactions", "transactions", (report.TRANSACTIONS_PER_S, report.CPU_PER_TRANSACTION, report.P50, report.P99)
    ),
    Section("loops", "transactions of one client", (report.TRANSACTIONS_PER_S,)),
    Section("rebalance", "one more member", (report.REBALANCE_MS,)),
    Section("hostile", "a good client, beside hostile ones", (report.P50, report.P99, report.OWN_MB), "alone"),
    Section("start", "start", (report.SECONDS,)),
    Section("memory", "memory", (report.IDLE_MB, report.AFTER_MB, report.GROWTH)),
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--only", action="append", default=[], metavar="NAME")
    parser.add_argument("--rounds", type=int)
    parser.add_argument("--soak", action="store_true")
    parser.add_argument("--groups", action="store_true")
    parser.add_argument("--markdown", type=Path, metavar="FILE")
    parser.add_argument("--json", type=Path, metavar="FILE")
    args = parser.parse_args()
    plan = Plan(
        rounds=args.rounds or (1 if args.quick else 3),
        seconds=0.5 if args.quick else 2,
        # CPython is warm in an instant; a JVM takes minutes, and is given as long as it gets faster.
        warm_ups={"ours": range(1, 2), "kafka": range(1, 2) if args.quick else range(6, 25)},
        records=100_000 if args.quick else 500_000,
        memory_bytes=10_000_000_000 if args.soak else 1_000_000_000,
        only=args.only,
        groups=args.groups,
    )
    title = headline("our broker against Apache Kafka 4.3.1")
    console.print(f"[bold]{title}[/bold]")
    if args.quick:
        console.print("quick: Kafka is still cold, and its figures are too low")
    with scratch() as folder, ExitStack() as stack:
        # An installed package has its bytecode, whatever this shell says about writing any.
        os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
        os.environ["PYTHONPYCACHEPREFIX"] = str(folder / "bytecode")
        bench = Bench(plan, folder, stack)
        for section in SECTIONS:
            section.rows.extend(getattr(bench, section.name)())
            if section.rows:
                section.print(console)
    measured = [section for section in SECTIONS if section.rows]
    text = report.markdown(title, measured)
    console.print(text)
    if not args.quick:
        keep("broker", report.figures(measured), plan.rounds)
    if args.markdown:
        args.markdown.write_text(text)
    if args.json:
        report.write_json(args.json, title, measured)


if __name__ == "__main__":
    main()
