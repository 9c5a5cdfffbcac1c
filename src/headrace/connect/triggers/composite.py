"""A row's text, as PostgreSQL writes a whole row: `(1,"a b",,"")`. Pure."""

import re

from headrace.connect.table import Row

_FIELD = re.compile(r'(?:"((?:[^"\\]|""|\\.)*)"|([^,]*))(,|$)', re.DOTALL)


def parse_row(text: str) -> Row:
    """The values, in wire text; nothing between two commas is null, and an empty text has quotes."""
    inside = text[1:-1]
    if '"' not in inside:
        return tuple(value or None for value in inside.split(","))
    values: list[str | None] = []
    at = 0
    while True:
        found = _FIELD.match(inside, at)
        assert found is not None
        quoted, plain, end = found.groups()
        if quoted is not None:
            values.append(_unescaped(quoted) if '"' in quoted or "\\" in quoted else quoted)
        else:
            values.append(plain or None)
        if not end:
            return tuple(values)
        at = found.end()


def _unescaped(text: str) -> str:
    return re.sub(r'""|\\(.)', lambda found: found[1] or '"', text, flags=re.DOTALL)
