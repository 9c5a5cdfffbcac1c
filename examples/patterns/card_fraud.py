"""Card fraud: a card is tried with a small amount and emptied with a large one; a card is in two places at once.

python examples/patterns/card_fraud.py > payments.jsonl        # a day of payments, always the same
headrace pattern test examples/patterns/card_fraud.py:SMALL_THEN_LARGE payments.jsonl --key card --time at
headrace pattern explain examples/patterns/card_fraud.py:IMPOSSIBLE_TRAVEL
"""

import json
import random
from collections.abc import Iterator
from heapq import merge
from math import cos, radians, sin

from headrace.cep import Pattern

SMALL_THEN_LARGE = (
    Pattern.begin("small", "amount < 2")
    .followed_by("large", "amount > 500 AND amount > 100 * small.amount")
    .within("1 minute")
    .skip_past_last()
)
# Two payments, one right after the other, so far apart that not even a straight line through the Earth is short enough
# for an airliner: x, y and z are kilometres from its centre, and `at` is in milliseconds.
IMPOSSIBLE_TRAVEL = (
    Pattern.begin("here", "x IS NOT NULL")
    .next(
        "there",
        "power(x - here.x, 2) + power(y - here.y, 2) + power(z - here.z, 2)"
        " > power(900 * (at - here.at) / 3600000.0, 2)"
        " AND power(x - here.x, 2) + power(y - here.y, 2) + power(z - here.z, 2) > 10000",
    )
    .within("12 hours")
)

EARTH_KM = 6371.0
CITIES = {"Lisbon": (38.72, -9.14), "Oslo": (59.91, 10.75), "Porto": (41.15, -8.63), "Vienna": (48.21, 16.37)}
HOMES = sorted(CITIES)
_MINUTE_MS = 60_000


def payment(card: str, minute: float, amount: float, city: str) -> dict[str, object]:
    """A payment in a city, with the place as a point in space."""
    latitude, longitude = map(radians, CITIES[city])
    return {
        "card": card,
        "at": round(minute * _MINUTE_MS),
        "amount": round(amount, 2),
        "city": city,
        "x": round(EARTH_KM * cos(latitude) * cos(longitude), 1),
        "y": round(EARTH_KM * cos(latitude) * sin(longitude), 1),
        "z": round(EARTH_KM * sin(latitude), 1),
    }


def everyday(seed: int = 7) -> Iterator[dict[str, object]]:
    """A day of fifty cards that pay at home, 5 to 200 at a time."""
    chance = random.Random(seed)
    minute = 0.0
    while (minute := minute + chance.expovariate(1.0)) < 1440:
        card = chance.randrange(50)
        yield payment(f"c{card:02d}", minute, chance.uniform(5, 200), HOMES[card % len(HOMES)])


PLANTED = [
    # c07 is tried with 0.50, and 899 is taken forty seconds later.
    payment("c07", 300.0, 0.5, "Vienna"),
    payment("c07", 300.0 + 40 / 60, 899, "Vienna"),
    # c21 pays little and then much, but has three minutes for it.
    payment("c21", 500.0, 1.2, "Oslo"),
    payment("c21", 503.0, 950, "Oslo"),
    # c62 is in Lisbon, and 25 minutes later in Oslo.
    payment("c62", 700.0, 45, "Lisbon"),
    payment("c62", 725.0, 60, "Oslo"),
    # c63 takes four hours for the same way, by plane.
    payment("c63", 700.0, 30, "Lisbon"),
    payment("c63", 940.0, 20, "Oslo"),
]


def events() -> Iterator[dict[str, object]]:
    """All payments in the order of time."""
    return merge(everyday(), sorted(PLANTED, key=_time), key=_time)


def _time(event: dict[str, object]) -> int:
    return event["at"]  # type: ignore[return-value]


if __name__ == "__main__":
    for event in events():
        print(json.dumps(event))
