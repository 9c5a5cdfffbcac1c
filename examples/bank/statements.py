"""What is read of the bank: statements, and accounts that somebody should look at. Both are made of the same events.

Either can be thrown away and built again, with other code, while the old one is still read.
"""

from accounts import AccountOpened, Deposited, TransferDone, TransferRequested, Withdrawn, signed, types

from headrace.eventsourcing import Projection, StoredEvent, View

MANY, WITHIN_MS = 5, 10 * 60 * 1000  # withdrawals: more than so many, within ten minutes

statement = Projection(
    "statement",
    tables={"statement": "account text, line bigint, at_ms bigint, cents bigint, balance bigint, transfer text, "
                         "PRIMARY KEY (account, line)"},
    types=types,
)  # fmt: skip


@statement.on
def booked(view: View, event: Deposited | Withdrawn, stored: StoredEvent) -> None:
    before = view.run("SELECT balance FROM {statement} WHERE account = ? ORDER BY line DESC LIMIT 1", [stored.stream])
    balance = (before[0][0] if before else 0) + signed(event)
    view.run(
        "INSERT INTO {statement} VALUES (?, ?, ?, ?, ?, ?)",
        [stored.stream, stored.version, stored.time_ms, signed(event), balance, event.transfer],
    )


balances = Projection("balances", types=types)


@balances.on
def opened(view: View, event: AccountOpened, stored: StoredEvent) -> None:
    view.put(stored.stream, {"customer": event.customer, "cents": 0})


@balances.on
def changed(view: View, event: Deposited | Withdrawn, stored: StoredEvent) -> None:
    row = view.get(stored.stream)
    view.put(stored.stream, {**row, "cents": row["cents"] + signed(event)})


# Rows under two kinds of keys: what an account withdrew lately, and transfers that are not over.
fraud_watch = Projection("fraud_watch", tables=["suspects", "recent", "under_way"], types=types)


@fraud_watch.on
def withdrew(view: View, _: Withdrawn, stored: StoredEvent) -> None:
    recent = view.table("recent")
    times = [at for at in recent.get(stored.stream, {"times": []})["times"] if at > stored.time_ms - WITHIN_MS]
    times.append(stored.time_ms)
    recent.put(stored.stream, {"times": times[-MANY - 1 :]})
    if len(times) > MANY:
        view.put(stored.stream, {"why": f"{len(times)} withdrawals within ten minutes", "at_ms": stored.time_ms})


@fraud_watch.on
def asked(view: View, event: TransferRequested) -> None:
    view.table("under_way").put(event.transfer, {"source": event.source, "target": event.target, "cents": event.cents})


@fraud_watch.on
def went_round(view: View, event: TransferDone, stored: StoredEvent) -> None:
    """The same amount back and forth between two accounts is a pattern of its own."""
    under_way, recent = view.table("under_way"), view.table("recent")
    moved = under_way.get(event.transfer)
    under_way.delete(event.transfer)
    back = f"{moved['target']}>{moved['source']}:{moved['cents']}"
    if (earlier := recent.get(back)) and earlier["times"][-1] > stored.time_ms - WITHIN_MS:
        view.put(
            f"account-{moved['source']}", {"why": f"money went round with {moved['target']}", "at_ms": stored.time_ms}
        )
    recent.put(f"{moved['source']}>{moved['target']}:{moved['cents']}", {"times": [stored.time_ms]})
