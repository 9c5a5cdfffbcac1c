"""The bank's events and commands, and who decides about them: customers, accounts, transfers.

Amounts are whole cents. An account never has less than it may; a transfer is a thing of its own, because it outlives
the two decisions it consists of (`transfers.py` leads from one to the next).

What is personal is sealed with a key of the customer, so that a customer can be forgotten; accounts and transfers know
customers by a number that says nothing.
"""

from dataclasses import dataclass, replace
from typing import Literal

from headrace.eventsourcing import Aggregate, EventTypes, refuse

types = EventTypes()


# --- customers


@types.event("customer-registered", tags=["customer"], subject="customer", personal=["name", "email"])
@dataclass(frozen=True)
class CustomerRegistered:
    customer: str
    name: str
    email: str


@types.event("customer-moved", tags=["customer"], subject="customer", personal=["address"])
@dataclass(frozen=True)
class CustomerMoved:
    customer: str
    address: str


@dataclass(frozen=True)
class Register:
    customer: str
    name: str
    email: str


@dataclass(frozen=True)
class Move:
    customer: str
    address: str


@dataclass(frozen=True)
class Customer:
    name: str = ""
    email: str = ""
    address: str = ""
    is_registered: bool = False


customer = Aggregate("customer", Customer, types=types)


@customer.decide
def register(state: Customer, command: Register) -> CustomerRegistered:
    if state.is_registered:
        refuse(f"customer {command.customer} is registered already")
    return CustomerRegistered(command.customer, command.name, command.email)


@customer.decide
def move(state: Customer, command: Move) -> CustomerMoved:
    if not state.is_registered:
        refuse(f"there is no customer {command.customer}")
    return CustomerMoved(command.customer, command.address)


@customer.evolve
def registered(state: Customer, event: CustomerRegistered) -> Customer:
    return replace(state, name=event.name, email=event.email, is_registered=True)


@customer.evolve
def moved(state: Customer, event: CustomerMoved) -> Customer:
    return replace(state, address=event.address)


# --- accounts


@types.event("account-opened", tags=["customer"])
@dataclass(frozen=True)
class AccountOpened:
    customer: str


@types.event("account-closed")
@dataclass(frozen=True)
class AccountClosed:
    pass


@types.event("deposited")
@dataclass(frozen=True)
class Deposited:
    cents: int
    transfer: str = ""  # the one it belongs to, if any


@types.event("withdrawn")
@dataclass(frozen=True)
class Withdrawn:
    cents: int
    transfer: str = ""


@dataclass(frozen=True)
class OpenAccount:
    customer: str


@dataclass(frozen=True)
class CloseAccount:
    pass


@dataclass(frozen=True)
class Deposit:
    cents: int
    transfer: str = ""
    is_refund: bool = False


@dataclass(frozen=True)
class Withdraw:
    cents: int
    transfer: str = ""


@dataclass(frozen=True)
class Account:
    customer: str = ""
    cents: int = 0
    is_open: bool = False


account = Aggregate("account", Account, types=types)


@account.decide
def open_account(state: Account, command: OpenAccount) -> AccountOpened:
    if state.customer:
        refuse("the account exists already")
    return AccountOpened(command.customer)


@account.decide
def close_account(state: Account, _: CloseAccount) -> AccountClosed:
    _check_open(state)
    if state.cents:
        refuse(f"there are still {in_euros(state.cents)} on it")
    return AccountClosed()


@account.decide
def deposit(state: Account, command: Deposit) -> Deposited:
    """A refund is taken even by an account that was closed meanwhile: it is the customer's money."""
    if not command.is_refund:
        _check_open(state)
    _check_amount(command.cents)
    return Deposited(command.cents, command.transfer)


@account.decide
def withdraw(state: Account, command: Withdraw) -> Withdrawn:
    _check_open(state)
    _check_amount(command.cents)
    if command.cents > state.cents:
        refuse(f"there are only {in_euros(state.cents)} on it")
    return Withdrawn(command.cents, command.transfer)


def _check_open(state: Account) -> None:
    if not state.is_open:
        refuse("the account is closed" if state.customer else "there is no such account")


def _check_amount(cents: int) -> None:
    if cents <= 0:
        refuse(f"an amount of {in_euros(cents)} is not possible")


@account.evolve
def account_opened(state: Account, event: AccountOpened) -> Account:
    return replace(state, customer=event.customer, is_open=True)


@account.evolve
def account_closed(state: Account, _: AccountClosed) -> Account:
    return replace(state, is_open=False)


@account.evolve
def balance_changed(state: Account, event: Deposited | Withdrawn) -> Account:
    return replace(state, cents=state.cents + signed(event))


def signed(event: Deposited | Withdrawn) -> int:
    return event.cents if isinstance(event, Deposited) else -event.cents


def in_euros(cents: int) -> str:
    return f"{cents / 100:,.2f} €"


# --- transfers


@types.event("transfer-requested")
@dataclass(frozen=True)
class TransferRequested:
    transfer: str
    source: str
    target: str
    cents: int


@types.event("transfer-approved")
@dataclass(frozen=True)
class TransferApproved:
    transfer: str
    by: str


@types.event("transfer-done")
@dataclass(frozen=True)
class TransferDone:
    transfer: str


@types.event("transfer-failed")
@dataclass(frozen=True)
class TransferFailed:
    transfer: str
    reason: str


@dataclass(frozen=True)
class RequestTransfer:
    transfer: str
    source: str
    target: str
    cents: int


@dataclass(frozen=True)
class ApproveTransfer:
    transfer: str
    by: str


@dataclass(frozen=True)
class EndTransfer:
    transfer: str
    reason: str = ""  # empty if it is done


@dataclass(frozen=True)
class Transfer:
    source: str = ""
    target: str = ""
    cents: int = 0
    status: Literal["", "requested", "done", "failed"] = ""


transfer = Aggregate("transfer", Transfer, types=types)


@transfer.decide
def request_transfer(state: Transfer, command: RequestTransfer) -> TransferRequested:
    if state.status:
        refuse(f"transfer {command.transfer} was requested already")
    if command.source == command.target:
        refuse("a transfer needs two accounts")
    _check_amount(command.cents)
    return TransferRequested(command.transfer, command.source, command.target, command.cents)


@transfer.decide
def approve_transfer(state: Transfer, command: ApproveTransfer) -> TransferApproved:
    if state.status != "requested":
        refuse(f"transfer {command.transfer} is {state.status or 'unknown'}")
    return TransferApproved(command.transfer, command.by)


@transfer.decide
def end_transfer(state: Transfer, command: EndTransfer) -> TransferDone | TransferFailed | None:
    if state.status != "requested":
        return None
    return TransferFailed(command.transfer, command.reason) if command.reason else TransferDone(command.transfer)


@transfer.evolve
def transfer_requested(_: Transfer, event: TransferRequested) -> Transfer:
    return Transfer(event.source, event.target, event.cents, "requested")


@transfer.evolve
def transfer_ended(state: Transfer, event: TransferDone | TransferFailed) -> Transfer:
    return replace(state, status="done" if isinstance(event, TransferDone) else "failed")
