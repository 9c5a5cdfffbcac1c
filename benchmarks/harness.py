"""What every benchmark shares: alternating rounds, medians, ratios, and a line that says where and when.

Two cores and noisy neighbours make a single figure worth little. So each contender runs in turn, round after round,
in one process run, and what is reported is the median of each and the median of the rounds' ratios.
"""

import os
import platform
import shutil
import statistics
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

CACHE = Path(__file__).parent.parent / ".cache" / "bench"


class Comparison(NamedTuple):
    """Medians by contender, and the first contender's ratio to the second."""

    medians: dict[str, float]
    ratio: float
    spread: tuple[float, float]


def alternate(contenders: Mapping[str, Callable[[], float]], rounds: int = 5) -> Comparison:
    """Run each contender once a round, the order turned each time; each returns its figure."""
    figures: dict[str, list[float]] = {name: [] for name in contenders}
    names = list(contenders)
    for turn in range(rounds):
        for name in names if turn % 2 == 0 else reversed(names):
            figures[name].append(contenders[name]())
    ratios = [ours / theirs for ours, theirs in zip(figures[names[0]], figures[names[-1]], strict=True)]
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
