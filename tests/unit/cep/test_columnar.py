"""The automaton over arrays: what it refuses, what it keeps between calls, its cap. Equal results: tests/property."""

from decimal import Decimal
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pytest

from headrace.cep.columnar import NEVER, ColumnarProgram, Kept, NotColumnar
from headrace.cep.errors import TooManyPartialMatches
from headrace.cep.partial import Cap
from headrace.cep.pattern import Pattern

A, B = 1, 2  # the bits of the two predicates
A_THEN_B = Pattern.begin("a", "x = 1").followed_by("b", "x = 2").within("10 seconds")


def program(pattern=A_THEN_B, **cap):
    return ColumnarProgram(pattern.compile(["x"]), Cap(**cap))


def step(columnar, kept, *keys, first=0, watermark_us=0, is_final=False):
    """Rows of each key as masks; row number n is at n seconds."""
    masks = np.array([mask for one in keys for mask in one], np.int64)
    rows = np.arange(first, first + len(masks))
    ends = np.cumsum([len(one) for one in keys])
    return columnar.step(kept, ends, rows, rows * 1_000_000, masks, watermark_us=watermark_us, is_final=is_final)


def test_a_match_may_be_spread_over_calls():
    columnar = program()
    begun = step(columnar, Kept.nothing(2), [A, A], [0, B])
    assert len(begun.matches) == 0
    ended = step(columnar, begun.kept, [B], [B], first=5)
    assert list(ended.matches) == [(0, 5_000_000, [(0, 0), (1, 5)]), (0, 5_000_000, [(0, 1), (1, 5)])]
    assert len(ended.kept.runs) == len(ended.kept.nodes) == 0


def test_what_is_kept_says_when_it_has_to_be_looked_at():
    columnar = program()
    kept = step(columnar, Kept.nothing(2), [0, A], [0]).kept
    assert kept.deadlines_us().tolist() == [11_000_000, NEVER]
    over = step(columnar, kept, [], [], watermark_us=11_000_000)
    assert list(over.timed_out) == [(0, 11_000_000, [(0, 1)])]
    assert over.kept.deadlines_us().tolist() == [NEVER, NEVER]


def test_only_the_rows_of_partial_matches_are_kept():
    kept = step(program(), Kept.nothing(1), [A, B, A, B, A]).kept
    assert len(kept.nodes) == len(kept.runs) == 1


@pytest.mark.parametrize(("choice", "expected"), [("drop_oldest", [1, 2]), ("drop_newest", [0, 1])])
def test_the_cap_is_the_matchers(choice, expected):
    stepped = step(program(most=2, choice=choice), Kept.nothing(1), [A, A, A, B])
    assert [rows[0][1] for _, _, rows in stepped.matches] == expected
    assert stepped.dropped == 1


def test_the_cap_may_fail():
    with pytest.raises(TooManyPartialMatches, match="2 partial matches"):
        step(program(most=2, choice="fail"), Kept.nothing(1), [A, A, A, B])


@pytest.mark.parametrize(
    ("pattern", "sentence"),
    [
        (Pattern.begin("a", "x = 1").next("b", "x > a.x"), "condition of b looks at other rows.*: give a schema"),
        (Pattern.begin("a", "x = 1").next("b").every_distinct("x", expires="1 min"), "every-distinct"),
        (Pattern.begin("a").next("b", " AND ".join(f"x <> {number}" for number in range(70))), "62"),
    ],
)  # fmt: skip
def test_what_needs_more_than_masks_is_refused(pattern, sentence):
    with pytest.raises(NotColumnar, match=sentence):
        program(pattern)


SCHEMA = pa.schema(
    [("k", pa.string()), ("x", pa.int64()), ("y", pa.float64()), ("lat", pa.float64()), ("lon", pa.float64())]
)


def over(pattern, *keys, cuts=(), schema=SCHEMA, **cap):
    """Matches as lists of row numbers: each key's rows as dicts, a second apart, in one call or cut into several."""
    columnar = ColumnarProgram(pattern.compile(schema.names, bounded=True), Cap(**cap), schema=schema)
    kept, found = Kept.nothing(len(keys)), []
    bounds = [0, *cuts, max(map(len, keys))]
    for begin, end in pairwise(bounds):
        now = [one[begin:end] for one in keys]
        rows = np.concatenate([np.arange(begin, begin + len(one)) for one in now])
        evaluated = columnar.evaluate(pa.RecordBatch.from_pylist([row for one in now for row in one], schema=schema))
        stepped = columnar.step(
            kept, np.cumsum([len(one) for one in now]), rows, rows * 1_000_000, evaluated.masks, evaluated.facts,
            watermark_us=end * 1_000_000, is_final=end == bounds[-1],
        )  # fmt: skip
        kept = columnar.from_tables(len(keys), columnar.to_tables(stepped.kept))
        found += [(key, [row for _, row in taken]) for key, _, taken in stepped.matches]
    return found


