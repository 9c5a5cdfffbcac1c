"""Messages over ZeroMQ and nng: our classes with our form beside plain pyzmq and pynng with bare frames.

    python benchmarks/sockets.py [--quick]

Two processes over TCP on loopback, alternating. Messages a second are counted where they are received; the round trip
is of one message at a time, there and back. Then a gateway: pushed into a topic until all of it is there, and out of
one until all of it was pulled, each with a broker and a gateway in processes of their own.
"""

import argparse
import multiprocessing
import socket
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pynng
import zmq

from brokers import HEADRACE, OurBroker
from harness import OURS, Figure, alternate_all, headline, keep, scratch, verdict
from headrace import nng, zeromq
from headrace.client.address import parse_bootstrap
from headrace.client.admin import ensure_topic
from headrace.client.cluster import Cluster
from headrace.client.connection import ConnectionSettings
from headrace.client.errors import UnknownTopic
from headrace.client.offsets import bounds
from headrace.client.writer import NewRecord, Writer

SPAWN = multiprocessing.get_context("spawn")
SIZES = {"100 B": 100, "1 KiB": 1024, "64 KiB": 65_536}
COUNTS = {"zmq": {100: 400_000, 1024: 200_000, 65_536: 20_000}, "nng": {100: 60_000, 1024: 60_000, 65_536: 15_000}}
HIGH_WATER_MARK = 1000
GOAL = 0.8


# --- the four ways; each gives a function that sends or receives, and what is closed at the end


def pusher(way: str, place: str) -> tuple[Callable[[bytes], Any], Any]:
    if way == "zmq":
        plain = zmq.Context().socket(zmq.PUSH)
        plain.set_hwm(HIGH_WATER_MARK)
        plain.linger = 10_000
        plain.connect(place)
        return plain.send, plain
    if way == "nng":
        push = pynng.Push0(send_buffer_size=HIGH_WATER_MARK)
        push.dial(place, block=False)
        return push.send, push
    library: Any = zeromq if way == "our zmq" else nng
    ours = library.Pusher(connect=place, high_water_mark=HIGH_WATER_MARK, linger=10.0)
    return ours.send, ours


def puller(way: str, place: str) -> tuple[Callable[[], Any], Any]:
    if way == "zmq":
        plain = zmq.Context().socket(zmq.PULL)
        plain.set_hwm(HIGH_WATER_MARK)
        plain.bind(place)
        return plain.recv, plain
    if way == "nng":
        pull = pynng.Pull0(recv_buffer_size=HIGH_WATER_MARK)
        pull.listen(place)
        return pull.recv, pull
    library: Any = zeromq if way == "our zmq" else nng
    ours = library.Puller(listen=place, high_water_mark=HIGH_WATER_MARK)
    return ours.receive, ours


def push_all(way: str, place: str, size: int, count: int, done: Any) -> None:
    send, end = pusher(way, place)
    value = bytes(size)
    for _ in range(count):
        send(value)
    done.wait(60)
    end.close()


def echo(way: str, there: str, back: str, count: int) -> None:
    receive, pulling = puller(way, there)
    send, pushing = pusher(way, back)
    is_ours = way.startswith("our")
    for _ in range(count):
        message = receive()
        send(message.value if is_ours else message)
    time.sleep(0.3)
    pulling.close()
    pushing.close()


def free_place() -> str:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return f"tcp://127.0.0.1:{one.getsockname()[1]}"


def rate(way: str, size: int, count: int) -> float:
    place, done = free_place(), SPAWN.Event()
    receive, end = puller(way, place)
    other = SPAWN.Process(target=push_all, args=(way, place, size, count, done))
    other.start()
    receive()
    begun = time.perf_counter()
    for _ in range(count - 1):
        receive()
    took = time.perf_counter() - begun
    done.set()
    other.join()
    end.close()
    return (count - 1) / took


