"""A join of tables that change equals that of the tables as they are, after every micro-batch, however it is cut."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.pipelines.operators.tables.form import WEIGHT
from tests.property.storage_model import examples
from tests.property.table_join_model import Join, Source, batches, forgetful, queried, runs

HOWS = ("inner", "left", "right", "full")
FOREIGN = "select a.id, a.fk, a.s, b.id bid, b.w, b.s bs from a {how} join b on a.fk = b.id"
PRIMARY = "select a.id, a.fk, a.s, b.id bid, b.w, b.s bs from a {how} join b on a.id = b.id"
NEITHER = "select a.id, a.fk, a.s, b.id bid, b.w, b.s bs from a {how} join b on a.s = b.s"
CHAINED = (
    "select a.id, a.fk, a.s, b.id bid, b.w, b.s bs, c.id cid, c.s cs, c.n from a {how} join b on a.fk = b.id "
    "{then} join c on b.s = c.s"
)
NAMES: Any = ({}, {"id": "bid", "s": "bs"})


def check(
    given_batches: Any, run: Any, how: str, on: tuple[str, str], sql: str, *, restarts: bool, knows: bool = True
) -> Join:
    a, b = Source("a", **run), Source("b", **run)
    join = Join(a.runner.output, b.runner.output, on, how, NAMES, **run)
    for writes in given_batches:
        for name, key, row in writes:
            {"a": a, "b": b}[name].write(key, row)
        changes = a.changes(), b.changes()
        join.batch(*(changes if knows else map(forgetful, changes)))
        assert join.view() == queried(sql.format(how=how), a=a.table(), b=b.table())
        if knows:
            # What was told is taken back as it was told: versions and times too.
            assert set(join.told.values()) <= {1}
        if restarts:
            a.runner.restart(), b.runner.restart(), join.runner.restart()
    for source in (a, b):
        for key in list(source.rows):
            source.write(key, None)
    join.batch(a.changes(), b.changes())
    assert not join.view()
    assert not any(join.runner.state(table) for table in ("left", "right", "totals"))
    return join


@pytest.mark.parametrize("how", HOWS)
@examples(15)
@given(given_batches=batches(["a", "b"]), run=runs, restarts=st.booleans())
def test_a_foreign_key(how: str, given_batches: Any, run: Any, restarts: bool) -> None:
    check(given_batches, run, how, ("fk", "id"), FOREIGN, restarts=restarts)


@examples(15)
@given(given_batches=batches(["a", "b"]), run=runs, how=st.sampled_from(HOWS), restarts=st.booleans())
def test_the_primary_keys(given_batches: Any, run: Any, how: str, restarts: bool) -> None:
    check(given_batches, run, how, ("id", "id"), PRIMARY, restarts=restarts)


@examples(15)
@given(given_batches=batches(["a", "b"]), run=runs, how=st.sampled_from(HOWS), restarts=st.booleans())
def test_many_rows_on_both_sides(given_batches: Any, run: Any, how: str, restarts: bool) -> None:
    check(given_batches, run, how, ("s", "s"), NEITHER, restarts=restarts)


@examples(15)
@given(given_batches=batches(["a", "b"]), run=runs, how=st.sampled_from(HOWS))
def test_changes_that_know_no_versions(given_batches: Any, run: Any, how: str) -> None:
    join = check(given_batches, run, how, ("s", "s"), NEITHER, restarts=False, knows=False)
    if how == "inner":
        assert not join.told


@examples(15)
@given(given_batches=batches(["a", "b", "c"]), run=runs, how=st.sampled_from(HOWS), then=st.sampled_from(HOWS))
def test_a_join_of_a_join(given_batches: Any, run: Any, how: str, then: str) -> None:
    sources = {name: Source(name, **run) for name in "abc"}
    a, b, c = sources.values()
    first = Join(a.runner.output, b.runner.output, ("fk", "id"), how, NAMES, **run)
    second = Join(first.output, c.runner.output, ("bs", "s"), then, ({}, {"id": "cid", "s": "cs"}), **run)
    for writes in given_batches:
        for name, key, row in writes:
            sources[name].write(key, row)
        joined = first.batch(a.changes(), b.changes())
        second.batch(joined, c.changes())
        tables = {name: source.table() for name, source in sources.items()}
        assert second.view() == queried(CHAINED.format(how=how, then=then), **tables)
        assert set(second.told.values()) <= {1}
        first.runner.restart(), second.runner.restart()


@examples(15)
@given(given_batches=batches(["a"]), run=runs, cut=st.booleans())
def test_the_current_rows_are_the_table(given_batches: Any, run: Any, cut: bool) -> None:
    source = Source("a", **run)
    rows: dict[str, int] = {}
    for writes in given_batches:
        for _, key, row in writes:
            source.write(key, row)
            if cut:
                add_up(rows, source.changes())
        told = source.changes()
        if not run["call_rows"]:
            assert len({(row["id"], row[WEIGHT]) for row in told.to_pylist()}) == told.num_rows
        add_up(rows, told)
        source.runner.restart()
    assert rows == {repr((key, row["fk"], row["s"])): 1 for key, row in source.rows.items()}


def add_up(rows: dict[str, int], told: Any) -> None:
    for row in told.to_pylist():
        text = repr((row["id"], row["fk"], row["s"]))
        rows[text] = rows.get(text, 0) + row[WEIGHT]
        if not rows[text]:
            del rows[text]
