"""Transfers between two accounts, as a process: withdraw, deposit, refund what cannot be deposited, and a deadline."""

from dataclasses import dataclass, replace

from headrace.eventsourcing import Aggregate, EventTypes, refuse
from headrace.eventsourcing.process import Process, Todo

types = EventTypes()
OVERDUE_S = 60


@types.event("opened")
@dataclass(frozen=True)
class Opened:
    amount: int


@types.event("closed")
@dataclass(frozen=True)
class Closed:
    pass


@types.event("frozen")
@dataclass(frozen=True)
class Frozen:
    pass


@types.event("deposited")
@dataclass(frozen=True)
class Deposited:
    amount: int


@types.event("withdrawn")
@dataclass(frozen=True)
class Withdrawn:
    amount: int


@types.event("refunded")
@dataclass(frozen=True)
class Refunded:
    amount: int
    reason: str


@types.event("transfer-requested")
@dataclass(frozen=True)
class Requested:
    transfer: str
    source: str
    target: str
    amount: int


@types.event("transfer-confirmed")
@dataclass(frozen=True)
class Confirmed:
    transfer: str


@dataclass(frozen=True)
class Open:
    amount: int


@dataclass(frozen=True)
class Close:
    pass


@dataclass(frozen=True)
class Deposit:
    amount: int


@dataclass(frozen=True)
class Withdraw:
    amount: int


@dataclass(frozen=True)
class Refund:
    amount: int
    reason: str


@dataclass(frozen=True)
class Account:
    balance: int = 0
    is_open: bool = False


account = Aggregate("account", Account, types=types)


@account.decide
def open_account(state: Account, command: Open) -> Opened:
    return Opened(command.amount)


@account.decide
def close_account(state: Account, command: Close) -> Closed:
    return Closed()


@account.decide
def deposit(state: Account, command: Deposit) -> Deposited:
    if not state.is_open:
        refuse("the account is closed")
    return Deposited(command.amount)


@account.decide
def withdraw(state: Account, command: Withdraw) -> Withdrawn:
    if command.amount > state.balance:
        refuse(f"there are only {state.balance}")
    return Withdrawn(command.amount)


@account.decide
def refund(state: Account, command: Refund) -> Refunded:
    return Refunded(command.amount, command.reason)


@account.evolve
def opened(state: Account, event: Opened) -> Account:
    return Account(event.amount, is_open=True)


@account.evolve
def closed(state: Account, event: Closed) -> Account:
    return replace(state, is_open=False)


@account.evolve
def got(state: Account, event: Deposited | Refunded) -> Account:
    return replace(state, balance=state.balance + event.amount)


@account.evolve
def gave(state: Account, event: Withdrawn) -> Account:
    return replace(state, balance=state.balance - event.amount)


@dataclass
class Transfer:
    source: str = ""
    target: str = ""
    amount: int = 0
    status: str = ""


transferring = Process("transferring", Transfer, sends=[account], types=types)


@transferring.starts("transfer")
def requested(state: Transfer, event: Requested, todo: Todo) -> Transfer:
    todo.send(account, event.source, Withdraw(event.amount))
    return Transfer(event.source, event.target, event.amount, "requested")


@transferring.on
def withdrawn(state: Transfer, event: Withdrawn, todo: Todo) -> None:
    state.status = "withdrawn"
    if state.amount < 100:
        todo.send(account, state.target, Deposit(state.amount))
    else:  # somebody has to confirm it
        todo.wait("overdue", OVERDUE_S)


@transferring.on("transfer")
def confirmed(state: Transfer, event: Confirmed, todo: Todo) -> None:
    todo.cancel("overdue")
    todo.send(account, state.target, Deposit(state.amount))


@transferring.on
def deposited(state: Transfer, event: Deposited, todo: Todo) -> None:
    state.status = "done"
    todo.effect({"text": f"{state.amount} from {state.source} to {state.target}"}, lane=state.target)
    todo.end()


@transferring.refused
def withdraw_refused(state: Transfer, command: Withdraw, todo: Todo) -> None:
    state.status = f"refused: {todo.reason}"
    todo.end()


@transferring.refused
def deposit_refused(state: Transfer, command: Deposit, todo: Todo) -> None:
    state.status = "refunded"
    todo.send(account, state.source, Refund(state.amount, todo.reason))
    todo.end()


@transferring.deadline("overdue")
def overdue(state: Transfer, todo: Todo) -> None:
    state.status = "overdue"
    todo.send(account, state.source, Refund(state.amount, "nobody confirmed it"))
    todo.end()
