"""What all sides of the comparison of joins know of the topics; importable by Flink's own Python too."""

from collections.abc import Iterable
from operator import mul
from typing import Any

SPAN_START_MS = 1_767_225_600_000  # the first of January 2026
SPAN_MS = 300_000
LATENESS_S = 30
RECORDS_PER_BATCH = 1_100_000
COMPRESSION = "lz4"
FLUSH = -1  # the id of what only moves the watermarks

# Columns and types, which Spark and Flink spell alike.
SALES = (("id", "BIGINT"), ("customer", "BIGINT"), ("cents", "BIGINT"), ("ts", "BIGINT"), ("shop", "STRING"))
CUSTOMERS = (("id", "BIGINT"), ("tier", "BIGINT"), ("revision", "BIGINT"), ("name", "STRING"))
ORDERS = (("id", "BIGINT"), ("customer", "BIGINT"), ("cents", "BIGINT"), ("status", "STRING"))

# A result is four whole numbers; each makes a number, and their sum, taken back where the row is, is the checksum.
FACTORS = (3, 5, 7, 11)
PRIME = 1_000_003
NUMBER = f"pmod({' + '.join(f'{factor} * `{place}`' for place, factor in enumerate(FACTORS))}, {PRIME})"


def number(row: Iterable[int]) -> int:
    """A row's share in the checksum."""
    return (sum(map(mul, FACTORS, row)) % PRIME) ** 2


def checksum(rows: Iterable[tuple[int, Any]]) -> dict[str, int]:
    """One number for a whole table, in any order: each row with its weight, 1 or -1."""
    results = total = 0
    for weight, row in rows:
        results += weight
        total += weight * number(row)
    return {"results": results, "checksum": total}
