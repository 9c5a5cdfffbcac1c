"""What every benchmark shares: alternating rounds, medians, ratios, a line that says where and when, and what is kept.

Two cores and noisy neighbours make a single figure worth little. So each contender runs in turn, round after round,
in one process run, and what is reported is the median of each and the median of the rounds' ratios.

Figures are kept in `results/NAME.json`, each with its date, machine, rounds and spread; `docs/figures.md` and those of
README are made from there. A figure that is `carried` was printed by a run before there were such files.
"""

import json
import math
import os
import platform
import shutil
import statistics
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple, TypeVar

T = TypeVar("T")
ROOT = Path(__file__).resolve().parent.parent
CACHE = ROOT / ".cache" / "bench"
RESULTS = ROOT / "benchmarks" / "results"
OURS, KAFKA = "Headrace", "Kafka 4.3.1"

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
    return f"{title} · {datetime.now(UTC):%Y-%m-%d %H:%M} UTC · {machine()}"


def machine() -> str:
    """What it runs on, as far as it matters for speed."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    return f"{os.cpu_count()} cores, {memory:.0f} GiB, Python {platform.python_version()}"


class Figure(NamedTuple):
    """One thing measured: the medians by contender, and ours in relation to each other one, with the rounds' range."""

    name: str
    unit: str
    values: Mapping[str, float]
    ratios: Mapping[str, float] = {}
    spreads: Mapping[str, tuple[float, float]] = {}

    @classmethod
    def of(cls, name: str, unit: str, rounds: Mapping[str, list[float]]) -> "Figure":
        """From all rounds of all contenders; the first is ours."""
        ours, *others = rounds
        found = {other: compare({ours: rounds[ours], other: rounds[other]}) for other in others}
        return cls(
            name,
            unit,
            {each: statistics.median(values) for each, values in rounds.items()},
            {other: one.ratio for other, one in found.items()},
            {other: one.spread for other, one in found.items()},
        )


def keep(benchmark: str, figures: Iterable[Figure], rounds: int) -> None:
    """Keep figures: those of the same name and unit are replaced, others stay as they are."""
    path = RESULTS / f"{benchmark}.json"
    held = json.loads(path.read_text()) if path.exists() else []
    figures = list(figures)
    known = {(each["name"], each["unit"]): each for each in held if not _is_newer(each, figures)}
    about = {"date": f"{datetime.now(UTC):%Y-%m-%d}", "machine": machine(), "rounds": rounds}
    for figure in figures:
        known[figure.name, figure.unit] = {**figure._asdict(), **about}
    path.write_text(json.dumps(list(known.values()), indent=1, ensure_ascii=False, default=float) + "\n")


def _is_newer(held: Mapping[str, object], figures: Iterable[Figure]) -> bool:
    """Whether a carried figure, which may not have its whole name, was measured again."""
    return bool(held.get("carried")) and any(
        each.unit == held["unit"] and each.name.startswith(str(held["name"])) for each in figures
    )


def verdict(ratio: float, goal: float) -> str:
    """How a ratio stands to its goal."""
    return f"{'met' if ratio >= goal else 'MISSED'} (goal ≥ {goal}×)"
