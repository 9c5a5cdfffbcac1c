"""What is refused before anything runs, with the place marked."""

import pytest

from headrace.cep.checking import is_contradiction
from headrace.cep.errors import InvalidPattern
from headrace.cep.pattern import Pattern
from headrace.cep.reading import Scope, read_expression
from headrace.places import Place

COLUMNS = ["amount", "card", "at"]


def small_then_big(big="amount > 1000"):
    return Pattern.begin("small", "amount < 10").followed_by("big", big).within("1 minute")


def refusal(pattern, **options):
    with pytest.raises(InvalidPattern) as caught:
        pattern.compile(COLUMNS, **options)
    return caught.value


def test_an_error_shows_the_line_and_marks_the_place():
    assert Place("first\n  second line", 8, 14).mark() == "    second line\n    ^^^^^^"
    assert str(refusal(small_then_big("amout > 1000"))) == (
        "unknown column 'amout': did you mean 'amount'?\n  amout > 1000\n  ^^^^^"
    )


@pytest.mark.parametrize(
    ("pattern", "sentence", "marked"),
    [
        (lambda: small_then_big("amount >"), "an operand is missing", ">"),
        (lambda: small_then_big("amount 'x"), "never closed", "'x"),
        (lambda: small_then_big("amount large"), "an operator is missing", "amount large"),
        (lambda: small_then_big("foo(amount) > 1"), "foo is unsupported", None),
        (lambda: small_then_big("amount > 5 AND amount < 3"), "can never match", "amount > 5 AND amount < 3"),
        (lambda: small_then_big("1 = 2"), "can never match", "1 = 2"),
        (lambda: small_then_big("later.amount > 1"), "unknown column 'later'", "later.amount"),
        (lambda: Pattern.begin("a", "b.amount > 1").next("b"), "no row can come before", "b.amount"),
        (lambda: Pattern.begin("a").optional(), "without any row", None),
        (lambda: Pattern.begin("a").not_next("n", "at = 1").next("b", "at = 1"), "must not come", None),
        (lambda: Pattern.begin("a").not_followed_by("n", within="5 min").within("1 min"), "for 5 minutes", None),
        (lambda: Pattern.begin("a").times(1, 3_000), "more than 2000 states", None),
        (lambda: Pattern.begin("a").next("b").skip_to_first("a"), "for ever", "a"),
        (lambda: Pattern.begin("a").next("b").skip_to_last("x"), "does not have", "x"),
        (lambda: Pattern.begin("a", "amount = 1").next("a", "amount = 2"), "two conditions", None),
        (lambda: Pattern.begin("a").optional().not_next("n", "at = 1").next("b"), "cannot begin with", None),
    ],
)  # fmt: skip
def test_a_pattern_that_cannot_be_is_refused(pattern, sentence, marked):
    error = refusal(pattern(), bounded=True)
    assert sentence in error.sentence
    if marked is not None:
        assert error.place is not None
        assert error.place.text[error.place.start : error.place.end] == marked


@pytest.mark.parametrize(
    "pattern",
    [
        Pattern.begin("a", "amount = 1").followed_by("b", "amount = 2"),
        Pattern.begin("a", "amount = 1").one_or_more().consecutive().next("b", "amount = 2"),
        Pattern.begin("a", "amount = 1").not_followed_by("b", "amount = 2"),
        Pattern.begin("a", "amount = 1").next("b").every_distinct("amount"),
        Pattern.sql("MATCH_RECOGNIZE (PATTERN (A B+) DEFINE B AS amount > 1)"),
    ],
)
def test_what_would_be_kept_for_ever_is_refused_unless_the_input_ends(pattern):
    assert "for ever" in refusal(pattern).sentence or "some time" in refusal(pattern).sentence
    assert pattern.compile(COLUMNS, bounded=True)


@pytest.mark.parametrize(
    "pattern",
    [
        Pattern.begin("a", "amount = 1").next("b", "amount = 2"),
        Pattern.begin("a", "amount = 1").times(3).consecutive(),
        Pattern.begin("a", "amount = 1").followed_by("b", "amount = 2", within="1 minute"),
        Pattern.begin("a", "amount = 1").not_followed_by("b", "amount = 2", within="1 minute"),
        Pattern.begin("a", "amount = 1").one_or_more().within("1 minute"),
    ],
)
def test_what_ends_by_itself_needs_no_more(pattern):
    assert pattern.compile(COLUMNS)


@pytest.mark.parametrize(
    ("text", "is_empty"),
    [
        ("x > 1 AND x < 2", False),
        ("x >= 1 AND x <= 1", False),
        ("x > 1 AND x <= 1", True),
        ("5 < x AND x = 5", True),
        ("x = 1 AND x = 2", True),
        ("x = 'a' AND y = 'b'", False),
        ("x IS NULL AND x > 1", True),
        ("x = NULL", True),
        ("x > 5 OR x < 3", False),
        ("FALSE", True),
        ("NULL", True),
        ("x BETWEEN 5 AND 2", True),
    ],
)
def test_contradictions(text, is_empty):
    assert is_contradiction(read_expression(text, Scope())) is is_empty


@pytest.mark.parametrize(
    ("write", "sentence"),
    [
        (lambda: Pattern.begin("a b"), "cannot be a variable's name"),
        (lambda: Pattern.begin("a").times(3, 2), "never"),
        (lambda: Pattern.begin("a").within("soon"), "not a length of time"),
        (lambda: Pattern.begin("a").greedy(), "repeated"),
        (lambda: Pattern.begin("a").not_next("b").optional(), "not repeated"),
        (lambda: Pattern.begin(Pattern.begin("a").within("1 min")), "of the whole pattern"),
        (lambda: Pattern.permutation(Pattern.begin("a")), "two patterns"),
        (lambda: Pattern.sql("MATCH_RECOGNIZE (PATTERN (A))").next("b"), "complete"),
    ],
)
def test_what_cannot_be_written_is_refused_where_it_is(write, sentence):
    with pytest.raises(InvalidPattern, match=sentence):
        write()


def test_explain_shows_states_in_the_order_of_preference():
    assert small_then_big("amount > small.amount * 100").explain() == (
        "every match, within 1 minute\n"
        "row predicates\n"
        "  0  amount < 10\n"
        "start\n"
        "  → small when amount < 10\n"
        "small\n"
        "  → followed by big when amount > (LAST(small.amount) * 100)\n"
        "big\n"
        "  → match"
    )
