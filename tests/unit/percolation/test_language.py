"""The language of queries: what is read, how it is written again, and what is refused with its place marked."""

import time

import pytest

from headrace.percolation.errors import InvalidQuery
from headrace.percolation.language import Policy, parse
from headrace.percolation.syntax import (
    And,
    Approximate,
    Boosted,
    Clauses,
    Constant,
    Everything,
    Expression,
    Function,
    InField,
    Inside,
    Interval,
    Minimum,
    Not,
    Or,
    Pattern,
    Present,
    Quoted,
    Required,
    Word,
    show,
)
from headrace.percolation.tree import Wild

A, B, C = Word("a"), Word("b"), Word("c")


@pytest.mark.parametrize(
    ("text", "node"),
    [
        ("fast", Word("fast")),
        ("a b", Clauses((A, B))),
        ("+a b -c", Clauses((Required(A), B, Not(C)))),
        ("a AND b OR c", Or((And((A, B)), C))),
        ("a OR b AND c", Or((A, And((B, C))))),
        ("a || b && !c", Or((A, And((B, Not(C)))))),
        ("a b AND c", Clauses((A, And((B, C))))),
        ("+a AND +b", And((A, B))),
        ("a NOT b", Clauses((A, Not(B)))),
        ("NOT NOT a", Clauses((Not(Not(A)),))),
        ("(a)", A),
        ("((a OR b)) OR c", Or((Or((A, B)), C))),
        ('"fast car"', Quoted("fast car")),
        ('"fast car"~2', Quoted("fast car", 2)),
        (r'"a \" \\ b"', Quoted('a " \\ b')),
        ("fa*t", Pattern(("fa", Wild.ANY, "t"))),
        ("f?st**", Pattern(("f", Wild.ONE, "st", Wild.ANY))),
        ("fast~", Approximate("fast")),
        ("fast~1", Approximate("fast", 1)),
        ("fast~1,2", Approximate("fast", 1, 2)),
        (r"/a\/b\.c/", Expression(r"a/b\.c")),
        ("title:fast", InField("title", Word("fast"))),
        ("title: fast", InField("title", Word("fast"))),
        ("a.b.c:(a b)", InField("a.b.c", Clauses((A, B)))),
        ("title:(a other:b)", InField("title", Clauses((A, InField("other", B))))),
        ("price:[100 TO 500}", InField("price", Interval("100", "500", True, False))),
        ('at:{"2030-01-01 10:00" TO *]', InField("at", Interval("2030-01-01 10:00", None, False))),
        ("price:>=100", InField("price", Interval("100", None))),
        ("price:<-5", InField("price", Interval(None, "-5", True, False))),
        ("price:-5", InField("price", Word("-5"))),
        ("at:2030-01-01T10:00:00Z", InField("at", Word("2030-01-01T10:00:00Z"))),
        ("title:*", InField("title", Present())),
        ("_exists_:title", InField("title", Present())),
        ("*:*", Everything()),
        ("*", Everything()),
        ("where:within(52.5,13.4,10km)", InField("where", Function("within", ("52.5", "13.4", "10km")))),
        ("parts:nested(name:a AND price:>1)", InField("parts", Inside(
            And((InField("name", A), InField("price", Interval("1", None, False))))))),
        ("(a b c)@2", Clauses((A, B, C), Minimum(2))),
        ("(a OR b)@75%", Or((A, B), Minimum(75, True))),
        ("title:(a b)@1^2", Boosted(InField("title", Clauses((A, B), Minimum(1))), 2.0)),
        ("a^2", Boosted(A, 2.0)),
        ("/a/ ^1.5 b", Clauses((Boosted(Expression("a"), 1.5), B))),
        ("(a b)^=3", Constant(Clauses((A, B)), 3.0)),
        (r"\(1\+1\)\:2", Word("(1+1):2")),
        (r"\u0041\AND", Word("AAND")),
        (r"\AND", Word("AND")),
        ("AT&T wi-fi foo@bar.com a/b", Clauses((Word("AT&T"), Word("wi-fi"), Word("foo@bar.com"), Word("a/b")))),
        ("ANDROID NOTE ORB", Clauses((Word("ANDROID"), Word("NOTE"), Word("ORB")))),
        ("AND:a", InField("AND", A)),
        ("a AND(b)", And((A, B))),
    ],
)  # fmt: skip
def test_a_text_is_read_and_written_again(text, node):
    assert parse(text) == node
    assert parse(show(node)) == node


