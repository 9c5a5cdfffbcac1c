"""The bank's processes are killed at any moment: every transfer ends once, and no cent is lost or made."""

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from headrace.broker.embedded import Broker
from headrace.eventsourcing import ProcessRunner, ProjectionRunner, Repository, open_store
from tests.property.bank import accounts, in_flight, statements, transfers

ROOT = Path(__file__).parents[2]
WORKER = Path(__file__).with_name("bank_worker.py")
NAMES = ("ann", "bob", "cy", "dan")
PUT_IN = 20_000
KILLS = int(os.environ.get("HEADRACE_KILLS", "3"))


@pytest.fixture(params=["sqlite", "topic"])
def url(request, tmp_path):
    if request.param == "sqlite":
        yield f"sqlite:///{tmp_path}/bank.db"
    else:
        with Broker(tmp_path / "data") as broker:
            yield f"kafka://{broker.bootstrap_servers}/bank"


def test_no_money_is_lost_or_made_by_kills(url, tmp_path):
    seed = int(os.environ.get("HEADRACE_SEED", time.time_ns() % 10**6))
    print(f"HEADRACE_SEED={seed}")
    chance = random.Random(seed)
    store = open_store(url)
    bank = Repository(store)
    for name in NAMES:
        bank.handle(accounts.account, name, accounts.OpenAccount(name))
        bank.handle(accounts.account, name, accounts.Deposit(PUT_IN))
    requested = -1
    for _ in range(KILLS):
        requested = max(requested, _work_and_die(url, requested + 1, chance.uniform(0.1, 0.8)))
        on_accounts = sum(bank.load(accounts.account, name).state.cents for name in NAMES)
        assert on_accounts + in_flight(store) == len(NAMES) * PUT_IN
    ProcessRunner(store, transfers.transferring).settle()
    assert requested > 0
    for number in range(requested + 1):
        ended = bank.load(accounts.transfer, f"t{number}")
        assert (ended.state.status in ("done", "failed"), ended.version) == (True, 2), number
    balances = {name: bank.load(accounts.account, name).state.cents for name in NAMES}
    assert sum(balances.values()) == len(NAMES) * PUT_IN
    assert min(balances.values()) >= 0
    assert in_flight(store) == 0
    runner = ProjectionRunner(store, statements.balances, views=f"sqlite:///{tmp_path}/views.db")
    runner.catch_up()
    assert {name: runner.get(f"account-{name}")["cents"] for name in NAMES} == balances
    runner.close()
    store.close()


def _work_and_die(url: str, first: int, after_s: float) -> int:
    """The last number that a worker is known to have requested when it was killed."""
    worker = subprocess.Popen(
        [sys.executable, str(WORKER), url, str(first)], stdout=subprocess.PIPE, text=True, cwd=ROOT,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])},
    )  # fmt: skip
    assert worker.stdout is not None
    lines = [worker.stdout.readline()]  # it is at work
    time.sleep(after_s)  # at a moment that nobody chose
    worker.send_signal(signal.SIGKILL)
    lines += worker.communicate()[0].splitlines()
    return max(int(line) for line in lines if line.strip())
