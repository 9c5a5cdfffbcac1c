"""Three topics from one seed: sales as events, and the tables of customers and of orders as Debezium tells them.

Customers are there from the start (a snapshot) and then change over the whole span: most changes are updates, some are
deletes, and a deleted customer who changes comes again. Sales run over the same span in order, and each names a
customer. Orders are made, changed and removed, and each belongs to a customer. The last record of each partition lies
an hour later, and moves every engine's watermark past all others; no result counts it.
"""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from confluent_kafka import Producer

from joins_events import COMPRESSION, FLUSH, SPAN_MS, SPAN_START_MS

PARTITIONS = 4
_SEED = 20260101
_MOST_CUSTOMERS = 100_000
_LAST_MS = SPAN_START_MS + SPAN_MS + 3_600_000
_STATUS = ("new", "paid", "sent", "done")
Record = tuple[int, int, bytes]  # partition, key, value


class Sizes(NamedTuple):
    """How many of each there are in topics of so many sales."""

    sales: int
    customers: int
    changes: int  # of customers, behind the snapshot
    orders: int  # changes of orders

    def records(self, row: str) -> int:
        """What a contender reads, flushes left out."""
        tables = self.customers + self.changes
        return tables + (self.sales if row == "as-of" else self.orders)


def sizes(size: int) -> Sizes:
    """A fourth as many changes of customers as sales, and as many changes of orders."""
    return Sizes(size, min(_MOST_CUSTOMERS, max(size // 5, 100)), size // 4, size)


def fill(bootstrap: str, topics: dict[str, str], size: int) -> Sizes:
    """Write all three topics."""
    made = sizes(size)
    for name, records in (("sales", _sales(made)), ("customers", _customers(made)), ("orders", _orders(made))):
        _write(bootstrap, topics[name], records)
    return made


def _write(bootstrap: str, topic: str, records: Iterator[Record]) -> None:
    producer = Producer(
        {
            "bootstrap.servers": bootstrap,
            "compression.type": COMPRESSION,
            "linger.ms": 20,
            "batch.size": 262_144,
            "queue.buffering.max.messages": 500_000,
        }
    )
    for partition, key, value in records:
        while True:
            try:
                producer.produce(topic, value, f'{{"id":{key}}}'.encode(), partition)
                break
            except BufferError:
                producer.poll(0.1)
    if left := producer.flush(60):
        raise RuntimeError(f"{left} records could not be written to {topic}")


def _times(count: int) -> list[int]:
    return (SPAN_START_MS + np.arange(count) * SPAN_MS // max(count, 1)).tolist()


def _sales(made: Sizes) -> Iterator[Record]:
    chance = np.random.default_rng(_SEED)
    customers = chance.integers(0, made.customers, made.sales).tolist()
    cents = chance.integers(100, 50_000, made.sales).tolist()
    for number, (customer, amount, at) in enumerate(zip(customers, cents, _times(made.sales), strict=True)):
        yield number % PARTITIONS, number, _sale(number, customer, amount, at)
    for partition in range(PARTITIONS):
        yield partition, FLUSH, _sale(FLUSH, FLUSH, 0, _LAST_MS)


def _sale(number: int, customer: int, cents: int, at: int) -> bytes:
    return f'{{"id":{number},"customer":{customer},"cents":{cents},"ts":{at},"shop":"s-{number % 97:03d}"}}'.encode()


def _customers(made: Sizes) -> Iterator[Record]:
    chance = np.random.default_rng(_SEED + 1)
    revision = [0] * made.customers
    there = [True] * made.customers
    for customer in range(made.customers):
        yield customer % PARTITIONS, customer, _change("r", None, _customer(customer, 0), SPAN_START_MS - 60_000)
    chosen = chance.integers(0, made.customers, made.changes).tolist()
    leaves = (chance.random(made.changes) < 0.05).tolist()
    for customer, goes, at in zip(chosen, leaves, _times(made.changes), strict=True):
        before = _customer(customer, revision[customer]) if there[customer] else None
        revision[customer] += 1
        there[customer] = not (goes and before)
        after = _customer(customer, revision[customer]) if there[customer] else None
        yield customer % PARTITIONS, customer, _change(_operation(before, after), before, after, at)
    for partition in range(PARTITIONS):
        yield partition, FLUSH, _change("c", None, _customer(FLUSH - 1 - partition, 0), _LAST_MS)


def _customer(customer: int, revision: int) -> str:
    name = f"customer {customer:06d}"
    return f'{{"id":{customer},"tier":{(customer + revision) % 5},"revision":{revision},"name":"{name}"}}'


def _orders(made: Sizes) -> Iterator[Record]:
    chance = np.random.default_rng(_SEED + 2)
    kinds = chance.random(made.orders).tolist()
    picks = chance.random(made.orders).tolist()
    customers = chance.integers(0, made.customers, made.orders).tolist()
    open_orders: list[tuple[int, int, int]] = []  # id, customer, cents
    for number, (kind, pick, customer, at) in enumerate(zip(kinds, picks, customers, _times(made.orders), strict=True)):
        place = int(pick * len(open_orders))
        if kind < 0.7 or not open_orders:
            order = (number, customer, 100 + number % 4900)
            open_orders.append(order)
            yield number % PARTITIONS, number, _change("c", None, _order(order), at)
            continue
        old = open_orders[place]
        if kind < 0.9:
            new = (old[0], old[1], old[2] + 1)
            open_orders[place] = new
            yield old[0] % PARTITIONS, old[0], _change("u", _order(old), _order(new), at)
        else:
            open_orders[place] = open_orders[-1]
            open_orders.pop()
            yield old[0] % PARTITIONS, old[0], _change("d", _order(old), None, at)


def _order(order: tuple[int, int, int]) -> str:
    number, customer, cents = order
    return f'{{"id":{number},"customer":{customer},"cents":{cents},"status":"{_STATUS[cents % 4]}"}}'


def _operation(before: str | None, after: str | None) -> str:
    return "d" if after is None else "u" if before else "c"


def _change(operation: str, before: str | None, after: str | None, at: int) -> bytes:
    source = f'{{"ts_ms":{at},"schema":"shop","table":"t"}}'
    rows = f'"before":{before or "null"},"after":{after or "null"}'
    return f'{{{rows},"source":{source},"op":"{operation}","ts_ms":{at}}}'.encode()
