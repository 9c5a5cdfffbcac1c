"""Joins of two streams on small inputs, and what is refused."""

from datetime import timedelta

import pytest

from headrace.pipelines.operators.errors import BadField, BadTime, BadWindow
from headrace.pipelines.operators.joins.sides import Bounds, Columns, bounds, columns, distinct_key_pairs
from headrace.pipelines.operators.joins.streams import join_streams
from headrace.pipelines.operators.stragglers import correct, side_output
from tests.unit.pipelines.operators.interval_join_runs import SECOND, Joined

SEARCH = ("left", "a", 100, 1)


def test_pairs_are_told_when_the_later_row_comes_whichever_it_is() -> None:
    stream = Joined("inner", -5, 10)
    assert stream.batch(SEARCH, ("right", "b", 100, 9)) == []
    assert stream.batch(
        ("right", "a", 95, 1), ("right", "a", 94, 2), ("right", "a", 110, 3), ("right", "a", 111, 4)
    ) == [
        ("a", 1, 1),
        ("a", 1, 3),
    ]
    assert stream.batch(("left", "a", 101, 2)) == [("a", 2, 3), ("a", 2, 4)]
    assert stream.batch(("left", "z", 300, 5), watermark=200) == []
    assert stream.kept == 1


@pytest.mark.parametrize(
    ("how", "told_at_once", "told_at_the_end"),
    [
        ("inner", [("a", 1, 7)], []),
        ("left", [("a", 1, 7)], [("b", 2, None)]),
        ("right", [("a", 1, 7)], [("c", None, 8)]),
        ("full", [("a", 1, 7)], [("b", 2, None), ("c", None, 8)]),
        ("semi", [("a", 1)], []),
        ("anti", [], [("b", 2)]),
    ],
)
def test_every_kind(how: str, told_at_once: list[object], told_at_the_end: list[object]) -> None:
    stream = Joined(how, 0, 10, side_output(), buckets=2)
    given = [("left", "a", 50, 1), ("left", "b", 50, 2), ("right", "a", 55, 7), ("right", "c", 55, 8)]
    assert stream.batch(*given) == told_at_once
    assert stream.batch(watermark=54) == []
    stream.runner.restart()
    assert stream.batch(watermark=60) == told_at_the_end
    # A side that nobody waits for goes with the next rows.
    assert stream.batch(("left", "a", 5000, 1), ("left", "b", 5000, 1), ("left", "c", 5000, 1), watermark=1000) == []
    assert stream.kept == 3
    assert stream.aside == []


def test_a_semi_join_tells_a_row_once_however_many_partners_it_has() -> None:
    stream = Joined("semi", 0, 10)
    assert stream.batch(("right", "a", 101, 1), ("right", "a", 102, 2)) == []
    assert stream.batch(SEARCH) == [("a", 1)]
    assert stream.batch(("right", "a", 103, 3)) == []


def test_a_row_whose_partners_all_lie_before_it_is_told_without_waiting() -> None:
    stream = Joined("left", -10, -5)
    stream.batch(watermark=99)
    assert stream.batch(SEARCH) == [("a", 1, None)]


def test_late_and_timeless_rows_are_handed_on_with_their_side() -> None:
    stream = Joined("full", -5, 5, side_output())
    stream.batch(SEARCH, watermark=90)
    assert stream.batch(("right", "a", 90, 3), ("left", "a", None, 4), ("right", "a", 96, 5)) == [("a", 1, 5)]
    late, timeless = sorted(stream.aside, key=lambda row: row["reason"])
    assert (late["row"]["side"], late["row"]["right"], late["lateness_ms"]) == ("right", {"x": 3}, 0)
    assert (timeless["reason"], timeless["row"]["side"], timeless["row"]["left"]) == ("no time", "left", {"x": 4})


