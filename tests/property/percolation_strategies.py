"""Queries as people could write them, trees, and documents that have something to do with them."""

from typing import Any

from hypothesis import strategies as st

from headrace.percolation import syntax
from headrace.percolation.mapping import read_mapping
from headrace.percolation.tree import Wild

MAPPING = read_mapping(
    {
        "fields": {
            "title": {"type": "text", "analyzer": "english"},
            "body": {"type": "text", "analyzer": "stopped"},
            "tag": "keyword",
            "price": "double",
            "count": "long",
            "at": "date",
            "sold": "boolean",
            "where": "geo_point",
            "parts.name": "text",
            "parts.price": "long",
        },
        "analyzers": {"stopped": {"stop": ["the", "b"]}},
        "default_fields": ["title", "body"],
    }
)
WORDS = ("a", "b", "c", "ab", "abc", "acb", "Car", "cars", "the", "Fast", "élan", "wi-fi", "ca", "running", "run")
TEXTS = st.lists(st.sampled_from(WORDS), max_size=6).map(" ".join)
NUMBERS = st.one_of(st.integers(-5, 5), st.sampled_from([0.5, 1.5, 2**53 + 1]))
DAYS = st.sampled_from(["2030-01-01", "2030-01-02T10:00:00Z", "2029-12-31T23:59:59.999999Z", "2030-02-01"])
POINTS = st.tuples(st.sampled_from([-1, 0, 1, 2]), st.sampled_from([-179, 0, 1, 179])).map(
    lambda point: {"lat": point[0], "lon": point[1]}
)


