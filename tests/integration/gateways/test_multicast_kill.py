"""Gateways of groups and their broker, killed in turn: what is in the topic is there once, and followers miss none."""

import contextlib
import itertools
import os
import signal
import threading
import time
from pathlib import Path

from headrace import Broker
from headrace.client.address import parse_bootstrap
from headrace.client.admin import ensure_topic
from headrace.client.cluster import Cluster
from headrace.client.writer import NewRecord, Writer
from headrace.gateways.multicast import LogSubscriber, Publisher, SendingSettings
from tests.integration.gateways.running import started, values_of, wait_for
from tests.ports import free_port

KILLS = int(os.environ.get("HEADRACE_KILLS", "4"))
GROUP = "239.255.44.2"


class Serving:
    """A broker in a process of its own, on a port that stays."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.port = free_port()
        self.bootstrap = f"127.0.0.1:{self.port}"
        self.start()

    def start(self) -> None:
        self.broker = Broker(self.folder, listen=self.bootstrap, own_process=True).start()

    def kill(self) -> None:
        os.kill(self.broker.pid, signal.SIGKILL)
        self.broker.stop()


def test_what_a_group_said_is_in_the_topic_once(tmp_path: Path) -> None:
    """The publisher holds what a gateway misses while it starts again: nothing is lost, nothing is there twice."""
    serving = Serving(tmp_path / "data")
    group = f"{GROUP}:{free_port()}"
    options = ("--direction", "in", "--topic", "heard", "--group", group)
    gateway = started("multicast", "listener", serving.bootstrap, *options)
    is_over = threading.Event()
    published: list[bytes] = []

    def publish() -> None:
        with Publisher(group, name="source", settings=SendingSettings(history_bytes=256 * 1024 * 1024)) as publisher:
            for number in itertools.count():
                value = b"%d " % number + b"x" * (number % 5_000)
                publisher.publish(value, key=b"k%d" % (number % 7))
                published.append(value)
                if is_over.wait(0.001):
                    publisher.flush()
                    wait_for(lambda: len(found()) == len(published), "all is in the topic")
                    return

    def found() -> list[bytes]:
        return values_of(serving.bootstrap, "heard")

    thread = threading.Thread(target=publish)
    thread.start()
    try:
        for kill in range(KILLS):
            then = len(published)
            if kill % 2:
                serving.kill()
                time.sleep(0.2)
                serving.start()
            else:
                gateway.kill()
                gateway.communicate()
                gateway = started("multicast", "listener", serving.bootstrap, *options)
            wait_for(lambda then=then: len(found()) > then, "it goes on")
    finally:
        is_over.set()
        thread.join(60)
        gateway.terminate()
        gateway.communicate()
    values = found()
    serving.broker.stop()
    assert len(values) == len(published)
    assert sorted(values) == sorted(published)


def test_who_follows_a_topic_by_its_group_misses_none_and_has_none_twice(tmp_path: Path) -> None:
    """One subscriber from the start, one that comes late; gateway and broker are killed in turn."""
    serving = Serving(tmp_path / "data")
    group = f"{GROUP}:{free_port()}"
    options = ("--direction", "out", "--topic", "told", "--group", group)
    with Cluster(parse_bootstrap(serving.bootstrap)) as cluster:
        ensure_topic(cluster, "told", partitions=2)
    gateway = started("multicast", "teller", serving.bootstrap, *options)
    written: list[bytes] = []
    is_over = threading.Event()

    def write() -> None:
        numbers = itertools.count()
        while not is_over.is_set():
            with contextlib.suppress(Exception), Cluster(parse_bootstrap(serving.bootstrap)) as cluster:
                while not is_over.is_set():
                    values = [b"%d " % next(numbers) + b"x" * 50 for _ in range(20)]
                    writer = Writer(cluster, "told")
                    for value in values:
                        writer.add(NewRecord(None, value, 0))
                    writer.flush()
                    written.extend(values)
                    is_over.wait(0.02)

    subscribers: list[LogSubscriber] = []
    taken: list[list[tuple[int, int, bytes]]] = []
    threads = [threading.Thread(target=write)]

    def follow(start: str) -> None:
        subscriber = LogSubscriber(group, serving.bootstrap, "told", start=start)
        mine: list[tuple[int, int, bytes]] = []
        subscribers.append(subscriber)
        taken.append(mine)

        def run() -> None:
            mine.extend((record.partition, record.offset, record.value or b"") for record in subscriber)

        threads.append(threading.Thread(target=run))
        threads[-1].start()

    follow("earliest")
    threads[0].start()
    try:
        wait_for(lambda: len(written) > 100, "something is written")
        follow("earliest")
        for kill in range(KILLS):
            then = len(written)
            if kill % 2:
                serving.kill()
                time.sleep(0.2)
                serving.start()
            else:
                gateway.kill()
                gateway.communicate()
                gateway = started("multicast", "teller", serving.bootstrap, *options)
            wait_for(lambda then=then: all(len(each) > then + 100 for each in taken), "they go on")
        is_over.set()
        threads[0].join()
        everything = values_of(serving.bootstrap, "told")
        assert set(written) <= set(everything)
        wait_for(lambda: all(len(each) >= len(everything) for each in taken), "all has come")
        wait_for(lambda: all(each.is_caught_up for each in subscribers), "they are live")
    finally:
        is_over.set()
        for each in subscribers:
            each.close()
        for thread in threads:
            thread.join(20)
        gateway.terminate()
        gateway.communicate()
        serving.broker.stop()
    for each, subscriber in zip(taken, subscribers, strict=True):
        assert sorted(value for _, _, value in each) == sorted(everything)
        for partition in (0, 1):
            offsets = [offset for number, offset, _ in each if number == partition]
            assert offsets == sorted(set(offsets))
        assert subscriber.from_group > 0
    assert subscribers[1].from_log > 0  # it came late