HAVERSINE = (
    "2 * 6371 * asin(sqrt(pow(sin(radians(lat - a.lat) / 2), 2)"
    " + cos(radians(a.lat)) * cos(radians(lat)) * pow(sin(radians(lon - a.lon) / 2), 2)))"
)


def test_impossible_travel_is_computed_in_the_loop():
    pattern = Pattern.begin("a").next("b", f"k = a.k AND {HAVERSINE} > 500")
    berlin, potsdam, paris = (52.52, 13.40), (52.39, 13.06), (48.86, 2.35)
    rows = [{"k": "card", "lat": lat, "lon": lon} for lat, lon in (berlin, potsdam, paris, paris, berlin)]
    assert over(pattern, rows, cuts=[2]) == [(0, [1, 2]), (0, [3, 4])]


def test_texts_of_earlier_calls_compare_with_those_of_later_ones():
    pattern = Pattern.begin("a", "x = 1").followed_by("b", "x = 2 AND k > a.k").within("1 hour")
    rows = [{"k": "m", "x": 1}, {"k": "a", "x": 2}, {"k": "z", "x": 2}]
    assert over(pattern, rows, rows[::-1], cuts=[1, 2]) == [(0, [0, 2])]


def test_whole_numbers_that_do_not_fit_are_unknown():
    pattern = Pattern.begin("a").next("b", "a.x + x > 0 OR SUM(x) > 0").within("1 hour")
    most = {"x": 2**63 - 1}
    assert over(pattern, [most, {"x": 0}]) == [(0, [0, 1])]
    assert over(pattern, [most, {"x": 1}]) == []


def test_the_rows_that_are_still_looked_at_are_named():
    columnar = ColumnarProgram(A_THEN_B.compile(["x"]))
    kept = step(columnar, Kept.nothing(3), [A, 0, A], [B], [0, A]).kept
    keys, rows = kept.held_rows()
    assert list(zip(keys.tolist(), rows.tolist(), strict=True)) == [(0, 0), (0, 2), (2, 5)]
    assert kept.sizes().tolist() == [2, 0, 1]


def test_values_that_expire_are_let_go():
    pattern = Pattern.begin("a", "x = 1").next("b", "x = 2").within("1 s").every_distinct("k", expires="10 seconds")
    columnar = ColumnarProgram(pattern.compile(SCHEMA.names), schema=SCHEMA)
    rows = columnar.evaluate(pa.RecordBatch.from_pylist([{"k": "m", "x": 1}], schema=SCHEMA))
    zero, none = np.zeros(1, np.int64), np.empty(0, np.int64)
    kept = columnar.step(
        Kept.nothing(1), np.array([1]), zero, zero, rows.masks, rows.facts, watermark_us=2_000_000
    ).kept  # fmt: skip
    assert kept.deadlines_us().tolist() == [10_000_000]
    assert len(columnar.to_tables(kept)["began"][0]) == 1
    kept = columnar.step(kept, np.zeros(1, np.int64), none, none, none, watermark_us=10_000_000).kept
    assert kept.deadlines_us().tolist() == [NEVER]
    assert all(len(keys) == 0 for keys, _ in columnar.to_tables(kept).values())


def test_measures_have_their_types_before_there_is_a_match():
    pattern = Pattern.sql(
        """MATCH_RECOGNIZE (PARTITION BY k ORDER BY t MEASURES FIRST(a.x) AS x, AVG(y) AS mean, CLASSIFIER() AS c,
        COUNT(*) AS n, MATCH_NUMBER() AS m, LAST(y) > 1 AS big PATTERN (a b) DEFINE b AS b.x > a.x)"""
    )
    schema = SCHEMA.append(pa.field("t", pa.timestamp("us")))
    columnar = ColumnarProgram(pattern.compile(schema.names, bounded=True), schema=schema)
    assert [(one.name, str(one.type)) for one in columnar.output_schema] == [
        ("x", "int64"), ("mean", "double"), ("c", "string"), ("n", "int64"), ("m", "int64"), ("big", "bool"),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("condition", "sentence"),
    [
        ("concat(a.k, k) = 'x'", "concat.* cannot be computed over the rows of a match"),
        ("round(y / a.y, 1) > 1", "round what is of one row"),
        ("MATCH_NUMBER() > 1", "known only once there is a match"),
    ],
)
def test_what_cannot_be_compiled_is_refused_with_its_place(condition, sentence):
    schema = SCHEMA.append(pa.field("d", pa.decimal128(10, 2)))
    pattern = Pattern.begin("a").next("b", condition)
    with pytest.raises(NotColumnar, match=sentence):
        ColumnarProgram(pattern.compile(schema.names, bounded=True), schema=schema)


