"""A broker in a process of its own under requests of any kind, on real sockets, beside a neighbour.

What it answers is not looked into (`life.py` does that): here it is the process that counts. It lives, its memory does
not grow with what is sent, its log has no traceback, and the neighbour goes on.
"""

import json
import selectors
import socket
import subprocess
import sys
import tempfile
import time
from collections import Counter
from contextlib import suppress
from pathlib import Path
from random import Random
from typing import NamedTuple

from headrace.broker.config import Address
from headrace.protocol.api import ApiKey
from headrace.records import Record, build_batch
from tests.fuzz.frames import FrameWriter, Vocabulary, raw_bytes
from tests.fuzz.life import Broken
from tests.integration.wire import Wire

MAX_GROWTH_MIB = 150
_CLIENTS = 8
_TOPIC = "n-4711"


class Report(NamedTuple):
    counts: Counter[str]
    rss_before_mib: float
    rss_after_mib: float
    failure: str | None


def resident_mib(pid: int) -> float:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) / 1024
    raise AssertionError(f"process {pid} has no VmRSS")


def attack(seed: int, frames: int) -> Report:
    """Send so many frames to a broker, and see that it goes on."""
    counts: Counter[str] = Counter()
    with tempfile.TemporaryDirectory(prefix="headrace-fuzz-") as folder, open(f"{folder}/log", "w+") as log:
        command = [sys.executable, "-m", "headrace.cli.main", "broker", "start", "--json", "--until-eof"]
        command += [
            "--data-dir",
            f"{folder}/data",
            "--listen",
            "127.0.0.1:0",
            "--set",
            "auto.create.topics.enable=false",
        ]
        broker = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, text=True)
        assert broker.stdout is not None
        failure, before, after = None, 0.0, 0.0
        try:
            address = json.loads(broker.stdout.readline())["listeners"][0]
            with Wire(address) as neighbour:
                neighbour.create(_TOPIC, max_message_bytes="100000", retention_ms="-1")
                for name in ("f0", "f1"):
                    neighbour.create(name, 2)
                _work(
                    address, neighbour, Random(seed), frames // 10, counts
                )  # what is compiled and cached by then stays
                before = resident_mib(broker.pid)
                _work(address, neighbour, Random(seed + 1), frames - frames // 10, counts)
                after = resident_mib(broker.pid)
        except (Broken, OSError, AssertionError) as error:
            failure = f"{type(error).__name__}: {error}"
        broker.terminate()
        broker.communicate(timeout=60)
        log.seek(0)
        lines = log.read()
    if broker.returncode:
        failure = f"the broker ended with {broker.returncode}: {lines[-1000:]}"
    elif '"traceback"' in lines or "Traceback" in lines:
        failure = "the broker logged: " + next(line for line in lines.splitlines() if "raceback" in line)[:3000]
    elif after - before > MAX_GROWTH_MIB:
        failure = f"the broker grew from {before:.0f} to {after:.0f} MiB"
    return Report(counts, before, after, failure)


def _work(address: str, neighbour: Wire, chance: Random, frames: int, counts: Counter[str]) -> None:
    # Quotas that are set for everybody would have the neighbour wait in earnest.
    writer = FrameWriter(Vocabulary(chance), without=(ApiKey.ALTER_CLIENT_QUOTAS,))
    clients: list[socket.socket] = []
    try:
        for number in range(frames):
            if len(clients) < _CLIENTS:
                clients.append(_connect(address))
            client = chance.choice(clients)
            data = raw_bytes(chance) if chance.random() < 0.02 else writer.frame(number)[2]
            is_over = chance.random() < 0.02
            counts["frames"] += 1
            try:
                client.sendall(data)
                _drain(client, counts)
            except OSError:
                counts["closed"] += 1
                is_over = True
            if is_over:
                client.close()
                clients.remove(client)
            if number % 200 == 199:
                _check(neighbour, number, counts)
        _check(neighbour, 0, counts)
    finally:
        for client in clients:
            client.close()


def _connect(address: str) -> socket.socket:
    client = socket.create_connection(Address.parse(address), timeout=60)
    client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return client


def _drain(client: socket.socket, counts: Counter[str]) -> None:
    """Take what has come; `OSError` if the broker has hung up."""
    with selectors.DefaultSelector() as waiting:
        waiting.register(client, selectors.EVENT_READ)
        while waiting.select(0):
            data = client.recv(1 << 20)
            if not data:
                raise ConnectionError
            counts["bytes answered"] += len(data)


def _check(neighbour: Wire, number: int, counts: Counter[str]) -> None:
    began_s = time.monotonic()
    value = b"v%d" % number
    error, offset = neighbour.produce(_TOPIC, build_batch([Record(0, int(time.time() * 1000), b"n", value)]))
    fetched = [record.value for record in neighbour.fetch(_TOPIC, offset)[1]] if not error else []
    with suppress(IndexError):
        if fetched[0] == value:
            counts["neighbour served"] += 1
            counts["neighbour slowest ms"] = max(
                counts["neighbour slowest ms"], round((time.monotonic() - began_s) * 1000)
            )
            return
    raise Broken(f"the neighbour produced {value!r} with error {error}, and fetches {fetched}")
