"""A small bank, for tests of commands and of what stores keep of them."""

from collections.abc import Iterator
from dataclasses import dataclass, replace

from headrace.eventsourcing import Aggregate, EventTypes, refuse

types = EventTypes()


@types.event("opened", tags=["owner"])
@dataclass(frozen=True)
class Opened:
    owner: str


@types.event("deposited")
@dataclass(frozen=True)
class Deposited:
    amount: int


@types.event("withdrawn")
@dataclass(frozen=True)
class Withdrawn:
    amount: int


@dataclass(frozen=True)
class Open:
    owner: str
    gift: int = 0


@dataclass(frozen=True)
class Deposit:
    amount: int


@dataclass(frozen=True)
class Withdraw:
    amount: int


@dataclass(frozen=True)
class CheckIn:
    pass


@dataclass(frozen=True)
class Account:
    owner: str = ""
    balance: int = 0


account = Aggregate("account", Account, types=types)


@account.decide
def open_account(state: Account, command: Open) -> Iterator[Opened | Deposited]:
    if state.owner:
        refuse(f"it is {state.owner}'s")
    yield Opened(command.owner)
    if command.gift:
        yield Deposited(command.gift)


@account.decide
def deposit(state: Account, command: Deposit) -> Deposited:
    return Deposited(command.amount)


@account.decide
def withdraw(state: Account, command: Withdraw) -> list[Withdrawn]:
    if command.amount > state.balance:
        refuse(f"there are only {state.balance}")
    return [Withdrawn(command.amount)]


@account.decide
async def check_in(state: Account, command: CheckIn) -> Deposited | None:
    return None if state.balance else Deposited(1)


@account.evolve
def opened(state: Account, event: Opened) -> Account:
    return replace(state, owner=event.owner)


@account.evolve
def moved(state: Account, event: Deposited | Withdrawn) -> Account:
    return replace(state, balance=state.balance + _signed(event))


def _signed(event: Deposited | Withdrawn) -> int:
    return event.amount if isinstance(event, Deposited) else -event.amount
