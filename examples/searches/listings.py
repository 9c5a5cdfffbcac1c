"""Saved searches on a stream of listings: people wait for a bike, a flat, a bargain, and each has a query for it.

python examples/searches/listings.py > listings.jsonl          # two thousand listings, always the same
python examples/searches/listings.py queries                    # the stored queries, as records of their topic
"""

import json
import random
import sys
from collections.abc import Iterator

MAPPING = {
    "fields": {
        "title": {"type": "text", "analyzer": "english"},
        "price": "double",
        "category": "keyword",
        "place": "geo_point",
        "at": "date",
    },
    "default_fields": ["title"],
}
QUERIES = {
    "ann's bike": {
        "query": '"racing bike"~3 AND price:<500 AND place:within(52.52, 13.40, 30km)',
        "owner": "ann",
        "tags": ["sport"],
    },
    "bob's flat": {"query": "category:flats AND (balcony OR garden) AND price:[600 TO 900]", "owner": "bob"},
    "cid's bargains": {"query": "category:cameras AND price:<50 NOT title:(broken OR defect)", "owner": "cid"},
    "fraud": {"query": '"western union" OR "pay in advance"~3', "owner": "trust team", "tags": ["review"], "boost": 5},
}
CITIES = {"Berlin": (52.52, 13.40), "Hamburg": (53.55, 9.99), "Munich": (48.14, 11.58), "Potsdam": (52.40, 13.06)}
EVERYDAY = {
    "bikes": ["city bike", "mountain bike, new tyres", "child's bike", "racing jersey", "bike lamp"],
    "flats": ["two rooms, third floor", "loft near the station", "room in a shared flat", "attic with a view"],
    "cameras": ["reflex camera with two lenses", "compact camera", "tripod", "film camera from 1975"],
    "garden": ["garden gnome", "lawn mower", "set of garden chairs", "greenhouse"],
}
BEGIN_MS = 1_790_000_000_000

PLANTED = {
    # Potsdam is 26 km from Berlin's middle; Hamburg is not, and 650 is too much.
    100: ("A racing bike, hardly used", 450.0, "bikes", "Potsdam"),
    200: ("A racing bike, hardly used", 450.0, "bikes", "Hamburg"),
    300: ("Bike for racing", 650.0, "bikes", "Berlin"),
    400: ("Bikes for racing, two of them", 480.0, "bikes", "Berlin"),
    # A price at the border counts.
    500: ("Three rooms with a balcony", 900.0, "flats", "Munich"),
    600: ("Three rooms with a balcony", 901.0, "flats", "Munich"),
    700: ("Camera, slightly broken", 20.0, "cameras", "Berlin"),
    800: ("Compact camera, must go today", 20.0, "cameras", "Berlin"),
    900: ("Phone, as new: please pay me in advance", 120.0, "phones", "Munich"),
}
EXPECTED = {
    ("ann's bike", 100),
    ("ann's bike", 400),
    ("bob's flat", 500),
    ("cid's bargains", 800),
    ("fraud", 900),
}
"""Which query finds which listing, by its number."""


def documents(count: int = 2_000, seed: int = 7) -> Iterator[dict[str, object]]:
    """Listings as they come, a second apart; what is planted stands at its number."""
    chance = random.Random(seed)
    cities = sorted(CITIES)
    for number in range(count):
        category = chance.choice(sorted(EVERYDAY))
        listing = (chance.choice(EVERYDAY[category]), chance.uniform(60, 2_000), category, chance.choice(cities))
        title, price, category, city = PLANTED.get(number, listing)
        lat, lon = CITIES[city]
        yield {
            "number": number,
            "title": title,
            "price": round(price, 2),
            "category": category,
            "place": {"lat": lat, "lon": lon},
            "at": BEGIN_MS + 1_000 * number,
        }


if __name__ == "__main__":
    if sys.argv[1:] == ["queries"]:
        for name, parts in {"mapping:listings": MAPPING, **QUERIES}.items():
            print(json.dumps({"key": name, "value": parts}))
    else:
        for document in documents():
            print(json.dumps(document))
