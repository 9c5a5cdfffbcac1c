"""The first rows of windows that are corrected are those of the windows as they are in the end."""

from collections import Counter, defaultdict
from typing import Any

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from headrace.pipelines.operators import aggregates as agg
from headrace.pipelines.operators.aggregation.ordering import RANKINGS
from headrace.pipelines.operators.stragglers import correct
from headrace.pipelines.operators.windows.corrected_ranks import CorrectedRanks
from headrace.pipelines.operators.windows.panes import Hops, PanedWindows
from headrace.pipelines.operators.windows.results import Closing
from tests.keyed_memory import MemoryRunner
from tests.property.storage_model import examples
from tests.property.windows_model import END, SCHEMA, SECOND, Event, Run, cut, events, runs

marks = st.lists(st.integers(-60, 130).map(lambda second: second * SECOND), max_size=9)


def ranked(counts: dict[Any, int], ties: str, n: int) -> list[tuple[Any, int, int]]:
    rows = sorted(counts.items(), key=lambda row: (-row[1], row[0] is None, row[0] or ""))
    result = []
    for at, (key, count) in enumerate(rows):
        better = [other for _, other in rows if other > count]
        rank = {"row_number": at, "rank": len(better), "dense_rank": len(set(better))}[ties] + 1
        if rank <= n:
            result.append((key, count, rank))
    return result


@examples(100)
@given(events, runs, marks, st.sampled_from(RANKINGS), st.integers(1, 3), st.booleans())
def test_late_rows_correct_ranks(
    found: list[Event], run: Run, watermarks: list[int], ties: str, n: int, empty: bool
) -> None:
    shape = Hops(20 * SECOND, 10 * SECOND)
    windows = PanedWindows("t", shape, {"n": agg.count()}, correct("1 hour"), Closing(), SCHEMA)
    first = MemoryRunner(windows, by=["k"], schema=SCHEMA, buckets=run.buckets, call_rows=run.call_rows)
    rows = first.output
    operator = CorrectedRanks(n, (("n", True),), ties, ("k", "n"), rows)
    edges = ["window_start", "window_end"]
    second = MemoryRunner(operator, by=edges, schema=rows, buckets=run.buckets, call_rows=run.call_rows)
    out: list[Event] = []
    for number, batch in enumerate([*cut(found, run), []]):
        watermark = watermarks[number] if number < len(watermarks) else None
        watermark = END if number == len(cut(found, run)) else watermark
        if run.restarts:
            second.restart()
        emitted = first.batch(batch, watermark_us=watermark).filter(pa.compute.field("_aside").is_null())
        behind = None if watermark is None else watermark - 3600 * SECOND
        out += second.batch(emitted, watermark_us=behind).to_pylist()
    counts: Counter[Any] = Counter()
    revisions: dict[Any, int] = defaultdict(int)
    for row in out:
        shown = (row["window_start"], row["k"], row["n"], row["rank"])
        counts[shown] += -1 if row["retracted"] else 1
        assert counts[shown] in (0, 1)
        if not row["retracted"]:
            assert row["revision"] >= revisions[row["window_start"]]
            revisions[row["window_start"]] = row["revision"]
    expected = set()
    for start in range(-60 * SECOND, 120 * SECOND, shape.slide):
        inside = Counter(event["k"] for event in found if start <= event["t"] < start + shape.size)
        expected |= {(start, *row) for row in ranked(dict(inside), ties, n)}
    assert {(round(s.timestamp() * SECOND), *rest) for (s, *rest), count in counts.items() if count} == expected
    assert all(second.state(table.name) == [] for table in second.plan.tables)
