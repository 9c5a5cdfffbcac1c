"""What capture by triggers in PostgreSQL decides without a database: fences, and the text of rows."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.connect.triggers.capture import Fences
from headrace.connect.triggers.shapes import parse_row


class _Server:
    """Positions and transactions, as a server would give them."""

    def __init__(self) -> None:
        self.position = 0
        self.following = 100
        self.running: set[int] = set()

    def begin(self) -> int:
        self.following += 1
        self.running.add(self.following - 1)
        return self.following - 1

    def write(self) -> None:
        self.position += 1

    def new_xid(self) -> int:
        self.running.discard(found := self.begin())
        return found

    def fences(self) -> Fences:
        return Fences(lambda: self.position, self.new_xid, lambda: min(self.running, default=self.following))


def test_nothing_is_passed_while_someone_with_a_lower_position_may_come() -> None:
    server = _Server()
    fences = server.fences()
    assert fences.advance() == 0
    slow = server.begin()
    server.write()
    fast = server.begin()
    server.write()
    server.running.remove(fast)
    assert fences.advance() == 0
    later = server.begin()  # it began behind the fence, and holds nothing up
    server.write()
    server.running.remove(slow)
    assert fences.advance() == 2
    assert fences.advance() == 2
    server.running.remove(later)
    assert fences.advance() == 3


def test_a_quiet_database_costs_no_transaction_ids() -> None:
    server = _Server()
    fences = server.fences()
    server.write()
    assert fences.advance() == 1
    before = server.following
    for _ in range(10):
        fences.advance()
    assert server.following == before


def _written(value: str | None) -> str:
    """As PostgreSQL writes a value inside a row."""
    if value is None:
        return ""
    if not value or any(letter in value for letter in '"\\(),') or any(letter.isspace() for letter in value):
        return '"' + value.replace("\\", "\\\\").replace('"', '""') + '"'
    return value


@given(st.lists(st.none() | st.text(alphabet='ab",\\() \nä', max_size=6), min_size=1))
def test_rows_are_read_as_they_were_written(values: list[str | None]) -> None:
    assert parse_row("(" + ",".join(_written(value) for value in values) + ")") == tuple(values)


@pytest.mark.parametrize(
    ("text", "row"), [("()", (None,)), ('("")', ("",)), ("(,)", (None, None)), ('(1,"",)', ("1", "", None))]
)
def test_null_and_empty_are_told_apart(text: str, row: tuple[str | None, ...]) -> None:
    assert parse_row(text) == row
