"""What `live` shows: batches folded into a view that stays small, as HTML and as text."""

import io
import math
from decimal import Decimal

from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from headrace.pipelines.live_painting import Cell, Lines, Terminal, as_html, as_text, draw_lines, one_line, sparkline
from headrace.pipelines.live_view import KEPT, LINES, POINTS, Batch, Choice, Point, View, end_view, fold_batch
from tests.property.storage_model import examples

COLUMNS = ("shop", "total")


def batch(number: int, *rows: tuple[object, ...], count: int | None = None) -> Batch:
    return Batch(number, 1000 * (number + 1), COLUMNS, rows, len(rows) if count is None else count)


def all_of(choice: Choice, *batches: Batch) -> View:
    view = View(most=choice.rows)
    for each in batches:
        view = fold_batch(view, each, choice)
    return view


def text_of(view: View) -> str:
    out = io.StringIO()
    Console(file=out, width=100, color_system=None).print(as_text(view))
    return out.getvalue()


def test_rows_that_are_appended_are_shown_latest_first_and_no_more_than_asked() -> None:
    view = all_of(Choice(rows=3), batch(0, ("a", 1), ("b", 2)), batch(1, ("c", 3), ("d", 4)))
    assert view.visible == (("d", 4), ("c", 3), ("b", 2))
    assert view.fresh == {0, 1}
    assert (view.total, view.batch) == (4, 1)


def test_with_keys_there_is_one_row_of_each_the_latest() -> None:
    choice = Choice(keys=("shop",), mode="update")
    view = all_of(choice, batch(0, ("a", 1), ("b", 2)), batch(1, ("a", 5), ("a", 6)))
    assert view.visible == (("a", 6), ("b", 2))
    assert view.fresh == {0}


def test_ordered_by_a_column_a_key_that_falls_behind_makes_room() -> None:
    choice = Choice(keys=("shop",), rows=2, order_by="total", mode="update")
    view = all_of(choice, batch(0, ("a", 9), ("b", 5), ("c", 1)), batch(1, ("a", 0)), batch(2, ("d", None)))
    assert view.visible == (("b", 5), ("c", 1))


def test_a_complete_result_replaces_the_one_before() -> None:
    view = all_of(Choice(mode="complete"), batch(0, ("a", 1), ("b", 2)), batch(1, ("b", 3)))
    assert view.visible == (("b", 3),)
    assert not view.fresh


def test_a_batch_that_comes_again_changes_nothing() -> None:
    once = all_of(Choice(), batch(0, ("a", 1)))
    assert fold_batch(once, batch(0, ("a", 1)), Choice()) == once


def test_keys_that_no_set_can_hold_are_told_apart_all_the_same() -> None:
    view = all_of(Choice(keys=("shop",)), batch(0, (["x"], 1), ({"k": 1}, 2)), batch(1, (["x"], 3)))
    assert view.visible == ((["x"], 3), ({"k": 1}, 2))


def test_what_is_plotted_is_a_line_a_key_and_only_what_is_a_number() -> None:
    choice = Choice(keys=("shop",), plot="total")
    view = all_of(choice, batch(0, ("a", 1), ("b", Decimal("2.5")), ("c", None), ("d", math.nan)), batch(1, ("a", 4)))
    assert {name: [point.value for point in line] for name, line in view.lines.items()} == {"a": [1, 4], "b": [2.5]}


def test_values_of_one_batch_lie_between_it_and_the_one_before() -> None:
    view = all_of(Choice(plot="total"), batch(0, ("a", 1), ("a", 2)), batch(1, ("a", 3), ("a", 4)))
    assert view.lines["total"] == (Point(500, 1), Point(1000, 2), Point(1500, 3), Point(2000, 4))


