"""Processes whose runners are killed: each command is carried out once, and no money is lost or made."""

import json
import os
import random
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from headrace import Broker
from headrace.eventsourcing import Repository
from headrace.eventsourcing.model import StreamAppend, where
from headrace.eventsourcing.opening import open_store
from headrace.eventsourcing.process_effects import EffectRunner
from headrace.eventsourcing.process_runner import ProcessRunner
from tests.unit.eventsourcing.transfers import Close, Open, Requested, account, transferring, types

WORKER = Path(__file__).with_name("process_worker.py")
ROOT = Path(__file__).parent.parent.parent
_NUMBERS = count()


@pytest.fixture(params=["sqlite", "postgres", "topic"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    if request.param == "sqlite":
        yield f"sqlite:///{tmp_path}/events.db"
    elif request.param == "postgres":
        server = request.getfixturevalue("postgres_server").url
        yield f"{server}{'&' if '?' in server else '?'}table=processes{next(_NUMBERS)}"
    else:
        with Broker() as broker:
            yield f"kafka://{broker.bootstrap_servers}/events"


def request_transfers(store: Any, numbers: range) -> None:
    for number in numbers:
        name, target = f"t{number}", ("bob", "closed", "cid")[number % 3]
        requested = Requested(name, ("ann", "dan")[number % 2], target, 1 + number % 7)
        store.append([StreamAppend(f"transfer-{name}", [types.encode(requested)])])


def test_each_command_is_carried_out_once_when_runners_are_killed(url: str, tmp_path: Path) -> None:
    seed = int(os.environ.get("HEADRACE_SEED", random.randrange(2**32)))
    print(f"HEADRACE_SEED={seed}")
    chance = random.Random(seed)
    store = open_store(url)
    accounts = Repository(store)
    for name, amount in (("ann", 100), ("dan", 5), ("bob", 0), ("cid", 0), ("closed", 0)):
        accounts.handle(account, name, Open(amount))
    accounts.handle(account, "closed", Close())
    outbox, file = f"sqlite:///{tmp_path}/outbox.db", tmp_path / "effects"
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])}
    for turn in range(4):
        request_transfers(store, range(turn * 6, turn * 6 + 6))
        worker = subprocess.Popen(
            [sys.executable, str(WORKER), url, outbox, str(file)], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
            text=True, env=environment,
        )  # fmt: skip
        assert worker.stdout is not None
        assert worker.stdout.readline() == "ready\n", worker.communicate()
        for _ in range(chance.randrange(4)):
            assert worker.stdout.readline() == "turn\n", worker.communicate()
        time.sleep(chance.random() * 0.02)  # anywhere in the next one
        worker.kill()
        _, errors = worker.communicate()
        assert errors == ""
    ProcessRunner(store, transferring).settle()
    sent = list[str]()
    EffectRunner(store, transferring, lambda _, key: sent.append(key), outbox=outbox).settle()

    balances = {name: accounts.load(account, name).state.balance for name in ("ann", "dan", "bob", "cid", "closed")}
    assert sum(balances.values()) == 105
    runner = ProcessRunner(store, transferring)
    states = [runner.state(f"t{number}") for number in range(24)]
    assert all(state.status == "refunded" for state in states if state.target == "closed" and state.source == "ann")
    statuses = Counter(state.status.partition(":")[0] for state in states)
    assert set(statuses) <= {"done", "refunded", "refused"}
    kinds = Counter(each.type for each in store.read(where(category="account")))
    assert kinds["withdrawn"] == statuses["done"] + statuses["refunded"]
    assert (kinds["deposited"], kinds["refunded"]) == (statuses["done"], statuses["refunded"])
    assert balances["bob"] + balances["cid"] == sum(state.amount for state in states if state.status == "done")
    # An effect that was under way when its program was killed may be sent once more, under the same key.
    keys = [json.loads(line)["key"] for line in file.read_text().splitlines()] if file.exists() else []
    assert len(set(keys + sent)) == statuses["done"]
    assert len(keys + sent) <= statuses["done"] + 4 * 4
    store.close()
