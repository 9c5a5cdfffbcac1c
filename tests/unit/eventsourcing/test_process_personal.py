"""Processes that are told personal values: nothing of them in plain, and whoever is forgotten holds up nobody."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from headrace.eventsourcing import Aggregate, EventTypes, Process, ProcessRunner, StreamAppend, Todo, sqlite
from headrace.forgetting.key_store import MemoryKeyStore
from headrace.forgetting.keyring import Keyring
from headrace.testing.contracts.keys import MASTER


@dataclass(frozen=True)
class Registered:
    customer: str
    email: str


@dataclass(frozen=True)
class Mailed:
    customer: str
    email: str


@dataclass(frozen=True)
class Mail:
    customer: str
    email: str


@dataclass
class Welcome:
    email: str = ""


@dataclass(frozen=True)
class Mails:
    count: int = 0


class World:
    """A store in a file, and a process that is told addresses."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "events.db"
        self.keys = Keyring(MemoryKeyStore(), MASTER, recheck_s=0)
        self.types = EventTypes()
        self.types.use_keys(self.keys)
        for kind in (Registered, Mailed):
            self.types.event(kind.__name__.lower(), subject="customer", personal=["email"])(kind)
        mail = Aggregate("mail", Mails, types=self.types)
        self.may_send = True

        @mail.decide
        def send(_: Mails, command: Mail) -> Mailed:
            if not self.may_send:
                raise ConnectionError("the program dies here")
            return Mailed(command.customer, command.email)

        @mail.evolve
        def sent(state: Mails, _: Mailed) -> Mails:
            return Mails(state.count + 1)

        self.process = Process("welcome", Welcome, sends=[mail], types=self.types)

        @self.process.starts("customer")
        def registered(state: Welcome, event: Registered, todo: Todo) -> None:
            state.email = event.email
            todo.send(mail, event.customer, Mail(event.customer, event.email))
            todo.effect({"to": event.email})
            todo.wait("late", 3600)

        @self.process.deadline("late")
        def late(state: Welcome, todo: Todo) -> None: ...

        self.store = sqlite(self.path)

    def register(self, customer: str) -> None:
        event = self.types.encode(Registered(customer, f"{customer}@example.org"))
        self.store.append([StreamAppend(f"customer-{customer}", [event])])

    def mailed(self) -> list[str]:
        return [event.stream for event in self.store.read() if event.type == "mailed"]

    def bytes_of_files(self) -> bytes:
        return b"".join(path.read_bytes() for path in self.path.parent.iterdir())


@pytest.fixture
def world(tmp_path: Path) -> Any:
    made = World(tmp_path)
    yield made
    made.store.close()


def test_what_a_process_remembers_is_sealed_and_opens_for_its_functions(world: World) -> None:
    world.register("ada")
    runner = ProcessRunner(world.store, world.process)
    runner.settle()
    runner.close()
    runner._save()  # what the next one begins with
    assert world.mailed() == ["mail-ada"]
    assert b"ada@example.org" not in world.bytes_of_files()
    again = ProcessRunner(world.store, world.process)
    again.settle()
    assert again.state("ada") == Welcome("ada@example.org")
    assert again.status().facts["open"] == 1  # its deadline
    world.keys.forget("ada")
    assert again.instance("ada").is_over
    assert "forgotten" in again.instance("ada").problem
    last = ProcessRunner(world.store, world.process)
    last.settle()
    assert last.status().facts["open"] == 0


@pytest.mark.parametrize("is_another", [False, True], ids=["the same runner", "another one"])
def test_who_is_forgotten_in_the_middle_holds_up_nobody(world: World, is_another: bool) -> None:
    world.register("ada")
    world.may_send = False
    runner = ProcessRunner(world.store, world.process)
    with pytest.raises(ConnectionError):
        runner.settle()
    world.keys.forget("ada")
    world.may_send = True
    world.register("bob")
    if is_another:
        runner = ProcessRunner(world.store, world.process)
    runner.settle()
    assert world.mailed() == ["mail-bob"]


def test_a_command_for_somebody_who_was_forgotten_is_refused(world: World) -> None:
    world.register("ada")
    world.keys.forget("ada")
    world.register("bob")
    runner = ProcessRunner(world.store, world.process)
    runner.settle()  # ada's process was told stand-ins, and its command cannot be stored
    assert world.mailed() == ["mail-bob"]
    assert "was refused: its subject was forgotten" in runner.instance("ada").problem