@pytest.mark.parametrize(
    ("text", "sentence", "marked"),
    [
        ("", "is empty", None),
        (" \n ", "is empty", None),
        ("a AND", "a word is missing", ""),
        ("AND b", "AND has nothing before it", "AND"),
        ("a OR OR b", "OR has nothing before it", "OR"),
        ("(a b", "never closed", "("),
        ("a b)", "closes nothing", ")"),
        ("a ]", "closes nothing", "]"),
        ("(a]", "closes nothing", "]"),
        ("()", "a word is missing", ")"),
        ('say "what', "never closed", '"'),
        ("a /b", "never closed", "/"),
        ("x:[1 TO", "low TO high", "[1 TO"),
        ("x:[1 2]", "low TO high", "[1"),
        ("x:[1 TO 2", "never closed", "["),
        ("x:>", "low TO high", ">"),
        ("x:>*", "a value is missing", ">"),
        ("x:", "a value is missing", ":"),
        (":a", "has no field before it", ":"),
        ("~2", "has no word before it", "~"),
        ("a^", "a boost is a number", "^"),
        ("a^-1", "a boost is a number", "^-"),
        ("a^2^3", "one boost", "^"),
        ("a^10000000", "at most 1,000,000", "^10000000"),
        ("fa*t~1", "not both", "fa*t~"),
        ("fast~0.8", "counts edits", "fast~0"),
        ("tit*:a", "no wildcard in its name", "tit*"),
        ("x:foo(a)", "foo is unknown as a function", "foo"),
        ("x:wihtin(1,2,3)", "did you mean 'within'?", "wihtin"),
        ("x:within(1,2", "never closed", "("),
        ("(a b)@", "how many have to match", "(a b)@"),
        ("(a b)@101%", "how many have to match", "(a b)@101%"),
        ("(a AND b)@2", "leave out the @", "(a AND b)@2"),
        ("+a OR b", "one side of OR", "+a"),
        ("+-+a", "one sign is enough", "+a"),
        ("a\\", "a backslash", "\\"),
        (r"\ud800", "half a letter", r"\ud800"),
    ],
)  # fmt: skip
def test_what_cannot_be_read_is_refused_with_its_place(text, sentence, marked):
    with pytest.raises(InvalidQuery) as caught:
        parse(text)
    assert sentence in caught.value.sentence
    assert "\n" not in caught.value.sentence
    if marked is not None:
        place = caught.value.place
        assert place is not None
        assert place.text[place.start : place.end] == marked


def test_a_refusal_shows_the_line_and_marks_the_place():
    with pytest.raises(InvalidQuery) as caught:
        parse("title:fast AND\n  price:[1 TO")
    assert str(caught.value) == (
        "a range is written as [low TO high], with * for none\n    price:[1 TO\n          ^^^^^"
    )


@pytest.mark.parametrize("letter", ["(", "-", "NOT ", "!", "a:(", "x:nested(", "+", "(-", "[", '"', "/", "a OR ("])
def test_deep_nesting_is_refused_and_overflows_nothing(letter):
    for text in (letter * 10_000, letter * 10_000 + "a"):
        with pytest.raises(InvalidQuery):
            parse(text[:60_000])


def test_as_deep_as_the_policy_allows_is_read():
    text = "(" * 40 + "a" + ")" * 40
    assert parse(f"NOT (b {text})", Policy(nesting=64)) == Clauses((Not(Clauses((Word("b"), A))),))
    with pytest.raises(InvalidQuery, match="within each other"):
        parse(text, Policy(nesting=10))


def test_a_long_query_is_read_in_time_that_grows_with_its_length():
    begin = time.perf_counter()
    for text in ("x:y " * 1_000, "\\a" * 30_000, "a" * 60_000, " " * 60_000 + "a", "+" + "\\+" * 30_000, "&" * 60_000):
        node = parse(text)
        assert parse(show(node)) == node
    assert time.perf_counter() - begin < 5


def test_too_many_words_and_too_many_letters_are_refused():
    with pytest.raises(InvalidQuery, match="more than 1,024 words"):
        parse("a " * 1_025)
    with pytest.raises(InvalidQuery, match="at most 65,536"):
        parse("a" * 65_537)