def test_decimals_of_several_rows_are_divided_and_averaged():
    schema = SCHEMA.append(pa.field("d", pa.decimal128(10, 2)))
    rows = [{"d": Decimal(text)} for text in ("2.00", "3.01", "0.00", "-7.50")]
    for condition, found in [
        ("d / a.d > 1.5", [[0, 1]]),
        ("a.d / d IS NULL", [[1, 2]]),
        ("d % a.d = 1.01 AND d div a.d = 1", [[0, 1]]),
        ("AVG(d) > 2.5", [[0, 1]]),
        ("AVG(d) = -3.75", [[2, 3]]),
    ]:
        pattern = Pattern.begin("a").next("b", condition)
        assert [taken for _, taken in over(pattern, rows, schema=schema)] == found, condition
        plain = [[rows.index(one.values) for _, one in match] for match in pattern.matches(rows, bounded=True)]
        assert plain == found, condition


def test_measures_put_together_what_is_of_several_rows():
    schema = pa.schema([("k", pa.string()), ("x", pa.int64()), ("d", pa.decimal128(10, 2)), ("y", pa.float64())])
    pattern = Pattern.sql(
        """MATCH_RECOGNIZE (ORDER BY x MEASURES a.k || ' to ' || b.k AS route, round(b.y / a.y, 2) AS times,
        round(AVG(d), 1) AS mean, length(concat(a.k, b.k, '!')) + COUNT(*) AS n, b.d / a.d AS share,
        upper(CLASSIFIER()) || MATCH_NUMBER() AS c, coalesce(a.k || b.k, '?') LIKE '%e%' AS has
        PATTERN (a b) DEFINE a AS x % 2 = 1)"""
    )
    rows = [
        {"k": "Rome", "x": 1, "d": Decimal("2.50"), "y": 3.0}, {"k": "Oslo", "x": 2, "d": Decimal("7.50"), "y": 2.0},
        {"k": None, "x": 3, "d": None, "y": 1.0}, {"k": "Oslo", "x": 4, "d": Decimal(4), "y": 0.125},
        {"k": "", "x": 5, "d": Decimal(0), "y": 0.0}, {"k": "x", "x": 6, "d": Decimal(1), "y": None},
    ]  # fmt: skip
    wanted = [dict(match.output[0]) for match in pattern.matches(rows, bounded=True)]
    assert wanted[0] == {
        "route": "Rome to Oslo", "times": 0.67, "mean": 5.0, "n": 11, "share": 3.0, "c": "B1", "has": True,
    }  # fmt: skip
    columnar = ColumnarProgram(pattern.compile(schema.names, bounded=True), schema=schema)
    evaluated = columnar.evaluate(pa.RecordBatch.from_pylist(rows, schema=schema))
    places = np.arange(len(rows))
    stepped = columnar.step(
        Kept.nothing(1), np.array([len(rows)]), places, places * 1_000_000, evaluated.masks, evaluated.facts,
        watermark_us=0, is_final=True,
    )  # fmt: skip
    shown = columnar.output(stepped.matches).measures
    assert shown.to_pylist() == wanted
    assert shown.schema == columnar.output_schema
    none = columnar.step(
        Kept.nothing(1), np.array([0]), places[:0], places[:0], places[:0], None, watermark_us=0, is_final=True
    )
    assert columnar.output(none.matches).measures.schema == columnar.output_schema


def test_values_that_cannot_be_told_apart_are_refused():
    schema = SCHEMA.append(pa.field("tags", pa.list_(pa.string())))
    pattern = Pattern.begin("a").every_distinct("tags", expires="1 hour")
    with pytest.raises(NotColumnar, match="every-distinct takes a text"):
        ColumnarProgram(pattern.compile(schema.names), schema=schema)


def test_rows_that_matter_to_nothing_are_known_by_their_masks():
    assert program().relevant_masks == (A, B)
    assert program(Pattern.begin("a", "x = 1").next("b", "x = 2")).relevant_masks is None
    assert program(Pattern.begin("a", "x = 1").followed_by("b").within("1 s")).relevant_masks is None


@pytest.mark.parametrize(
    "pattern",
    [
        A_THEN_B,
        Pattern.begin("a").next("b", "k > a.k AND y > PREV(y)").every_distinct("k"),
        Pattern.sql("MATCH_RECOGNIZE (MEASURES MAX(k) AS k PATTERN (a b) DEFINE b AS x > PREV(x) AND x > a.x)"),
    ],
)
def test_nothing_may_be_given(pattern):
    columnar = ColumnarProgram(pattern.compile(SCHEMA.names, bounded=True), schema=SCHEMA)
    none = np.empty(0, np.int64)
    for keys in (0, 3):
        kept = Kept.nothing(keys)
        for _ in range(2):
            stepped = columnar.step(kept, np.zeros(keys, np.int64), none, none, none, watermark_us=5)
            assert len(stepped.matches) == len(columnar.output(stepped.matches).rows) == 0
            kept = columnar.from_tables(keys, columnar.to_tables(stepped.kept))
        assert columnar.evaluate(pa.RecordBatch.from_pylist([], schema=SCHEMA)).masks.tolist() == []