def several(values: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.one_of(values, st.lists(st.one_of(values, st.none()), max_size=3))


DOCUMENTS = st.fixed_dictionaries(
    {},
    optional={
        "title": several(TEXTS),
        "body": several(TEXTS),
        "tag": several(st.sampled_from(WORDS)),
        "price": several(NUMBERS),
        "count": several(st.integers(-5, 5)),
        "at": several(DAYS),
        "sold": st.booleans(),
        "where": several(POINTS),
        "parts": several(
            st.fixed_dictionaries({}, optional={"name": several(TEXTS), "price": several(st.integers(0, 3))})
        ),
        "free": several(st.one_of(TEXTS, NUMBERS, DAYS, st.booleans())),
    },
)


# --- queries as they are written: what the parser can come to


def _texts(letters: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    return st.text(letters, min_size=1, max_size=4)


_LETTERS = st.one_of(
    st.sampled_from('aAbz09 ()[]{}"^~:\\*?+-!<>&|/@%,.\n\t'),
    st.characters(exclude_categories=["Cs"]),
)
_ANY_TEXT = st.one_of(st.sampled_from(["AND", "OR", "NOT", "TO", "&&", "-", "nested(", "_exists_"]), _texts(_LETTERS))
_FIELDS = st.one_of(st.sampled_from(["title", "a.b", "AND", "x y"]), _texts(_LETTERS))


def _pattern(parts: list[str | Wild]) -> tuple[str | Wild, ...]:
    joined = list[str | Wild]()
    for part in parts:
        if joined and isinstance(part, str) and isinstance(joined[-1], str):
            joined[-1] += part
        elif not (joined and part is Wild.ANY and joined[-1] is Wild.ANY):
            joined.append(part)
    return tuple(joined)


_PATTERNS = (
    st.lists(st.one_of(st.sampled_from(Wild), _ANY_TEXT), min_size=1, max_size=4)
    .map(_pattern)
    .filter(lambda parts: any(isinstance(part, Wild) for part in parts) and parts != (Wild.ANY,))
)
_BOUNDS = st.one_of(st.none(), _ANY_TEXT, st.just(""))
# A backslash takes the next letter with it, so none is left at the end.
_EXPRESSIONS = st.lists(st.sampled_from(["a", ".", "/", "\\\\", "\\d", "[/]", "é", '"', " "]), max_size=5).map("".join)
_NUMBERS = st.one_of(st.integers(0, 1000).map(float), st.sampled_from([0.5, 1.25]))


def _leaves(in_field: bool) -> st.SearchStrategy[Any]:
    common = st.one_of(
        st.builds(syntax.Word, _ANY_TEXT),
        st.builds(syntax.Approximate, _ANY_TEXT, st.none() | st.integers(0, 9)),
        st.builds(syntax.Approximate, _ANY_TEXT, st.integers(0, 9), st.integers(0, 9)),
        st.builds(syntax.Pattern, _PATTERNS),
        st.builds(syntax.Quoted, st.text(_LETTERS, max_size=5), st.integers(0, 20)),
        st.builds(syntax.Expression, _EXPRESSIONS),
        st.builds(syntax.Interval, _BOUNDS, _BOUNDS, st.booleans(), st.booleans()),
    )
    if not in_field:
        return st.one_of(common, st.just(syntax.Everything()))
    arguments = st.lists(st.sampled_from(["1", "-2.5", "3km", ""]), min_size=1).map(tuple)
    functions = st.builds(syntax.Function, st.sampled_from(["within", "box"]), arguments)
    return st.one_of(common, functions, st.just(syntax.Present()))


def _grown(nodes: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    minimum = st.none() | st.builds(syntax.Minimum, st.integers(1, 99), st.booleans())
    unsigned = nodes.filter(lambda node: not isinstance(node, syntax.Required))
    items = st.lists(unsigned, min_size=2, max_size=3).map(tuple)
    signed = st.lists(
        st.one_of(unsigned, st.builds(syntax.Required, unsigned), st.builds(syntax.Not, unsigned)),
        min_size=2, max_size=3,
    ).map(tuple)  # fmt: skip
    return st.one_of(
        st.builds(syntax.Clauses, signed, minimum),
        st.builds(syntax.And, items),
        st.builds(syntax.Or, items, minimum),
        st.builds(syntax.Not, unsigned).map(lambda node: syntax.Clauses((node,))),
        st.builds(syntax.Boosted, _one(unsigned), _NUMBERS),
        st.builds(syntax.Constant, _one(unsigned), _NUMBERS),
        st.builds(syntax.InField, _FIELDS, st.one_of(_leaves(in_field=True), _one(unsigned))),
        st.builds(syntax.InField, _FIELDS, st.builds(syntax.Inside, unsigned)),
    )


def _one(nodes: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    """What can stand behind a colon or in front of ^: a sign cannot without a list around it."""
    return nodes.map(lambda node: syntax.Clauses((node,)) if isinstance(node, syntax.Not) else node)


NODES = st.recursive(_leaves(in_field=False), _grown, max_leaves=8)


# --- queries with a meaning under the mapping, as text


_WORD = st.sampled_from(WORDS)
_VALUES = st.one_of(
    st.tuples(st.sampled_from(["title", "body", "tag", "free", "parts.name"]), _WORD).map(":".join),
    st.tuples(
        st.sampled_from(["title", "body", "free"]), st.lists(_WORD, min_size=2, max_size=4), st.integers(0, 4)
    ).map(lambda made: f'{made[0]}:"{" ".join(made[1])}"~{made[2]}'),
    st.tuples(
        st.sampled_from(["title:", "body:", "tag:", "free:"]), st.sampled_from(["a*", "c*", "c?r", "a*c", "f*t", "C*"])
    ).map("".join),
    st.tuples(
        st.sampled_from(["title", "tag", "free"]), st.sampled_from(["abc~1", "acb~2", "cars~1,1", "fats~1", "Car~"])
    ).map(":".join),
    st.tuples(st.sampled_from(["title", "tag"]), st.sampled_from(["/a.*/", "/[ac]+b?/", "/CARS?/"])).map(":".join),
    st.tuples(
        st.sampled_from(["price", "count", "free"]), st.sampled_from("[{"), st.integers(-5, 2), st.integers(3, 6),
        st.sampled_from("]}"),
    ).map(lambda made: f"{made[0]}:{made[1]}{made[2]} TO {made[3]}{made[4]}"),
    st.tuples(st.sampled_from(["price", "count", "free"]), st.sampled_from(["", ">", "<=", "<"]), NUMBERS).map(
        lambda made: f"{made[0]}:{made[1]}{made[2]}"
    ),
    st.tuples(
        st.sampled_from(["at", "free"]),
        st.sampled_from(["2030-01-01", ">2029-12-31", "[2030-01-01 TO 2030-01-31}", "2030-01-02T10:00:00"]),
    ).map(":".join),
    st.sampled_from(
        ["sold:true", "where:within(0,0,120km)", "where:box(1,-179,0,1)", "where:box(2,178,-1,-178)", "tag:[b TO d}",
         "title:*", "free:*", "parts:*", "*:*", "wi-fi", "cars", '"fast cars"~2'],
    ),
)  # fmt: skip


def _combined(texts: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    some = st.lists(texts, min_size=1, max_size=4)
    return st.one_of(
        some.map(" ".join).map("({})".format),
        some.map(" AND ".join).map("({})".format),
        some.map(" OR ".join).map("({})".format),
        st.lists(st.tuples(st.sampled_from(["", "+", "-"]), texts).map("".join), min_size=1, max_size=4)
        .map(" ".join)
        .map("({})".format),
        st.tuples(some, st.integers(1, 100)).map(lambda made: f"({' '.join(made[0])})@{made[1]}%"),
        texts.map("(NOT {})".format),
        st.tuples(texts.map("({})".format), st.sampled_from(["^2", "^0.5", "^=3"])).map("".join),
        st.sampled_from(
            ["parts:nested(name:a AND price:1)", "parts:nested(name:(a b) -price:>1)", "parts:nested(price:[1 TO 2])",
             "parts:nested(NOT name:a)"],
        ),
    )  # fmt: skip


QUERIES = st.recursive(_VALUES, _combined, max_leaves=8)
