"""Queues whose broker or workers are killed: what was put is done, and what a program had goes to others at once."""

import os
import signal
import subprocess
import sys
import textwrap
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from headrace import Broker, Queue
from headrace.client.errors import ClientError
from tests.integration.waiting import wait_until
from tests.ports import free_port

PATIENCE_S = 120
SETTINGS = {
    "group.share.heartbeat.interval.ms": "500",
    "group.share.min.heartbeat.interval.ms": "100",
    "share.coordinator.state.topic.num.partitions": "1",
}


@pytest.fixture(scope="module")
def servers() -> Iterator[str]:
    """A broker for all tests that do not kill it."""
    with Broker(settings=SETTINGS, own_process=True) as broker:
        yield broker.bootstrap_servers


def start(program: str, servers: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(program)],
        env={**os.environ, "HEADRACE_BOOTSTRAP": servers},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


@pytest.mark.timeout(300)
def test_a_worker_outlives_its_broker_and_nothing_that_was_put_is_lost(tmp_path: Path) -> None:
    address = f"127.0.0.1:{free_port()}"
    queue = Queue("work", address, prefetch=8)
    done: list[int] = []
    put: list[int] = []

    @queue.worker(concurrency=3, retry_after=0.1)
    def work(message) -> None:
        done.append(message.value)

    def put_all(producer: Queue) -> None:
        for number in range(150):
            while True:
                try:
                    producer.put(number)
                    break
                except ClientError:
                    pass  # nobody knows whether it was written: it is put again, as every program has to
            put.append(number)

    runner = threading.Thread(target=work.run)
    producer = Queue("work", address)
    putter = threading.Thread(target=put_all, args=(producer,))
    for kill in range(3):
        with Broker(tmp_path / "data", listen=address, own_process=True, settings=SETTINGS) as broker:
            if kill == 0:
                producer.open()
                runner.start()
                putter.start()
            if kill < 2:  # dying is a place in the work, not a time
                goal = 40 * (kill + 1)
                wait_until(lambda goal=goal: len(set(done)) >= goal, f"{goal} messages are done", patience_s=PATIENCE_S)
                os.kill(broker.pid, signal.SIGKILL)
            else:
                putter.join(PATIENCE_S)
                wait_until(lambda: set(done) == set(put) and len(put) == 150, "all are done", patience_s=PATIENCE_S)
                wait_until(lambda: producer.depth() == 0, "all are acknowledged", patience_s=PATIENCE_S)
                work.stop()
                runner.join(PATIENCE_S)
                producer.close()
    assert not runner.is_alive()


def test_what_a_killed_worker_had_goes_to_others_at_once(servers: str) -> None:
    with Queue("killed", servers, lock="60s") as queue:
        queue.put_many(range(6))
        program = start(
            """
            import sys, headrace
            queue = headrace.Queue("killed", prefetch=4)
            print(queue.get().value, flush=True)
            sys.stdin.read()
            """,
            servers,
        )
        assert program.stdout is not None
        had = int(program.stdout.readline())
        program.kill()
        program.communicate()
        deliveries = {}
        while len(deliveries) < 6:
            message = queue.get(30)  # much less than the lock
            assert message is not None
            deliveries[message.value] = message.deliveries
            message.ack()
        assert deliveries[had] == 2
        assert sorted(deliveries) == list(range(6))


def test_a_worker_that_is_told_to_end_finishes_what_it_does_and_gives_back_the_rest(
    servers: str, tmp_path: Path
) -> None:
    with Queue("ending", servers, lock="60s") as queue:
        queue.put_many(range(6))
        program = start(
            f"""
            import headrace, time, pathlib
            queue = headrace.Queue("ending", prefetch=4)

            @queue.worker(concurrency=1)
            def work(message):
                print("begin", message.value, flush=True)
                while not pathlib.Path({str(tmp_path / "go")!r}).exists():
                    time.sleep(0.01)
                print("end", message.value, flush=True)

            work.run()
            print("over", flush=True)
            """,
            servers,
        )
        assert program.stdout is not None
        assert program.stdout.readline() == "begin 0\n"
        program.send_signal(signal.SIGTERM)
        first = queue.get(30)  # it keeps what it does, and has given back the rest before that is done
        assert first is None or first.value != 0
        (tmp_path / "go").touch()
        said, _ = program.communicate(timeout=PATIENCE_S)
        assert (said, program.returncode) == ("end 0\nover\n", 0)
        seen = [first.value] if first else []
        if first:
            first.ack()
        while len(seen) < 5:
            message = queue.get(30)
            assert message is not None
            seen.append(message.value)
            message.ack()
        assert sorted(seen) == [1, 2, 3, 4, 5]
        wait_until(lambda: queue.depth() == 0, "all are acknowledged", patience_s=PATIENCE_S)