@examples(40)
@given(
    batches=st.lists(
        st.lists(st.tuples(st.sampled_from("abcdefghij"), st.one_of(st.none(), st.integers(), st.floats())), max_size=9)
    ),
    keyed=st.booleans(),
    ordered=st.booleans(),
    plotted=st.booleans(),
    mode=st.sampled_from(["append", "update", "complete"]),
)
def test_a_view_is_bounded_and_can_be_shown_whatever_comes(
    batches: list[list[tuple[str, object]]], keyed: bool, ordered: bool, plotted: bool, mode: str
) -> None:
    choice = Choice(
        ("shop",) if keyed else (), 5, "total" if plotted else None, "total" if ordered else None, mode
    )  # fmt: skip
    view = View(most=5)
    for number, rows in enumerate(batches):
        view = fold_batch(view, batch(number, *rows), choice)
        assert len(view.rows) <= choice.kept
        assert len(view.visible) <= 5
        assert len(view.lines) <= LINES
        assert all(len(line) <= POINTS for line in view.lines.values())
        if keyed:
            assert len({row[0] for row in view.rows}) == len(view.rows)
        assert as_html(view)
        assert text_of(view)
        assert one_line(view)
    assert view.total == sum(map(len, batches))


def test_a_long_stream_leaves_a_short_memory() -> None:
    choice = Choice(keys=("shop",), plot="total", mode="update")
    view = all_of(choice, *(batch(number, (f"s{number}", number)) for number in range(KEPT + 50)))
    assert len(view.rows) == KEPT
    view = all_of(Choice(), *(batch(number, ("a", 1)) for number in range(POINTS + 50)))
    assert len(view.lines["rows"]) == POINTS


def test_html_holds_no_markup_of_the_data_and_cuts_what_is_long() -> None:
    html = as_html(all_of(Choice(), batch(0, ("<script>alert(1)</script>", "x" * 1000))))
    assert "<script>" not in html
    assert "&lt;script&gt;" in html
    assert "x" * 200 not in html


def test_the_drawing_names_lines_and_stays_inside() -> None:
    choice = Choice(keys=("shop",), plot="total")
    view = all_of(choice, batch(0, ("a&b", 1e12), ("c", -5)), batch(1, ("a&b", -1e12), ("c", 7)))
    picture = draw_lines(view)
    assert "a&amp;b" in picture
    points = [pair.split(",") for part in picture.split('points="')[1:] for pair in part.split('"')[0].split()]
    assert all(0 <= float(x) <= 420 and 0 <= float(y) <= 96 for x, y in points)
    assert draw_lines(View()) == ""


def test_a_sparkline_goes_from_the_least_to_the_greatest() -> None:
    assert sparkline([Point(0, 0), Point(1, 3.5), Point(2, 7)]) == "▁▅█"
    assert sparkline([Point(0, 5)]) == "█"


def test_a_terminal_is_given_back_and_a_pipe_has_a_line_a_batch() -> None:
    views = [all_of(Choice(), batch(0, ("a", 1))), all_of(Choice(), batch(0, ("a", 1)), batch(1, ("b", 2)))]
    for kind in (Terminal, Lines):
        out = io.StringIO()
        painter = kind(Console(file=out, force_terminal=kind is Terminal, width=80, color_system=None))
        for view in (*views, views[-1]):
            painter.paint(view)
        painter.close(end_view(views[-1], "stopped"))
        assert "2 rows in 2 batches, stopped" in out.getvalue()
        if kind is Lines:
            assert out.getvalue().splitlines()[:2] == [
                "1 row in 1 batch, running; shop a, total 1",
                "2 rows in 2 batches, running; shop b, total 2",
            ]
        else:
            assert out.getvalue().endswith("\x1b[?25h")  # the cursor is back


def test_a_notebook_has_one_place_that_changes() -> None:
    shown: list[str] = []

    class Handle:
        def update(self, html: str) -> None:
            shown[-1] = html

    def display(html: str, *, display_id: bool) -> Handle:
        assert display_id
        shown.append(html)
        return Handle()

    cell = Cell(display, str)
    view = View()
    for number in range(3):
        view = fold_batch(view, batch(number, ("a", number)), Choice())
        cell.paint(view)
    cell.close(end_view(view, "stopped"))
    assert len(shown) == 1
    assert "3 rows in 3 batches, stopped" in shown[0]
