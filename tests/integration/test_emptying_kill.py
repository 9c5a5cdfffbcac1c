"""kill -9 of a redrive and of a move at work: run again, they go on, and every message is sent once."""

from __future__ import annotations

import os
import random
import subprocess
import sys
import time
from typing import TYPE_CHECKING

import pytest

from headrace import Broker
from headrace.client.address import parse_bootstrap
from headrace.client.admin import create_topic
from headrace.client.cluster import Cluster
from headrace.client.coordinators import Coordinators
from headrace.queues.moving import Mover
from headrace.queues.redrive import redrive
from tests.conformance.clients.sharing import ACCEPT, Sharer, set_group
from tests.conformance.clients.wire import Wire, batch_of
from tests.integration.test_redrive import fill, values_in
from tests.reading import wait_for_markers

if TYPE_CHECKING:
    from collections.abc import Iterator

PER_KILL = 100  # messages, of which a transaction has about ten
KILLS = [3, pytest.param(20, marks=pytest.mark.long)]
# Small transactions, so that there are many to be killed in; after each it waits for a line.
REDRIVE = """
redriving._MOST_LETTERS = 10
redriving.redrive(cluster, name, on_progress=wait)
"""
MOVE = """
moving._MOST_BYTES = 30
mover = moving.Mover(Coordinators(cluster), name, name, f"{name}-later")
mover.run(wait)
"""
PROGRAM = """
import sys
from headrace.client.address import parse_bootstrap
from headrace.client.cluster import Cluster
from headrace.client.coordinators import Coordinators
from headrace.queues import moving, redrive as redriving
servers, name = sys.argv[1:]
def wait(so_far):
    print(so_far, flush=True)
    sys.stdin.readline()
with Cluster(parse_bootstrap(servers)) as cluster:
"""


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with Broker() as broker, Cluster(parse_bootstrap(broker.bootstrap_servers)) as cluster:
        yield cluster


def run(cluster: Cluster, work: str, name: str, *, kill_after: int = 0, wait_s: float = 0) -> None:
    """Have it done in a process of its own, which is killed after so many transactions, somewhere in the next one."""
    program = PROGRAM + work.replace("\n", "\n    ")
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with subprocess.Popen([sys.executable, "-c", program, str(cluster), name], text=True, **pipes) as process:
        if not kill_after:
            _, errors = process.communicate()
            assert process.returncode == 0, errors
            return
        for _ in range(kill_after):
            assert process.stdout.readline(), process.stderr.read()
            process.stdin.write("\n")
            process.stdin.flush()
        time.sleep(wait_s)  # whatever it has come to by then is to be right
        process.kill()


def kill_often(cluster: Cluster, work: str, name: str, kills: int) -> None:
    seed = int(os.environ.get("HEADRACE_SEED", time.time_ns() % 1_000_000))
    print(f"HEADRACE_SEED={seed}")
    chance = random.Random(seed)
    for _ in range(kills):
        run(cluster, work, name, kill_after=chance.randrange(1, 7), wait_s=chance.uniform(0, 0.02))
    run(cluster, work, name)


@pytest.mark.timeout(300)
@pytest.mark.parametrize("kills", KILLS)
def test_a_redrive_that_is_killed_sends_every_letter_back_once(cluster: Cluster, kills: int) -> None:
    topic = f"redriven-{kills}"
    letters = fill(cluster, topic, PER_KILL * kills)
    kill_often(cluster, REDRIVE, letters, kills)
    assert values_in(cluster, topic) == list(range(PER_KILL * kills))
    wait_for_markers(str(cluster), letters)
    assert redrive(cluster, letters, dry_run=True).letters == 0


@pytest.mark.timeout(300)
@pytest.mark.parametrize("kills", KILLS)
def test_a_move_that_is_killed_copies_every_message_once(cluster: Cluster, kills: int) -> None:
    topic, finished = f"moved-{kills}", 5
    create_topic(cluster, topic)
    create_topic(cluster, f"{topic}-later", partitions=2)
    with Wire(str(cluster)) as wire:
        set_group(wire, topic, share_auto_offset_reset="earliest")
        for number in range(PER_KILL * kills):
            assert not wire.produce(topic, batch_of(b"%d" % number)).error_code
        sharer = Sharer(wire, topic, topic)
        sharer.join()
        acquired = 0
        while acquired < finished:
            answer = sharer.fetch_some(max_records=finished - acquired, share_acquire_mode=1)
            for acquired_run in answer.responses[0].partitions[0].acquired_records:
                sharer.acknowledge((acquired_run.first_offset, acquired_run.last_offset, [ACCEPT]))
                acquired = acquired_run.last_offset + 1
        sharer.beat(-1)
    kill_often(cluster, MOVE, topic, kills)
    assert values_in(cluster, f"{topic}-later") == list(range(finished, PER_KILL * kills))
    assert Mover(Coordinators(cluster), topic, topic, f"{topic}-later").expected == 0
