"""`headrace produce --follow`, killed again and again while files are written and rotated: each line once, in order."""

import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pytest

from headrace import Broker
from headrace.client.address import parse_bootstrap
from headrace.client.cluster import Cluster
from headrace.client.fetch import FetchOptions
from headrace.client.offsets import bounds
from headrace.client.reader import read_records

KILLS = int(os.environ.get("HEADRACE_KILLS", "6"))
SEED = int(os.environ.get("HEADRACE_SEED", str(random.randrange(2**31))))


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Broker]:
    with Broker(tmp_path / "broker", durability="os") as broker:
        yield broker


def follow(broker: Broker, *arguments: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "headrace.cli.main", "produce", "lines", *arguments, "--name", "test",
         "--bootstrap", broker.bootstrap_servers, "--json"],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip


def started(process: subprocess.Popen[str]) -> None:
    """Once it has reported itself for the first time."""
    assert process.stdout is not None
    assert process.stdout.readline(), process.communicate()


def committed(bootstrap: str, topic: str = "lines") -> list[bytes]:
    with Cluster(parse_bootstrap(bootstrap)) as cluster:
        held = bounds(cluster, cluster.partitions(topic), committed=True)
        starts = {where: bound.start for where, bound in held.items() if bound.end > bound.start}
        until = {where: held[where].end for where in starts}
        found = read_records(cluster, starts, until=until, options=FetchOptions(committed=True))
        return [record.value or b"" for read in found for _, record in read]


def rotate(path: Path, how: str) -> None:
    """As logrotate does it: older ones one further, then this one."""
    for number in range(400, 0, -1):
        old = path.with_name(f"{path.name}.{number}")
        if old.exists():
            old.rename(path.with_name(f"{path.name}.{number + 1}"))
    first = path.with_name(f"{path.name}.1")
    if how == "rename":
        path.rename(first)
        path.touch()
    else:
        first.write_bytes(path.read_bytes())
        os.truncate(path, 0)


class Writer(threading.Thread):
    """Writes numbered lines, now and then half of one first, and rotates."""

    def __init__(self, path: Path, seed: int, how: str) -> None:
        super().__init__()
        self.path, self.random, self.how = path, random.Random(seed), how
        self.count = 1
        self.is_over = threading.Event()

    def run(self) -> None:
        while not self.is_over.is_set():
            lines = b""
            for _ in range(self.random.randrange(1, 200)):
                lines += b"%08d %s\n" % (self.count, b"x" * self.random.randrange(0, 120))
                self.count += 1
            cut = self.random.randrange(len(lines))
            with self.path.open("ab", buffering=0) as file:
                file.write(lines[:cut])
                self.is_over.wait(0.002 + self.random.random() * 0.008)
                file.write(lines[cut:])
            if self.random.random() < 0.04:
                rotate(self.path, self.how)


@pytest.mark.parametrize("how", ["rename", "copytruncate"])
def test_each_line_once_however_often_it_is_killed(broker: Broker, tmp_path: Path, how: str) -> None:
    print("seed", SEED)
    chance = random.Random(SEED)
    path = tmp_path / "access.log"
    writer = Writer(path, SEED, how)
    first = follow(broker, "--follow", str(path))
    started(first)
    path.write_bytes(b"%08d\n" % 0)  # the file was not there when it began
    assert first.stdout is not None
    while json.loads(first.stdout.readline())["records"] < 1:
        pass
    writer.start()
    try:
        running = first
        for _ in range(KILLS):
            started(running)
            time.sleep(chance.random())  # a kill comes whenever it comes
            running.send_signal(signal.SIGKILL)
            running.communicate()
            running = follow(broker, "--follow", str(path))
    finally:
        writer.is_over.set()
        writer.join()
    started(running)
    running.send_signal(signal.SIGTERM)
    out, err = running.communicate(timeout=60)
    assert (running.returncode, err) == (0, ""), out
    done = follow(broker, "--follow", str(path), "--once")
    out, err = done.communicate(timeout=120)
    assert (done.returncode, err) == (0, ""), out
    found = [int(line[:8]) for line in committed(broker.bootstrap_servers)]
    doubled = [number for number, times in Counter(found).items() if times > 1]
    missing = sorted(set(range(writer.count)) - set(found))
    assert (doubled[:5], missing[:5]) == ([], []), (SEED, len(doubled), len(missing), writer.count)
    back = [(before, after) for before, after in pairwise(found) if after < before]
    assert back == [], (SEED, "lines of one log keep their order")
    assert writer.count > 1000
