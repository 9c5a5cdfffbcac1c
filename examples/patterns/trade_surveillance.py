"""Trade surveillance: a price that is pushed down and recovers (a V), and two accounts that trade with themselves.

python examples/patterns/trade_surveillance.py > trades.jsonl        # an hour of trades, always the same
headrace pattern test examples/patterns/trade_surveillance.py:V_SHAPE trades.jsonl
headrace pattern test examples/patterns/trade_surveillance.py:WASH_TRADE trades.jsonl --key symbol --time at
"""

import json
import random
from collections.abc import Iterator
from heapq import merge

from headrace.cep import Pattern

V_SHAPE = Pattern.sql("""
MATCH_RECOGNIZE (
  PARTITION BY symbol
  ORDER BY at
  MEASURES
    top.price AS before,
    LAST(down.price) AS lowest,
    recovery.price AS after,
    COUNT(down.*) AS falls,
    SUM(down.quantity) AS sold
  ONE ROW PER MATCH
  AFTER MATCH SKIP PAST LAST ROW
  PATTERN (top down{3,} up{0,} recovery)
  WITHIN INTERVAL '10' MINUTE
  DEFINE
    down AS price < PREV(price),
    up AS price > PREV(price),
    recovery AS price > PREV(price) AND price >= 0.99 * top.price AND LAST(down.price) < 0.95 * top.price
)
""")
# What one account sold to another comes back: as much of it, for the same price or nearly so.
WASH_TRADE = (
    Pattern.begin("sale", "seller <> buyer")
    .followed_by(
        "back",
        "seller = sale.buyer AND buyer = sale.seller AND quantity = sale.quantity"
        " AND abs(price - sale.price) <= 0.01 * sale.price",
    )
    .within("1 minute")
    .skip_past_last()
)

SYMBOLS = {"ACME": 100.0, "GLOBEX": 40.0, "INITECH": 250.0}
_SECOND_MS = 1_000


def trade(symbol: str, second: float, price: float, quantity: int, seller: str, buyer: str) -> dict[str, object]:
    return {
        "symbol": symbol,
        "at": round(second * _SECOND_MS),
        "price": round(price, 2),
        "quantity": quantity,
        "seller": seller,
        "buyer": buyer,
    }


def market(seed: int = 11) -> Iterator[dict[str, object]]:
    """An hour in which prices move by at most two per cent around where they began."""
    chance = random.Random(seed)
    second = 0.0
    while (second := second + chance.expovariate(0.5)) < 3600:
        symbol = chance.choice(sorted(SYMBOLS))
        seller, buyer = (f"{side}{chance.randrange(200):03d}" for side in "sb")
        yield trade(
            symbol, second, SYMBOLS[symbol] * chance.uniform(0.98, 1.02), chance.randrange(1, 500), seller, buyer
        )


PLANTED = [
    # Within five minutes SOYLENT falls from 80 to 71 in four trades, and is back at 80 in three.
    *(
        trade("SOYLENT", 1200 + 40 * step, price, 900, "s777", f"b9{step:02d}")
        for step, price in enumerate([80, 78, 76, 73.5, 71, 75, 78, 80.2])
    ),
    # It falls as deep another time, and does not recover.
    *(
        trade("SOYLENT", 2400 + 40 * step, price, 50, "s778", f"b8{step:02d}")
        for step, price in enumerate([80, 78, 76, 73.5, 71, 70.5])
    ),
    # 400 ACME go from a1 to a2 and back after half a minute.
    trade("ACME", 900, 100.5, 400, "a1", "a2"),
    trade("ACME", 930, 100.6, 400, "a2", "a1"),
    # 300 GLOBEX do so too, but an hour is not a minute, nor 150 as much as 300.
    trade("GLOBEX", 600, 40.1, 300, "a1", "a2"),
    trade("GLOBEX", 620, 40.1, 150, "a2", "a1"),
    trade("GLOBEX", 1800, 40.1, 300, "a2", "a1"),
]


def events() -> Iterator[dict[str, object]]:
    """All trades in the order of time."""
    return merge(market(), sorted(PLANTED, key=_time), key=_time)


def _time(event: dict[str, object]) -> int:
    return event["at"]  # type: ignore[return-value]


if __name__ == "__main__":
    for event in events():
        print(json.dumps(event))
