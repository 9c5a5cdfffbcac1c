"""What all sides of the comparison know of the events; importable by Flink's own Python too."""

import hashlib
from collections.abc import Iterable

SPAN_START_MS = 1_767_225_600_000  # the first of January 2026
SPAN_MS = 300_000
WINDOW_S = 10
EVENTS = ("view", "click", "search", "cart", "purchase")
FLUSH = "flush"  # the event, and its user
WANTED_EVENT = "purchase"
LEAST_AMOUNT = 250  # of 1 to 500: half of a fifth of all pass the filter

COMPRESSION = "lz4"  # of the topic that is read, and of those that are written: by default the engines differ

# Names and types, which Spark and Flink spell alike.
FIELDS = (
    ("id", "BIGINT"),
    ("user", "STRING"),
    ("event", "STRING"),
    ("amount", "DOUBLE"),
    ("ts", "BIGINT"),
    ("country", "STRING"),
)


def digest_windows(rows: Iterable[tuple[int, str, int]]) -> str:
    """One word for a whole result: (window's start in ms, user, count), in any order."""
    lines = sorted(f"{start} {user} {count}" for start, user, count in rows)
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()
