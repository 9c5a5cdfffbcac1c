"""The language of --where: what it means, and where it points when it is not understood."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.cli.where import (
    MAX_DEPTH,
    Comparison,
    Every,
    InvalidFilter,
    Literal,
    Not,
    Path,
    Some,
    is_same,
    is_true,
    parse,
)

ORDER = {
    "customer": "c7",
    "cents": 700,
    "rate": 1.5,
    "paid": True,
    "note": None,
    "items": [{"name": "tea"}, {"name": "cup"}],
    "odd name": {"and": 1},
    "a-b": 3,
}


@pytest.mark.parametrize(
    "expression",
    [
        '.customer == "c7" and .cents > 500',
        '.items[0].name == "tea"',
        '.items[-1].name == "cup"',
        '.["items"][1]["name"] == "cup"',
        '."odd name".and == 1',
        '.["odd name"]["and"] == 1',
        ".a-b == 3",
        ".paid",
        "not .note",
        ".note == null",
        ".missing == null",
        ".missing.deeper[3] == null",
        ".items[9] == null",
        ".customer[0] == null",
        ".cents == 700.0",
        ".cents >= 7e2",
        ".rate < 2 and .rate > -1",
        '.customer < "d"',
        '.customer != "c8"',
        ".cents != .rate",
        ".paid != 1",
        '.cents != "700"',
        "not (.cents > 1000 or .missing)",
        '.cents > 1000 or .customer == "c7"',
        "true",
        ". != null",
        "(((.paid)))",
        "not not .paid",
        ' .customer=="c7"and.cents>500 ',
        '.customer == "\\u00637"',
        "0",
        '""',
    ],
)
def test_conditions_that_hold(expression):
    assert is_true(parse(expression).value(ORDER))


@pytest.mark.parametrize(
    "expression",
    [
        ".cents > 700",
        ".missing > 1",
        ".missing < 1",
        '.cents > "1"',
        ".note < 1",
        ".paid > 0",
        ".paid == 1",
        "not .customer",
        ".note",
        "false",
        "null",
        '.customer == "C7"',
        ".items == .cents",
        '.customer == "c7" and .cents > 700 or .note',
    ],
)
def test_conditions_that_do_not_hold(expression):
    assert not is_true(parse(expression).value(ORDER))


def test_and_binds_tighter_than_or_and_not_tighter_than_and():
    a, b, c = (Path((name,)) for name in "abc")
    assert parse(".a or .b and .c") == Some((a, Every((b, c))))
    assert parse("not .a and .b") == Every((Not(a), b))
    assert parse("not .a == 1") == Not(Comparison(a, "==", Literal(1)))


@pytest.mark.parametrize("document", [None, 5, "text", [], {}, [1, {"a": 1}], {"a": {"a": []}}])
def test_any_document_can_be_asked(document):
    for expression in (".a", ".[0]", ".a.a[0] > 3", ". == 5", '.["a"] == .[0]'):
        parse(expression).value(document)


@pytest.mark.parametrize(
    ("expression", "position", "says"),
    [
        ("", 0, "expected a path"),
        (".a ==", 5, "expected a path"),
        (".a = 1", 3, "write =="),
        (".a && .b", 3, "write and"),
        (".a || .b", 3, "write or"),
        ("!.a", 0, "write not"),
        (".a == 'x'", 6, "double quotes"),
        ('.a == "x', 6, "not closed"),
        ("customer == 1", 0, "write .customer"),
        (".a == c7", 6, "write .c7"),
        (".a.", 3, "name of a field"),
        (".a[", 3, "place in a list"),
        (".a[x]", 3, "place in a list"),
        (".a[1.5]", 3, "place in a list"),
        (".a[0", 4, "closing bracket"),
        ("(.a", 3, "closing parenthesis"),
        (".a)", 2, "expected and"),
        (".a .b == ", 9, "expected a path"),
        (".a == 1 == 2", 8, "do not chain"),
        (".a > 05", 5, "not a number"),
        (".a and", 6, "expected a path"),
        ("and .a", 0, "expected a path"),
        (".a # 1", 3, "no meaning"),
        (r'.a == "\q"', 6, "escape"),
        (".a == 1e999", 6, "too large"),
        (".a == " + "9" * 5000, 6, "too long"),
    ],
)
def test_errors_point_at_the_place(expression, position, says):
    with pytest.raises(InvalidFilter) as caught:
        parse(expression)
    assert says in caught.value.problem
    assert caught.value.position == position
    _, line, caret = str(caught.value).split("\n")
    assert line == "  " + expression
    assert caret == " " * (position + 2) + "^"


def test_the_caret_stands_under_the_right_line():
    with pytest.raises(InvalidFilter) as caught:
        parse(".a == 1 and\n\t.b = 2")
    assert str(caught.value).split("\n")[1:] == ["   .b = 2", "      ^"]


@pytest.mark.parametrize("opening", ["(", "not "])
def test_nesting_ends_before_the_stack_does(opening):
    with pytest.raises(InvalidFilter, match="levels"):
        parse(opening * 5000 + ".a")
    closing = ")" * (MAX_DEPTH - 1) if opening == "(" else ""
    parse(opening * (MAX_DEPTH - 1) + ".a" + closing)


texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
literals = st.one_of(
    st.none(), st.booleans(), st.integers(-(10**20), 10**20), st.floats(allow_nan=False, allow_infinity=False), texts
).map(Literal)
paths = st.lists(st.one_of(texts, st.integers(-99, 99)), max_size=4).map(lambda steps: Path(tuple(steps)))
operators = st.sampled_from(["==", "!=", "<", "<=", ">", ">="])
several = {"min_size": 2, "max_size": 3}
nodes = st.recursive(
    st.one_of(literals, paths),
    lambda inner: st.one_of(
        st.builds(Comparison, inner, operators, inner),
        inner.map(Not),
        st.lists(inner, **several).map(lambda parts: Every(tuple(parts))),
        st.lists(inner, **several).map(lambda parts: Some(tuple(parts))),
    ),
    max_leaves=12,
)
documents = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False), texts),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(texts, inner, max_size=3)),
    max_leaves=8,
)


@given(nodes)
def test_what_is_written_is_read_back(node):
    assert repr(parse(str(node))) == repr(node)


@given(nodes, documents)
def test_every_condition_can_be_asked_about_every_document(node, document):
    node.value(document)


@given(st.text(alphabet=".ab[]()\"\\ 019-=!<>&'\n\tndortue", max_size=40))
def test_any_text_parses_or_is_refused_with_a_place_in_it(expression):
    position = 0
    try:
        parse(expression)
    except InvalidFilter as error:
        position = error.position
    assert 0 <= position <= len(expression)


@given(documents, documents)
def test_equality_is_that_of_json(left, right):
    assert is_same(left, left)
    assert is_same(left, right) == is_same(right, left)
    if json.dumps(left, sort_keys=True) == json.dumps(right, sort_keys=True):
        assert is_same(left, right)


def test_a_path_leads_to_the_same_place_as_indexing():
    document = json.loads('{"a": [{"b c": [10, 20]}]}')
    assert parse('.a[0]["b c"][-1]').value(document) == document["a"][0]["b c"][-1]
