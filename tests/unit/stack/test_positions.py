"""Lines of keys, for texts that `tomllib` reads."""

import tomllib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.stack.positions import key_lines, line_of
from headrace.stack.processes import toml_text
from tests.property.storage_model import examples

TEXT = '''\
# a comment with = and [brackets]
title = "x = [1]" # more

[broker]  # here
port = 9092
"quoted \\u0041 key" = 1
settings = { "num.partitions" = 4, nested = { deep = "}" } }

  [topics."orders.raw"]
  configs.retention = """
[not.a.section]
port = 1
\\"""still"""
partitions = 3

[cdc.shop]
tables = [
  "a", # [no]
  'b]',
  { x = 1 },
]
after = 2001-01-01T00:00:00Z

[[many]]
a = 1
[[many]]
b = 2
[many.inner]
c = 3
'''


@pytest.mark.parametrize(
    ("path", "line"),
    [
        (("title",), 2),
        (("broker",), 4),
        (("broker", "port"), 5),
        (("broker", "quoted A key"), 6),
        (("broker", "settings", "num.partitions"), 7),
        (("broker", "settings", "nested", "deep"), 7),
        (("topics", "orders.raw"), 9),
        (("topics", "orders.raw", "configs", "retention"), 10),
        (("topics", "orders.raw", "partitions"), 14),
        (("cdc", "shop", "tables"), 17),
        (("cdc", "shop", "tables", "1"), 19),
        (("cdc", "shop", "tables", "2", "x"), 20),
        (("cdc", "shop", "after"), 22),
        (("many", "0", "a"), 25),
        (("many", "1", "b"), 27),
        (("many", "1", "inner", "c"), 29),
    ],
)
def test_every_key_has_its_line(path: tuple[str, ...], line: int) -> None:
    assert key_lines(TEXT)[path] == line


def test_the_keys_are_those_that_are_read() -> None:
    assert set(key_lines(TEXT)) == set(_paths(tomllib.loads(TEXT), with_scalars=True))


def test_what_is_not_there_has_the_line_of_what_is_around_it() -> None:
    lines = key_lines(TEXT)
    assert line_of(lines, ("broker", "prot")) == 4
    assert line_of(lines, ("nowhere", "at all")) is None


def _paths(value, path=(), *, with_scalars):
    parts = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for name, part in parts:
        inner = (*path, str(name))
        yield inner
        yield from _paths(part, inner, with_scalars=with_scalars)


SCALARS = st.one_of(st.text(max_size=8), st.integers(-99, 99), st.booleans())
TABLES = st.dictionaries(
    st.text(min_size=1, max_size=6),
    st.recursive(
        SCALARS,
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
        max_leaves=6,
    ),
    max_size=4,
)


@examples(60)
@given(TABLES, st.lists(st.sampled_from(["", "# [x] y = 'z'", "   "]), max_size=3))
def test_what_is_written_is_read_again_and_found(tables: dict[str, object], between: list[str]) -> None:
    lines = []
    wanted = {}
    for name, value in tables.items():
        lines += between
        wanted[name] = len(lines) + 1
        lines.append(toml_text({name: value}).removesuffix("\n"))
    text = "\n".join(lines)
    assert tomllib.loads(text) == tables
    found = key_lines(text)
    assert {path[0]: line for path, line in found.items() if len(path) == 1} == wanted
    assert set(found) == set(_paths(tables, with_scalars=True))