def round_trip_us(way: str, size: int, count: int) -> float:
    there, back = free_place(), free_place()
    other = SPAWN.Process(target=echo, args=(way, there, back, count))
    other.start()
    receive, pulling = puller(way, back)
    send, pushing = pusher(way, there)
    value, times = bytes(size), []
    for _ in range(count):
        begun = time.perf_counter()
        send(value)
        receive()
        times.append(time.perf_counter() - begun)
    other.join()
    pulling.close()
    pushing.close()
    return statistics.median(times[count // 10 :]) * 1e6


# --- gateways


@contextmanager
def gateway(bootstrap: str, kind: str, **options: object) -> Iterator[None]:
    command = [str(HEADRACE), "gateway", kind, "--bootstrap", bootstrap, "--name", "bench", "--json"]
    command += [f"--{name}={value}" for name, value in options.items()]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    try:
        yield
    finally:
        process.terminate()
        process.wait()


def held(bootstrap: str, topic: str) -> int:
    with Cluster(parse_bootstrap(bootstrap), ConnectionSettings()) as cluster:
        try:
            return sum(each.end for each in bounds(cluster, cluster.partitions(topic)).values())
        except UnknownTopic:
            return 0


def into_topic(bootstrap: str, way: str, size: int, count: int, topic: str) -> float:
    place = free_place()
    kind = "zeromq" if way == "our zmq" else "nng"
    with gateway(bootstrap, kind, socket="pull", listen=place, topic=topic):
        send, end = pusher(way, place)
        send(bytes(size))
        while not held(bootstrap, topic):
            time.sleep(0.01)
        begun = time.perf_counter()
        for _ in range(count):
            send(bytes(size))
        while held(bootstrap, topic) < count + 1:
            time.sleep(0.005)
        took = time.perf_counter() - begun
        end.close()
    return count / took


def out_of_topic(bootstrap: str, way: str, size: int, count: int, topic: str) -> float:
    place = free_place()
    with Cluster(parse_bootstrap(bootstrap), ConnectionSettings()) as cluster:
        ensure_topic(cluster, topic)
        writer = Writer(cluster, topic)
        for _ in range(count):
            writer.add(NewRecord(None, bytes(size), 0))
        writer.flush()
    receive, end = puller(way, place)
    kind = "zeromq" if way == "our zmq" else "nng"
    with gateway(bootstrap, kind, socket="push", connect=place, topic=topic):
        receive()
        begun = time.perf_counter()
        for _ in range(count - 1):
            receive()
        took = time.perf_counter() - begun
    end.close()
    return (count - 1) / took


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="see that it runs: few messages, nothing kept")
    quick = parser.parse_args().quick
    rounds, share = (1, 50) if quick else (5, 1)
    print(headline("Messages without a broker"))
    figures: list[Figure] = []
    for library, plain, name in (("zmq", "pyzmq", "ZeroMQ"), ("nng", "pynng", "nng")):
        for label, size in SIZES.items():
            count = COUNTS[library][size] // share
            found = alternate_all(
                {
                    OURS: lambda: rate(f"our {library}", size, count),  # noqa: B023
                    plain: lambda: rate(library, size, count),  # noqa: B023
                },
                rounds,
            )
            figures.append(Figure.of(f"{name}, push and pull, {label}", "messages/s", found))
            print(*show(figures[-1], plain), verdict(figures[-1].ratios[plain], GOAL))
        for label, size in SIZES.items():
            found = alternate_all(
                {
                    OURS: lambda: round_trip_us(f"our {library}", size, 2_000 // share),  # noqa: B023
                    plain: lambda: round_trip_us(library, size, 2_000 // share),  # noqa: B023
                },
                rounds,
            )
            figures.append(Figure.of(f"{name}, there and back, {label}", "µs", found))
            print(*show(figures[-1], plain))
    with scratch() as folder:
        broker = OurBroker(folder / "broker", "fsync")
        broker.start()
        try:
            for library, name in (("zmq", "ZeroMQ"), ("nng", "nng")):
                for label, size in SIZES.items():
                    count = (50_000 if size < 10_000 else 2_000) // (10 if quick else 1)
                    for what, measure in (("into", into_topic), ("out of", out_of_topic)):
                        found = {
                            OURS: [
                                measure(broker.bootstrap_servers, f"our {library}", size, count,
                                        f"{library}-{size}-{what.replace(' ', '-')}-{turn}")
                                for turn in range(min(rounds, 3))
                            ]
                        }  # fmt: skip
                        figures.append(Figure.of(f"{name}, {what} a topic, {label}", "messages/s", found))
                        print(*show(figures[-1], None))
        finally:
            broker.stop()
    if not quick:
        keep("sockets", figures, rounds)


def show(figure: Figure, plain: str | None) -> list[str]:
    parts = [f"{figure.name}:", *(f"{name} {value:,.0f} {figure.unit}," for name, value in figure.values.items())]
    return parts + ([f"ratio {figure.ratios[plain]:.2f}"] if plain else [])


if __name__ == "__main__":
    sys.exit(main())
