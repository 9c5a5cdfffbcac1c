"""The shop's database, and the people in it: they order, move, change their minds, and some have no network."""

import random
import threading
import time
from dataclasses import dataclass, field

import psycopg

CITIES = ["Bergen", "Ghent", "Graz", "Lisbon", "Porto", "Turku"]
NAMES = ["Ada", "Ben", "Cleo", "Dario", "Elif", "Finn", "Greta", "Hugo", "Ines", "Jonas", "Kaya", "Lars"]
GOODS = [
    ("espresso", "coffee", 250),
    ("flat white", "coffee", 420),
    ("earl grey", "tea", 380),
    ("matcha", "tea", 560),
    ("cocoa", "chocolate", 450),
    ("almond croissant", "pastry", 390),
]
CUSTOMERS = 60
SHORTEST_S, LONGEST_S = 20.0, 120.0  # how long an order without a network is on its way
_MAKE = """
CREATE TABLE IF NOT EXISTS customers (id bigint PRIMARY KEY, name text NOT NULL, city text NOT NULL);
CREATE TABLE IF NOT EXISTS products (
    id bigint PRIMARY KEY, name text NOT NULL, category text NOT NULL, cents bigint NOT NULL
);
CREATE TABLE IF NOT EXISTS orders (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    customer_id bigint NOT NULL REFERENCES customers, product_id bigint NOT NULL REFERENCES products,
    quantity int NOT NULL, cents bigint NOT NULL, status text NOT NULL DEFAULT 'placed', ordered_at timestamptz NOT NULL
);
"""
_FIRST = """
INSERT INTO orders (customer_id, product_id, quantity, cents, ordered_at) SELECT %s, id, 1, cents, now() FROM products
WHERE id = %s
"""


def prepare(url: str) -> None:
    """Tables, customers and products, unless they are there."""
    with psycopg.connect(url) as db:
        db.execute(_MAKE)
        people = [(n, f"{NAMES[n % len(NAMES)]} {n}", CITIES[n % len(CITIES)]) for n in range(1, CUSTOMERS + 1)]
        goods = [(n, *good) for n, good in enumerate(GOODS, 1)]
        with db.cursor() as cursor:
            cursor.executemany("INSERT INTO customers VALUES (%s, %s, %s) ON CONFLICT DO NOTHING", people)
            cursor.executemany("INSERT INTO products VALUES (%s, %s, %s, %s) ON CONFLICT DO NOTHING", goods)
            cursor.execute("SELECT count(*) FROM orders")
            if cursor.fetchone() == (0,):
                cursor.executemany(_FIRST, [(n, n % len(GOODS) + 1) for n in range(1, 11)])


@dataclass
class Customers:
    """A thread of customers, so many orders a second; it can be told to pause."""

    url: str
    per_s: float = 10.0
    running: threading.Event = field(default_factory=threading.Event)
    _stop: threading.Event = field(default_factory=threading.Event)
    late: int = 0
    _opened_s: float = field(default_factory=time.monotonic)

    def start(self) -> None:
        """Begin to buy."""
        self._opened_s = time.monotonic()
        self.running.set()
        self._thread = threading.Thread(target=self._buy, name="customers", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """No more orders."""
        self._stop.set()
        self._thread.join()

    def _buy(self) -> None:
        rng = random.Random()
        with psycopg.connect(self.url, autocommit=True) as db:
            while not self._stop.wait(rng.expovariate(self.per_s)):
                if self.running.is_set():
                    self._one(db, rng)

    def _one(self, db: psycopg.Connection, rng: random.Random) -> None:
        chance = rng.random()
        if chance < 0.02:  # somebody moves: orders from before belong to where they lived then
            db.execute("UPDATE customers SET city = %s WHERE id = %s", (rng.choice(CITIES), rng.randint(1, CUSTOMERS)))
        elif chance < 0.05:  # somebody thinks better of it
            db.execute(
                "UPDATE orders SET status = 'cancelled' WHERE id = (SELECT max(id) FROM orders WHERE status = 'placed')"
            )
        elif chance < 0.06:  # prices change
            db.execute(
                "UPDATE products SET cents = cents + %s WHERE id = %s",
                (rng.choice([-10, 10]), rng.randint(1, len(GOODS))),
            )
        else:
            # One order in twelve was made where there was no network, and arrives up to two minutes later; but none
            # was made before the shop opened, when nobody knew where its customers live.
            open_s = time.monotonic() - self._opened_s
            is_late = open_s > SHORTEST_S and rng.random() < 1 / 12
            delay_s = rng.uniform(SHORTEST_S, min(open_s, LONGEST_S)) if is_late else rng.uniform(0, 1)
            self.late += is_late
            db.execute(
                "INSERT INTO orders (customer_id, product_id, quantity, cents, ordered_at) "
                "SELECT %s, id, %s, cents * %s, now() - make_interval(secs => %s) FROM products WHERE id = %s",
                (
                    rng.randint(1, CUSTOMERS),
                    quantity := rng.randint(1, 4),
                    quantity,
                    delay_s,
                    rng.randint(1, len(GOODS)),
                ),
            )
