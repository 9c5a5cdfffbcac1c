"""Groups of a table that changes equal GROUP BY over the table as it is, after every micro-batch, however it is cut."""

from typing import Any

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from headrace.pipelines.operators import aggregates as agg
from headrace.pipelines.operators.aggregation.top_n import top_n
from tests.property.grouped_model import Groups, Table, batches, changes, queried, rows
from tests.property.storage_model import examples

SUMS = {
    "n": agg.count(),
    "nx": agg.count("x"),
    "sum_i": agg.sum("i"),
    "avg_i": agg.avg("i"),
    "sum_d": agg.sum("d"),
    "avg_d": agg.avg("d"),
    "sum_f": agg.sum("f"),
    "avg_f": agg.avg("f"),
}
# Numbers of eighths within 2^20 add up exactly in DuckDB too; a decimal's average it gives as a double.
SUMS_SQL = """select g, h, count(*) n, count(x) nx, sum(i)::bigint sum_i, avg(i) avg_i, sum(d)::decimal(20, 2) sum_d,
    round(sum(d)::decimal(30, 8) / count(d), 6)::decimal(14, 6) avg_d, sum(f) + 0.0 sum_f, avg(f) + 0.0 avg_f
    from t group by g, h"""
ORDERED = {
    "least_x": agg.min("x"),
    "most_f": agg.max("f"),
    "least_f": agg.min("f"),
    "most_s": agg.max("s"),
    "least_d": agg.min("d"),
    "different": agg.count_distinct("s"),
    "values": agg.count_distinct("f"),
    "again": agg.count_distinct("h"),
    "all": agg.collect("x"),
    "best": top_n(2, ["-x", "s"], "s", "i"),
    "first": top_n(3, "f"),
    "dearest": agg.max_by("s", "i"),
    "cheapest": agg.min_by("x", "i"),
    "ranked": top_n(2, "-i", "s", ties="rank"),
    "dense": top_n(2, "i", "s", ties="dense_rank"),
}
ORDERED_SQL = """select h, min(x) least_x, max(f) + 0.0 most_f, min(f) + 0.0 least_f, max(s) most_s, min(d) least_d,
    count(distinct s) different, count(distinct f) "values", count(distinct h) again,
    coalesce(list(x order by x) filter (x is not null), []) "all",
    list({'s': s, 'i': i} order by x desc nulls last, s nulls last, i nulls last)[:2] best,
    list({'f': f + 0.0} order by f nulls last)[:3] "first",
    (list(s order by i desc, s desc nulls last) filter (i is not null))[1] dearest,
    (list(x order by i, x nulls last) filter (i is not null))[1] cheapest,
    list({'s': s, 'rank': down} order by down, s nulls last) filter (down <= 2) ranked,
    list({'s': s, 'rank': up} order by up, s nulls last) filter (up <= 2) dense
    from (select *, rank() over (partition by h order by i desc nulls last) down,
        dense_rank() over (partition by h order by i nulls last) up from t) group by h"""

runs = st.fixed_dictionaries({"buckets": st.integers(1, 3), "call_rows": st.none() | st.integers(1, 5)})


def check(given_batches: Any, run: Any, restarts: bool, by: list[str], aggregates: Any, sql: str) -> None:
    groups, table = Groups(by, aggregates, **run), Table()
    kinds = groups.runners[-1].output
    kinds = pa.schema([field for field in kinds if not field.name.startswith("_")])
    for second, writes in enumerate(given_batches):
        groups.batch(changes(table, writes, second))
        assert plain(groups.view) == plain(queried(table, sql, kinds))
        if restarts:
            groups.restart()
    groups.batch(changes(table, [(key, None) for key in list(table)], 10**6))
    assert not groups.view


def plain(view: Any) -> Any:
    """-0.0 is 0.0."""
    return {row.replace("-0.0,", "0.0,").replace("-0.0}", "0.0}"): count for row, count in view.items()}


@examples(10)
@given(batches, runs, st.booleans())
def test_counts_and_sums(given_batches: Any, run: Any, restarts: bool) -> None:
    check(given_batches, run, restarts, ["g", "h"], SUMS, SUMS_SQL)


@examples(6)
@given(batches, runs, st.booleans())
def test_what_goes_by_order(given_batches: Any, run: Any, restarts: bool) -> None:
    check(given_batches, run, restarts, ["h"], ORDERED, ORDERED_SQL)


@examples(10)
@given(batches, runs, st.booleans())
def test_different_rows(given_batches: Any, run: Any, restarts: bool) -> None:
    check(given_batches, run, restarts, ["g", "s"], {}, "select distinct g, s from t")


@examples(6)
@given(st.lists(st.lists(rows, max_size=10, min_size=1), min_size=1, max_size=6), runs, st.booleans())
def test_a_table_that_only_grows(given_batches: Any, run: Any, restarts: bool) -> None:
    """It keeps no more rows than are shown, and says the same."""
    groups, table = Groups(["h"], ORDERED, inserts=True, **run), Table()
    kinds = groups.runners[-1].output
    kinds = pa.schema([field for field in kinds if not field.name.startswith("_")])
    for second, new in enumerate(given_batches):
        groups.batch(changes(table, [(len(table) + place, row) for place, row in enumerate(new)], second))
        assert plain(groups.view) == plain(queried(table, ORDERED_SQL, kinds))
        if restarts:
            groups.restart()
    tables = [table.name for table in groups.runners[-1].plan.tables]
    assert not any(name.endswith(".tail") for name in tables)
    assert len(groups.runners) == 1
    assert len(groups.runners[-1].state("least_x.head")) <= len({row["h"] for row in table.values()})
