"""Metrics of programs beside the reference daemon of StatsD: packets a second that are taken, and what they cost.

    python benchmarks/statsd.py [--rounds 3] [--series 10,10000] [--quick] [--keep]

Both sides run all the time, on one core, and take turns; the sender has the other. Ours is `headrace gateway statsd`
and writes to a broker of its own; the reference daemon writes what it adds up to into a file. Before anything is
measured, both are sent the same packets slowly, and have to come to the same sums, or the run fails. With 100,000
series the reference daemon cannot: it writes them for longer than its socket holds what comes meanwhile.

Four things are measured for each shape of packet and each number of series. *Without loss*: the highest rate at which
the kernel dropped nothing, of rates that grow by a quarter. *Processor time*: what a million packets cost, at a rate
that both can take. *Of a core*: packets for a second of processor time, with as many packets as the sender can send,
dropped ones left out; that needs no luck with who else is on the machine. *Drops*: which share is lost at a fixed rate.
What is dropped is what the kernel says of the socket. Figures are kept only with `--keep`: on a quiet machine.
"""

import argparse
import json
import os
import random
import socket
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

from brokers import HEADRACE, OurBroker
from harness import OURS, Figure, alternate_all, headline, keep, scratch, verdict
from headrace.client.address import parse_bootstrap
from headrace.client.cluster import Cluster
from headrace.client.connection import ConnectionSettings
from headrace.client.errors import UnknownTopic
from headrace.client.offsets import bounds
from headrace.client.reader import read_records
from peers.process import Guarded
from peers.statsd.daemon import StatsdDaemon
from statsd_load import Sender

PEER, GOAL = "statsd 0.9.0", 2.0
INTERVAL_S = 5.0
ONE, TWENTY = "1 metric of 30 bytes", "20 metrics of 1,400 bytes"
_FIXED = {ONE: 50_000, TWENTY: 10_000}  # packets a second for processor time
_HIGH = {ONE: 200_000, TWENTY: 50_000}  # for the share that is dropped
_FIRST = {ONE: 20_000, TWENTY: 4_000}
_STEP = 1.25
_MOST_RATE = 3_000_000
_TICKS_PER_S = os.sysconf("SC_CLK_TCK")


class Side:
    """One of the two at work."""

    def __init__(self, port: int, pid: int, sums: Callable[[], Counter[str]]) -> None:
        self.port, self.pid, self.sums = port, pid, sums

    def cpu_s(self) -> float:
        fields = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / _TICKS_PER_S

    def queue(self) -> tuple[int, int]:
        """Of its socket: bytes that wait, packets that were dropped."""
        for line in Path("/proc/net/udp").read_text().splitlines()[1:]:
            fields = line.split()
            if int(fields[1].rpartition(":")[2], 16) == self.port:
                return int(fields[4].partition(":")[2], 16), int(fields[12])
        raise AssertionError(f"nobody listens on {self.port}")

    def drained(self) -> int:
        """Wait until nothing waits; what was dropped so far."""
        while True:
            waiting, dropped = self.queue()
            if not waiting:
                return dropped
            time.sleep(0.002)


class Trial(NamedTuple):
    rate: float
    sent: int
    dropped: int
    cpu_s: float

    @property
    def taken(self) -> int:
        return self.sent - self.dropped


def trial(side: Side, sender: Sender, count: int, rate: float) -> Trial:
    dropped, cpu_s = side.drained(), side.cpu_s()
    sent = sender.send(count, rate)
    now = side.drained()
    return Trial(sent.rate, sent.packets, now - dropped, side.cpu_s() - cpu_s)


def without_loss(side: Side, sender: Sender, first: float, seconds: float) -> float:
    """The highest rate of those tried at which nothing was lost; a rate is given up when it loses twice."""
    best, rate = 0.0, first
    while rate < _MOST_RATE:
        found = trial(side, sender, int(rate * seconds), rate)
        if found.dropped:
            found = trial(side, sender, int(rate * seconds), rate)
        if found.dropped:
            break
        best = max(best, found.rate)
        if found.rate < 0.8 * rate:  # the sender cannot send more
            break
        rate *= _STEP
    return best


