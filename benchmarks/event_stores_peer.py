"""The same as `event_stores_ours.py`, with the `eventsourcing` library; run by the Python of its own environment."""

import json
import os
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from time import perf_counter
from typing import Any
from urllib.parse import urlsplit
from uuid import UUID

from eventsourcing.application import Application
from eventsourcing.domain import Aggregate, event
from eventsourcing.persistence import InfrastructureFactory, Tracking
from eventsourcing.postgres import PostgresTrackingRecorder
from eventsourcing.sqlite import SQLiteTrackingRecorder
from eventsourcing.utils import Environment


class Account(Aggregate):
    @event("Opened")
    def __init__(self, owner: str) -> None:
        self.owner = owner
        self.balance = 0

    @event("Deposited")
    def deposit(self, amount: int, note: str) -> None:  # noqa: ARG002 - it is kept in the event
        self.balance += amount


class Bank(Application[UUID]):
    is_snapshotting_enabled = True


def append(bank: Any, writers: int, each: int) -> float:
    def write(_: int) -> None:
        account = Account(owner="ann")
        bank.save(account)
        for number in range(1, each + 1):
            account.deposit(number, "salary")
            bank.save(account)

    started = perf_counter()
    with ThreadPoolExecutor(writers) as pool:
        list(pool.map(write, range(writers)))
    return writers * (each + 1) / (perf_counter() - started)


def fill(bank: Any, events: int) -> UUID:
    account = Account(owner="ann")
    for number in range(1, events):
        account.deposit(number, "salary")
        if number % 5_000 == 0:
            bank.save(account)
    bank.save(account)
    return account.id


def load(bank: Any, events: int, times: int, snapshots: str) -> float:
    ident = fill(bank, events)
    if snapshots == "yes":
        bank.take_snapshot(ident)
    assert bank.repository.get(ident).version == events
    started = perf_counter()
    for _ in range(times):
        bank.repository.get(ident)
    return times / (perf_counter() - started)


def catch_up(bank: Any, events: int) -> float:
    for _ in range(10):
        fill(bank, events // 10)
    started, count, start = perf_counter(), 0, 1
    # From the recorder, by as many as we read: the library's log hands out ten at a time.
    while notifications := bank.recorder.select_notifications(start, 1_000):
        for notification in notifications:
            bank.mapper.to_domain_event(notification)
            start = notification.id + 1
            count += 1
    assert count == events // 10 * 10
    return count / (perf_counter() - started)


CREATE = "CREATE TABLE IF NOT EXISTS balances (id TEXT PRIMARY KEY, cents BIGINT NOT NULL)"
ADD = "INSERT INTO balances VALUES ({0}, {0}) ON CONFLICT (id) DO UPDATE SET cents = balances.cents + excluded.cents"


def project(bank: Any, events: int) -> float:
    """Each event's row and its tracking record in one transaction: that is how the library's views are made."""
    is_sqlite = os.environ["PERSISTENCE_MODULE"] == "eventsourcing.sqlite"
    base: Any = SQLiteTrackingRecorder if is_sqlite else PostgresTrackingRecorder
    add = ADD.format("?" if is_sqlite else "%s")

    class Balances(base):  # type: ignore[misc]
        def create(self) -> None:
            with self.datastore.transaction(commit=True) as cursor:
                cursor.execute(CREATE)

        def add(self, ident: str, amount: int, tracking: Tracking) -> None:
            with self.datastore.transaction(commit=True) as cursor:
                self._insert_tracking(cursor, tracking)
                cursor.execute(add, (ident, amount))

    for _ in range(10):
        fill(bank, events // 10)
    factory: Any = InfrastructureFactory.construct(env=Environment("balances", dict(os.environ)))
    view: Any = factory.tracking_recorder(Balances)
    view.create()
    started, count, start = perf_counter(), 0, 1
    while notifications := bank.recorder.select_notifications(start, 1_000):
        for notification in notifications:
            happened = bank.mapper.to_domain_event(notification)
            tracking = Tracking(bank.name, notification.id)
            view.add(str(happened.originator_id), getattr(happened, "amount", 0), tracking)
            start = notification.id + 1
            count += 1
    assert count == events // 10 * 10
    return count / (perf_counter() - started)


def surroundings(kind: str, where: str) -> dict[str, str]:
    if kind == "sqlite":
        return {"PERSISTENCE_MODULE": "eventsourcing.sqlite", "SQLITE_DBNAME": where, "SQLITE_LOCK_TIMEOUT": "60"}
    url = urlsplit(where)
    return {
        "PERSISTENCE_MODULE": "eventsourcing.postgres", "POSTGRES_DBNAME": url.path[1:],
        "POSTGRES_HOST": str(url.hostname), "POSTGRES_PORT": str(url.port), "POSTGRES_USER": str(url.username),
        "POSTGRES_PASSWORD": str(url.password), "POSTGRES_POOL_SIZE": "16", "POSTGRES_MAX_OVERFLOW": "16",
    }  # fmt: skip


def main(kind: str, where: str, what: str, *arguments: str) -> None:
    os.environ.update(surroundings(kind, where))
    bank = Bank(env=dict(os.environ))
    measures: dict[str, Callable[..., float]] = {
        "append": append,
        "load": load,
        "catch-up": catch_up,
        "project": project,
    }
    figure = measures[what](bank, *(int(each) if each.isdigit() else each for each in arguments))
    bank.close()
    print(json.dumps(figure))


if __name__ == "__main__":
    main(*sys.argv[1:])
