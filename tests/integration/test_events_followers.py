"""Projections and processes by a section of headrace.toml: run, killed, run again, reported, and failing one by one."""

import json
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from headrace import Broker
from headrace.cli.main import cli
from headrace.client.address import parse_bootstrap
from headrace.client.cluster import Cluster
from headrace.eventsourcing import NewEvent, StreamAppend, open_store
from headrace.stack.errors import InvalidStack
from headrace.stack.loading import load
from headrace.status import EVENTS, Status, read_statuses
from tests.integration.waiting import wait_until

CODE = """
from dataclasses import dataclass
from headrace.eventsourcing import Aggregate, EventTypes, Process, Projection, StoredEvent, Todo, View

types = EventTypes()
event = types.event

@event("deposited")
@dataclass(frozen=True)
class Deposited:
    account: str
    cents: int

@event("thanked")
@dataclass(frozen=True)
class Thanked:
    cents: int

@dataclass(frozen=True)
class Thank:
    cents: int

letter = Aggregate("letter", lambda: None, types=types)

@letter.decide
def thank(state: None, command: Thank) -> Thanked:
    return Thanked(command.cents)

balances = Projection("balances", category="account", types=types)

@balances.on
def deposited(view: View, event: Deposited, stored: StoredEvent) -> None:
    if event.cents == 13:
        raise ValueError("an unlucky number")
    view.put(stored.stream, {"cents": view.get(stored.stream, {"cents": 0})["cents"] + event.cents})

@dataclass
class Gift:
    cents: int = 0

thanking = Process("thanking", Gift, sends=[letter], types=types)

@thanking.starts("account")
def given(state: Gift, event: Deposited, todo: Todo) -> None:
    todo.send(letter, event.account, Thank(event.cents))
    todo.end()
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "followed_bank.py").write_text(CODE)
    (tmp_path / "headrace.toml").write_text(
        '[events.bank]\nurl = "sqlite:///bank.db"\nprojections = ["followed_bank:balances"]\n'
        'processes = ["followed_bank:thanking"]\n'
    )
    return tmp_path


def deposit(store: Any, account: str, *cents: int) -> None:
    events = [NewEvent("deposited", json.dumps({"account": account, "cents": each}).encode()) for each in cents]
    store.append([StreamAppend(f"account-{account}", events)])


def test_they_run_are_killed_and_go_on(folder: Path) -> None:
    store = open_store(f"sqlite:///{folder}/bank.db")
    with Broker() as broker, Cluster(parse_bootstrap(broker.bootstrap_servers)) as cluster:

        def status(name: str) -> Status:
            return read_statuses(cluster, EVENTS).get(f"bank.{name}", Status(name))

        def start() -> subprocess.Popen[str]:
            command = [sys.executable, "-m", "headrace.cli.main", "events", "run", "bank", "--json"]
            command += ["--bootstrap", broker.bootstrap_servers]
            return subprocess.Popen(command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

        def is_thanked(account: str) -> bool:
            return bool(list(store.read_stream(f"letter-{account}")))

        def is_through() -> bool:
            return status("balances").number("position") == store.last_position()

        deposit(store, "ann", 5)
        first = start()
        try:
            wait_until(lambda: is_thanked("ann") and is_through(), "the first does not do it all")
        finally:
            first.kill()
            first.communicate()
        for number in range(20):
            deposit(store, f"new-{number}", 1)
        second = start()
        wait_until(lambda: is_thanked("new-19") and is_through(), "the second does not go on")
        assert (status("balances").state, status("balances").number("lag_records")) == ("running", 0)
        deposit(store, "bob", 13)
        wait_until(lambda: status("balances").state == "failed", "a projection that fails is not reported")
        assert "an unlucky number" in status("balances").text("problem")
        wait_until(lambda: is_thanked("bob"), "the process did not go on")
        second.send_signal(signal.SIGTERM)
        _, said = second.communicate(timeout=60)
        assert second.returncode == 1
        assert "headrace: bank.balances: " in said
        assert status("thanking").state == "stopped"
    assert [len(list(store.read_stream(f"letter-new-{number}"))) for number in range(20)] == [1] * 20
    store.close()


@pytest.mark.parametrize(
    ("found", "instead", "reason"),
    [
        ("followed_bank:balances", "followed_bank:balance", "has no projection 'balance': did you mean 'balances'"),
        ("followed_bank:thanking", "nowhere:thanking", "there is no module nowhere here"),
        ('projections = ["followed_bank:balances"]', "projections = 3", "it must be a list"),
        ("processes", "procesess", "did you mean 'processes'"),
    ],
)
def test_what_is_wrong_gets_one_sentence(
    folder: Path, monkeypatch: pytest.MonkeyPatch, found: str, instead: str, reason: str
) -> None:
    file = folder / "headrace.toml"
    file.write_text(file.read_text().replace(found, instead))
    monkeypatch.chdir(folder)
    done = CliRunner().invoke(cli, ["events", "run", "--bootstrap", "127.0.0.1:1"])
    assert done.exit_code == 1
    assert reason in f"{done.output}{done.exception}"
    assert not (folder / "bank.db").exists()


def test_a_stack_is_checked_for_code_that_is_not_there(folder: Path) -> None:
    assert load(folder / "headrace.toml", {}).several("events").keys() == {"bank"}
    text = (folder / "headrace.toml").read_text()
    (folder / "headrace.toml").write_text(f'{text}aggregates = ["followed_bank:lettre"]\n')
    with pytest.raises(InvalidStack, match=r"\[events.bank\] aggregate 'followed_bank:lettre'.* did you mean 'letter'"):
        load(folder / "headrace.toml", {})