def packets_of(shape: str, series: int) -> list[bytes]:
    """Counters for the most part, and timers and gauges; each series as often as the others."""
    names = list(range(series)) * (1 if series >= 2_000 else 2_000 // series)
    random.Random(7).shuffle(names)
    kinds = ("c", "c", "ms", "g")
    if shape == ONE:
        return [f"api.requests.route.{name:06d}:{name % 7}|{kinds[name % 4]}".encode() for name in names]
    lines = [
        f"service.checkout.production.frankfurt.api.requests.{name:06d}:{name % 997}|{kinds[name % 4]}".encode()
        for name in names
    ]
    return [b"\n".join(lines[at : at + 20]) for at in range(0, len(lines), 20)]


# --- both sides


@contextmanager
def both_sides(folder: Path, most_series: int) -> Iterator[Mapping[str, Side]]:
    """Ours with its broker, and the peer."""
    cores = sorted(os.sched_getaffinity(0))
    before = ["taskset", "-c", str(cores[-1])]
    os.sched_setaffinity(0, {cores[0]})
    with ExitStack() as stack:
        broker = OurBroker(folder / "broker", "os")
        broker.start()
        stack.callback(broker.stop)
        peer = stack.enter_context(
            StatsdDaemon(folder, int(INTERVAL_S * 1000), {"deleteIdleStats": True, "percentThreshold": [90]}, before)
        )
        port = _free_port()
        options = {"port": port, "interval-s": INTERVAL_S, "max-series": 2 * most_series + 1_000, "topic": "metrics"}
        command = [*before, str(HEADRACE), "gateway", "statsd", "--bootstrap", broker.bootstrap_servers, "--json"]
        command += [f"--{name}={value}" for name, value in options.items()]
        ours = Guarded(command, output=folder / "gateway.out")
        stack.callback(ours.kill)
        _wait_for(port, folder / "gateway.out")
        yield {
            OURS: Side(port, ours.pid, lambda: our_sums(broker.bootstrap_servers)),
            PEER: Side(peer.port, peer.pid, lambda: their_sums(peer)),
        }


def our_sums(bootstrap: str) -> Counter[str]:
    """By series what all intervals add up to: of counters their values, of timers their counts and sums."""
    found: Counter[str] = Counter()
    with suppress(UnknownTopic), Cluster(parse_bootstrap(bootstrap), ConnectionSettings()) as cluster:
        held = bounds(cluster, cluster.partitions("metrics"))
        starts = {where: bound.start for where, bound in held.items() if bound.end > bound.start}
        until = {where: held[where].end for where in starts}
        for group in read_records(cluster, starts, until=until):
            for _, record in group:
                value = json.loads(bytes(record.value or b""))
                name = value["name"]
                if value["type"] == "counter":
                    found[name] += value["value"]
                elif value["type"] == "timer":
                    found[f"{name} count"] += value["count"]
                    found[f"{name} sum"] += value["sum"]
    return found


def their_sums(peer: StatsdDaemon) -> Counter[str]:
    found: Counter[str] = Counter()
    for interval in peer.intervals():
        for name, value in interval["counters"].items():
            found[name] += value
        for name, value in interval["timer_data"].items():
            found[f"{name} count"] += value["count"]
            found[f"{name} sum"] += value.get("sum", 0)
    return found


def same_sums(sides: Mapping[str, Side], packets: list[bytes], rate: float) -> None:
    """Both are sent each packet once, and come to the same."""
    before = {name: settled(side) for name, side in sides.items()}
    for name, side in sides.items():
        dropped = side.drained()
        sender = Sender(side.port, packets)
        sender.send_all(rate)
        sender.close()
        assert side.drained() == dropped, f"{name} lost packets at {rate} a second"
    grown = {}
    for name, side in sides.items():
        sums = settled(side)
        sums.subtract(before[name])
        grown[name] = {key: value for key, value in sums.items() if value and not key.startswith("statsd.")}
    ours, theirs = grown[OURS], grown[PEER]
    different = {key: (ours.get(key), theirs.get(key)) for key in ours | theirs if ours.get(key) != theirs.get(key)}
    assert not different, f"the sides add up to different sums: {dict(list(different.items())[:5])}"
    assert ours, "nothing was added up"


def settled(side: Side) -> Counter[str]:
    """What it added up to, once that does not change from interval to interval any more."""
    last = side.sums()
    while True:
        time.sleep(1.3 * INTERVAL_S)
        sums = side.sums()
        if sums == last:
            return sums
        last = sums


def _free_port() -> int:
    with socket.socket(type=socket.SOCK_DGRAM) as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


def _wait_for(port: int, output: Path) -> None:
    """Until it listens; loops that were never compiled take their time."""
    ends = time.monotonic() + 120
    while f":{port:04X} " not in Path("/proc/net/udp").read_text():
        assert time.monotonic() < ends, output.read_text()[-2000:]
        time.sleep(0.1)


# --- figures


def figures_of(sides: Mapping[str, Side], shape: str, series: int, asked: argparse.Namespace) -> Iterator[Figure]:
    packets = packets_of(shape, series)
    same_sums(sides, packets, _FIRST[shape] / 2)
    senders = {name: Sender(side.port, packets) for name, side in sides.items()}
    name = f"{shape}, {series:,} series"

    def rounds(measure: Callable[[Side, Sender], float]) -> dict[str, list[float]]:
        def of(who: str) -> Callable[[], float]:
            return lambda: measure(sides[who], senders[who])

        return alternate_all({who: of(who) for who in sides}, asked.rounds)

    def cost(side: Side, sender: Sender) -> float:
        found = trial(side, sender, int(_FIXED[shape] * asked.seconds), _FIXED[shape])
        return 1e6 * found.cpu_s / max(found.taken, 1)

    def of_a_core(side: Side, sender: Sender) -> float:
        found = trial(side, sender, int(2 * _HIGH[shape] * asked.seconds), _MOST_RATE)
        return found.taken / max(found.cpu_s, 0.01)

    def lost(side: Side, sender: Sender) -> float:
        found = trial(side, sender, int(_HIGH[shape] * asked.seconds), _HIGH[shape])
        return 100 * found.dropped / found.sent

    yield Figure.of(
        f"{name}: without loss", "packets/s",
        rounds(lambda side, sender: without_loss(side, sender, _FIRST[shape], asked.seconds)),
    )  # fmt: skip
    yield Figure.of(f"{name}: of a core", "packets/s", rounds(of_a_core))
    yield Figure.of(f"{name}: a million packets at {_FIXED[shape]:,}/s", "CPU s", rounds(cost))
    yield Figure.of(f"{name}: dropped at {_HIGH[shape]:,}/s", "%", rounds(lost))
    for sender in senders.values():
        sender.close()


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--series", default="10,10000")
    parser.add_argument("--seconds", type=float, default=1.5, help="how long packets are sent for each figure")
    parser.add_argument("--quick", action="store_true", help="less of everything, to see that it runs")
    parser.add_argument("--keep", action="store_true", help="keep the figures: on a quiet machine")
    asked = parser.parse_args()
    if asked.quick:
        asked.rounds, asked.series, asked.seconds = 1, "10,10000", 0.5
    sizes = [int(each) for each in asked.series.split(",")]
    print(headline("metrics of programs"))
    node = subprocess.run(["node", "--version"], capture_output=True, text=True, check=True).stdout.strip()
    print(f"node {node}, Python {sys.version.split()[0]}, rmem_default {_sysctl('rmem_default')} bytes")
    figures = []
    with scratch() as folder, both_sides(folder, max(sizes)) as sides:
        for shape in (ONE, TWENTY):
            for series in sizes:
                for figure in figures_of(sides, shape, series, asked):
                    figures.append(figure)
                    values = ", ".join(f"{who} {value:,.2f}" for who, value in figure.values.items())
                    ratio = figure.ratios[PEER]
                    judged = verdict(ratio, GOAL) if figure.unit == "packets/s" else ""
                    print(f"{figure.name:66} {values} {figure.unit}  {ratio:.2f}×  {judged}", flush=True)
    if asked.keep:
        keep("statsd", figures, asked.rounds)


def _sysctl(name: str) -> str:
    return Path(f"/proc/sys/net/core/{name}").read_text().strip()


if __name__ == "__main__":
    main()
