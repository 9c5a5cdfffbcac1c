"""A transfer from one account to another, as a process: it outlives crashes, and every step is done once.

The money is withdrawn, then deposited. If it cannot be deposited (the account was closed meanwhile), it goes back: that
is compensation, since nobody can undo a withdrawal that others have seen. A large transfer waits until somebody has
approved it, and fails if nobody does in time.
"""

from dataclasses import dataclass

from accounts import (
    Deposit,
    Deposited,
    EndTransfer,
    TransferApproved,
    TransferRequested,
    Withdraw,
    Withdrawn,
    account,
    transfer,
    types,
)

from headrace.eventsourcing import Process, Todo

LARGE_CENTS = 1_000_000
APPROVAL_S = 24 * 3600


@dataclass
class Transferring:
    transfer: str = ""
    source: str = ""
    target: str = ""
    cents: int = 0
    is_refunded: bool = False


transferring = Process("transferring", Transferring, sends=[account, transfer], types=types)


@transferring.starts("transfer")
def requested(_: Transferring, event: TransferRequested, todo: Todo) -> Transferring:
    if event.cents >= LARGE_CENTS:
        todo.wait("approval", APPROVAL_S)
    else:
        todo.send(account, event.source, Withdraw(event.cents, event.transfer))
    return Transferring(event.transfer, event.source, event.target, event.cents)


@transferring.on("transfer")
def approved(state: Transferring, _: TransferApproved, todo: Todo) -> None:
    todo.cancel("approval")
    todo.send(account, state.source, Withdraw(state.cents, state.transfer))


@transferring.deadline("approval")
def not_approved(state: Transferring, todo: Todo) -> None:
    _end(state, todo, "nobody approved it in time")


@transferring.on
def withdrawn(state: Transferring, _: Withdrawn, todo: Todo) -> None:
    todo.send(account, state.target, Deposit(state.cents, state.transfer))


@transferring.on
def deposited(state: Transferring, _: Deposited, todo: Todo) -> None:
    if not state.is_refunded:
        _end(state, todo, "")


@transferring.refused
def not_withdrawn(state: Transferring, _: Withdraw, todo: Todo) -> None:
    _end(state, todo, todo.reason)


@transferring.refused
def not_deposited(state: Transferring, _: Deposit, todo: Todo) -> None:
    state.is_refunded = True
    todo.send(account, state.source, Deposit(state.cents, state.transfer, is_refund=True))
    _end(state, todo, f"{todo.reason}; the money went back")


def _end(state: Transferring, todo: Todo, reason: str) -> None:
    todo.send(transfer, state.transfer, EndTransfer(state.transfer, reason))
    todo.end()
