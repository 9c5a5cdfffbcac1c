"""What every benchmark shares: alternating rounds, medians, ratios, and a line that says where and when.

Two cores and noisy neighbours make a single figure worth little. So each contender runs in turn, round after round,
in one process run, and what is reported is the median of each and the median of the rounds' ratios.
"""

import math
import os
import platform
import shutil
import statistics
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple, TypeVar

T = TypeVar("T")
ROOT = Path(__file__).resolve().parent.parent
CACHE = ROOT / ".cache" / "bench"

sys.path.insert(0, str(ROOT))  # where `peers` is: it is not installed


class Comparison(NamedTuple):
    """Medians by contender, and the first contender's ratio to the second."""

    medians: dict[str, float]
    ratio: float
    spread: tuple[float, float]


def alternate(contenders: Mapping[str, Callable[[], float]], rounds: int = 5) -> Comparison:
    """Run each contender once a round, the order turned each time; each returns its figure."""
    return compare(alternate_all(contenders, rounds))


def alternate_all(contenders: Mapping[str, Callable[[], T]], rounds: int) -> dict[str, list[T]]:
    """Run each contender once a round, the order turned each time; all that each returned."""
    found: dict[str, list[T]] = {name: [] for name in contenders}
    names = list(contenders)
    for turn in range(rounds):
        for name in names if turn % 2 == 0 else reversed(names):
            found[name].append(contenders[name]())
    return found


def compare(figures: Mapping[str, list[float]]) -> Comparison:
    """The medians, and the rounds' ratios of the first contender to the last."""
    names = list(figures)
    pairs = zip(figures[names[0]], figures[names[-1]], strict=True)
    ratios = [ours / theirs if theirs else math.nan for ours, theirs in pairs]
    medians = {name: statistics.median(values) for name, values in figures.items()}
    return Comparison(medians, statistics.median(ratios), (min(ratios), max(ratios)))


@contextmanager
def scratch() -> Iterator[Path]:
    """An empty folder on the disk that the project is on, removed afterwards."""
    CACHE.mkdir(parents=True, exist_ok=True)
    path = Path(tempfile.mkdtemp(dir=CACHE))
    try:
        yield path
    finally:
        shutil.rmtree(path)


def headline(title: str) -> str:
    """Title, date and machine."""
    now = datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC")
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    return f"{title} · {now} · {os.cpu_count()} cores, {memory:.0f} GiB, Python {platform.python_version()}"


def verdict(ratio: float, goal: float) -> str:
    """How a ratio stands to its goal."""
    return f"{'met' if ratio >= goal else 'MISSED'} (goal ≥ {goal}×)"
