"""Patterns in SQL: which rows each variable gets, what comes of a match, and what is refused."""

import pytest

from headrace.cep.errors import InvalidPattern
from headrace.cep.pattern import Pattern
from tests.unit.cep.letters import found

# Oracle's and Flink's example: the prices of a share, one a day.
PRICES = [12, 17, 19, 21, 25, 12, 15, 20, 24, 25, 19, 15, 25, 25, 14, 12, 14, 24, 23, 22]
A_V = """MATCH_RECOGNIZE (
    PARTITION BY symbol
    ORDER BY day
    MEASURES STRT.day AS start_day, LAST(DOWN.day) AS bottom_day, LAST(UP.day) AS end_day
    {rows} PER MATCH
    AFTER MATCH SKIP {skip}
    PATTERN ({pattern})
    DEFINE DOWN AS DOWN.price < PREV(DOWN.price), UP AS UP.price > PREV(UP.price)
)"""


def prices():
    return [{"symbol": "ACME", "day": day, "price": price} for day, price in enumerate(PRICES, start=1)]


def a_v(rows="ONE ROW", skip="TO LAST UP", pattern="STRT DOWN+ UP+"):
    pattern = Pattern.sql(A_V.format(rows=rows, skip=skip, pattern=pattern))
    return [match.output for match in pattern.matches(prices(), bounded=True)]


def letters(pattern, define="", skip="PAST LAST ROW"):
    define = define or "a AS kind = 'a', b AS kind = 'b', c AS kind = 'c', d AS kind = 'd'"
    used = [one for one in define.split(", ") if one[0] in pattern]
    return Pattern.sql(f"MATCH_RECOGNIZE (AFTER MATCH SKIP {skip} PATTERN ({pattern}) DEFINE {', '.join(used)})")


def test_a_v_in_prices():
    spans = [(row["start_day"], row["bottom_day"], row["end_day"]) for (row,) in a_v()]
    assert spans == [(5, 6, 10), (10, 12, 13), (14, 16, 18)]


def test_skipping_past_the_last_row_loses_the_v_that_begins_there():
    spans = [(row["start_day"], row["end_day"]) for (row,) in a_v(skip="PAST LAST ROW")]
    assert spans == [(5, 10), (11, 13), (14, 18)]


def test_skipping_to_the_next_row_finds_the_same_v_again():
    spans = [(row["start_day"], row["end_day"]) for (row,) in a_v(skip="TO NEXT ROW")]
    assert spans == [(5, 10), (10, 13), (11, 13), (14, 18), (15, 18)]


def test_all_rows_have_running_measures_and_leave_out_what_is_excluded():
    first = a_v(rows="ALL ROWS", pattern="STRT {- DOWN+ -} UP+")[0]
    assert [row["day"] for row in first] == [5, 7, 8, 9, 10]
    assert [row["end_day"] for row in first] == [None, 7, 8, 9, 10]
    assert first[0]["price"] == 25


def test_final_measures_and_facts():
    pattern = Pattern.sql("""MATCH_RECOGNIZE (
        MEASURES FINAL COUNT(*) AS size, CLASSIFIER() AS kind, MATCH_NUMBER() AS number, SUM(UP.price) AS rise
        ALL ROWS PER MATCH PATTERN (DOWN UP) DEFINE DOWN AS price < PREV(price), UP AS price > PREV(price))""")
    matches = list(pattern.matches(prices(), bounded=True))
    shown = [row for match in matches[:2] for row in match.output]
    assert [(row["size"], row["kind"], row["number"], row["rise"]) for row in shown] == [
        (2, "DOWN", 1, None), (2, "UP", 1, 15), (2, "DOWN", 2, None), (2, "UP", 2, 25),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("pattern", "rows", "expected"),
    [
        ("a b* c", "a b b c", ["a b b c"]),
        ("a b+ | a c", "a c a b1 b2", ["a c", "a b1 b2"]),
        ("a b{2}", "a b1 a b2 b3 b4", ["a b2 b3"]),
        ("a b{2,}", "a b1 a b2 b3 b4", ["a b2 b3 b4"]),
        ("a b{,2} c", "a c a b1 b2 c a b3 b4 b5 c", ["a c", "a b1 b2 c"]),
        ("a b?? c?", "a b c a c", ["a", "a c"]),
        ("a (b c)+ d", "a b1 c1 b2 c2 d a b c d", ["a b1 c1 b2 c2 d", "a b c d"]),
        ("PERMUTE(a, b, c)", "c1 a1 b1 a2 b2 c2 a3", ["c1 a1 b1", "a2 b2 c2"]),
        ("a (b | c)* d", "a b1 c1 c2 d", ["a b1 c1 c2 d"]),
    ],
)
def test_operators(pattern, rows, expected):
    assert found(letters(pattern), rows) == expected