@pytest.mark.parametrize(("how", "pair"), [("left", [("a", 1, 9, False)]), ("anti", [])])
def test_a_late_partner_takes_back_that_there_was_none(how: str, pair: list[tuple[object, ...]]) -> None:
    alone = ("a", 1) if how == "anti" else ("a", 1, None)
    stream = Joined(how, -5, 5, correct("1 minute"))
    stream.batch(SEARCH)
    assert stream.batch(watermark=110) == [(*alone, False)]
    assert stream.batch(("right", "a", 102, 9)) == sorted([(*alone, True), *pair], key=repr)
    assert stream.batch(watermark=400) == []
    assert [row["reason"] for row in stream.aside] == []
    stream.batch(("right", "a", 101, 9), ("right", "a", 1000, 9))
    assert [(row["reason"], row["rows"]) for row in stream.aside] == [("late", 1)]
    assert stream.kept == 1


def test_a_key_that_is_null_equals_nothing() -> None:
    stream = Joined("full", -5, 5)
    assert stream.batch(("left", None, 10, 1), ("right", None, 10, 2)) == []
    assert stream.batch(watermark=100) == [(None, 1, None), (None, None, 2)]


def test_intervals_as_people_write_them() -> None:
    assert bounds(("-5 minutes", "10 minutes")) == Bounds(-300 * SECOND, 600 * SECOND)
    assert bounds("1 minute") == Bounds(-60 * SECOND, 60 * SECOND)
    assert bounds(("+1 s", timedelta(seconds=2))) == Bounds(SECOND, 2 * SECOND)
    for wrong, said in (
        (None, "for ever"),
        (("1 s", None), "open at one end"),
        (("1 s",), "1 ends"),
        (("1 s", "-1 s"), "earlier end first"),
        (timedelta(seconds=-1), "less than nothing"),
    ):
        with pytest.raises(BadWindow, match=said):
            bounds(wrong)  # type: ignore[arg-type]
    with pytest.raises(BadTime, match="not a length of time"):
        bounds(("--1 s", "1 s"))


def test_names_that_both_sides_have() -> None:
    left = {"id": "string", "at": "timestamp", "x": "int"}
    right = {"order": "string", "at": "timestamp", "id": "int"}
    keys = distinct_key_pairs({"id": "order"}, "join_streams")
    assert columns(keys, left, right, prefix="right_", only_left=False) == Columns(
        (("id", "order"),), ("at", "x"), (("at", "right_at"), ("id", "right_id"))
    )
    assert columns(keys, left, right, prefix="r", only_left=True).right == ()
    with pytest.raises(BadField, match="choose another prefix"):
        columns(keys, left | {"right_at": "int"}, right, prefix="right_", only_left=False)
    with pytest.raises(BadField, match="as the join makes one"):
        columns(keys, left | {"retracted": "boolean"}, right, prefix="r", only_left=True, made=["retracted"])


def test_mistakes_are_told_in_a_sentence() -> None:
    with pytest.raises(BadField, match=r"string on the left and 'id' is int on the right: .*cast\(\"string\"\)"):
        columns(distinct_key_pairs("id", "join_streams"), {"id": "string"}, {"id": "int"}, prefix="r", only_left=False)
    with pytest.raises(BadField, match=r"on the right side, names 'id'.* did you mean 'idd'"):
        columns(distinct_key_pairs("id", "join_streams"), {"id": "string"}, {"idd": "int"}, prefix="r", only_left=False)
    with pytest.raises(BadField, match="twice"):
        distinct_key_pairs(["id", "id"], "join_streams")
    with pytest.raises(BadField, match="joins on no column"):
        distinct_key_pairs([], "join_streams")
    with pytest.raises(BadField, match="inner, left, right, full, semi, anti"):
        join_streams(None, on="id", within="1 s", how="outer")  # type: ignore[arg-type]
    with pytest.raises(BadWindow, match="without an interval"):
        join_streams(None, on="id")  # type: ignore[arg-type]
