"""A bank whose events are its books: a day in it, told as it happens.

    python examples/bank/story.py [STORE]

STORE is the address of an event store, sqlite:///bank.db for example or kafka://127.0.0.1:9092/bank; without one, the
story happens in a folder that is removed afterwards. At the end a customer is forgotten, and the books still balance.
"""

import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from pathlib import Path

from accounts import (
    ApproveTransfer,
    CloseAccount,
    Deposit,
    Move,
    OpenAccount,
    Register,
    RequestTransfer,
    account,
    customer,
    in_euros,
    transfer,
    types,
)
from rich.console import Console
from rich.table import Table
from statements import fraud_watch, statement
from transfers import LARGE_CENTS, transferring

from headrace.eventsourcing import (
    EventStore,
    ProcessRunner,
    ProjectionRunner,
    Refused,
    Repository,
    Snapshots,
    open_store,
)
from headrace.forgetting import Keyring, open_keys
from headrace.forgetting.master_key import create_master_key

console = Console(highlight=False)
CUSTOMERS = {"c1": ("Ada", "ada@example.org"), "c2": ("Bo", "bo@example.org"), "c3": ("Cy", "cy@example.org")}
PUT_IN = 500_00


def tell(store: EventStore, keys: Keyring, folder: Path) -> None:
    types.use_keys(keys)
    has_snapshots = hasattr(store, "write_snapshot")
    bank = Repository(store, snapshots=Snapshots(every=20)) if has_snapshots else Repository(store)

    console.rule("customers open accounts")
    for name, (called, email) in CUSTOMERS.items():
        bank.handle(customer, name, Register(name, called, email))
        bank.handle(account, name, OpenAccount(name))
        bank.handle(account, name, Deposit(PUT_IN))
    bank.handle(customer, "c1", Move("c1", "12 Mill Lane"))
    console.print(f"{len(CUSTOMERS)} accounts with {in_euros(PUT_IN)} each; what is personal is sealed:")
    console.print(f"  {next(iter(store.read_stream('customer-c1'))).data.decode()[:100]}…", style="dim")

    console.rule("transfers, several at once, kept going by a process")
    with ProcessRunner(store, transferring) as process, ThreadPoolExecutor(4) as pool:
        names = list(CUSTOMERS)
        wishes = [(f"t{n}", names[n % 3], names[(n + 1 + n // 3) % 3], 10_00 + n * 7) for n in range(12)]
        wishes = [each for each in wishes if each[1] != each[2]]
        list(pool.map(lambda each: bank.handle(transfer, each[0], RequestTransfer(*each)), wishes))
        bank.handle(transfer, "back", RequestTransfer("back", "c1", "nobody", 5_00))
        bank.handle(transfer, "large", RequestTransfer("large", "c1", "c2", LARGE_CENTS))
        bank.handle(account, "c1", Deposit(LARGE_CENTS))
        bank.handle(transfer, "large", ApproveTransfer("large", "the manager"))
        process.settle()
    for name in ("t0", "back", "large"):
        console.print(f"  {name}: {bank.load(transfer, name).state.status}")
    try:
        bank.handle(account, "c2", CloseAccount())
    except Refused as refused:
        console.print(f"  an account with money on it cannot be closed: {refused}")

    console.rule("two views of the same events")
    views = f"sqlite:///{folder}/views.db"
    with ProjectionRunner(store, statement, views=views) as statements:
        statements.wait_for(store.last_position(), timeout_s=30)
        _print_statement(statements, "account-c1")
    with ProjectionRunner(store, fraud_watch, views=views) as watch:
        watch.wait_for(store.last_position(), timeout_s=30)
        for stream in (f"account-{name}" for name in CUSTOMERS):
            if row := watch.get(stream):
                console.print(f"  somebody should look at {stream}: {row['why']}")

    console.rule("a customer is forgotten")
    keys.forget("c1")
    console.print(f"  customer c1 is now {bank.load(customer, 'c1').state}")
    total = sum(bank.load(account, name).state.cents for name in CUSTOMERS)
    assert total == len(CUSTOMERS) * PUT_IN + LARGE_CENTS
    console.print(f"  and the books balance: {in_euros(total)} on all accounts, as was put in")


def _print_statement(statements: ProjectionRunner, stream: str) -> None:
    table = Table(title=stream, box=None)
    for name in ("at", "amount", "balance", "transfer"):
        table.add_column(name, justify="right" if name in ("amount", "balance") else "left")
    lines = statements.query(
        "SELECT at_ms, cents, balance, transfer FROM {statement} WHERE account = ? ORDER BY line", (stream,)
    )
    for at_ms, cents, balance, number in lines:
        table.add_row(
            f"{datetime.fromtimestamp(at_ms / 1000, UTC):%H:%M:%S}", in_euros(cents), in_euros(balance), number
        )
    console.print(table)


def main() -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        create_master_key(folder / "master.key")
        keys = open_keys("sqlite:///keys.db", master_key_file="master.key", folder=folder)
        store = open_store(sys.argv[1] if len(sys.argv) > 1 else f"sqlite:///{folder}/bank.db")
        tell(store, keys, folder)
        store.close()


if __name__ == "__main__":
    main()