def test_greedy_and_reluctant_share_the_rows_differently():
    define = "a AS kind = 'a', b AS kind <> 'c', c AS kind >= 'b' AND kind <= 'c'"
    greedy = letters("a b* c", define)
    assert found(greedy, "a b1 b2 b3 c1 d") == ["a b1 b2 b3 c1"]
    reluctant = letters("a b*? c", define)
    assert found(reluctant, "a b1 b2 b3 c1 d") == ["a b1"]


def test_the_alternative_that_stands_first_is_preferred():
    assert found(letters("a | a b"), "a b") == ["a"]
    assert found(letters("a b | a"), "a b a c") == ["a b", "a"]


def test_subsets_are_looked_at_together():
    pattern = Pattern.sql("""MATCH_RECOGNIZE (
        MEASURES AVG(U.price) AS average, FIRST(U.day) AS begin
        PATTERN (DOWN UP) SUBSET U = (DOWN, UP)
        DEFINE DOWN AS price < PREV(price), UP AS price > PREV(price))""")
    first = next(pattern.matches(prices(), bounded=True))
    assert first.measures == {"average": 13.5, "begin": 6}


def test_brackets_and_words_in_quotes_are_nothing_but_text():
    pattern = Pattern.sql("MATCH_RECOGNIZE (PATTERN (A B) DEFINE A AS n = '(', B AS n = 'x) PATTERN (')")
    matches = list(pattern.matches([{"n": "("}, {"n": "x) PATTERN ("}, {"n": ")"}]))
    assert len(matches) == 1


def test_within_bounds_the_match():
    text = """MATCH_RECOGNIZE (ORDER BY t PATTERN (a b* c) WITHIN INTERVAL '3' SECOND
        DEFINE a AS kind = 'a', b AS kind = 'b', c AS kind = 'c')"""
    assert found(Pattern.sql(text), "a b c a b b c") == ["a b c"]
    assert found(Pattern.sql(text.replace("'3'", "4")), "a b c a b b c") == ["a b c", "a b b c"]


@pytest.mark.parametrize(
    ("text", "sentence", "marked"),
    [
        ("SELECT 1", "does not begin with MATCH_RECOGNIZE", "SELECT 1"),
        ("MATCH_RECOGNIZE (ONE ROW PER MATCH)", "needs a PATTERN", None),
        ("MATCH_RECOGNIZE (PATTERN (A (B))", "never closed", "("),
        ("MATCH_RECOGNIZE (PATTERN (A B{3,2}))", "never", "B{3,2}"),
        ("MATCH_RECOGNIZE (PATTERN (A | ))", "a variable or a group is expected", ")"),
        ("MATCH_RECOGNIZE (PATTERN (^A))", "anchors are unsupported", "^"),
        ("MATCH_RECOGNIZE (PATTERN (A ; B))", "no meaning", ";"),
        ("MATCH_RECOGNIZE (PATTERN (A B) DEFINE C AS x > 1)", "unknown variable 'C'", "C"),
        ("MATCH_RECOGNIZE (PATTERN (A) DEFINE A AS x >)", "an operand is missing", ">"),
        ("MATCH_RECOGNIZE (PATTERN (A) DEFINE A AS x > 1, A AS x > 2)", "defined twice", "A"),
        ("MATCH_RECOGNIZE (PATTERN (A) PATTERN (B))", "twice", "PATTERN"),
        ("MATCH_RECOGNIZE (PATTERN (A B) AFTER MATCH SKIP TO FIRST X)", "unknown variable 'X'", "X"),
        ("MATCH_RECOGNIZE (PATTERN (A B) AFTER MATCH SKIP SOMEWHERE)", "AFTER MATCH SKIP is followed by", None),
        ("MATCH_RECOGNIZE (ORDER BY t DESC PATTERN (A B))", "leave DESC out", "DESC"),
        ("MATCH_RECOGNIZE (MEASURES A.x PATTERN (A B))", "expression AS name", "A.x"),
        ("MATCH_RECOGNIZE (PATTERN (A B) WITHIN INTERVAL 0 SECOND)", "longer than nothing", None),
        ("MATCH_RECOGNIZE (PATTERN (A B) DEFINE B AS NEXT(x) > 1)", "have not come yet", None),
        (f"MATCH_RECOGNIZE (PATTERN ({'(' * 900}A{')' * 900}))", "brackets within each other", "("),
        ("MATCH_RECOGNIZE (PATTERN (PERMUTE(A)))", "two patterns at least", "PERMUTE(A)"),
        ("MATCH_RECOGNIZE (ALL ROWS PER MATCH WITH UNMATCHED ROWS PATTERN (A))", "unsupported", None),
    ],
)
def test_what_cannot_be_read_is_refused_with_its_place(text, sentence, marked):
    with pytest.raises(InvalidPattern) as caught:
        Pattern.sql(text)
    assert sentence in caught.value.sentence
    place = caught.value.place
    assert place is not None
    assert marked is None or place.text[place.start : place.end] == marked
