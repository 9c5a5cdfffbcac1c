"""What is computed, known to all sides; importable by Flink's own Python too."""

from collections.abc import Iterable
from operator import mul
from typing import Any

HOP_S, SIZE_S = 1, 60  # sixty panes a window
TUMBLE_S = 10
GAP_S = 1
BACK_S = 10
LATENESS_S = 30
RECORDS_PER_BATCH = 500_000
FLUSH_USER = "flush"


# A result is (user, two numbers that say which, count, sum of ids); each makes a number, and their sum is the checksum.
FACTORS = (3, 5, 7, 11)
PRIME = 1_000_003
_NUMBER = f"pmod(bigint(substr(`0`, 3)) + {' + '.join(f'{f} * `{n}`' for n, f in enumerate(FACTORS, 1))}, {PRIME})"
CHECKED = f"sum({_NUMBER} * {_NUMBER})"


def checksum(rows: Iterable[tuple[Any, ...]]) -> int:
    """One number for a whole result, in any order."""
    return sum(((int(user[2:]) + sum(map(mul, FACTORS, numbers))) % PRIME) ** 2 for user, *numbers in rows)
