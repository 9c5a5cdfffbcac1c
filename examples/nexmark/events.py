"""Nexmark's events: people come, put up auctions, and bid, always the same for the same numbers.

Of every fifty events one is a new person, three are new auctions and the rest are bids. Some auctions, sellers and
bidders are hot; some bids name an auction that is not there yet, or has ended. Events are up to three seconds under
way, so that a topic holds them almost in the order of their times.
"""

import heapq
import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from random import Random
from typing import Any

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

TOPICS = {"persons": 1, "auctions": 2, "bids": 4}  # with how many partitions
BEGIN = datetime(2026, 3, 1, 23, 59, tzinfo=UTC)  # a minute before midnight, for what is counted by the day
UNDER_WAY_MS = 3000

ROUND, NEW_AUCTIONS = 50, 3  # a round is one person, three auctions and 46 bids
FIRST_ID = 1000
IN_FLIGHT, ACTIVE, AHEAD = 100, 1000, 10  # auctions that are bid on, people who are about, ids that are not there yet
HOT = 100  # one of so many auctions or people is hot

STATES = ["AZ", "CA", "ID", "OR", "WA", "WY"]
CITIES = ["Bend", "Boise", "Cody", "Fresno", "Mesa", "Olympia", "Salem", "Tacoma", "Yuma"]
NAMES = [["Ada", "Ben", "Cleo", "Dov", "Eva", "Finn", "Gus"], ["Adler", "Bauer", "Cole", "Diaz", "Egede", "Fox"]]
CHANNELS = ["Apple", "Baidu", "Facebook", "Google"]
LETTERS = "".join(Random(1).choices("abcdefghijklmnopqrstuvwxyz", k=65536))  # words are cut out of it


@dataclass(frozen=True, slots=True)
class Event:
    """A record to be: where it goes, what it says, when it arrives there, and when it happened."""

    topic: str
    key: str
    row: dict[str, Any]
    arrives_ms: int
    at_ms: int


def events(count: int, *, per_second: int = 50, seed: int = 7) -> list[Event]:
    """So many events, in the order in which they arrive."""
    return list(arriving(count, per_second=per_second, seed=seed))


def arriving(count: int, *, per_second: int = 50, seed: int = 7) -> Iterator[Event]:
    """The same one by one, for more than one wants to hold."""
    random = Random(seed)
    waiting: list[tuple[int, int, Event]] = []  # those that may be overtaken yet
    for number in range(count):
        event = _event(number, per_second, random)
        heapq.heappush(waiting, (event.arrives_ms, number, event))
        happened_ms = event.at_ms
        while waiting[0][0] < happened_ms:
            yield heapq.heappop(waiting)[2]
    while waiting:
        yield heapq.heappop(waiting)[2]


def _event(number: int, per_second: int, random: Random) -> Event:
    turn, place = divmod(number, ROUND)
    at = BEGIN + timedelta(milliseconds=number * 1000 // per_second)
    people, auctions = turn, turn * NEW_AUCTIONS + min(place, NEW_AUCTIONS) - 1  # the last of each so far, from 0
    if place == 0:
        row, key = _person(people, random), "id"
    elif place <= NEW_AUCTIONS:
        row, key = _auction(auctions, people, at, per_second, random), "id"
    else:
        row, key = _bid(auctions, people, random), "auction"
    row |= {"date_time": _text(at), "extra": _word(random, 20, 40)}
    topic = "persons" if place == 0 else "auctions" if place <= NEW_AUCTIONS else "bids"
    at_ms = int(at.timestamp() * 1000)
    return Event(topic, json.dumps({key: row[key]}), row, at_ms + random.randrange(UNDER_WAY_MS), at_ms)


def _person(number: int, random: Random) -> dict[str, Any]:
    return {
        "id": FIRST_ID + number,
        "name": " ".join(random.choice(names) for names in NAMES),
        "email": f"{_word(random, 3, 7)}@{_word(random, 3, 5)}.example",
        "credit_card": f"{random.randrange(10**16):016}",
        "city": random.choice(CITIES),
        "state": random.choice(STATES),
    }


def _auction(number: int, people: int, at: datetime, per_second: int, random: Random) -> dict[str, Any]:
    initial = _price(random)
    longest_ms = 2 * 1000 * IN_FLIGHT * ROUND // NEW_AUCTIONS // per_second
    return {
        "id": FIRST_ID + number,
        "item": _word(random, 3, 20),
        "description": _word(random, 20, 100),
        "initial_bid": initial,
        "reserve": initial + _price(random),
        "expires": _text(at + timedelta(milliseconds=1 + random.randrange(longest_ms))),
        "seller": people // HOT * HOT + FIRST_ID if random.randrange(4) else _someone(people, random),
        "category": 10 + random.randrange(5),
    }


def _bid(auctions: int, people: int, random: Random) -> dict[str, Any]:
    oldest = max(auctions - IN_FLIGHT, 0)
    hot = auctions // HOT * HOT if random.randrange(2) else oldest + random.randrange(auctions - oldest + 1 + AHEAD)
    channel = random.choice(CHANNELS) if random.randrange(2) else f"channel-{random.randrange(1000)}"
    return {
        "auction": FIRST_ID + hot,
        # The second of a hundred, so that nobody is a hot seller and a hot bidder.
        "bidder": people // HOT * HOT + FIRST_ID + 1 if random.randrange(4) else _someone(people, random),
        "price": _price(random),
        "channel": channel,
        "url": f"https://auctions.example/{_word(random, 3, 5)}/{_word(random, 3, 5)}/item?channel={channel}",
    }


def _someone(people: int, random: Random) -> int:
    first = max(people + 1 - ACTIVE, 0)
    return FIRST_ID + first + random.randrange(people + 1 - first + AHEAD)


def _price(random: Random) -> int:
    """From a dollar to a million, in cents, as people name prices: two digits and noughts."""
    return int(float(f"{10 ** (2 + 6 * random.random()):.1e}"))


def _word(random: Random, shortest: int, longest: int) -> str:
    begin = random.randrange(len(LETTERS) - longest)
    return LETTERS[begin : begin + random.randint(shortest, longest)]


def _text(at: datetime) -> str:
    return at.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def write(bootstrap: str, made: Iterable[Event], prefix: str = "") -> None:
    """Make the topics, and write events to them; a record's own time is that of its arrival."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    keep = {"retention.ms": "-1"}  # what happened long ago is not removed for its age
    topics = [NewTopic(prefix + name, partitions, config=keep) for name, partitions in TOPICS.items()]
    for created in admin.create_topics(topics).values():
        created.result()
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 50, "queue.buffering.max.messages": 0})
    for event in made:
        producer.produce(prefix + event.topic, json.dumps(event.row), event.key, timestamp=event.arrives_ms)
        producer.poll(0)
    producer.flush()
