"""kill -9 of workers, and of the broker, at any moment: each message has one result that `read_committed` shows.

The workers are processes that `headrace.Queue.worker(results=…)` runs; who kills them knows only how far they are.
"""

import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pytest

from headrace import Broker, Queue
from tests.integration.test_queue_transactions import committed
from tests.integration.waiting import wait_until

JOBS, RESULTS = "jobs", "results"
MESSAGES = 120
WORKERS = 3
KILLS = [(3, 1), pytest.param((30, 6), marks=pytest.mark.long)]  # of workers, and of the broker
SETTINGS = {
    "group.share.record.lock.duration.ms": "2000",
    "group.share.min.record.lock.duration.ms": "100",
    "group.share.delivery.count.limit": "10",
    "group.share.partition.max.record.locks": "100",
    "offsets.topic.num.partitions": "2",
    "transaction.state.log.num.partitions": "2",
    "share.coordinator.state.topic.num.partitions": "2",
    "transaction.max.timeout.ms": "60000",
}
WORK = """
import sys
from headrace import Queue
from headrace.queues import moving, transaction
moving.TRANSACTION_MS = transaction.TRANSACTION_MS = 2_000  # what is killed in the middle of one comes again soon
queue = Queue("jobs", sys.argv[1], prefetch=4)
print("began", flush=True)

@queue.worker(results="results", concurrency=2, retry_after=0)
def work(message):
    return {"job": message.value}

work.run()
"""


def begin(servers: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen([sys.executable, "-c", WORK, servers], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)


def kill(worker: subprocess.Popen[bytes]) -> None:
    worker.kill()
    worker.communicate()


@pytest.mark.timeout(600)
@pytest.mark.parametrize("kills", KILLS)
def test_each_message_has_one_result(tmp_path: Path, kills: tuple[int, int]) -> None:
    seed = int(os.environ.get("HEADRACE_SEED", time.time_ns() % 1_000_000))
    print(f"HEADRACE_SEED={seed}")
    chance = random.Random(seed)
    of_workers, of_broker = kills
    broker = Broker(tmp_path, own_process=True, settings=SETTINGS).start()
    workers: list[subprocess.Popen[bytes]] = []
    try:
        with Queue(JOBS, broker, partitions=2) as queue:
            queue.put_many(range(MESSAGES), key=str)
        lives = [0] * of_broker + [1] * of_workers
        chance.shuffle(lives)
        for number, is_worker in enumerate(lives):
            while len(workers) < WORKERS:
                workers.append(begin(broker.bootstrap_servers))
            # Dying is a place in the work, not a time; the rest is left for those who come later.
            goal = MESSAGES * (number + 1) // (len(lives) + 2) - chance.randrange(8)
            wait_until(lambda goal=goal, broker=broker: visible(broker) >= goal, "no results come")
            if is_worker:
                kill(workers.pop(chance.randrange(len(workers))))
                continue
            os.kill(broker.pid, signal.SIGKILL)
            for worker in workers:  # the next broker has another port
                kill(worker)
            workers.clear()
            broker.stop()
            broker = Broker(tmp_path, own_process=True, settings=SETTINGS).start()
        while len(workers) < WORKERS:
            workers.append(begin(broker.bootstrap_servers))
        with Queue(JOBS, broker) as queue:
            wait_until(lambda: queue.depth() == 0, "some messages are not done", patience_s=180)
        found = Counter(committed(broker.bootstrap_servers, RESULTS))
        assert found == Counter(b'{"job":%d}' % number for number in range(MESSAGES))
    finally:
        for worker in workers:
            kill(worker)
        broker.stop()


def visible(broker: Broker) -> int:
    return len(committed(broker.bootstrap_servers, RESULTS))
